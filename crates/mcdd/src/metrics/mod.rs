//! How well a confidence separates in-distribution (ID) from out-of-distribution (OOD) rows.
//!
//! One direction everywhere: a higher score is more in-distribution. ID is the positive class unless a name
//! says otherwise, because the field does not agree on it: OpenOOD and pytorch-ood report the false-positive
//! rate with OOD as positive ([`Detection::fpr95_ood`]), ODIN and its descendants with ID
//! ([`Detection::fpr95_id`]). Equal scores are one threshold, never an order: a detector that gives every row
//! the same score has an AUROC of one half, whatever order the rows came in. Everything is counted in integers
//! and divided once. A NaN is an error; infinities are scores like any other.
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

/// Which side a metric counts as the positive class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Positive {
    /// In-distribution rows: a high confidence is a positive answer.
    #[serde(rename = "ID")]
    Id,
    /// Out-of-distribution rows: a low confidence is a positive answer.
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

/// One metric as a report shows it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Short name for programs, as the field is called: `auroc`.
    pub key: &'static str,
    /// Name for people: `AUROC`.
    pub name: &'static str,
    /// The side that counts as positive. Where it makes no difference (AUROC, detection accuracy) it is
    /// the side the source of the metric takes.
    pub positive: Positive,
    /// Between 0 and 1.
    pub value: f64,
}
