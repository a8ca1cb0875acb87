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

/// An error with its place and a hint; one pointer wide, as results are passed around in hot loops.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: Kind,
    message: String,
    file: Option<PathBuf>,
    row: Option<u64>,
    column: Option<String>,
    hint: Option<String>,
    source: Option<std::io::Error>,
}

/// The library's result type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A new error; `message` says what happened, in a sentence without a full stop.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error(Box::new(Inner {
            kind,
            message: message.into(),
            file: None,
            row: None,
            column: None,
            hint: None,
            source: None,
        }))
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
        use std::io::ErrorKind;
        let (message, hint) = match error.kind() {
            ErrorKind::NotFound => ("there is no such file or folder", "check the path"),
            ErrorKind::PermissionDenied => ("permission denied", "check the permissions of the file and of its folder"),
            ErrorKind::StorageFull => ("no space is left", "make room, or write somewhere else"),
            ErrorKind::ReadOnlyFilesystem => ("the file system is read-only", "write somewhere else"),
            _ => ("", "try again; if it stays, look at the disk or the other end"),
        };
        let message = if message.is_empty() { error.to_string() } else { message.to_owned() };
        let mut e = Self::new(Kind::Io, message).at_file(file).hint(hint);
        e.0.source = Some(error);
        e
    }

    /// Names the file, unless one is named already. An empty path names none.
    #[must_use]
    pub fn at_file(mut self, file: &Path) -> Self {
        if file.as_os_str().is_empty() {
            return self;
        }
        self.0.file.get_or_insert_with(|| file.to_owned());
        self
    }

    /// Names the row as a person counts in the file: from 1, the header included.
    #[must_use]
    pub fn at_row(mut self, row: u64) -> Self {
        self.0.row.get_or_insert(row);
        self
    }

    /// Names the column, by its name or (counted from 1) its position.
    #[must_use]
    pub fn at_column(mut self, column: impl Into<String>) -> Self {
        self.0.column.get_or_insert_with(|| column.into());
        self
    }

    /// Says what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// The kind, for programs.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The file it happened in.
    pub fn file(&self) -> Option<&Path> {
        self.0.file.as_deref()
    }

    /// The row, counted from 1, the header included.
    pub fn row(&self) -> Option<u64> {
        self.0.row
    }

    /// The column.
    pub fn column(&self) -> Option<&str> {
        self.0.column.as_deref()
    }

    /// What to do next.
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut place = false;
        if let Some(file) = &self.0.file {
            // What the command line calls `-`.
            let stdin = file == Path::new("-");
            if stdin {
                write!(f, "standard input")?
            } else {
                write!(f, "{}", file.display())?
            }
            place = true;
        }
        if let Some(row) = self.0.row {
            write!(f, "{}row {row}", if place { ", " } else { "" })?;
            place = true;
        }
        if let Some(column) = &self.0.column {
            write!(f, "{}column {column}", if place { ", " } else { "" })?;
            place = true;
        }
        write!(f, "{}{}", if place { ": " } else { "" }, self.0.message)
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
