//! Values of Arrow arrays as texts.

use std::borrow::Cow;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Float16Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType, Time32SecondType,
    Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_schema::{DataType, TimeUnit};

use super::number::write_shortest;

/// Whether [`value`] knows the type.
pub(super) fn has_text(kind: &DataType) -> bool {
    use DataType::*;
    match kind {
        Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 | Float16 | Float32 | Float64
        | Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..) | Utf8 | LargeUtf8 | Utf8View | Null
        | Date32 | Date64 | Time32(_) | Time64(_) | Timestamp(..) => true,
        Dictionary(_, values) => has_text(values),
        _ => false,
    }
}

/// A value as text, and whether it is a number or a boolean.
pub(super) type Value<'a> = (Cow<'a, str>, bool);

/// The value at `at`: numbers with the fewest digits of their precision, dates and times as in ISO 8601. A time stamp with
/// a time zone is in UTC. None for null, and for types without a text.
pub(super) fn value(values: &dyn Array, at: usize) -> Option<Value<'_>> {
    if let Some(dictionary) = values.as_any_dictionary_opt() {
        let (keys, entries) = (dictionary.keys(), dictionary.values());
        if entries.is_empty() {
            return None;
        }
        let key: usize = value(keys, at)?.0.parse().ok()?;
        return if key < entries.len() { value(entries.as_ref(), key) } else { None };
    }
    if values.is_null(at) {
        return None;
    }
    let literal = |text: String| (Cow::Owned(text), true);
    let text = |text| (Cow::Borrowed(text), false);
    macro_rules! integer {
        ($type:ty) => {
            literal(values.as_primitive::<$type>().value(at).to_string())
        };
    }
    macro_rules! float {
        ($type:ty, $wide:expr) => {{
            let (mut text, value) = (String::new(), values.as_primitive::<$type>().value(at));
            // Writing to a string does not fail.
            let _ = write_shortest(&mut text, $wide(value), value);
            literal(text)
        }};
    }
    macro_rules! decimal {
        ($type:ty) => {
            literal(values.as_primitive::<$type>().value_as_string(at))
        };
    }
    macro_rules! when {
        ($type:ty, $of:ident, $end:expr) => {
            (Cow::Owned(format!("{:?}{}", values.as_primitive::<$type>().$of(at)?, $end)), false)
        };
    }
    Some(match values.data_type() {
        DataType::Boolean => literal(values.as_boolean().value(at).to_string()),
        DataType::Int8 => integer!(Int8Type),
        DataType::Int16 => integer!(Int16Type),
        DataType::Int32 => integer!(Int32Type),
        DataType::Int64 => integer!(Int64Type),
        DataType::UInt8 => integer!(UInt8Type),
        DataType::UInt16 => integer!(UInt16Type),
        DataType::UInt32 => integer!(UInt32Type),
        DataType::UInt64 => integer!(UInt64Type),
        DataType::Float16 => float!(Float16Type, half::f16::to_f64),
        DataType::Float32 => float!(Float32Type, f64::from),
        DataType::Float64 => float!(Float64Type, |v| v),
        DataType::Decimal32(..) => decimal!(Decimal32Type),
        DataType::Decimal64(..) => decimal!(Decimal64Type),
        DataType::Decimal128(..) => decimal!(Decimal128Type),
        DataType::Decimal256(..) => decimal!(Decimal256Type),
        DataType::Utf8 => text(values.as_string::<i32>().value(at)),
        DataType::LargeUtf8 => text(values.as_string::<i64>().value(at)),
        DataType::Utf8View => text(values.as_string_view().value(at)),
        DataType::Date32 => when!(Date32Type, value_as_date, ""),
        DataType::Date64 => when!(Date64Type, value_as_date, ""),
        DataType::Time32(TimeUnit::Second) => when!(Time32SecondType, value_as_time, ""),
        DataType::Time32(TimeUnit::Millisecond) => when!(Time32MillisecondType, value_as_time, ""),
        DataType::Time64(TimeUnit::Microsecond) => when!(Time64MicrosecondType, value_as_time, ""),
        DataType::Time64(TimeUnit::Nanosecond) => when!(Time64NanosecondType, value_as_time, ""),
        DataType::Timestamp(unit, zone) => {
            let end = if zone.is_some() { "Z" } else { "" };
            match unit {
                TimeUnit::Second => when!(TimestampSecondType, value_as_datetime, end),
                TimeUnit::Millisecond => when!(TimestampMillisecondType, value_as_datetime, end),
                TimeUnit::Microsecond => when!(TimestampMicrosecondType, value_as_datetime, end),
                TimeUnit::Nanosecond => when!(TimestampNanosecondType, value_as_datetime, end),
            }
        }
        _ => return None,
    })
}
