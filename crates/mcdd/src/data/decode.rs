//! From a network's inputs back to the cells of the table, in the user's own units.

use std::ops::Range;

use super::form::Form;
use super::schema::{ColumnKind, Schema, SchemaColumn};
use super::text::{list, quoted};

impl Schema {
    /// The columns that make inputs, each with the place of its inputs.
    pub fn inputs(&self) -> Vec<(&SchemaColumn, Range<usize>)> {
        let mut at = 0;
        let mut places = Vec::new();
        for column in &self.columns {
            let from = at;
            at += column.kind.width();
            if at > from {
                places.push((column, from..at));
            }
        }
        places
    }
}

impl SchemaColumn {
    /// Whether these inputs are those of a missing cell. A missing cell looks like the mean where training had none
    /// missing.
    pub fn is_missing(&self, x: &[f32]) -> bool {
        let indicator = match &self.kind {
            ColumnKind::Numeric { indicator, .. }
            | ColumnKind::Time { indicator, .. }
            | ColumnKind::Categorical { indicator, .. } => *indicator,
            ColumnKind::Dropped { .. } => false,
        };
        indicator && x.last().is_some_and(|&v| v > 0.5)
    }

    /// The cell that these inputs were made of. A missing number looks like the mean where training had none missing.
    pub fn cell(&self, x: &[f32]) -> String {
        match &self.kind {
            _ if self.is_missing(x) => "missing".into(),
            ColumnKind::Numeric { mean, std, .. } => self.value(x[0], *mean, *std, 4),
            ColumnKind::Time { mean, std, .. } => self.moment(x[0], *mean, *std),
            ColumnKind::Categorical { categories, .. } => match x.iter().position(|&v| v > 0.5) {
                Some(at) => categories.get(at).cloned().unwrap_or_else(|| "other".into()),
                None => "not seen in training".into(),
            },
            ColumnKind::Dropped { .. } => String::new(),
        }
    }

    /// What is usual where these are the means of the inputs over some rows: a number, or the most frequent category with
    /// its proportion.
    pub fn usual(&self, x: &[f32]) -> String {
        match &self.kind {
            ColumnKind::Numeric { mean, std, .. } => match &self.form {
                Some(Form::Boolean(words)) => {
                    let [no, yes] = words.words();
                    let fraction = (mean + f64::from(x[0]) * std).clamp(0.0, 1.0);
                    let (word, fraction) = if fraction > 0.5 { (yes, fraction) } else { (no, 1.0 - fraction) };
                    format!("{word} ({:.0}%)", 100.0 * fraction)
                }
                _ => self.value(x[0], *mean, *std, 2),
            },
            ColumnKind::Time { mean, std, .. } => self.moment(x[0], *mean, *std),
            ColumnKind::Categorical { categories, other, .. } => {
                let most = x.iter().enumerate().fold(0, |m, (i, v)| if *v > x[m] { i } else { m });
                let rest = if *other && most == categories.len() { "other" } else { "missing" };
                let name = categories.get(most).map_or(rest, String::as_str);
                format!("{name} ({:.0}%)", 100.0 * x[most].clamp(0.0, 1.0))
            }
            ColumnKind::Dropped { .. } => String::new(),
        }
    }

    /// A sentence about a category that training did not have.
    pub fn not_among(&self, text: &str) -> String {
        match &self.kind {
            ColumnKind::Categorical { categories, .. } => {
                format!("{} is not in training's categories: {}", quoted(text), list(categories))
            }
            _ => String::new(),
        }
    }

    /// A number as the column has it: with its unit, or as a word.
    fn value(&self, x: f32, mean: f64, std: f64, digits: i32) -> String {
        let value = || number(x, mean, std, digits);
        match &self.form {
            Some(Form::Boolean(words)) => words.words()[usize::from(mean + f64::from(x) * std > 0.5)].into(),
            Some(Form::Number(form)) => match form.unit.as_deref() {
                Some("%") => value() + "%",
                Some(unit) => format!("{} {unit}", value()),
                None => value(),
            },
            Some(Form::Time(_)) | None => value(),
        }
    }

    fn moment(&self, x: f32, mean: f64, std: f64) -> String {
        match &self.form {
            Some(Form::Time(form)) => form.show(mean + f64::from(x) * std),
            _ => number(x, mean, std, 4),
        }
    }
}

/// What is `x` deviations from the mean, in the table's units, to so many decimals of a deviation: single precision has added
/// noise beyond them, the more the further out.
fn number(x: f32, mean: f64, deviation: f64, digits: i32) -> String {
    let x = f64::from(x);
    let value = mean + x * deviation;
    let last = libm::floor(libm::log10(deviation * (x.abs() / 10.0).max(1.0))) - f64::from(digits);
    if value.abs() < 0.5 * libm::pow(10.0, last) {
        return "0".into();
    }
    if !value.is_finite() {
        return value.to_string();
    }
    if !(1e-4..1e15).contains(&value.abs()) {
        let text = format!("{value:.4e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{power}", digits.trim_end_matches('0').trim_end_matches('.'));
    }
    let decimals = (-last).clamp(0.0, 12.0) as usize;
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::super::{ReadOptions, Table};
    use super::*;

    #[test]
    fn cells_come_back_as_they_were_written() {
        let table = Table::builder()
            .column("paid", ["yes", "no", "yes", ""])
            .and_then(|b| b.column("discount", ["29.7%", "3%", "0%", "12%"]))
            .and_then(|b| b.column("price", ["1.200,50 €", "3,25 €", "0 €", "12 €"]))
            .and_then(|b| b.column("day", ["31.12.2024", "1.1.2025", "15.2.2025", "28.2.2025"]))
            .and_then(|b| b.column("at", ["9:00", "10:30", "23:59", "0:00"]))
            .and_then(|b| b.build())
            .unwrap();
        let (schema, _) = Schema::fit(&table, &[0, 1, 2, 3]).unwrap();
        let x = schema.transform(&table, None).unwrap();
        let cells = |row: usize| -> Vec<String> {
            let x = &x[row * schema.width()..(row + 1) * schema.width()];
            schema.inputs().iter().map(|(c, at)| c.cell(&x[at.clone()])).collect()
        };
        assert_eq!(cells(0), ["yes", "29.7%", "1200.5 €", "2024-12-31", "09:00"]);
        assert_eq!(cells(3), ["missing", "12%", "12 €", "2025-02-28", "00:00"]);
        let means: Vec<String> = schema.inputs().iter().map(|(c, at)| c.usual(&vec![0.0; at.len()])).collect();
        assert_eq!(means[0], "yes (67%)");
        assert_eq!(means[3], "2025-01-27");
    }

    #[test]
    fn cells_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        std::fs::write(&path, "a,b,c,d,label\n5.1,red,7,1e9,x\n0.25,,7,2e9,y\n,blue,7,3.5e9,x\n-3,red,7,4e9,y\n")
            .unwrap();
        let table = Table::read(&[path], &ReadOptions::default()).unwrap();
        let rows: Vec<usize> = (0..4).collect();
        let (schema, _) = Schema::fit(&table, &rows).unwrap();
        let x = schema.transform(&table, None).unwrap();
        let places = schema.inputs();
        assert_eq!(places.iter().map(|(c, _)| c.name.as_str()).collect::<Vec<_>>(), ["a", "b", "d"]);
        assert_eq!(places.last().unwrap().1.end, schema.width());
        let back: Vec<Vec<String>> = x
            .chunks_exact(schema.width())
            .map(|row| places.iter().map(|(c, at)| c.cell(&row[at.clone()])).collect())
            .collect();
        let wanted = [
            ["5.1", "red", "1000000000"],
            ["0.25", "missing", "2000000000"],
            ["missing", "blue", "3500000000"],
            ["-3", "red", "4000000000"],
        ];
        for (found, wanted) in back.iter().zip(wanted) {
            assert_eq!((&found[0][..], &found[1][..]), (wanted[0], wanted[1]));
            let (d, w): (f64, f64) = (found[2].parse().unwrap(), wanted[2].parse().unwrap());
            assert!((d - w).abs() < 1e4, "{d} {w}");
        }
        let color = &places[1].0;
        assert_eq!(color.cell(&[0.0, 0.0, 0.0]), "not seen in training");
        assert_eq!(color.usual(&[0.2, 0.7, 0.1]), "red (70%)");
        assert_eq!(color.not_among("teal"), "\"teal\" is not in training's categories: blue, red");
        assert_eq!((number(-1e-9, 0.0, 1.0, 4), number(0.2, 0.0, 1e-8, 4)), ("0".into(), "2e-9".into()));
        assert_eq!((number(-0.00004, 0.0, 1.0, 4), number(0.345678, 1200.0, 100.0, 4)), ("0".into(), "1234.57".into()));
        let far = (500.0f32 - 99.984) / 0.5864;
        assert_eq!((number(far, 99.984, 0.5864, 4), number(far, 99.984, 0.5864, 2)), ("500".into(), "500".into()));
        assert_eq!(number(1e9, 0.0, 1e300, 4), "inf");
    }
}
