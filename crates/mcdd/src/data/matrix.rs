//! Matrices of numbers without preprocessing: features and logits that another program has computed.

use std::path::Path;
use std::sync::Arc;

use super::column::{Cells, ColumnBuilder, Want};
use super::kept::{Kept, KeptField, PassThrough};
use super::options::{Label, ReadOptions};
use super::source::{LabelAt, Source};
use super::text::Notices;
use crate::error::{Error, Result};

/// Rows read at a time where all are wanted.
const BLOCK: usize = 8192;

/// Reads a file of numbers block by block; nothing is scaled, dropped or filled in. A column of labels is set apart.
pub struct MatrixReader {
    source: Source,
    columns: Vec<ColumnBuilder>,
    label: Option<usize>,
    width: usize,
    /// The positions of the columns that are passed through, and whether they were listed one by one.
    kept: (Vec<usize>, bool),
}

impl MatrixReader {
    /// Opens a file of any format that [`Table::read`](super::Table::read) reads, except `label index:value`.
    ///
    /// # Errors
    /// If it cannot be read, or the label column is not there.
    pub fn open(path: &Path, options: &ReadOptions) -> Result<MatrixReader> {
        let mut source = Source::open(path, options)?;
        source.look_for(None)?;
        if source.is_libsvm() {
            return Err(Error::data("features cannot come in the `label index:value` form")
                .at_file(path)
                .hint("give them as NPY, CSV or Parquet"));
        }
        let label = match source.find_label(&options.label)? {
            Some(LabelAt::Column(at)) => Some(at),
            _ => None,
        };
        let want = |i: usize| if label == Some(i) { Want::Label } else { Want::Feature };
        let mut columns: Vec<ColumnBuilder> = source
            .names()
            .iter()
            .enumerate()
            .map(|(i, name)| ColumnBuilder::new(name, want(i), Arc::clone(source.file())))
            .collect();
        let width = columns.len() - usize::from(label.is_some());
        if width == 0 {
            return Err(Error::data("there are no columns of numbers").at_file(path));
        }
        let kept = options.pass_through.find(source.names()).map_err(|e| e.at_file(path))?;
        for &at in &kept {
            columns[at].kept = Some(Kept::default());
        }
        let listed = matches!(options.pass_through, PassThrough::Columns(_));
        Ok(MatrixReader { source, columns, label, width, kept: (kept, listed) })
    }

    /// Numbers in a row, the label not counted.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Says how many numbers a row must have. If there are more, columns that are listed in
    /// [`ReadOptions::pass_through`] are only passed through, and not numbers of the row, if the number fits then.
    pub fn expect_width(&mut self, width: usize) {
        let listed: Vec<usize> = self.kept.0.iter().copied().filter(|at| Some(*at) != self.label).collect();
        if !self.kept.1 || self.width != width + listed.len() {
            return;
        }
        for at in listed {
            let kept = self.columns[at].kept.take();
            let skipped = ColumnBuilder::new(&self.source.names()[at], Want::Skip, Arc::clone(self.source.file()));
            self.columns[at] = skipped;
            self.columns[at].kept = kept;
        }
        self.width = width;
    }

    /// The columns that are passed through.
    pub fn kept(&self) -> Vec<KeptField> {
        let field = |&at: &usize| KeptField { name: self.source.names()[at].clone(), kind: self.source.kept_type(at) };
        self.kept.0.iter().map(field).collect()
    }

    /// The cells of the last rows in the columns that are passed through.
    pub fn take_kept(&mut self) -> Vec<Kept> {
        let columns = &mut self.columns;
        self.kept.0.iter().filter_map(|&at| columns[at].kept.as_mut().map(std::mem::take)).collect()
    }

    /// Whether a column holds labels.
    pub fn has_labels(&self) -> bool {
        self.label.is_some()
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// What the user should know about the rows read so far.
    pub fn notices(&self) -> Notices {
        self.source.notices()
    }

    /// Appends up to `max` rows, one after the other, and their labels; returns how many, 0 at the end.
    ///
    /// # Errors
    /// If a cell is not a finite number, or is missing.
    pub fn next(&mut self, max: usize, values: &mut Vec<f64>, labels: &mut Vec<String>) -> Result<usize> {
        self.columns.iter_mut().for_each(ColumnBuilder::clear);
        let rows = self.source.fill(max, &mut self.columns)?;
        let from = values.len();
        values.resize(from + rows * self.width, 0.0);
        let mut at = 0;
        for (i, column) in self.columns.iter().enumerate() {
            match &column.cells {
                Cells::Text(texts) if self.label == Some(i) => {
                    labels.extend(texts.codes.iter().map(|&c| texts.names[c as usize].clone()));
                }
                Cells::Number(numbers) => {
                    for (row, &v) in values[from..].chunks_exact_mut(self.width).zip(numbers) {
                        row[at] = v;
                    }
                    at += 1;
                }
                Cells::Skip => {}
                _ => return Err(Error::data("a column could not be read").at_file(self.source.path())),
            }
        }
        Ok(rows)
    }

    /// The rest of the file: all numbers, narrowed by `narrow`, and all labels.
    ///
    /// # Errors
    /// As for [`MatrixReader::next`], or if there are no rows.
    pub fn all<T>(&mut self, narrow: impl Fn(f64) -> T) -> Result<(Vec<T>, Vec<String>)> {
        let (mut out, mut labels, mut block) = (Vec::new(), Vec::new(), Vec::new());
        while self.next(BLOCK, &mut block, &mut labels)? > 0 {
            out.extend(block.drain(..).map(&narrow));
        }
        if out.is_empty() {
            return Err(Error::data("there are no rows in the file").at_file(self.source.path()));
        }
        Ok((out, labels))
    }
}

/// Reads a file of labels, one per row: NPY, IDX, text without a header, or a table with one column or one called `label`.
///
/// # Errors
/// If it cannot be read or holds something else.
pub fn labels(path: &Path) -> Result<Vec<String>> {
    let options = ReadOptions { label: Label::None, separator: Some(b','), ..ReadOptions::default() };
    let mut source = Source::open(path, &options)?;
    source.look_for(None)?;
    if source.names().len() != 1 {
        return Err(Error::data(format!("a row of labels has {} values instead of one", source.names().len()))
            .at_file(path)
            .hint("give a file with one label for each row"));
    }
    // A name such as "label" on top is a header; a class is not.
    let header =
        source.named() && super::options::LABEL_NAMES.iter().any(|n| source.names()[0].eq_ignore_ascii_case(n));
    if source.named() && !header {
        source = Source::open(path, &ReadOptions { header: Some(false), ..options })?;
    }
    let mut column = vec![ColumnBuilder::new("label", Want::Label, Arc::clone(source.file()))];
    while source.fill(BLOCK, &mut column)? == BLOCK {}
    match column.into_iter().next().map(|c| c.cells) {
        Some(Cells::Text(texts)) if !texts.codes.is_empty() => {
            Ok(texts.codes.iter().map(|&c| texts.names[c as usize].clone()).collect())
        }
        _ => Err(Error::data("there are no labels in the file").at_file(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, content: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        (folder, path)
    }

    #[test]
    fn numbers_come_as_they_are() {
        let (_folder, path) = file("f.csv", b"a,label,b\n1,x,2\n3,y,4.5\n5,x,6\n");
        let mut reader = MatrixReader::open(&path, &ReadOptions::default()).unwrap();
        assert_eq!((reader.width(), reader.has_labels()), (2, true));
        let (mut values, mut labels) = (Vec::new(), Vec::new());
        assert_eq!(reader.next(2, &mut values, &mut labels).unwrap(), 2);
        assert_eq!(reader.next(2, &mut values, &mut labels).unwrap(), 1);
        assert_eq!(reader.next(2, &mut values, &mut labels).unwrap(), 0);
        assert_eq!((values, labels), (vec![1.0, 2.0, 3.0, 4.5, 5.0, 6.0], ["x", "y", "x"].map(String::from).to_vec()));
        let none = ReadOptions { label: Label::None, ..ReadOptions::default() };
        assert!(MatrixReader::open(&path, &none).unwrap().all(|v| v).is_err());
    }

    #[test]
    fn what_is_missing_or_not_a_number_is_named() {
        for (content, row) in [(&b"a,b\n1,2\n3,\n"[..], 2), (b"a,b\n1,inf\n", 1), (b"1,2\nx,3\n4,4\n", 2)] {
            let (_folder, path) = file("f.csv", content);
            let options = ReadOptions { header: Some(content[0] == b'a'), ..ReadOptions::default() };
            let e = MatrixReader::open(&path, &options).unwrap().all(|v| v).unwrap_err();
            assert!(e.row() == Some(row) && e.column().is_some() && e.file().is_some(), "{e}");
        }
        let (_folder, path) = file("f.csv", b"a,b\n");
        assert!(MatrixReader::open(&path, &ReadOptions::default()).and_then(|mut r| r.all(|v| v)).is_err());
        let (_folder, path) = file("f.txt", b"1 1:2 2:3\n2 1:3\n");
        assert!(MatrixReader::open(&path, &ReadOptions::default()).is_err());
    }

    #[test]
    fn labels_are_one_a_row() {
        let read = |content: &[u8]| {
            let (_folder, path) = file("y.txt", content);
            labels(&path)
        };
        assert_eq!(read(b"cat\ndog\ncat\n").unwrap(), ["cat", "dog", "cat"]);
        assert_eq!(read(b"label\n1\n2\n").unwrap(), ["1", "2"]);
        assert_eq!(read(b"0\n1\n").unwrap(), ["0", "1"]);
        assert!(read(b"1,2\n3,4\n").is_err() && read(b"").is_err());
    }
}
