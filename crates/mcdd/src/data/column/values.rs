//! A column that was read.

/// The code of a missing text cell.
pub const MISSING: u32 = u32::MAX;

/// One column of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Numbers; NaN is a missing cell.
    Number(Vec<f64>),
    /// Texts: categories, or numbers and dates in a form that the schema reads.
    Text {
        /// For each row an index into `names`; [`MISSING`] (`u32::MAX`) is a missing cell.
        codes: Vec<u32>,
        /// The different texts in the order of their appearance.
        names: Vec<String>,
    },
}

impl Column {
    /// The number of rows.
    pub fn len(&self) -> usize {
        match self {
            Column::Number(values) => values.len(),
            Column::Text { codes, .. } => codes.len(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A number for each row: rows with equal cells have equal numbers, and a missing cell is equal to no other.
    pub(crate) fn into_groups(self) -> Vec<u32> {
        let (mut codes, mut next) = match self {
            Column::Text { codes, names } => (codes, names.len() as u32),
            Column::Number(values) => (vec![MISSING; values.len()], 0),
        };
        for code in codes.iter_mut().filter(|code| **code == MISSING) {
            *code = next;
            next += 1;
        }
        codes
    }
}
