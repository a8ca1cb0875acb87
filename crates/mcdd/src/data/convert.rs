//! The numbers of a column whose cells are in a form.

use super::column::{Column, MISSING};
use super::form::{Decimal, Form};
use super::number::{self, Parsed};
use super::recognize::Points;
use super::text::quoted;

/// The numbers of a column; NaN is a missing cell.
pub(super) struct Converted {
    pub values: Vec<f64>,
    /// The rows whose cells are not in the form, with the cells.
    pub refused: Vec<(usize, String)>,
}

/// Reads a column of a table in a form. `points` are those of its plain numbers.
pub(super) fn convert(form: &Form, cells: &Column, points: Option<&Points>) -> Converted {
    let mut refused = Vec::new();
    let values = match cells {
        Column::Text { codes, names } => {
            let read: Vec<Option<f64>> = names
                .iter()
                .map(|name| match form.parse(name.as_bytes()) {
                    Parsed::Number(value) => Some(value),
                    Parsed::Missing => Some(f64::NAN),
                    Parsed::Infinite | Parsed::Text => None,
                })
                .collect();
            let value = |(row, &code): (usize, &u32)| {
                if code == MISSING {
                    return f64::NAN;
                }
                read.get(code as usize).copied().flatten().unwrap_or_else(|| {
                    refused.push((row, quoted(names.get(code as usize).map_or("", String::as_str))));
                    f64::NAN
                })
            };
            codes.iter().enumerate().map(value).collect()
        }
        Column::Number(values) => {
            let comma = matches!(form, Form::Number(form) if form.decimal == Decimal::Comma);
            // Points between thousands, if the numbers were text. With a point before a fraction the column is in another
            // form, and what its other points are is not known.
            let points = points.filter(|_| comma);
            let fraction = points.is_some_and(|points| points.decimal);
            let mut grouped = points.map_or(&[][..], |points| &points.grouped).iter().peekable();
            let value = |(row, &value): (usize, &f64)| {
                let thousands = grouped.next_if(|&&at| at as usize == row).is_some();
                let value = if thousands { (value * 1000.0).round() } else { value };
                form.number(value).filter(|v| !fraction || v.is_nan()).unwrap_or_else(|| {
                    refused.push((row, number::show(value)));
                    f64::NAN
                })
            };
            let values = values.iter().enumerate().map(value).collect();
            // The cell whose point shows it comes first.
            let first = points.and_then(|points| points.first).map(|first| first as usize);
            if let Some((at, row)) = first.and_then(|row| refused.iter().position(|(r, _)| *r == row)).zip(first) {
                let (_, text) = refused.remove(at);
                let text = if text.contains(['.', 'e']) { text } else { text + ".0" };
                refused.insert(0, (row, text));
            }
            values
        }
    };
    Converted { values, refused }
}
