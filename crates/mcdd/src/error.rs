//! One error type: what happened, where (file, row, column), and what to do.
//!
//! # Names of settings
//!
//! Messages, hints and notices name a setting in backticks, by its name in the library: "lower `lr`", or with a value,
//! "give `method=softmax`". Values and names from data are in double quotes. A front end replaces each setting with how it
//! is given there ([`rename_settings`], [`Error::message_with`], [`Error::hint_with`]): a command prints `--lr` and
//! `--method softmax`, Python `lr=` and `method="softmax"`. What it does not know as a setting stays as it is.
//!
//! ```
//! use mcdd::train::Settings;
//!
//! let flag = |setting: &str| Some(format!("--{}", setting.replace('_', "-").replace('=', " ")));
//! let error = Settings::builder().weight_decay(-1.0).build().unwrap_err();
//! assert_eq!(error.to_string(), "`weight_decay` is -1");
//! assert_eq!(error.message_with(flag), "--weight-decay is -1");
//! ```

use std::fmt;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The operating system failed to read or write.
    Io,
    /// A data file, or the data in it, cannot be used.
    Data,
    /// A setting is out of range, or does not fit the others.
    Setting,
    /// A model or checkpoint file is damaged, of another program, or of a newer version.
    Format,
    /// Training produced numbers that are not finite.
    Diverged,
}

/// An error with its place and a hint; one pointer wide, because results are returned in hot loops.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: Kind,
    message: String,
    file: Option<PathBuf>,
    row: Option<Row>,
    line: Option<u64>,
    column: Option<String>,
    hint: Option<String>,
    source: Option<std::io::Error>,
}

/// A row of a file: its number from 1, the header not counted, and in a text the line where it begins. It is displayed
/// as `3`, or as `3 (line 4)` where the two differ.
///
/// ```
/// use mcdd::error::Row;
///
/// assert_eq!(Row::from(3).to_string(), "3");
/// assert_eq!(Row { number: 3, line: 4.try_into().ok() }.to_string(), "3 (line 4)");
/// assert_eq!(Row { number: 3, line: 3.try_into().ok() }.to_string(), "3");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The number of the row, from 1, the header not counted.
    pub number: u64,
    /// The line of a text, or the row of a worksheet, from 1, everything counted.
    pub line: Option<NonZeroU64>,
}

impl Row {
    /// A row of a text.
    pub(crate) fn at_line(number: u64, line: u64) -> Row {
        Row { number, line: NonZeroU64::new(line) }
    }
}

impl From<u64> for Row {
    fn from(number: u64) -> Row {
        Row { number, line: None }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) if line.get() != self.number => write!(f, "{} (line {line})", self.number),
            _ => write!(f, "{}", self.number),
        }
    }
}

/// The library's result type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A new error. `message` describes what happened, in a sentence without a final period.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error(Box::new(Inner {
            kind,
            message: message.into(),
            file: None,
            row: None,
            line: None,
            column: None,
            hint: None,
            source: None,
        }))
    }

    /// An error of [`Kind::Data`].
    pub fn data(message: impl Into<String>) -> Self {
        Self::new(Kind::Data, message)
    }

    /// An error of [`Kind::Setting`].
    pub fn setting(message: impl Into<String>) -> Self {
        Self::new(Kind::Setting, message)
    }

    /// An error of [`Kind::Format`].
    pub fn format(message: impl Into<String>) -> Self {
        Self::new(Kind::Format, message)
    }

    /// An error of the operating system, at `file`.
    pub fn io(error: std::io::Error, file: &Path) -> Self {
        use std::io::ErrorKind;
        let (message, hint) = match error.kind() {
            ErrorKind::NotFound => ("no such file or folder", "check the path"),
            ErrorKind::PermissionDenied => ("permission denied", "check the permissions of the file and of its folder"),
            ErrorKind::StorageFull => ("no space left on the disk", "free some space, or write to another disk"),
            ErrorKind::ReadOnlyFilesystem => ("the file system is read-only", "write to another file system"),
            _ => ("", "try again; if it fails again, check the disk or the connection"),
        };
        let message = if message.is_empty() { error.to_string() } else { message.to_owned() };
        let mut e = Self::new(Kind::Io, message).at_file(file).hint(hint);
        e.0.source = Some(error);
        e
    }

    /// Sets the file, unless it is set already or the path is empty.
    #[must_use]
    pub fn at_file(mut self, file: &Path) -> Self {
        if file.as_os_str().is_empty() {
            return self;
        }
        self.0.file.get_or_insert_with(|| file.to_owned());
        self
    }

    /// Sets the row, unless it is set already: counted from 1, the header not counted.
    #[must_use]
    pub fn at_row(mut self, row: impl Into<Row>) -> Self {
        self.0.row.get_or_insert(row.into());
        self
    }

    /// Counts the row from the start of the data, after `rows` other rows.
    #[must_use]
    pub fn after_rows(mut self, rows: u64) -> Self {
        if let Some(row) = &mut self.0.row {
            row.number += rows;
        }
        self
    }

    /// Sets the line of a text, unless it is set already: counted from 1. For what is not in a row, such as a header.
    #[must_use]
    pub fn at_line(mut self, line: u64) -> Self {
        self.0.line.get_or_insert(line);
        self
    }

    /// Sets the column, unless it is set already: its name, or its position counted from 1.
    #[must_use]
    pub fn at_column(mut self, column: impl Into<String>) -> Self {
        self.0.column.get_or_insert_with(|| column.into());
        self
    }

    /// Sets the hint: what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// The kind of the error.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The file in which it happened.
    pub fn file(&self) -> Option<&Path> {
        self.0.file.as_deref()
    }

    /// The row, counted from 1, the header not counted.
    pub fn row(&self) -> Option<u64> {
        self.0.row.map(|row| row.number)
    }

    /// The row with its line.
    pub(crate) fn row_and_line(&self) -> Option<Row> {
        self.0.row
    }

    /// The line of a text, counted from 1.
    pub fn line(&self) -> Option<u64> {
        self.0.row.and_then(|row| row.line).map(NonZeroU64::get).or(self.0.line)
    }

    /// The message alone: without the place, and without the hint.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The column.
    pub fn column(&self) -> Option<&str> {
        self.0.column.as_deref()
    }

    /// The hint: what to do next.
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The error as it is displayed, with the names of settings replaced as by [`rename_settings`].
    pub fn message_with(&self, rename: impl Fn(&str) -> Option<String>) -> String {
        format!("{}{}", self.place(), plain_lines(&rename_settings(&self.0.message, rename)))
    }

    /// The hint, with the names of settings replaced as by [`rename_settings`].
    pub fn hint_with(&self, rename: impl Fn(&str) -> Option<String>) -> Option<String> {
        self.hint_text().map(|hint| plain(&rename_settings(hint, rename)))
    }

    /// Where it happened, followed by a colon; empty if that is not known.
    fn place(&self) -> String {
        // The path that stands for standard input.
        let name = |file: &PathBuf| match file.to_str() {
            Some("-") => "standard input".to_owned(),
            _ => plain(&file.display().to_string()),
        };
        let parts = [
            self.0.file.as_ref().map(name),
            self.0.row.map(|row| format!("row {row}")).or(self.0.line.map(|line| format!("line {line}"))),
            self.0.column.as_ref().map(|column| format!("column {}", plain(column))),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { String::new() } else { parts.join(", ") + ": " }
    }
}

/// Whether a character is harmful in a text from outside: a terminal obeys it, or it changes the order in which the text
/// around it is shown, or it cannot be seen.
pub fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Marks and overrides of the direction of writing, and ends of lines and paragraphs.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Annotations, what is no character, and tags.
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}' | '\u{e0000}'..='\u{e007f}')
}

/// A text from outside without harmful characters, for messages, pages and figures: each is replaced by U+FFFD.
///
/// ```
/// assert_eq!(mcdd::error::plain("a\x1b[31mb\u{202e}c"), "a\u{fffd}[31mb\u{fffd}c");
/// ```
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if is_harmful(c) { '\u{fffd}' } else { c }).collect()
}

/// The same for a text of several lines, which may have tabs.
pub fn plain_lines(text: &str) -> String {
    text.chars().map(|c| if !matches!(c, '\n' | '\t') && is_harmful(c) { '\u{fffd}' } else { c }).collect()
}

/// A number of things, for messages: `1 row`, `2 rows`, `2 classes`.
///
/// ```
/// use mcdd::error::count;
///
/// assert_eq!((count(1, "class"), count(0, "row")), ("1 class".to_owned(), "0 rows".to_owned()));
/// ```
pub fn count(n: usize, what: &str) -> String {
    format!("{n} {}", plural(n, what))
}

/// The noun alone, for numbers that are written in another way.
pub fn plural(n: usize, what: &str) -> String {
    let end = match (n, what.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{what}{end}")
}

/// Replaces what is in backticks, `name` or `name=value`, by what `rename` gives for it; `None` leaves it as it is.
///
/// ```
/// let flags = |setting: &str| (setting == "lr").then(|| "--lr".to_owned());
/// assert_eq!(mcdd::error::rename_settings("lower `lr` or `batch`", flags), "lower --lr or `batch`");
/// ```
pub fn rename_settings(text: &str, rename: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('`') {
        out.push_str(before);
        let renamed = after.split_once('`').and_then(|(name, after)| Some((rename(name)?, after)));
        match renamed {
            Some((name, after)) => {
                out.push_str(&name);
                rest = after;
            }
            None => {
                out.push('`');
                rest = after;
            }
        }
    }
    out + rest
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.place(), plain_lines(&self.0.message))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|e| e as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_a_place_and_a_hint() {
        let e = Error::data("\"abc\" is not a number")
            .at_file(Path::new("a.csv"))
            .at_row(3)
            .at_column("width")
            .hint("give `categorical` \"width\" if it is a category");
        assert_eq!(e.to_string(), "a.csv, row 3, column width: \"abc\" is not a number");
        assert_eq!(e.hint_text(), Some("give `categorical` \"width\" if it is a category"));
        let e = Error::data("short").at_row(Row::at_line(2, 5)).at_row(9);
        assert_eq!((e.row(), e.line(), e.to_string().as_str()), (Some(2), Some(5), "row 2 (line 5): short"));
        let e = Error::data("twice").at_line(1);
        assert_eq!((e.row(), e.line(), e.to_string().as_str()), (None, Some(1), "line 1: twice"));
        assert_eq!(Error::data("empty").at_file(Path::new("-")).to_string(), "standard input: empty");
        assert_eq!(Error::setting("`nu` is 0").to_string(), "`nu` is 0");
    }

    #[test]
    fn text_from_outside_is_harmless() {
        let nasty = "a\u{1b}]0;b\u{7}\n\u{9b}31m\u{202e}\u{2066}c";
        let e = Error::data(nasty).at_file(Path::new(nasty)).at_column(nasty).hint(nasty);
        let lines = e.to_string() + &e.message_with(|_| None);
        assert!(!lines.chars().any(|c| c != '\n' && is_harmful(c)), "{lines:?}");
        // An excerpt of a file has lines; a name has none.
        assert_eq!(lines.lines().count(), 3);
        assert!(!e.hint_with(|_| None).unwrap().chars().any(is_harmful));
        let others = "naïve ‚quotes‘ עברית 日本 👩‍🔬 a\u{301}";
        assert_eq!(plain(others), others);
    }

    #[test]
    fn settings_are_renamed_in_message_and_hint_but_not_in_the_place() {
        let flag = |setting: &str| match setting {
            "lr" => Some("--lr".to_owned()),
            "method=softmax" => Some("--method softmax".to_owned()),
            _ => None,
        };
        let e = Error::setting("`lr` is 0 and `nu` is 1").at_file(Path::new("`lr`")).hint("give `method=softmax`");
        assert_eq!(e.message_with(flag), "`lr`: --lr is 0 and `nu` is 1");
        assert_eq!(e.hint_with(flag).as_deref(), Some("give --method softmax"));
        assert_eq!(Error::data("empty").hint_with(flag), None);
        // Without a partner a backtick is text, and one that names no setting does not hide the next.
        assert_eq!(rename_settings("a ` b `lr` c `", flag), "a ` b --lr c `");
        assert_eq!(rename_settings("", flag), "");
    }
}
