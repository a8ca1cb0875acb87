//! One column of numbers from a file: scores that any program has written.

use std::path::Path;
use std::sync::Arc;

use super::column::{Cells, ColumnBuilder, Want};
use super::number;
use super::options::{Label, ReadOptions};
use super::source::Source;
use super::text::list;
use crate::error::{Error, Result};

/// Rows read at a time.
const BLOCK: usize = 8192;

/// Reads the scores in a file of any format that [`Table::read`](super::Table::read) reads: the column of this name or
/// number (from 1), else the one called `confidence` or `score`, else the only one. Infinite scores are allowed; a
/// missing one is an error.
///
/// # Errors
/// If the file cannot be read, the column is not there, or a cell is not a number.
pub fn scores(path: &Path, column: Option<&str>) -> Result<Vec<f64>> {
    let options = ReadOptions { label: Label::None, ..ReadOptions::default() };
    let mut reader = ScoreReader::new(Source::open(path, &options)?, column)?;
    let mut scores = Vec::new();
    while reader.next(BLOCK, &mut scores)? {}
    if scores.is_empty() {
        return Err(Error::data("there are no scores in the file")
            .at_file(path)
            .hint("give a file with a score for each row"));
    }
    Ok(scores)
}

/// Reads one column of numbers block by block.
pub struct ScoreReader {
    source: Source,
    columns: Vec<ColumnBuilder>,
    at: usize,
}

impl ScoreReader {
    /// The column as for [`scores`].
    pub(super) fn new(mut source: Source, column: Option<&str>) -> Result<ScoreReader> {
        source.look_for(None)?;
        let at = find(&source, column).map_err(|e| e.at_file(source.path()))?;
        if source.named() && number::is_missing(source.names()[at].as_bytes()) {
            // What was taken for a header is a row whose score is missing.
            return Err(Error::data("the score is missing").at_file(source.path()).at_row(1).hint(
                "every row needs a score: drop the row from the file, or give it one (inf and -inf are allowed)",
            ));
        }
        let builder = |(i, name): (usize, &String)| {
            ColumnBuilder::new(name, if i == at { Want::Score } else { Want::Skip }, Arc::clone(source.file()))
        };
        let columns = source.names().iter().enumerate().map(builder).collect();
        Ok(ScoreReader { source, columns, at })
    }

    /// Appends the next scores, at most `max`; `false` at the end.
    ///
    /// # Errors
    /// If the rest of the file cannot be read.
    pub fn next(&mut self, max: usize, out: &mut Vec<f64>) -> Result<bool> {
        self.columns.iter_mut().for_each(ColumnBuilder::clear);
        let rows = self.source.fill(max, &mut self.columns)?;
        if let Some(Cells::Number(values)) = self.columns.get(self.at).map(|c| &c.cells) {
            out.extend_from_slice(values);
        }
        Ok(rows == max)
    }
}

/// The position of the column.
fn find(source: &Source, column: Option<&str>) -> Result<usize> {
    let names = source.names();
    let named = |wanted: &str| names.iter().position(|n| source.named() && n.eq_ignore_ascii_case(wanted));
    let columns = if source.named() { format!("the columns are {}", list(names)) } else { "there is no header".into() };
    match column {
        None if names.len() == 1 => Ok(0),
        None => named("confidence").or_else(|| named("score")).ok_or_else(|| {
            Error::data(format!("there are {} columns and none is named confidence or score", names.len()))
                .hint(format!("{columns}; give `column`, a name or a number from 1"))
        }),
        Some(column) => {
            let numbered = || column.parse::<usize>().ok()?.checked_sub(1).filter(|&i| i < names.len());
            named(column).or_else(numbered).ok_or_else(|| {
                Error::data(format!("there is no column {column}"))
                    .hint(format!("{columns}; numbers run from 1 to {}", names.len()))
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, content: &[u8], column: Option<&str>) -> Result<Vec<f64>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        scores(&path, column)
    }

    #[test]
    fn text_columns_and_arrays() {
        let (inf, text) = (f64::INFINITY, "a.txt");
        assert_eq!(read(text, b"1\n-2.5\n3e-2\n", None).unwrap(), [1.0, -2.5, 0.03]);
        assert_eq!(read(text, b"score\n1\n2\n", None).unwrap(), [1.0, 2.0]);
        assert_eq!(read(text, b"-inf\n1\ninf\n", None).unwrap(), [-inf, 1.0, inf]);
        let table = b"label,confidence,verdict\na,-1,known\nb,-2,unknown\n";
        assert_eq!(read("p.csv", table, None).unwrap(), [-1.0, -2.0]);
        assert_eq!(read("p.csv", b"a;b\n1;2\n3;4\n", Some("b")).unwrap(), [2.0, 4.0]);
        assert_eq!(read("p.csv", b"1,2\n3,4\n", Some("2")).unwrap(), [2.0, 4.0]);
        let mut npy = b"\x93NUMPY\x01\x00\x46\x00{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }".to_vec();
        npy.resize(79, b' ');
        npy.push(b'\n');
        npy.extend([1.5f64, f64::NEG_INFINITY].iter().flat_map(|v| v.to_le_bytes()));
        assert_eq!(read("s.npy", &npy, None).unwrap(), [1.5, -inf]);
    }

    #[test]
    fn errors_name_row_and_column() {
        let fails = |content: &[u8], column: Option<&str>, row: Option<u64>, part: &str| {
            let e = read("s.csv", content, column).unwrap_err();
            assert!(e.to_string().contains(part) && e.file().is_some() && e.hint_text().is_some(), "{e}");
            assert_eq!(e.row(), row, "{e}");
        };
        fails(b"1\nNaN\n2\n", None, Some(2), "missing");
        fails(b"NaN\n1\n2\n", None, Some(1), "missing");
        fails(b"NA\n1\n2\n", None, Some(1), "missing");
        fails(b"?,1\na,2\n", Some("1"), Some(1), "missing");
        fails(b"a,b\n1,2\n3,\n", Some("b"), Some(2), "missing");
        fails(b"1\n2\nabc\n", None, Some(3), "abc");
        fails(b"a,b\n1,2\n", None, None, "none is named");
        fails(b"a,b\n1,2\n", Some("c"), None, "no column c");
        fails(b"1,2\n3,4\n", Some("3"), None, "no column 3");
        assert!(read("s.csv", b"", None).is_err());
        // Only options of the command that reads scores are in hints.
        let hint = |content: &[u8]| read("s.csv", content, None).unwrap_err().hint_text().unwrap().to_owned();
        assert!(hint(b"1\n2\nabc\n").contains("`column`") && !hint(b"1\n2\nabc\n").contains("categorical"));
    }
}
