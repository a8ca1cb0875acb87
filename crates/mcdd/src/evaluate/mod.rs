//! Evaluation of a model on in-distribution rows with labels and on sets of out-of-distribution (OOD) rows.
//!
//! An [`Evaluator`] collects predictions, row by row or block by block. [`Evaluator::finish`] turns them into an
//! [`Evaluation`]: accuracy, the fraction kept as known, recall and precision of each class, and the detection metrics of
//! each OOD set, with 95% intervals. Nothing is fitted or chosen; the threshold is given.
//!
//! ```
//! use mcdd::{data::digits, evaluate::{Bootstrap, Evaluation}, model::Model, train::{Preset, Settings}};
//!
//! let (known, unknown) = digits().leave_out("7")?;
//! let (train, test) = known.split(0.2, 0)?;
//! let model = Model::fit(&train, &Settings::builder().preset(Preset::Fast).epochs(20).build()?)?;
//! let bootstrap = Bootstrap { replicates: 200, seed: 0 };
//! let found = Evaluation::of_tables(&model, &test, &[("sevens", &unknown)], model.threshold()?, bootstrap)?;
//!
//! assert!(found.accuracy.unwrap().value > 0.9);
//! assert!(found.ood[0].detection.auroc > 0.8 && found.ood[0].rejected > 0.5);
//! assert_eq!(found.classes[3].name, "3");
//! # Ok::<(), mcdd::Error>(())
//! ```

mod evaluation;
mod evaluator;

pub use evaluation::{Bootstrap, ClassEvaluation, Estimate, Evaluation, Metric, OodEvaluation};
pub use evaluator::{Evaluator, OodSet};
