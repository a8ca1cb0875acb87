//! From a network's inputs back to the cells of the table, in the user's own units.

use std::ops::Range;

use super::schema::{ColumnKind, Schema, SchemaColumn};

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
    /// The cell that these inputs were made of. A missing number looks like the mean where training had none missing.
    pub fn cell(&self, x: &[f32]) -> String {
        match &self.kind {
            ColumnKind::Numeric { indicator: true, .. } if x[1] > 0.5 => "missing".into(),
            ColumnKind::Numeric { mean, std, .. } => number(x[0], *mean, *std, 4),
            ColumnKind::Categorical { categories, .. } => match x.iter().position(|&v| v > 0.5) {
                Some(at) => categories.get(at).cloned().unwrap_or_else(|| "missing".into()),
                None => "not seen in training".into(),
            },
            ColumnKind::Dropped { .. } => String::new(),
        }
    }

    /// What is usual where these are the means of the inputs over some rows: a number, or the most frequent category with
    /// its proportion.
    pub fn usual(&self, x: &[f32]) -> String {
        match &self.kind {
            ColumnKind::Numeric { mean, std, .. } => number(x[0], *mean, *std, 2),
            ColumnKind::Categorical { categories, .. } => {
                let most = x.iter().enumerate().fold(0, |m, (i, v)| if *v > x[m] { i } else { m });
                let name = categories.get(most).map_or("missing", String::as_str);
                format!("{name} ({:.0}%)", 100.0 * x[most].clamp(0.0, 1.0))
            }
            ColumnKind::Dropped { .. } => String::new(),
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
        assert_eq!((number(-1e-9, 0.0, 1.0, 4), number(0.2, 0.0, 1e-8, 4)), ("0".into(), "2e-9".into()));
        assert_eq!((number(-0.00004, 0.0, 1.0, 4), number(0.345678, 1200.0, 100.0, 4)), ("0".into(), "1234.57".into()));
        let far = (500.0f32 - 99.984) / 0.5864;
        assert_eq!((number(far, 99.984, 0.5864, 4), number(far, 99.984, 0.5864, 2)), ("500".into(), "500".into()));
        assert_eq!(number(1e9, 0.0, 1e300, 4), "inf");
    }
}
