//! How each column of a training table is read, and the notices about it.

use super::categories::Choice;
use super::column::Column;
use super::form::Form;
use super::recognize::{self, Context, Decision, Finding, Points};
use super::table::Table;
use super::text::{Notices, count, list, shown};
use super::time::Cycle;

/// The decisions about the columns of a table.
pub(super) struct Decisions {
    /// Of each column that is in a form.
    decided: Vec<Option<Decision>>,
    /// What was done, and the columns that it was done to.
    done: Vec<(String, Vec<String>)>,
    /// About single columns.
    single: Notices,
}

impl Decisions {
    /// Finds the forms, over all columns and all rows.
    pub(super) fn of(table: &Table) -> Decisions {
        let find = |(name, column): (&String, &Column)| match column {
            Column::Text { names, .. } if !table.written.categorical.contains(name) => {
                recognize::find(&names.iter().map(String::as_str).collect::<Vec<_>>())
            }
            _ => None,
        };
        let found: Vec<Option<Finding>> = table.names.iter().zip(&table.columns).map(find).collect();
        let plain = |at: usize| -> Option<(&[f64], &Points)> {
            match (table.columns.get(at)?, table.written.points.get(at)?) {
                (Column::Number(values), points) => Some((values, points)),
                _ => None,
            }
        };
        let points = (0..found.len()).filter_map(plain).map(|(_, points)| points);
        let context = Context::new(found.iter().flatten(), points, table.written.separator);
        let decide = |(at, finding): (usize, Option<Finding>)| match finding {
            Some(finding) => Some(context.decide(finding)),
            None => {
                let (values, points) = plain(at)?;
                context.of_plain(values, points)
            }
        };
        let decided = found.into_iter().enumerate().map(decide).collect();
        Decisions { decided, done: Vec::new(), single: Notices::new() }
    }

    /// The decision about a column, if it is in a form.
    pub(super) fn take(&mut self, at: usize) -> Option<Decision> {
        self.decided.get_mut(at)?.take()
    }

    /// A column was read in its form.
    pub(super) fn read(&mut self, name: &str, decision: &Decision, cycles: &[Cycle]) {
        if let Some(assumed) = &decision.assumed {
            self.single.push(format!("{}: {assumed}", shown(name)));
        }
        if decision.plain {
            return;
        }
        let words = decision.form.describe();
        let what = match &decision.form {
            Form::Number(_) => format!("{words}; read as numbers"),
            Form::Boolean(_) => format!("{words}; read as 1 and 0"),
            Form::Time(_) => {
                let parts: Vec<&str> =
                    std::iter::once("a number").chain(cycles.iter().map(|cycle| cycle.name())).collect();
                format!("{words}; read as {}", parts.join(", "))
            }
        };
        match self.done.iter_mut().find(|(done, _)| *done == what) {
            Some((_, names)) => names.push(shown(name).to_owned()),
            None => self.done.push((what, vec![shown(name).to_owned()])),
        }
    }

    /// A column of texts became categories, or is left out. `cells` is the number of texts in the training rows.
    pub(super) fn chosen(&mut self, name: &str, choice: &Choice, cells: usize) {
        let name = shown(name);
        match choice {
            Choice::FreeText(different) => self.single.push(format!(
                "{name}: text ({} in {}); left out, `categorical` \"{name}\" makes categories of it",
                count(*different, "different text"),
                count(cells, "cell")
            )),
            Choice::Keep(categories, others) if *others > 0 => self.single.push(format!(
                "{name}: {}; {others} rarer {} one category, other",
                if categories.len() == 1 { "1 category".into() } else { format!("{} categories", categories.len()) },
                if *others == 1 { "text is" } else { "texts are" }
            )),
            _ => {}
        }
    }

    /// What the user should know.
    pub(super) fn notices(self) -> Notices {
        let done = self.done.into_iter().map(|(what, names)| format!("{}: {what}", list(&names)));
        done.chain(self.single).collect()
    }
}
