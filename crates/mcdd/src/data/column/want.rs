//! What a column is read as.

/// What a column of a file is wanted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// Not at all: its cells are not looked at.
    Skip,
    /// Numbers, or texts where a cell is not a plain number. Numbers among texts are an error, unless all are numbers in
    /// some form.
    Auto,
    /// Numbers.
    Number,
    /// Categories.
    Text,
    /// Labels, of which none may be missing.
    Label,
    /// Labels that may be missing.
    OptionalLabel,
    /// Numbers of which none may be missing, and which may be infinite.
    Score,
    /// Finite numbers of which none may be missing.
    Feature,
}
