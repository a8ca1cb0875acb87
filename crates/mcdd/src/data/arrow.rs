//! Values of Arrow arrays as cells.

use std::collections::HashSet;
use std::fmt::Write;
use std::ops::Range;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType,
    Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_schema::{DataType, Schema, TimeUnit};
use num_traits::ToPrimitive;

use super::column::{ColumnBuilder, Want};
use super::text::{positional_name, quoted};
use super::time;
use crate::error::{Error, Result};

/// Whether values of this type become numbers, texts or times.
pub(super) fn is_readable(kind: &DataType) -> bool {
    use DataType::*;
    match kind {
        Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 | Float16 | Float32 | Float64
        | Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..) | Utf8 | LargeUtf8 | Utf8View | Null => true,
        Date32 | Date64 | Timestamp(..) | Time32(_) | Time64(_) => true,
        Dictionary(_, values) => is_readable(values),
        _ => false,
    }
}

/// The columns that are read, by their positions.
///
/// # Errors
/// If one of them has a type that cannot be used.
pub(super) fn wanted(types: &[DataType], columns: &[ColumnBuilder]) -> Result<Vec<usize>> {
    let wanted: Vec<usize> = (0..types.len())
        .filter(|&i| columns.get(i).is_some_and(|c| c.want != Want::Skip || c.kept.is_some()))
        .collect();
    for &index in &wanted {
        if columns[index].want != Want::Skip && !is_readable(&types[index]) {
            let name = columns[index].shown().to_owned();
            return Err(Error::data(format!("values of the type {} cannot be used", types[index]))
                .at_column(&name)
                .hint(format!("convert it to a number or a text, or give `drop` \"{name}\"")));
        }
    }
    Ok(wanted)
}

/// The names of the columns.
///
/// # Errors
/// If two are the same.
pub(super) fn names(schema: &Schema) -> Result<Vec<String>> {
    let mut seen = HashSet::new();
    let mut names = Vec::new();
    for (index, field) in schema.fields().iter().enumerate() {
        let name = match field.name().trim() {
            "" => positional_name(index),
            name => name.to_owned(),
        };
        if !seen.insert(name.clone()) {
            return Err(Error::data(format!("two columns have the name {}", quoted(&name)))
                .at_column(name)
                .hint("give each column a name of its own"));
        }
        names.push(name);
    }
    Ok(names)
}

/// Appends a range of an array's values; the first is in the row `row`.
pub(super) fn push(values: &dyn Array, range: Range<usize>, column: &mut ColumnBuilder, row: u64) -> Result<()> {
    if column.kept.is_some() {
        let kept = values.slice(range.start, range.len());
        return column.suspend(|to| to.push_array(kept), |column| push(values, range, column, row));
    }
    if column.want == Want::Skip {
        return Ok(());
    }
    if !matches!(values.data_type(), DataType::Dictionary(..)) {
        return push_at(values, range.map(Some), column, row);
    }
    let mut places: Vec<Option<usize>> = range.map(Some).collect();
    let mut values = values;
    while let Some(dictionary) = values.as_any_dictionary_opt() {
        let keys = dictionary.keys();
        let entries = dictionary.values();
        // The keys of an empty dictionary are all null, and cannot be normalized.
        let numbers = if entries.is_empty() { Vec::new() } else { dictionary.normalized_keys() };
        for place in &mut places {
            *place = place.filter(|&at| keys.is_valid(at)).and_then(|at| numbers.get(at).copied());
        }
        values = entries.as_ref();
    }
    push_at(values, places.into_iter(), column, row)
}

fn push_at(
    values: &dyn Array,
    places: impl Iterator<Item = Option<usize>>,
    column: &mut ColumnBuilder,
    row: u64,
) -> Result<()> {
    let text = column.wants_text();
    let mut buffer = String::new();
    /// Numbers: `$number` makes an `f64`, `$text` writes the text of a label or category to the buffer.
    macro_rules! numbers {
        ($type:ty, $number:expr, $text:expr) => {{
            let array = values.as_primitive::<$type>();
            each(values, places, row, |at, row| match (at, text) {
                (None, _) => column.push(b"", row),
                (Some(at), false) => column.push_number($number(array.value(at)), row),
                (Some(at), true) => {
                    buffer.clear();
                    // Writing to a string does not fail.
                    let _ = $text(&mut buffer, array.value(at));
                    column.push(buffer.as_bytes(), row)
                }
            })
        }};
    }
    macro_rules! integers {
        ($type:ty) => {
            numbers!($type, |v| v as f64, |out: &mut String, v| write!(out, "{v}"))
        };
    }
    macro_rules! decimals {
        ($type:ty, $float:expr) => {{
            let array = values.as_primitive::<$type>();
            let unit = 10_f64.powi(i32::from(array.scale()));
            each(values, places, row, |at, row| match (at, text) {
                (None, _) => column.push(b"", row),
                (Some(at), false) => column.push_number($float(array.value(at)) / unit, row),
                (Some(at), true) => column.push(array.value_as_string(at).as_bytes(), row),
            })
        }};
    }
    /// Dates and times, as the texts that a text file would have: `$text` gives `None` outside of the calendar.
    macro_rules! times {
        ($type:ty, $text:expr) => {{
            let array = values.as_primitive::<$type>();
            each(values, places, row, |at, row| match at.map(|at| $text(i64::from(array.value(at)))) {
                None => column.push(b"", row),
                Some(Some(text)) => column.push(String::as_bytes(&text), row),
                Some(None) => Err(column.no_date(row)),
            })
        }};
    }
    /// Of `$unit` in a second.
    macro_rules! timestamps {
        ($type:ty, $unit:expr, $zone:expr) => {
            times!($type, |v: i64| time::timestamp(v.div_euclid($unit), nanos(v, $unit), $zone))
        };
    }
    macro_rules! clocks {
        ($type:ty, $unit:expr) => {
            times!($type, |v: i64| {
                let seconds = v.div_euclid($unit);
                (0..86_400).contains(&seconds).then(|| time::clock(seconds, nanos(v, $unit)))
            })
        };
    }
    macro_rules! texts {
        ($array:expr) => {{
            let array = $array;
            each(values, places, row, |at, row| column.push(at.map_or(&b""[..], |at| array.value(at).as_bytes()), row))
        }};
    }
    match values.data_type() {
        DataType::Boolean => {
            let array = values.as_boolean();
            each(values, places, row, |at, row| match at {
                None => column.push(b"", row),
                Some(at) => column.push_bool(array.value(at), row),
            })
        }
        DataType::Int8 => integers!(Int8Type),
        DataType::Int16 => integers!(Int16Type),
        DataType::Int32 => integers!(Int32Type),
        DataType::Int64 => integers!(Int64Type),
        DataType::UInt8 => integers!(UInt8Type),
        DataType::UInt16 => integers!(UInt16Type),
        DataType::UInt32 => integers!(UInt32Type),
        DataType::UInt64 => integers!(UInt64Type),
        DataType::Float16 => numbers!(Float16Type, half::f16::to_f64, |out: &mut String, v| write!(out, "{v}")),
        DataType::Float32 => {
            numbers!(Float32Type, f64::from, |out: &mut String, v| out.write_str(ryu::Buffer::new().format(v)))
        }
        DataType::Float64 => {
            numbers!(Float64Type, |v| v, |out: &mut String, v| out.write_str(ryu::Buffer::new().format(v)))
        }
        DataType::Decimal32(..) => decimals!(Decimal32Type, f64::from),
        DataType::Decimal64(..) => decimals!(Decimal64Type, |v| v as f64),
        DataType::Decimal128(..) => decimals!(Decimal128Type, |v| v as f64),
        // Every 256-bit integer is in the range of `f64`.
        DataType::Decimal256(..) => decimals!(Decimal256Type, |v: <Decimal256Type as ArrowPrimitiveType>::Native| v
            .to_f64()
            .unwrap_or(f64::INFINITY)),
        DataType::Date32 => times!(Date32Type, time::date),
        DataType::Date64 => times!(Date64Type, |v: i64| match v.rem_euclid(86_400_000) {
            0 => time::date(v / 86_400_000),
            _ => time::timestamp(v.div_euclid(1000), nanos(v, 1000), false),
        }),
        DataType::Timestamp(unit, zone) => {
            let zone = zone.is_some();
            match unit {
                TimeUnit::Second => timestamps!(TimestampSecondType, 1, zone),
                TimeUnit::Millisecond => timestamps!(TimestampMillisecondType, 1000, zone),
                TimeUnit::Microsecond => timestamps!(TimestampMicrosecondType, 1_000_000, zone),
                TimeUnit::Nanosecond => timestamps!(TimestampNanosecondType, 1_000_000_000, zone),
            }
        }
        DataType::Time32(TimeUnit::Second) => clocks!(Time32SecondType, 1),
        DataType::Time32(TimeUnit::Millisecond) => clocks!(Time32MillisecondType, 1000),
        DataType::Time64(TimeUnit::Microsecond) => clocks!(Time64MicrosecondType, 1_000_000),
        DataType::Time64(TimeUnit::Nanosecond) => clocks!(Time64NanosecondType, 1_000_000_000),
        DataType::Utf8 => texts!(values.as_string::<i32>()),
        DataType::LargeUtf8 => texts!(values.as_string::<i64>()),
        DataType::Utf8View => texts!(values.as_string_view()),
        // Only null arrays are left: `wanted` has refused the other types, and arrow has no other units of times.
        _ => places.zip(row..).try_for_each(|(_, row)| column.push(b"", row)),
    }
}

/// The nanoseconds after the last full second, of a number of which `unit` are a second.
fn nanos(value: i64, unit: i64) -> u32 {
    // Below a billion.
    (value.rem_euclid(unit) * (1_000_000_000 / unit)) as u32
}

/// Calls `push` with each place, `None` where the value is null, and its row.
fn each(
    values: &dyn Array,
    places: impl Iterator<Item = Option<usize>>,
    row: u64,
    mut push: impl FnMut(Option<usize>, u64) -> Result<()>,
) -> Result<()> {
    match values.nulls() {
        None => places.zip(row..).try_for_each(|(at, row)| push(at, row)),
        Some(nulls) => places.zip(row..).try_for_each(|(at, row)| push(at.filter(|&at| nulls.is_valid(at)), row)),
    }
}
