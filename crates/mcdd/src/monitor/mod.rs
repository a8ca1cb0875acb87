//! Watching a stream of rows: an alarm when they are no longer like the calibration rows, and what can be said of a batch.
//!
//! A [`Monitor`] gets the confidences of rows in the order in which they arrive. Its evidence is a test martingale
//! (`evidence.rs`): if the rows are exchangeable with the calibration rows, it ever reaches `1 / alpha` with a probability of at most
//! `alpha`, however long the stream is and however often one looks. With reference rows it also names the classes and columns that changed.
//! [`PValues`] are for rows that come together: conformal selection at a false discovery rate, and an interval for the
//! number of unknown rows.
//!
//! ```
//! use mcdd::model::Calibration;
//! use mcdd::monitor::{Monitor, PValues};
//!
//! let calibration = Calibration::new((0..999).map(f64::from).collect())?;
//! let mut monitor = Monitor::new(&calibration, 0.01)?;
//! (0..2000).for_each(|row| monitor.add(f64::from(row * 617 % 1000))); // like the calibration rows
//! assert_eq!(monitor.alarm(), None);
//! (0..200).for_each(|row| monitor.add(if row % 5 == 0 { -1.0 } else { f64::from(row * 5) }));
//! assert!(monitor.evidence() > 100.0 && monitor.alarm().is_some());
//!
//! let mut batch = PValues::new(&calibration);
//! batch.add(&[0.001, 0.001, 0.4, 0.7, 0.9]);
//! assert_eq!(batch.select(0.05)?.selected, 2);
//! # Ok::<(), mcdd::Error>(())
//! ```

mod batch;
mod cells;
mod evidence;
mod history;
mod state;
mod watch;

pub use batch::{PValues, Selection};
pub use history::Point;
pub use watch::{About, Finding, Monitor, Part};
