//! MATLAB files of level 5 that hold images as SVHN does: `X` with the dimensions height, width, channels and number,
//! and `y` with the labels. MATLAB counts its first index fastest.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use super::super::input::read_error;
use super::super::options::Label;
use super::decode::Raster;
use super::item::{Content, ImageSource, Item, wants_labels};
use super::shape::{ImageShape, MAX_SIDE};
use crate::error::{Error, Result, count};

const AGAIN: &str = "the file is damaged or cut short: fetch or make it again";
const MATRIX: u32 = 14;
const COMPRESSED: u32 = 15;

/// The arrays of a file that are looked at; SVHN has two.
const MAX_ARRAYS: usize = 100;

/// The most bytes that deflate makes of one byte.
const MAX_RATIO: u64 = 1_032;

/// An array of the file whose header is read, and its values behind it.
struct Array {
    name: Vec<u8>,
    /// MATLAB's number of the class: 9 for bytes.
    class: u8,
    dims: Vec<usize>,
    /// How the values are stored, which may be smaller than the class.
    stored: u32,
    bytes: u64,
    input: Box<dyn Read + Send>,
}

fn bad(file: &Path, message: impl Into<String>) -> Error {
    Error::data(message).at_file(file).hint(AGAIN)
}

fn exact<const N: usize>(input: &mut dyn Read, file: &Path) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    match input.read_exact(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Err(bad(file, "the file ends too early")),
        Err(e) => Err(read_error(e, file)),
    }
}

/// The kind and the length of an element, and its value where it is small enough to be in the tag.
fn tag(input: &mut dyn Read, file: &Path) -> Result<(u32, u32, Option<[u8; 4]>)> {
    let [a, b, c, d, e, f, g, h] = exact::<8>(input, file)?;
    let first = u32::from_le_bytes([a, b, c, d]);
    if first >> 16 != 0 {
        return Ok((first & 0xffff, first >> 16, Some([e, f, g, h])));
    }
    Ok((first, u32::from_le_bytes([e, f, g, h]), None))
}

/// A small element as a whole.
fn small(input: &mut dyn Read, file: &Path, most: usize) -> Result<(u32, Vec<u8>)> {
    let (kind, length, inside) = tag(input, file)?;
    let length = length as usize;
    if let Some(value) = inside {
        let value = value.get(..length).ok_or_else(|| bad(file, "an element is longer than its place"))?;
        return Ok((kind, value.to_vec()));
    }
    if length > most {
        return Err(bad(file, "an element of a header is too long"));
    }
    let mut value = vec![0; length.next_multiple_of(8)];
    input.read_exact(&mut value).map_err(|_| bad(file, "the file ends too early"))?;
    value.truncate(length);
    Ok((kind, value))
}

impl Array {
    /// Reads the header of the array in an element whose tag was read.
    fn open(mut input: Box<dyn Read + Send>, compressed: bool, file: &Path) -> Result<Option<Array>> {
        if compressed {
            input = Box::new(BufReader::new(flate2::read::ZlibDecoder::new(input)));
            let (kind, ..) = tag(&mut *input, file)?;
            if kind != MATRIX {
                return Ok(None);
            }
        }
        let (_, flags) = small(&mut *input, file, 16)?;
        let [class, attributes, ..] = *flags else { return Err(bad(file, "an array has no class")) };
        // Bit 3 marks complex numbers.
        if attributes & 8 != 0 || !(6..=15).contains(&class) {
            return Ok(None);
        }
        let (_, dims) = small(&mut *input, file, 64)?;
        let dim = |b: &[u8]| usize::try_from(i32::from_le_bytes([b[0], b[1], b[2], b[3]])).ok();
        let dims: Option<Vec<usize>> = dims.chunks_exact(4).map(dim).collect();
        let dims = dims.ok_or_else(|| bad(file, "an array has a negative dimension"))?;
        let (_, name) = small(&mut *input, file, 256)?;
        let (stored, bytes, inside) = tag(&mut *input, file)?;
        if let Some(value) = inside {
            input = Box::new(std::io::Cursor::new(value));
        }
        Ok(Some(Array { name, class, dims, stored, bytes: bytes.into(), input }))
    }

    /// The values as integers, at most `most` of them.
    fn integers(mut self, most: usize, file: &Path) -> Result<Vec<i64>> {
        let size = match self.stored {
            1 | 2 => 1,
            3 | 4 => 2,
            5..=7 => 4,
            9 | 12 | 13 => 8,
            other => return Err(bad(file, format!("labels are stored as the kind {other}, which is not known here"))),
        };
        let count = self.dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).filter(|&n| n <= most);
        if count.map(|n| n as u64 * size as u64) != Some(self.bytes) {
            return Err(bad(file, "there are not as many labels as images"));
        }
        let mut bytes = Vec::new();
        self.input.by_ref().take(self.bytes).read_to_end(&mut bytes).map_err(|e| read_error(e, file))?;
        if bytes.len() as u64 != self.bytes {
            return Err(bad(file, "the file ends within the labels"));
        }
        let stored = self.stored;
        let value = |b: &[u8]| -> i64 {
            match (stored, b) {
                (1, &[a]) => i64::from(a as i8),
                (2, &[a]) => i64::from(a),
                (3, &[a, b]) => i64::from(i16::from_le_bytes([a, b])),
                (4, &[a, b]) => i64::from(u16::from_le_bytes([a, b])),
                (5, &[a, b, c, d]) => i64::from(i32::from_le_bytes([a, b, c, d])),
                (6, &[a, b, c, d]) => i64::from(u32::from_le_bytes([a, b, c, d])),
                (7, &[a, b, c, d]) => whole(f32::from_le_bytes([a, b, c, d]).into()),
                (9, &[a, b, c, d, e, f, g, h]) => whole(f64::from_le_bytes([a, b, c, d, e, f, g, h])),
                (12, &[a, b, c, d, e, f, g, h]) => i64::from_le_bytes([a, b, c, d, e, f, g, h]),
                (13, &[a, b, c, d, e, f, g, h]) => {
                    i64::try_from(u64::from_le_bytes([a, b, c, d, e, f, g, h])).unwrap_or(-1)
                }
                _ => -1,
            }
        };
        Ok(bytes.chunks_exact(size).map(value).collect())
    }
}

/// An integer, or -1, which is not a label.
fn whole(value: f64) -> i64 {
    if value.fract() == 0.0 && (0.0..1e9).contains(&value) { value as i64 } else { -1 }
}

pub(super) struct Matlab {
    input: Box<dyn Read + Send>,
    file: Arc<Path>,
    shape: ImageShape,
    labels: Option<Vec<Option<Arc<str>>>>,
    rows: usize,
    row: usize,
}

/// Finds `X` and `y` in the file; the images are read later, block by block.
pub(super) fn open(path: &Path, label: &Label) -> Result<Matlab> {
    let wanted = wants_labels(label, path)?;
    let io = |e| Error::io(e, path);
    let mut file = File::open(path).map_err(io)?;
    let length = file.metadata().map_err(io)?.len();
    let header = exact::<128>(&mut file, path)?;
    if header[126..] != *b"IM" {
        return Err(bad(path, "it is not a MATLAB file of level 5 with its bytes in the usual order"));
    }
    let (mut images, mut labels) = (None, None);
    let mut at = 128;
    for _ in 0..MAX_ARRAYS {
        if at >= length || images.is_some() && (labels.is_some() || !wanted) {
            break;
        }
        file.seek(SeekFrom::Start(at)).map_err(io)?;
        let (kind, bytes, _) = tag(&mut file, path)?;
        let end = at + 8 + u64::from(bytes);
        if end > length {
            return Err(bad(path, "the file ends before its last array"));
        }
        at = if kind == COMPRESSED { end } else { end.next_multiple_of(8) };
        if kind != COMPRESSED && kind != MATRIX {
            continue;
        }
        let content = BufReader::with_capacity(1 << 16, file.try_clone().map_err(io)?).take(bytes.into());
        let Some(array) = Array::open(Box::new(content), kind == COMPRESSED, path)? else { continue };
        let most = u64::from(bytes).saturating_mul(if kind == COMPRESSED { MAX_RATIO } else { 1 });
        match array.name.as_slice() {
            b"X" => images = Some((end - u64::from(bytes), u64::from(bytes), kind, most)),
            b"y" if wanted => labels = Some(array.integers(most.min(1 << 28) as usize, path)?),
            _ => {}
        }
    }
    let Some((from, bytes, kind, most)) = images else {
        return Err(Error::data("there is no array X of images in the file")
            .at_file(path)
            .hint("give a file with X (height, width, channels, number) and y, as SVHN's 32x32 files"));
    };
    // A handle of its own, since the others share one position.
    let mut file = File::open(path).map_err(io)?;
    file.seek(SeekFrom::Start(from)).map_err(io)?;
    let content = BufReader::with_capacity(1 << 16, file).take(bytes);
    let array = Array::open(Box::new(content), kind == COMPRESSED, path)?.ok_or_else(|| bad(path, "X has changed"))?;
    let (shape, rows) = shape(&array, most).ok_or_else(|| {
        Error::data("X holds no images: it must be bytes with the dimensions height, width, channels, number")
            .at_file(path)
            .hint("give a file as SVHN's 32x32 files")
    })?;
    let labels = labels.map(|labels| names(&labels, rows, shape, path)).transpose()?;
    Ok(Matlab { input: array.input, file: path.into(), shape, labels, rows, row: 0 })
}

/// The shape of the images and their number, if the array holds images and is not longer than possible.
fn shape(array: &Array, most: u64) -> Option<(ImageShape, usize)> {
    let (height, width, channels, rows) = match *array.dims {
        [h, w, c @ (1 | 3), n] => (h, w, c, n),
        // MATLAB leaves the last dimension out where it is 1.
        [h, w, c @ (1 | 3)] => (h, w, c, 1),
        _ => return None,
    };
    let shape = ImageShape { height, width, channels };
    let sides = 1..=MAX_SIDE;
    let fits = sides.contains(&height) && sides.contains(&width) && rows > 0 && (array.class, array.stored) == (9, 2);
    let bytes = (shape.values() as u64).checked_mul(rows as u64)?;
    (fits && bytes == array.bytes && bytes <= most).then_some((shape, rows))
}

/// Names of classes; in SVHN 10 stands for the digit 0. `None` for what is not a label.
fn names(labels: &[i64], rows: usize, shape: ImageShape, file: &Path) -> Result<Vec<Option<Arc<str>>>> {
    if labels.len() != rows {
        return Err(bad(file, format!("{} for {}", count(labels.len(), "label"), count(rows, "image"))));
    }
    let svhn = (shape.height, shape.width) == (32, 32) && labels.iter().all(|l| (1..=10).contains(l));
    let mut known = std::collections::HashMap::new();
    let name = |&label: &i64| {
        let digit = if svhn { label % 10 } else { label };
        (label >= 0).then(|| Arc::clone(known.entry(digit).or_insert_with(|| digit.to_string().into())))
    };
    Ok(labels.iter().map(name).collect())
}

/// From the first index fastest to channels last.
fn turned(stored: &[u8], shape: ImageShape) -> Vec<u8> {
    let ImageShape { height, width, channels } = shape;
    let mut pixels = Vec::with_capacity(stored.len());
    for y in 0..height {
        for x in 0..width {
            pixels.extend((0..channels).map(|c| stored[y + height * (x + width * c)]));
        }
    }
    pixels
}

impl ImageSource for Matlab {
    fn fill(&mut self, max: usize, items: &mut Vec<Item>) -> Result<usize> {
        let count = (self.rows - self.row).min(max);
        let mut stored = vec![0; if count > 0 { self.shape.values() } else { 0 }];
        for _ in 0..count {
            self.input.read_exact(&mut stored).map_err(|e| match e.kind() {
                std::io::ErrorKind::UnexpectedEof => bad(&self.file, "the file ends before its last image"),
                _ => read_error(e, &self.file),
            })?;
            let label = self.labels.as_ref().and_then(|labels| labels.get(self.row).cloned().flatten());
            self.row += 1;
            let row = self.row as u64;
            let content = if self.labels.is_some() && label.is_none() {
                Content::Bad(bad(&self.file, "the label is not an integer of 0 or more").at_row(row))
            } else {
                Content::Pixels(Raster { shape: self.shape, pixels: turned(&stored, self.shape) })
            };
            items.push(Item { content, label, file: Arc::clone(&self.file), row });
        }
        if count > 0 && self.row == self.rows {
            // To the end of the compressed data, where their checksum is; up to 7 bytes fill up the last eight.
            let mut rest = Vec::new();
            self.input.by_ref().take(8).read_to_end(&mut rest).map_err(|e| read_error(e, &self.file))?;
            if rest.len() == 8 {
                return Err(bad(&self.file, "there is more data than X's header announces"));
            }
        }
        Ok(count)
    }

    fn labeled(&self) -> bool {
        self.labels.is_some()
    }

    fn expected(&self) -> Option<usize> {
        Some(self.rows)
    }

    fn shape(&self) -> Option<ImageShape> {
        Some(self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ImageOptions, Images};
    use super::*;
    use std::io::Write;

    fn element(kind: u32, data: &[u8]) -> Vec<u8> {
        let mut out = [kind.to_le_bytes(), (data.len() as u32).to_le_bytes()].concat();
        out.extend(data);
        out.resize(out.len().next_multiple_of(8), 0);
        out
    }

    fn array(name: &str, class: u8, dims: &[i32], stored: u32, data: &[u8]) -> Vec<u8> {
        let dims: Vec<u8> = dims.iter().flat_map(|d| d.to_le_bytes()).collect();
        // A name of up to four letters stands in its tag.
        let mut short = (((name.len() as u32) << 16) | 1).to_le_bytes().to_vec();
        short.extend(name.as_bytes());
        short.resize(8, 0);
        let parts =
            [element(6, &[class, 0, 0, 0, 0, 0, 0, 0]), element(5, &dims), short, element(stored, data)].concat();
        element(MATRIX, &parts)
    }

    fn packed(element: &[u8]) -> Vec<u8> {
        let mut z = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        z.write_all(element).unwrap();
        let data = z.finish().unwrap();
        [&COMPRESSED.to_le_bytes()[..], &(data.len() as u32).to_le_bytes(), &data].concat()
    }

    fn file(elements: &[Vec<u8>]) -> Vec<u8> {
        let mut out = b"MATLAB 5.0 MAT-file".to_vec();
        out.resize(124, b' ');
        out.extend(b"\0\x01IM");
        out.extend(elements.concat());
        out
    }

    fn doubles(values: &[f64]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    fn read(bytes: &[u8], label: Label) -> Result<Images> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.mat");
        std::fs::write(&path, bytes).unwrap();
        let options = ImageOptions { label, ..ImageOptions::default() };
        Images::read(&[path], &options).map(|(images, _)| images)
    }

    #[test]
    fn svhn_files() {
        let data: Vec<u8> = (0..2 * 3072).map(|i| (i * 11 % 255) as u8).collect();
        let x = array("X", 9, &[32, 32, 3, 2], 2, &data);
        let long: Vec<u8> = [10i64, 3].iter().flat_map(|v| v.to_le_bytes()).collect();
        for y in [
            array("y", 6, &[2, 1], 9, &doubles(&[10.0, 3.0])),
            array("y", 9, &[2, 1], 2, &[10, 3]),
            array("y", 14, &[2, 1], 12, &long),
            array("y", 15, &[2, 1], 13, &long),
        ] {
            for elements in [vec![x.clone(), y.clone()], vec![packed(&y), packed(&x)], vec![packed(&x), packed(&y)]] {
                let images = read(&file(&elements), Label::Auto).unwrap();
                assert_eq!((images.rows(), images.height, images.width, images.channels), (2, 32, 32, 3));
                assert_eq!((images.label_name(0), images.label_name(1)), (Some("0"), Some("3")));
                for (row, y, x, c) in [(0, 0, 0, 0), (0, 5, 7, 2), (1, 31, 30, 1)] {
                    let want = data[y + 32 * (x + 32 * (c + 3 * row))];
                    assert_eq!(images.image(row)[(y * 32 + x) * 3 + c], want);
                }
            }
        }
        let bytes = file(&[packed(&x)]);
        assert!(read(&bytes, Label::Auto).unwrap_err().to_string().contains("labels"));
        assert_eq!(read(&bytes, Label::None).unwrap().rows(), 2);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let data = [7; 12];
        let x = |dims: &[i32]| packed(&array("X", 9, dims, 2, &data));
        for (elements, part) in [
            (vec![x(&[2, 2, 3, 2])], "no images"),
            (vec![x(&[2, 2, 3, -1])], "negative"),
            (vec![x(&[2, 3, 2, 1])], "no images"),
            (vec![x(&[12, 1])], "no images"),
            (vec![packed(&array("X", 6, &[2, 2, 3], 9, &[0; 96]))], "no images"),
            (vec![packed(&array("Z", 9, &[2, 2, 3], 2, &data))], "no array X"),
            (vec![], "no array X"),
            (vec![x(&[2, 2, 3]), packed(&array("y", 9, &[2, 1], 2, &[1, 2]))], "2 labels for 1 image"),
            (vec![x(&[2, 2, 3]), packed(&array("y", 6, &[1, 1], 9, &doubles(&[1.5])))], "row 1"),
        ] {
            let e = read(&file(&elements), Label::Auto).unwrap_err();
            assert!(e.to_string().contains(part) && e.hint_text().is_some(), "{part}: {e}");
        }
        assert_eq!(read(&file(&[x(&[2, 2, 3])]), Label::None).unwrap().rows(), 1);
    }
}
