//! Numbers from text: exact, and fast for the short decimals that tables are made of.

use super::decimal::{OTHER, TENS, decimal, join};

/// What a cell of a text file holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Parsed {
    /// A finite number.
    Number(f64),
    /// Nothing: see [`is_missing`].
    Missing,
    /// Infinity, spelled out or by a number too large for an `f64`.
    Infinite,
    /// Anything else.
    Text,
}

/// Whether a cell (without surrounding spaces) counts as missing.
///
/// That is: empty, `NA`, `#NA`, `N/A`, `n/a`, `#N/A`, `<NA>`, `NaN` in any case, `null`, `NULL`, `None` and `?`.
pub(crate) fn is_missing(cell: &[u8]) -> bool {
    match cell.len() {
        0 => true,
        1 => cell == b"?",
        2 => cell == b"NA",
        3 => matches!(cell, b"N/A" | b"n/a" | b"#NA") || cell.eq_ignore_ascii_case(b"nan"),
        4 => matches!(cell, b"null" | b"NULL" | b"None" | b"#N/A" | b"<NA>"),
        _ => false,
    }
}

/// Reads a whole cell; spaces around it do not count.
pub(crate) fn parse(cell: &[u8]) -> Parsed {
    let cell = cell.trim_ascii();
    if let Some((value, used)) = prefix(cell)
        && used == cell.len()
    {
        return Parsed::Number(value);
    }
    if is_missing(cell) {
        return Parsed::Missing;
    }
    match std::str::from_utf8(cell).ok().and_then(|text| text.parse::<f64>().ok()) {
        Some(value) if value.is_finite() => Parsed::Number(value),
        Some(value) if value.is_nan() => Parsed::Missing,
        Some(_) => Parsed::Infinite,
        None => Parsed::Text,
    }
}

/// Reads the number from `start` to `end`, where that can be done exactly with one rounding: see [`prefix`]. What comes after
/// it is not part of it, but having eight bytes to read makes it fast.
#[inline]
pub(crate) fn cell(text: &[u8], start: usize, end: usize) -> Option<f64> {
    if let Some(value) = short(text, start, end) {
        return Some(value);
    }
    let (value, used) = prefix(text.get(start..)?)?;
    (start + used == end).then_some(value)
}

/// A number of at most eight digits and points after its sign.
#[inline(always)]
fn short(text: &[u8], start: usize, end: usize) -> Option<f64> {
    let negative = *text.get(start)? == b'-';
    let from = start + usize::from(negative);
    let length = end.checked_sub(from).filter(|length| (1..=8).contains(length))?;
    let bytes = u64::from_le_bytes(*text[from..].first_chunk::<8>()?) << (8 * (8 - length));
    let (value, found) = decimal(bytes, length as u64, u64::from(negative));
    (found != OTHER).then_some(value)
}

/// Reads the number at the start of `text` and returns how many bytes it took, where that can be done exactly
/// with one rounding: a mantissa below 2^53 times or over a power of ten that is itself exact. `None` means
/// that the slow path decides.
#[inline]
pub(crate) fn prefix(text: &[u8]) -> Option<(f64, usize)> {
    let negative = text.first() == Some(&b'-');
    let mut at = usize::from(negative);
    let mut mantissa = 0u64;
    let mut digits = run(text, at, &mut mantissa);
    at += digits;
    let mut exponent = 0i32;
    if text.get(at) == Some(&b'.') {
        let after = run(text, at + 1, &mut mantissa);
        at += 1 + after;
        digits += after;
        // More than 19 digits are refused below, so that neither cast nor mantissa can have wrapped.
        exponent = -(after.min(100) as i32);
    }
    if digits == 0 || digits > 19 || mantissa >= 1 << 53 {
        return None;
    }
    if matches!(text.get(at), Some(b'e' | b'E')) {
        at += 1;
        let minus = match text.get(at) {
            Some(b'-') => {
                at += 1;
                true
            }
            Some(b'+') => {
                at += 1;
                false
            }
            _ => false,
        };
        let start = at;
        let mut value = 0i32;
        while let Some(digit) = digit(text, at) {
            value = value * 10 + digit as i32;
            at += 1;
            if at - start > 3 {
                return None;
            }
        }
        if at == start {
            return None;
        }
        exponent += if minus { -value } else { value };
    }
    let power = *TENS.get(exponent.unsigned_abs() as usize)?;
    let value = if exponent < 0 { mantissa as f64 / power } else { mantissa as f64 * power };
    Some((if negative { -value } else { value }, at))
}

/// Appends the run of digits at `at` to `mantissa` and returns its length. Eight bytes go at a time, because
/// this is where the time of reading a table goes.
#[inline]
fn run(text: &[u8], at: usize, mantissa: &mut u64) -> usize {
    const POWERS: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
    let mut length = 0;
    while let Some(chunk) = text.get(at + length..).and_then(<[u8]>::first_chunk::<8>) {
        let (count, value) = eight(u64::from_le_bytes(*chunk));
        *mantissa = mantissa.wrapping_mul(POWERS[count]).wrapping_add(value);
        length += count;
        if count < 8 {
            return length;
        }
    }
    while let Some(digit) = digit(text, at + length) {
        *mantissa = mantissa.wrapping_mul(10).wrapping_add(digit);
        length += 1;
    }
    length
}

/// How many of eight bytes (the first is the lowest) are digits before another byte comes, and their value.
#[inline]
fn eight(bytes: u64) -> (usize, u64) {
    let values = bytes ^ 0x3030_3030_3030_3030;
    // The high bit of a byte is set where it is not below ten. A carry spoils only bytes after such a one.
    let others = (values.wrapping_add(0x7676_7676_7676_7676) | values) & 0x8080_8080_8080_8080;
    let count = (others.trailing_zeros() / 8) as usize;
    if count == 0 {
        return (0, 0);
    }
    // The digits move to the end and zeros take the front.
    (count, join(values << (64 - 8 * count)))
}

#[inline]
fn digit(text: &[u8], at: usize) -> Option<u64> {
    let digit = text.get(at)?.wrapping_sub(b'0');
    (digit < 10).then_some(u64::from(digit))
}

/// A number as the text of a label or category: `1.0` is `1`.
pub(crate) fn show(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    format!("{value}")
}

/// A number with the fewest digits of its precision, `shown`; very large and very small ones with an exponent.
pub(crate) fn write_shortest<T: std::fmt::Display + std::fmt::LowerExp>(
    out: &mut String,
    value: f64,
    shown: T,
) -> std::fmt::Result {
    use std::fmt::Write;
    if value == 0.0 || !value.is_finite() || (1e-5..1e16).contains(&value.abs()) {
        write!(out, "{shown}")
    } else {
        write!(out, "{shown:e}")
    }
}

/// A label or category in normal form: without spaces around it, and an integral number without
/// decimal point and plus sign (`1.0`, `1.` and `+1` are `1`), so that files written by different tools agree.
pub(crate) fn normal(text: &str) -> &str {
    let text = text.trim();
    let plain = text.strip_prefix('+').unwrap_or(text);
    let (whole, fraction) = plain.split_once('.').unwrap_or((plain, ""));
    let digits = match text.strip_prefix('+') {
        Some(_) => whole,
        None => whole.strip_prefix('-').unwrap_or(whole),
    };
    let integral =
        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) && fraction.bytes().all(|b| b == b'0');
    match integral {
        true if digits == "0" => digits,
        true => whole,
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn missing_cells() {
        let missing =
            ["", "NA", "#NA", "N/A", "n/a", "#N/A", "<NA>", "nan", "NaN", "NAN", "null", "NULL", "None", "?", " n/a "];
        assert!(missing.iter().all(|cell| parse(cell.as_bytes()) == Parsed::Missing));
        assert!(["-", "na", "none", "N.A.", "missing"].iter().all(|cell| parse(cell.as_bytes()) == Parsed::Text));
    }

    #[test]
    fn cells() {
        for (text, want) in [
            ("1", Parsed::Number(1.0)),
            (" +2.5e3 ", Parsed::Number(2500.0)),
            ("-.5", Parsed::Number(-0.5)),
            ("5.", Parsed::Number(5.0)),
            ("-0.0", Parsed::Number(-0.0)),
            ("1e308", Parsed::Number(1e308)),
            ("123456789012345678901234567890", Parsed::Number(123456789012345678901234567890.0)),
            ("", Parsed::Missing),
            ("  ", Parsed::Missing),
            ("NA", Parsed::Missing),
            ("N/A", Parsed::Missing),
            ("nAn", Parsed::Missing),
            ("null", Parsed::Missing),
            ("None", Parsed::Missing),
            ("?", Parsed::Missing),
            ("inf", Parsed::Infinite),
            ("-Infinity", Parsed::Infinite),
            ("1e999", Parsed::Infinite),
            ("1,5", Parsed::Text),
            ("1e", Parsed::Text),
            ("-", Parsed::Text),
            (".", Parsed::Text),
            ("1 2", Parsed::Text),
            ("0x10", Parsed::Text),
            ("na", Parsed::Text),
        ] {
            assert_eq!(parse(text.as_bytes()), want, "{text:?}");
        }
        assert_eq!(parse(b"\xff\xfe"), Parsed::Text);
    }

    #[test]
    fn eight_digits_at_a_time() {
        for (text, want) in [
            (b"12345678", (8, 12_345_678)),
            (b"00000000", (8, 0)),
            (b"99999999", (8, 99_999_999)),
            (b"1,345678", (1, 1)),
            (b"123456,8", (6, 123_456)),
            (b"1234567:", (7, 1_234_567)),
            (b"123/5678", (3, 123)),
            (b"\xff2345678", (0, 0)),
            (b"1\xff\xff45678", (1, 1)),
            (b".2345678", (0, 0)),
        ] {
            assert_eq!(eight(u64::from_le_bytes(*text)), want, "{text:?}");
        }
    }

    #[test]
    fn labels_have_one_spelling() {
        for (text, want) in [
            ("1.0", "1"),
            (" 1. ", "1"),
            ("-3.00", "-3"),
            ("-0.0", "0"),
            ("+1", "1"),
            ("+1.0", "1"),
            ("+-1", "+-1"),
            ("007", "007"),
            ("1.5", "1.5"),
            ("v1.0", "v1.0"),
            ("1", "1"),
            (".0", ".0"),
            ("red", "red"),
        ] {
            assert_eq!(normal(text), want, "{text:?}");
        }
        assert_eq!((show(1.0), show(-0.0), show(2.5)), ("1".into(), "0".into(), "2.5".into()));
    }

    proptest! {
        #[test]
        fn the_fast_path_equals_the_standard_library(text in "[-]?[0-9]{0,20}[.]?[0-9]{0,20}([eE][-+]?[0-9]{0,4})?") {
            let want = text.parse::<f64>();
            match parse(text.as_bytes()) {
                Parsed::Number(value) => prop_assert_eq!(Ok(value.to_bits()), want.map(f64::to_bits)),
                Parsed::Infinite => prop_assert!(want.unwrap().is_infinite()),
                Parsed::Missing => prop_assert!(text.is_empty()),
                Parsed::Text => prop_assert!(want.is_err()),
            }
        }

        #[test]
        fn a_number_ends_where_it_ends(text in "[-]?[0-9]{0,12}[.]?[0-9]{0,12}(e[0-9]{0,2})?", after in "[,; \t][0-9,.]{0,12}") {
            let whole = format!("{text}{after}");
            match prefix(whole.as_bytes()) {
                Some((value, used)) => {
                    prop_assert_eq!(used, text.len());
                    prop_assert_eq!(Ok(value.to_bits()), text.parse::<f64>().map(f64::to_bits));
                }
                None => prop_assert_eq!(prefix(text.as_bytes()), None),
            }
        }

        #[test]
        fn a_cell_is_its_number_whatever_comes_after(text in "[-]?[0-9.]{0,9}([eE][-+]?[0-9]{0,2}|[^0-9]?)", after in "[,;\\n0-9.]{0,9}") {
            let whole = format!("1,{text}{after}");
            let found = cell(whole.as_bytes(), 2, 2 + text.len()).map(f64::to_bits);
            let alone = prefix(text.as_bytes()).filter(|(_, used)| *used == text.len());
            // Digits that go on behind the end would make another number: then the cell is left to be looked at again.
            let goes_on = prefix(&whole.as_bytes()[2..]).is_none_or(|(_, used)| used != text.len());
            match found {
                Some(bits) => prop_assert_eq!(Ok(bits), text.parse::<f64>().map(f64::to_bits)),
                None => prop_assert!(alone.is_none() || goes_on),
            }
        }

        #[test]
        fn any_double_comes_back(value in proptest::num::f64::NORMAL | proptest::num::f64::ZERO) {
            prop_assert_eq!(parse(value.to_string().as_bytes()), Parsed::Number(value));
            prop_assert_eq!(parse(format!("{value:e}").as_bytes()), Parsed::Number(value));
        }
    }
}
