//! The classes of rows, of tables and images.

use super::column::Column;
use super::number;
use super::text::{list, quoted};
use crate::error::{Error, Result};

/// The smallest number of rows of a class to train on: enough to learn from, with a chance of a calibration row.
pub const MIN_CLASS_ROWS: usize = 5;

/// The class of each row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// For each row an index into `names`.
    pub codes: Vec<u32>,
    /// The classes: in numeric order if all are numbers, else in the order of their texts.
    pub names: Vec<String>,
}

impl Labels {
    /// Labels from their names, with the classes in order: numbers by size if all are numbers, else as texts.
    pub fn of(names: &[String]) -> Labels {
        let mut seen: std::collections::HashMap<&str, u32> = std::collections::HashMap::new();
        let mut distinct = Vec::new();
        let codes = names
            .iter()
            .map(|name| {
                *seen.entry(name).or_insert_with(|| {
                    distinct.push(name.clone());
                    distinct.len() as u32 - 1
                })
            })
            .collect();
        Labels::sorted(Column::Text { codes, names: distinct })
            .unwrap_or(Labels { codes: Vec::new(), names: Vec::new() })
    }

    /// Labels from a column of texts, with their classes in order. `None` where a label is missing.
    pub(super) fn sorted(column: Column) -> Option<Labels> {
        let Column::Text { mut codes, names } = column else {
            return None;
        };
        let value = |name: &String| match number::parse(name.as_bytes()) {
            number::Parsed::Number(value) => Some(value),
            _ => None,
        };
        let values: Option<Vec<f64>> = names.iter().map(value).collect();
        let mut order: Vec<usize> = (0..names.len()).collect();
        match &values {
            Some(values) => {
                order.sort_by(|&a, &b| values[a].total_cmp(&values[b]).then_with(|| names[a].cmp(&names[b])))
            }
            None => order.sort_by(|&a, &b| names[a].cmp(&names[b])),
        }
        let mut place = vec![0u32; names.len()];
        for (new, &old) in order.iter().enumerate() {
            place[old] = new as u32;
        }
        for code in &mut codes {
            *code = *place.get(*code as usize)?;
        }
        let names = order.iter().map(|&old| names[old].clone()).collect();
        Some(Labels { codes, names })
    }

    /// The class name of a row.
    pub(super) fn name(&self, row: usize) -> Option<&str> {
        self.names.get(*self.codes.get(row)? as usize).map(String::as_str)
    }

    /// How many rows each class has.
    pub(super) fn sizes(&self) -> Vec<usize> {
        let mut sizes = vec![0; self.names.len()];
        for &code in &self.codes {
            if let Some(size) = sizes.get_mut(code as usize) {
                *size += 1;
            }
        }
        sizes
    }

    /// The labels of some rows; the classes stay.
    pub(super) fn select(&self, rows: &[usize]) -> Labels {
        Labels { codes: rows.iter().map(|&r| self.codes[r]).collect(), names: self.names.clone() }
    }

    /// Removes the classes that are not kept; no row may have one of them.
    pub(super) fn keep_classes(&mut self, keep: impl Fn(usize) -> bool) {
        let mut numbers = vec![0; self.names.len()];
        let mut names = Vec::new();
        for (old, name) in std::mem::take(&mut self.names).into_iter().enumerate().filter(|(c, _)| keep(*c)) {
            numbers[old] = names.len() as u32;
            names.push(name);
        }
        self.codes.iter_mut().for_each(|code| *code = numbers[*code as usize]);
        self.names = names;
    }
}

/// The index of a class. Its name may be a number written in another way.
pub(super) fn class_number(classes: &[String], class: &str) -> Result<usize> {
    let exact = classes.iter().position(|c| c == class);
    exact.or_else(|| classes.iter().position(|c| c == number::normal(class))).ok_or_else(|| {
        Error::data(format!("there is no class {}; the classes are: {}", quoted(class), list(classes)))
            .hint("give the class as it is in the data")
    })
}

/// Whether labels look like measured numbers: most of many values occur once.
pub(super) fn look_like_numbers(classes: usize, rows: usize) -> bool {
    classes * 2 > rows && classes > 20
}

/// Checks that there are at least two classes, each with at least `least` rows; `remedy` is what to do about small ones.
pub(super) fn check_classes(labels: Option<&Labels>, least: usize, remedy: &str) -> Result<()> {
    let Some(labels) = labels else {
        return Err(Error::data("there are no labels").hint("give `label`, the column of the classes"));
    };
    let (classes, rows) = (&labels.names, labels.codes.len());
    if classes.is_empty() {
        return Err(Error::data("no class is left: all have fewer rows than `min_class`")
            .hint("add rows, lower `min_class`, or check `label`"));
    }
    if classes.len() < 2 {
        return Err(Error::data(format!("there is one class only ({}), and at least two are needed", list(classes)))
            .hint("check `label`, or add rows of other classes"));
    }
    let small: Vec<String> = classes
        .iter()
        .zip(labels.sizes())
        .filter(|(_, size)| *size < least)
        .map(|(class, size)| format!("{class} ({size})"))
        .collect();
    if small.is_empty() {
        return Ok(());
    }
    if look_like_numbers(classes.len(), rows) {
        return Err(Error::data(format!(
            "the labels have {} different values in {rows} rows: they look like numbers, not classes",
            classes.len()
        ))
        .hint("check `label`: it must be a column of classes"));
    }
    let error = Error::data(format!("each class needs at least {least} rows; too few have: {}", list(&small)));
    Err(match classes.len() - small.len() {
        // Without the small classes nothing is left to train on.
        0 | 1 => error.hint(format!("add rows until two classes have {least} or more, or check `label`")),
        _ => error.hint(remedy),
    })
}
