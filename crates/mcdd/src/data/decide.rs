//! How each column of a training table is read, and the findings about it.

use super::categories::Choice;
use super::column::Column;
use super::form::{Form, Words};
use super::profile::finding::{Action, Finding, Problem};
use super::recognize::{self, Context, Decision, Points};
use super::table::Table;
use super::text::{count, quoted, shown};
use super::time::{Cycle, DateOrder};

/// The decisions about the columns of a table.
pub(super) struct Decisions {
    /// Of each column that is in a form.
    decided: Vec<Option<Decision>>,
    /// What was done to columns.
    done: Vec<Finding>,
    /// About single columns.
    single: Vec<Finding>,
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
        let found: Vec<Option<recognize::Finding>> = table.names.iter().zip(&table.columns).map(find).collect();
        let plain = |at: usize| -> Option<(&[f64], &Points)> {
            match (table.columns.get(at)?, table.written.points.get(at)?) {
                (Column::Number(values), points) => Some((values, points)),
                _ => None,
            }
        };
        let points = (0..found.len()).filter_map(plain).map(|(_, points)| points);
        let context = Context::new(found.iter().flatten(), points, table.written.separator);
        let decide = |(at, finding): (usize, Option<recognize::Finding>)| match finding {
            Some(finding) => Some(context.decide(finding)),
            None => {
                let (values, points) = plain(at)?;
                context.of_plain(values, points)
            }
        };
        let decided = found.into_iter().enumerate().map(decide).collect();
        Decisions { decided, done: Vec::new(), single: Vec::new() }
    }

    /// The decision about a column, if it is in a form.
    pub(super) fn take(&mut self, at: usize) -> Option<Decision> {
        self.decided.get_mut(at)?.take()
    }

    /// The form of a column, if it is in one.
    pub(super) fn form(&self, at: usize) -> Option<&Form> {
        self.decided.get(at)?.as_ref().map(|decision| &decision.form)
    }

    /// A column was read in its form.
    pub(super) fn read(&mut self, name: &str, decision: &Decision, cycles: &[Cycle]) {
        if let Some(assumed) = &decision.assumed {
            self.single.push(done(Problem::Form, name, assumed, ""));
        }
        // Booleans need no word.
        if decision.plain || decision.form == Form::Boolean(Words::TrueFalse) {
            return;
        }
        let what = decision.form.describe();
        let read = match &decision.form {
            Form::Number(_) => "read as numbers".to_owned(),
            Form::Boolean(_) => "read as 1 and 0".to_owned(),
            Form::Time(form) => {
                let parts: Vec<&str> =
                    std::iter::once("a number").chain(cycles.iter().map(|cycle| cycle.name())).collect();
                let later = match form.order {
                    DateOrder::Clock => "",
                    _ => "; a date outside the training period may look unknown, `drop` leaves the column out",
                };
                format!("read as {}{later}", parts.join(", "))
            }
        };
        match self.done.iter_mut().find(|done| done.what == what && done.remedy == read) {
            Some(same) => same.columns.push(name.to_owned()),
            None => self.done.push(done(Problem::Form, name, &what, &read)),
        }
    }

    /// A column of texts became categories, or is left out. `cells` is the number of texts in the training rows.
    pub(super) fn chosen(&mut self, name: &str, choice: &Choice, cells: usize) {
        match choice {
            Choice::FreeText(different) => {
                let what = format!("text ({} in {})", count(*different, "different text"), count(cells, "cell"));
                let remedy = format!("left out, `categorical` {} makes categories of it", quoted(shown(name)));
                self.single.push(done(Problem::ManyTexts, name, &what, &remedy));
            }
            Choice::Keep(categories, others) if *others > 0 => {
                let what = match categories.len() {
                    1 => "1 category".to_owned(),
                    n => format!("{n} categories"),
                };
                let are = if *others == 1 { "text is" } else { "texts are" };
                let remedy = format!("{others} rarer {are} one category, other");
                self.single.push(done(Problem::ManyTexts, name, &what, &remedy));
            }
            _ => {}
        }
    }

    /// What was done.
    pub(super) fn findings(self) -> Vec<Finding> {
        self.done.into_iter().chain(self.single).collect()
    }
}

fn done(problem: Problem, name: &str, what: &str, done: &str) -> Finding {
    Finding::new(problem, Action::Automatic, &[name], what, done)
}
