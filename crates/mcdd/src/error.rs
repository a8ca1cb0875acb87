//! One error type: what happened, where (file, row, column), and what to do.

use std::fmt;
use std::path::{Path, PathBuf};

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The operating system refused to read or write.
    Io,
    /// A data file, or the data in it, cannot be used.
    Data,
    /// A setting is outside its legal range.
    Setting,
    /// A model or checkpoint file is damaged, foreign or of a newer version.
    Format,
    /// Training produced numbers that are not finite.
    Diverged,
}

/// An error with its place and a hint.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    file: Option<PathBuf>,
    row: Option<u64>,
    column: Option<String>,
    hint: Option<String>,
}

/// The library's result type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A new error; `message` says what happened, in a sentence without a full stop.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into(), file: None, row: None, column: None, hint: None }
    }

    /// Bad data.
    pub fn data(message: impl Into<String>) -> Self {
        Self::new(Kind::Data, message)
    }

    /// A setting outside its range.
    pub fn setting(message: impl Into<String>) -> Self {
        Self::new(Kind::Setting, message)
    }

    /// A damaged or foreign model file.
    pub fn format(message: impl Into<String>) -> Self {
        Self::new(Kind::Format, message)
    }

    /// An error of the operating system, at `file`.
    pub fn io(error: std::io::Error, file: &Path) -> Self {
        let hint = match error.kind() {
            std::io::ErrorKind::NotFound => Some("check the path"),
            std::io::ErrorKind::PermissionDenied => Some("check the permissions of the file and of its folder"),
            _ => None,
        };
        let mut e = Self::new(Kind::Io, error.to_string()).at_file(file);
        e.hint = hint.map(Into::into);
        e
    }

    /// Names the file, unless one is named already.
    #[must_use]
    pub fn at_file(mut self, file: &Path) -> Self {
        self.file.get_or_insert_with(|| file.to_owned());
        self
    }

    /// Names the row as a person counts in the file: from 1, the header included.
    #[must_use]
    pub fn at_row(mut self, row: u64) -> Self {
        self.row.get_or_insert(row);
        self
    }

    /// Names the column, by its name or (counted from 1) its position.
    #[must_use]
    pub fn at_column(mut self, column: impl Into<String>) -> Self {
        self.column.get_or_insert_with(|| column.into());
        self
    }

    /// Says what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The kind, for programs.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The file it happened in.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The row, counted from 1, the header included.
    pub fn row(&self) -> Option<u64> {
        self.row
    }

    /// The column.
    pub fn column(&self) -> Option<&str> {
        self.column.as_deref()
    }

    /// What to do next.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut place = false;
        if let Some(file) = &self.file {
            write!(f, "{}", file.display())?;
            place = true;
        }
        if let Some(row) = self.row {
            write!(f, "{}row {row}", if place { ", " } else { "" })?;
            place = true;
        }
        if let Some(column) = &self.column {
            write!(f, "{}column {column}", if place { ", " } else { "" })?;
            place = true;
        }
        write!(f, "{}{}", if place { ": " } else { "" }, self.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_where_and_what_to_do() {
        let e = Error::data("\"abc\" is not a number")
            .at_file(Path::new("a.csv"))
            .at_row(3)
            .at_column("width")
            .hint("give --categorical width if it is a category");
        assert_eq!(e.to_string(), "a.csv, row 3, column width: \"abc\" is not a number");
        assert_eq!(e.hint_text(), Some("give --categorical width if it is a category"));
        assert_eq!(Error::setting("nu is 0").to_string(), "nu is 0");
    }
}
