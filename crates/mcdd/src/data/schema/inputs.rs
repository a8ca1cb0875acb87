//! The columns of the training data, and the inputs that they become.

use serde::{Deserialize, Serialize};

use super::super::form::Form;
use super::super::images::ImageSpec;
use super::super::table::LabelColumn;
use super::super::time::Cycle;
use crate::error::{Error, Result};

/// Standardized values are clamped to this many deviations, so that sums of squares stay finite in `f32`.
pub const CLAMP: f64 = 1e9;

/// The columns of the training data and their statistics. It is stored in the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schema {
    /// Whether columns are matched by name; else by position.
    pub named: bool,
    /// The feature columns in the order of the training data.
    pub columns: Vec<SchemaColumn>,
    /// The column that held the labels.
    #[serde(default)]
    pub label: Option<LabelColumn>,
    /// The shape and normalization of images, where the model reads images instead of columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageSpec>,
}

/// One column of the training data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SchemaColumn {
    /// Its name.
    pub name: String,
    /// How its numbers are written; `None` for plain numbers and for texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<Form>,
    /// How it becomes inputs.
    #[serde(flatten)]
    pub kind: ColumnKind,
}

/// How a column becomes inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ColumnKind {
    /// One input: `(value - mean) / std`, 0 for a missing cell, clamped to ±[`CLAMP`].
    Numeric {
        /// The mean over the training rows.
        mean: f64,
        /// The standard deviation over the training rows, with the divisor n.
        std: f64,
        /// Whether a second input is 1 where the cell is missing: training had missing cells.
        indicator: bool,
    },
    /// Dates or times. The first input is the time in seconds, as a number; then two for each cycle, sine and cosine; all 0
    /// for a missing cell.
    Time {
        /// The mean over the training rows, in seconds since 1970-01-01, or since midnight for times without a date.
        mean: f64,
        /// The standard deviation over the training rows, with the divisor n.
        std: f64,
        /// The cycles that the training rows show.
        cycles: Vec<Cycle>,
        /// Whether a last input is 1 where the cell is missing.
        indicator: bool,
    },
    /// One input for each category, 1 for the cell's own; all 0 for a missing cell or one not seen in training.
    Categorical {
        /// The categories in training, in the order of their texts.
        categories: Vec<String>,
        /// Whether an input is 1 for all other texts: training had rare ones.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        other: bool,
        /// Whether a last input is 1 where the cell is missing.
        indicator: bool,
    },
    /// No input.
    Dropped {
        /// The reason: `constant`, `empty`, `identifier`, `asked` or `text` (free text).
        why: String,
    },
}

impl ColumnKind {
    /// The number of inputs.
    pub fn width(&self) -> usize {
        match self {
            ColumnKind::Numeric { indicator, .. } => 1 + usize::from(*indicator),
            ColumnKind::Time { cycles, indicator, .. } => 1 + 2 * cycles.len() + usize::from(*indicator),
            ColumnKind::Categorical { categories, other, indicator } => {
                categories.len() + usize::from(*other) + usize::from(*indicator)
            }
            ColumnKind::Dropped { .. } => 0,
        }
    }

    /// Whether training rows lacked cells of this column.
    pub(crate) fn has_indicator(&self) -> bool {
        matches!(self, ColumnKind::Numeric { indicator: true, .. } | ColumnKind::Categorical { indicator: true, .. })
    }
}

impl Schema {
    /// The inputs of a model that reads images.
    pub fn of_images(image: ImageSpec) -> Schema {
        Schema { named: false, columns: Vec::new(), label: None, image: Some(image) }
    }

    /// The number of network inputs.
    pub fn width(&self) -> usize {
        match &self.image {
            Some(image) => image.shape().values(),
            None => self.columns.iter().map(|c| c.kind.width()).sum(),
        }
    }

    /// An error if the model reads images.
    pub(crate) fn check_reads_tables(&self) -> Result<()> {
        match &self.image {
            Some(_) => Err(Error::data("the model reads images, and this is a table").hint("give images")),
            None => Ok(()),
        }
    }

    /// The names of the inputs: `petal width`, `color=red`, `age missing`.
    pub fn input_names(&self) -> Vec<String> {
        let mut names = Vec::with_capacity(self.width());
        for SchemaColumn { name, kind, .. } in &self.columns {
            let indicator = match kind {
                ColumnKind::Numeric { indicator, .. } => {
                    names.push(name.clone());
                    *indicator
                }
                ColumnKind::Time { cycles, indicator, .. } => {
                    names.push(name.clone());
                    let parts =
                        |cycle: &Cycle| ["sine", "cosine"].map(|part| format!("{name} {} {part}", cycle.name()));
                    names.extend(cycles.iter().flat_map(parts));
                    *indicator
                }
                ColumnKind::Categorical { categories, other, indicator } => {
                    names.extend(categories.iter().map(|category| format!("{name}={category}")));
                    names.extend(other.then(|| format!("{name} other")));
                    *indicator
                }
                ColumnKind::Dropped { .. } => false,
            };
            if indicator {
                names.push(format!("{name} missing"));
            }
        }
        names
    }
}
