//! The check of a schema from an untrusted file.

use std::collections::HashSet;

use super::super::categories::MAX_CATEGORIES;
use super::super::delimited::MAX_COLUMNS;
use super::super::form::Form;
use super::super::text::quoted;
use super::inputs::{ColumnKind, Schema, SchemaColumn};
use crate::error::{Error, Result};

impl Schema {
    /// Checks a schema from an untrusted file.
    ///
    /// # Errors
    /// If it could not have been made by [`Schema::fit`].
    pub fn validate(&self) -> Result<()> {
        let bad = |message: String| Error::format(message).hint("the model file is damaged: train or fetch it again");
        if let Some(image) = &self.image {
            image.validate()?;
            if !self.columns.is_empty() || self.label.is_some() {
                return Err(bad("the model reads images, but has columns".into()));
            }
            return Ok(());
        }
        if self.columns.len() > MAX_COLUMNS || self.width() > 2 * MAX_COLUMNS {
            return Err(bad("the model has too many columns".into()));
        }
        if self.width() == 0 {
            return Err(bad("the model has no input".into()));
        }
        let mut names = HashSet::new();
        for SchemaColumn { name, form, kind } in &self.columns {
            if !names.insert(name) {
                return Err(bad(format!("the model has two columns {}", quoted(name))));
            }
            if let Some(form) = form {
                form.validate().map_err(|why| bad(format!("the form of the column {}: {why}", quoted(name))))?;
            }
            let fits = match kind {
                ColumnKind::Numeric { .. } => !matches!(form, Some(Form::Time(_))),
                ColumnKind::Time { cycles, .. } => {
                    let distinct = cycles.iter().enumerate().all(|(i, cycle)| !cycles[..i].contains(cycle));
                    matches!(form, Some(Form::Time(_))) && distinct
                }
                ColumnKind::Categorical { .. } | ColumnKind::Dropped { .. } => form.is_none(),
            };
            if !fits {
                return Err(bad(format!("the form of the column {} does not fit its kind", quoted(name))));
            }
            match kind {
                ColumnKind::Numeric { mean, std, .. } | ColumnKind::Time { mean, std, .. } => {
                    if !mean.is_finite() || !std.is_finite() || *std <= 0.0 {
                        return Err(bad(format!("the statistics of the column {} are out of range", quoted(name))));
                    }
                }
                ColumnKind::Categorical { categories, .. } => {
                    let distinct: HashSet<_> = categories.iter().collect();
                    if categories.is_empty() || categories.len() > MAX_CATEGORIES || distinct.len() != categories.len()
                    {
                        return Err(bad(format!("the categories of the column {} are invalid", quoted(name))));
                    }
                }
                ColumnKind::Dropped { .. } => {}
            }
        }
        if let Some(label) = &self.label {
            if self.named && names.contains(&label.name) && label.position.is_some() {
                return Err(bad("the label is a feature as well".into()));
            }
            if label.position.is_some_and(|at| at > self.columns.len()) {
                return Err(bad("the label's position is out of range".into()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::form::{Decimal, Group, NumberForm, Words};
    use super::super::super::table::LabelColumn;
    use super::super::super::time::{Cycle, DateOrder, TimeForm};
    use super::*;

    #[test]
    fn a_foreign_schema_is_checked() {
        let numeric = |name: &str, mean, std| SchemaColumn {
            name: name.into(),
            form: None,
            kind: ColumnKind::Numeric { mean, std, indicator: false },
        };
        let texts = |categories: &[&str]| SchemaColumn {
            name: "t".into(),
            form: None,
            kind: ColumnKind::Categorical {
                categories: categories.iter().map(|&c| c.into()).collect(),
                other: false,
                indicator: false,
            },
        };
        let schema = |columns: Vec<SchemaColumn>, label: Option<(&str, usize)>| Schema {
            named: true,
            columns,
            label: label.map(|(name, at)| LabelColumn { name: name.into(), position: Some(at) }),
            image: None,
        };
        let good = numeric("a", 0.0, 1.0);
        assert!(schema(vec![good.clone()], Some(("y", 1))).validate().is_ok());
        let number =
            |decimal, group, unit: &str| Some(Form::Number(NumberForm { decimal, group, unit: Some(unit.to_owned()) }));
        let when = |order, times, zone| Some(Form::Time(TimeForm { order, times, zone }));
        let formed = |form, column: &SchemaColumn| SchemaColumn { form, ..column.clone() };
        let timed = |form, cycles: &[Cycle]| SchemaColumn {
            name: "d".into(),
            form,
            kind: ColumnKind::Time { mean: 0.0, std: 1.0, cycles: cycles.to_vec(), indicator: false },
        };
        let day = when(DateOrder::DayFirst, false, false);
        for good in [
            formed(number(Decimal::Comma, Some(Group::Point), "€"), &good),
            formed(Some(Form::Boolean(Words::YesNo)), &good),
            timed(day.clone(), &[Cycle::DayOfWeek, Cycle::DayOfYear]),
        ] {
            schema(vec![good], None).validate().unwrap();
        }
        for bad in [
            formed(number(Decimal::Comma, Some(Group::Comma), "%"), &good),
            formed(number(Decimal::Point, None, "parsec"), &good),
            formed(day.clone(), &good),
            formed(day.clone(), &texts(&["x", "y"])),
            timed(None, &[]),
            timed(Some(Form::Boolean(Words::TF)), &[]),
            timed(day, &[Cycle::DayOfWeek, Cycle::DayOfWeek]),
            timed(when(DateOrder::Clock, false, false), &[]),
            timed(when(DateOrder::YearFirst, false, true), &[]),
        ] {
            let e = schema(vec![bad], None).validate().unwrap_err();
            assert!(e.hint_text().is_some(), "{e}");
        }
        for bad in [
            schema(vec![], None),
            schema(vec![good.clone(), good.clone()], None),
            schema(vec![numeric("a", f64::INFINITY, 1.0)], None),
            schema(vec![numeric("a", 0.0, 0.0)], None),
            schema(vec![numeric("a", 0.0, -1.0)], None),
            schema(vec![texts(&[])], None),
            schema(vec![texts(&["x", "x"])], None),
            schema(vec![good.clone()], Some(("a", 0))),
            schema(vec![good.clone()], Some(("y", 2))),
        ] {
            let e = bad.validate().unwrap_err();
            assert!(e.hint_text().is_some(), "{e}");
        }
    }
}
