//! Names, counts and quotes in messages.

#[cfg(not(all(feature = "excel", feature = "images", feature = "npz", feature = "parquet")))]
use crate::error::Error;

/// Sentences for the user about what was done to the data.
pub type Notices = Vec<String>;

/// The name of the column at `index` (from 0) where the file has none.
pub(crate) fn positional_name(index: usize) -> String {
    format!("column {}", index + 1)
}

/// A column's name for an error, which puts "column" before it.
pub(crate) fn shown(name: &str) -> &str {
    match name.strip_prefix("column ") {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => digits,
        _ => name,
    }
}

/// A text from a file in quotes, cut where it is long, without control characters.
pub(crate) fn quoted(text: &str) -> String {
    // A line within a text is common, and no reason for a replacement.
    let line = |c| if matches!(c, '\n' | '\r' | '\t') { ' ' } else { c };
    format!("\"{}\"", short(&text.chars().take(QUOTED + 1).map(line).collect::<String>(), QUOTED))
}

/// The longest text in quotes, and the longest name in a list.
const QUOTED: usize = 40;
const LISTED: usize = 80;

/// A text without harmful characters, cut after `most` characters.
fn short(text: &str, most: usize) -> String {
    let mut short: String = plain(&text.chars().take(most).collect::<String>());
    if text.chars().nth(most).is_some() {
        short.push('…');
    }
    short
}

/// Names for a message: the first few, and how many more.
pub(crate) fn list<S: AsRef<str>>(names: &[S]) -> String {
    const MOST: usize = 12;
    let mut text = names.iter().take(MOST).map(|name| short(name.as_ref(), LISTED)).collect::<Vec<_>>().join(", ");
    if names.len() > MOST {
        text.push_str(&format!(" and {} more", names.len() - MOST));
    }
    text
}

pub(crate) use crate::error::count;
use crate::error::plain;

/// A number with thousands separators: 13,910.
#[cfg_attr(not(feature = "datasets"), allow(unreachable_pub))]
pub fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The error that this build cannot read something.
#[cfg(not(all(feature = "excel", feature = "images", feature = "npz", feature = "parquet")))]
pub(crate) fn needs_feature(what: &str, feature: &str) -> Error {
    Error::setting(format!("{what} cannot be read by this build of mcdd"))
        .hint(format!("build mcdd with its Cargo feature `{feature}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_messages() {
        assert_eq!(shown("column 12"), "12");
        assert_eq!(shown("column x"), "column x");
        assert_eq!(quoted("a\nb"), "\"a b\"");
        assert_eq!(quoted("a\u{1b}\u{202e}b"), "\"a\u{fffd}\u{fffd}b\"");
        assert_eq!(list(&["a", "b\u{1b}\n"]), "a, b\u{fffd}\u{fffd}");
        assert_eq!(list(&["x".repeat(1000)]).chars().count(), LISTED + 1);
        assert_eq!(list(&["a", "b"]), "a, b");
        let many: Vec<String> = (0..20).map(|i| i.to_string()).collect();
        assert!(list(&many).ends_with("and 8 more"));
    }
}
