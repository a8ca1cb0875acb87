//! One typed value of a table in memory.

use std::borrow::Cow;

/// A value of a row: what [`TableBuilder::column`](super::TableBuilder::column) and
/// [`Schema::encode_row`](super::Schema::encode_row) take. Integers, floats, booleans, texts and options of these convert
/// to it, and so do references to them.
///
/// NaN is a missing cell, and so is a text that is empty, `NA`, `#NA`, `N/A`, `n/a`, `#N/A`, `<NA>`, `NaN` (in any case),
/// `null`, `NULL`, `None` or `?`.
///
/// ```
/// use mcdd::data::Cell;
///
/// assert_eq!(Cell::from(3), Cell::Int(3));
/// assert_eq!(Cell::from("red"), Cell::Text("red"));
/// assert_eq!(Cell::from(None::<f64>), Cell::Missing);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// No value.
    Missing,
    /// As a number 0 or 1; as a category `false` or `true`.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A number in single precision.
    F32(f32),
    /// A number in double precision.
    F64(f64),
    /// A category, or the text of a number.
    Text(&'a str),
}

macro_rules! values {
    ($($type:ty => $variant:ident as $as:ty),*) => {
        $(
            impl From<$type> for Cell<'_> {
                fn from(value: $type) -> Self {
                    Cell::$variant(value as $as)
                }
            }

            impl From<&$type> for Cell<'_> {
                fn from(value: &$type) -> Self {
                    Cell::from(*value)
                }
            }

            impl From<&Option<$type>> for Cell<'_> {
                fn from(value: &Option<$type>) -> Self {
                    Cell::from(*value)
                }
            }
        )*
    };
}

values!(
    bool => Bool as bool,
    i8 => Int as i64, i16 => Int as i64, i32 => Int as i64, i64 => Int as i64, isize => Int as i64,
    u8 => Uint as u64, u16 => Uint as u64, u32 => Uint as u64, u64 => Uint as u64, usize => Uint as u64,
    f32 => F32 as f32, f64 => F64 as f64
);

macro_rules! texts {
    ($($type:ty),*) => {
        $(
            impl<'a> From<&'a $type> for Cell<'a> {
                fn from(text: &'a $type) -> Self {
                    Cell::Text(text)
                }
            }

            impl<'a> From<&'a Option<$type>> for Cell<'a> {
                fn from(text: &'a Option<$type>) -> Self {
                    text.as_ref().map_or(Cell::Missing, |text| Cell::Text(text))
                }
            }
        )*
    };
}

texts!(String, &str, Cow<'_, str>, Box<str>);

impl<'a> From<&'a str> for Cell<'a> {
    fn from(text: &'a str) -> Self {
        Cell::Text(text)
    }
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Cell::Missing, T::into)
    }
}
