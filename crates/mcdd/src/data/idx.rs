//! IDX, the format of the MNIST files.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::column::ColumnBuilder;
use super::delimited::MAX_COLUMNS;
use super::input::{Input, RowSource, read_error};
use super::kept::KeptType;
use crate::error::{Error, Result};

/// Rows of an IDX file: the first dimension counts them, the others are flattened.
pub(crate) struct Idx {
    input: Box<dyn Read + Send>,
    file: Arc<Path>,
    kind: u8,
    size: usize,
    /// The dimensions, of which the first counts the rows.
    dims: Vec<u64>,
    rows: u64,
    width: usize,
    row: u64,
    buffer: Vec<u8>,
}

const AGAIN: &str = "the file is damaged or cut short: fetch or make it again";

fn take(input: &mut dyn Read, bytes: &mut [u8], file: &Path) -> Result<()> {
    input.read_exact(bytes).map_err(|error| {
        if error.kind() == std::io::ErrorKind::UnexpectedEof {
            Error::data("the file ends before its last row").at_file(file).hint(AGAIN)
        } else {
            read_error(error, file)
        }
    })
}

impl Idx {
    pub(super) fn open(input: Input) -> Result<Idx> {
        let file = Arc::clone(&input.file);
        let length = input.length;
        let mut input = input.into_read(0);
        let mut magic = [0u8; 4];
        take(&mut input, &mut magic, &file)?;
        let bad = |message: String| Error::data(message).at_file(&file).hint(AGAIN);
        let kind = magic[2];
        let size = match kind {
            0x08 | 0x09 => 1,
            0x0b => 2,
            0x0c | 0x0d => 4,
            0x0e => 8,
            _ => return Err(bad(format!("the IDX value type {kind:#04x} is not known"))),
        };
        let mut dims = Vec::new();
        for _ in 0..magic[3] {
            let mut bytes = [0u8; 4];
            take(&mut input, &mut bytes, &file)?;
            dims.push(u64::from(u32::from_be_bytes(bytes)));
        }
        let Some((&rows, row)) = dims.split_first() else {
            return Err(bad("the IDX file has no dimension".into()));
        };
        let width = row
            .iter()
            .try_fold(1u64, |n, &d| n.checked_mul(d))
            .filter(|&n| n <= MAX_COLUMNS as u64)
            .ok_or_else(|| bad(format!("a row of the IDX file has more than {MAX_COLUMNS} values")))?;
        if rows == 0 || width == 0 {
            return Err(bad("the IDX file has no rows".into()));
        }
        // At most 2^32 rows of 2^20 values of 8 bytes: no overflow.
        let data = rows * width * size as u64;
        if let Some(length) = length
            && data + 4 + 4 * dims.len() as u64 != length
        {
            return Err(bad(format!(
                "its header announces {rows} x {width} values, which do not make the file's length of {length} bytes"
            )));
        }
        Ok(Idx { input, file, kind, size, rows, width: width as usize, row: 0, buffer: Vec::new(), dims })
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    pub(super) fn dims(&self) -> &[u64] {
        &self.dims
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Appends the next rows as they stand in the file: `max` of them, or fewer at the end.
    pub(super) fn bytes(&mut self, max: usize, out: &mut Vec<u8>) -> Result<usize> {
        let count = (self.rows - self.row).min(max as u64) as usize;
        let bytes = self.width * self.size;
        let most = ((1 << 20) / bytes).max(1);
        let mut left = count;
        while left > 0 {
            let part = most.min(left);
            let from = out.len();
            out.resize(from + part * bytes, 0);
            take(&mut self.input, &mut out[from..], &self.file)?;
            left -= part;
            self.row += part as u64;
        }
        self.check_end(count)?;
        Ok(count)
    }

    /// Checks that nothing comes after the last row.
    fn check_end(&mut self, count: usize) -> Result<()> {
        if count > 0 && self.row == self.rows {
            let mut one = [0u8; 1];
            let more = self.input.read(&mut one).map_err(|e| read_error(e, &self.file))?;
            if more > 0 {
                return Err(Error::data("there is more data than the header announces")
                    .at_file(&self.file)
                    .hint(AGAIN));
            }
        }
        Ok(())
    }

    fn push(&self, value: &[u8], column: &mut ColumnBuilder, row: u64) -> Result<()> {
        let value = match (self.kind, value) {
            (0x08, &[a]) => f64::from(a),
            (0x09, &[a]) => f64::from(a as i8),
            (0x0b, &[a, b]) => f64::from(i16::from_be_bytes([a, b])),
            (0x0c, &[a, b, c, d]) => f64::from(i32::from_be_bytes([a, b, c, d])),
            (0x0d, &[a, b, c, d]) => f64::from(f32::from_be_bytes([a, b, c, d])),
            (_, &[a, b, c, d, e, f, g, h]) => f64::from_be_bytes([a, b, c, d, e, f, g, h]),
            _ => f64::NAN,
        };
        column.push_number(value, row)
    }
}

impl RowSource for Idx {
    fn fill(&mut self, max: usize, columns: &mut Vec<ColumnBuilder>) -> Result<usize> {
        let count = (self.rows - self.row).min(max as u64);
        let bytes = self.width * self.size;
        let most = ((1 << 20) / bytes).max(1) as u64;
        let end = self.row + count;
        let mut buffer = std::mem::take(&mut self.buffer);
        while self.row < end {
            let part = most.min(end - self.row) as usize;
            buffer.resize(part * bytes, 0);
            take(&mut self.input, &mut buffer, &self.file)?;
            for values in buffer.chunks_exact(bytes) {
                self.row += 1;
                for (value, column) in values.chunks_exact(self.size).zip(columns.iter_mut()) {
                    self.push(value, column, self.row)?;
                }
            }
        }
        self.buffer = buffer;
        self.check_end(count as usize)?;
        Ok(count as usize)
    }

    fn kept_type(&self, _column: usize) -> KeptType {
        match self.kind {
            0x0d => KeptType::F32,
            0x0e => KeptType::F64,
            _ => KeptType::Int,
        }
    }
}

/// The labels file that belongs to an images file: `train-images-idx3-ubyte.gz` has
/// `train-labels-idx1-ubyte.gz` beside it (either may be gzipped; some spell `.idx3-ubyte`).
pub(crate) fn sibling(images: &Path) -> Option<PathBuf> {
    let name = images.file_name()?.to_str()?;
    if !name.contains("images") {
        return None;
    }
    let labels = name.replace("images", "labels").replace("idx3", "idx1");
    let bare = labels.strip_suffix(".gz").unwrap_or(&labels);
    [labels.clone(), bare.to_owned(), format!("{bare}.gz")]
        .iter()
        .map(|name| images.with_file_name(name))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_found_beside_images() {
        let folder = tempfile::tempdir().unwrap();
        let images = folder.path().join("train-images-idx3-ubyte.gz");
        assert_eq!(sibling(&images), None);
        let labels = folder.path().join("train-labels-idx1-ubyte");
        std::fs::write(&labels, b"").unwrap();
        assert_eq!(sibling(&images), Some(labels));
        assert_eq!(sibling(Path::new("a.csv")), None);
    }
}
