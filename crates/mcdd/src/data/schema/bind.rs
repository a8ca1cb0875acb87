//! Which column of a file is which of the training data.

use std::collections::HashMap;

use super::super::text::list;
use super::inputs::Schema;
use crate::error::{Error, Result};

impl Schema {
    /// For each column the position of its name; an error lists the names that are missing.
    pub(crate) fn bind_names(&self, found: &HashMap<&str, usize>, names: &[String]) -> Result<Vec<Option<usize>>> {
        let mut bound = Vec::with_capacity(self.columns.len());
        let mut missing = Vec::new();
        for column in &self.columns {
            let at = found.get(column.name.as_str()).copied();
            if column.kind.width() == 0 {
                bound.push(None);
                continue;
            }
            if at.is_none() {
                missing.push(&column.name);
            }
            bound.push(at);
        }
        match missing.first() {
            None => Ok(bound),
            Some(first) => Err(Error::data(format!(
                "{} of the model {} missing: {}; the file has: {}",
                if missing.len() == 1 { "a column" } else { "columns" },
                if missing.len() == 1 { "is" } else { "are" },
                list(&missing),
                list(names)
            ))
            .at_column(first.as_str())
            .hint("give a file with the columns of the training data, under the same names in its first row")),
        }
    }

    pub(crate) fn wrong_count(&self, found: usize, what: &str) -> Error {
        let needed = self.columns.len();
        Error::data(format!("there are {found} {what} where the model needs {needed}"))
            .at_column((found.min(needed) + 1).to_string())
            .hint(format!("give {needed} columns in the order of the training data, or {} with the label", needed + 1))
    }
}

pub(crate) fn no_names() -> Error {
    Error::data("it has no column names, and the model's columns are matched by name")
        .hint("give a file with the training data's column names in its first row, or Parquet")
}
