//! Metrics of how well a confidence separates in-distribution (ID) from out-of-distribution (OOD) rows.
//!
//! A higher score is always more in-distribution. ID is the positive class unless the name of a metric says
//! otherwise. Publications differ here: OpenOOD and pytorch-ood report the false-positive rate with OOD as the
//! positive class ([`Detection::fpr95_ood`]), ODIN and the methods based on it with ID ([`Detection::fpr95_id`]).
//! Equal scores share one threshold: a detector that gives every row the same score has an AUROC of one half,
//! independent of the order of the rows. Rows are counted as integers, and each metric is divided once. A NaN is
//! an error; infinite scores are allowed.
//!
//! ```
//! let id = [0.9, 0.8, 0.8, 0.4];
//! let ood = [0.8, 0.3, 0.1, 0.1];
//! let found = mcdd::metrics::detection(&id, &ood)?;
//! assert_eq!(found.auroc, 14.0 / 16.0); // 13 pairs in order, 2 tied
//! assert_eq!(found.tie_fraction, 2.0 / 16.0);
//! let intervals = mcdd::metrics::bootstrap(&id, &ood, 1000, 0, 0)?;
//! assert!(intervals.auroc.low <= found.auroc && found.auroc <= intervals.auroc.high);
//! # Ok::<(), mcdd::Error>(())
//! ```

mod accuracy;
mod bootstrap;
mod compat;
mod curve;
mod detection;
mod ties;

pub use accuracy::{Accuracy, accuracy, accuracy_interval};
pub use bootstrap::{DetectionIntervals, Interval, bootstrap};
pub use compat::{AuthorsDetection, Compat, CompatDetection, OpenoodDetection, authors, detection_compat, openood};
pub use curve::{PrPoint, RocPoint, precision_recall, roc};
pub use detection::{Detection, detection};

use serde::Serialize;
use std::fmt;

/// The positive class of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Positive {
    /// In-distribution rows: a high confidence is positive.
    #[serde(rename = "ID")]
    Id,
    /// Out-of-distribution rows: a low confidence is positive.
    #[serde(rename = "OOD")]
    Ood,
}

impl fmt::Display for Positive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Positive::Id => "ID",
            Positive::Ood => "OOD",
        })
    }
}

/// A metric as shown in a report.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The name for programs, which is that of the field, such as `auroc`.
    pub key: &'static str,
    /// The name for people, such as `AUROC`.
    pub name: &'static str,
    /// The positive class. Where it makes no difference (AUROC, detection accuracy), it is that of the publication of
    /// the metric.
    pub positive: Positive,
    /// Between 0 and 1.
    pub value: f64,
}
