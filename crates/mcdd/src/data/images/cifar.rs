//! CIFAR-10 and CIFAR-100, in their binary and their Python version.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::super::input::{Input, read_error};
use super::super::options::Label;
use super::decode::Raster;
use super::item::{Content, ImageSource, Item, wants_labels};
use super::pickle::{self, Pickle, Value};
use super::shape::ImageShape;
use crate::error::{Error, Result};

const SHAPE: ImageShape = ImageShape { height: 32, width: 32, channels: 3 };
const PIXELS: usize = 32 * 32 * 3;
const AGAIN: &str = "the file is damaged or cut short: fetch it again";

/// What is read of a file of pickled images; CIFAR-100's has 155 MB.
const MAX_PICKLE: u64 = 1 << 30;

/// A plane of red, one of green and one of blue to channels last.
fn interleave(planes: &[u8]) -> Raster {
    let (red, rest) = planes.split_at(1024);
    let (green, blue) = rest.split_at(1024);
    let pixels = red.iter().zip(green).zip(blue).flat_map(|((&r, &g), &b)| [r, g, b]).collect();
    Raster { shape: SHAPE, pixels }
}

/// Class names from a text file, one a line; numbers without it.
fn names(path: &Path, classes: usize) -> Result<Vec<Arc<str>>> {
    let numbers = || (0..classes).map(|n| n.to_string().into()).collect();
    if !path.is_file() {
        return Ok(numbers());
    }
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|e| Error::io(e, path))?;
    file.take(1 << 16).read_to_string(&mut text).map_err(|e| read_error(e, path))?;
    let names: Vec<Arc<str>> = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(Arc::from).collect();
    checked(names, classes, path)
}

fn checked(names: Vec<Arc<str>>, classes: usize, path: &Path) -> Result<Vec<Arc<str>>> {
    let mut sorted = names.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if names.len() != classes || sorted.len() != classes {
        return Err(Error::data(format!("it should name {classes} different classes, and has {}", names.len()))
            .at_file(path)
            .hint("fetch the file again, or remove it: classes are numbers then"));
    }
    Ok(names)
}

fn bad_label(file: &Path, row: u64, label: i64, classes: usize) -> Error {
    Error::data(format!("the label {label} is not one of {classes} classes")).at_file(file).at_row(row).hint(AGAIN)
}

/// Records of one or two labels and the pixels.
pub(super) struct Binary {
    input: Box<dyn Read + Send>,
    file: Arc<Path>,
    /// The classes; nothing where labels are not wanted.
    names: Option<Vec<Arc<str>>>,
    fine: bool,
    rows: u64,
    row: u64,
}

/// Opens `data_batch_1.bin` and the like: which of the two sets it is from is found by name or length.
pub(super) fn open_binary(input: Input, label: &Label) -> Result<Binary> {
    let file = Arc::clone(&input.file);
    let wanted = wants_labels(label, &file)?;
    let length = input.length.filter(|_| !input.packed).unwrap_or(0);
    let (ten, hundred) = (PIXELS as u64 + 1, PIXELS as u64 + 2);
    let name = file.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    let [is_ten, is_hundred] = [ten, hundred].map(|bytes| length > 0 && length.is_multiple_of(bytes));
    // The publisher's names go before: a file that is cut may have the length of the other kind.
    let fine = match name.as_str() {
        "train.bin" | "test.bin" => is_hundred.then_some(true),
        name if name.contains("batch") => is_ten.then_some(false),
        _ => (is_ten != is_hundred).then_some(is_hundred),
    };
    let Some(fine) = fine else {
        return Err(Error::data(format!(
            "it is not a CIFAR file: its {length} bytes are not records of {ten} or {hundred} bytes"
        ))
        .at_file(&file)
        .hint("fetch it again, and give it unpacked"));
    };
    let (list, classes) = if fine { ("fine_label_names.txt", 100) } else { ("batches.meta.txt", 10) };
    let names = if wanted { Some(names(&file.with_file_name(list), classes)?) } else { None };
    let rows = length / if fine { hundred } else { ten };
    Ok(Binary { input: input.into_read(0), file, names, fine, rows, row: 0 })
}

impl ImageSource for Binary {
    fn fill(&mut self, max: usize, items: &mut Vec<Item>) -> Result<usize> {
        let count = (self.rows - self.row).min(max as u64) as usize;
        let mut record = [0u8; PIXELS + 2];
        let record = &mut record[usize::from(!self.fine)..];
        for _ in 0..count {
            self.input
                .read_exact(record)
                .map_err(|_| Error::data("the file ends before its last record").at_file(&self.file).hint(AGAIN))?;
            self.row += 1;
            let (labels, planes) = record.split_at(record.len() - PIXELS);
            let code = labels.last().copied().unwrap_or(0);
            let mut content = Content::Pixels(interleave(planes));
            let mut label = None;
            if let Some(names) = &self.names {
                label = names.get(usize::from(code)).cloned();
                if label.is_none() {
                    content = Content::Bad(bad_label(&self.file, self.row, code.into(), names.len()));
                }
            }
            items.push(Item { content, label, file: Arc::clone(&self.file), row: self.row });
        }
        Ok(count)
    }

    fn labeled(&self) -> bool {
        self.names.is_some()
    }

    fn expected(&self) -> Option<usize> {
        usize::try_from(self.rows).ok()
    }

    fn shape(&self) -> Option<ImageShape> {
        Some(SHAPE)
    }
}

/// A pickled batch, which is read whole.
pub(super) struct Python {
    bytes: Vec<u8>,
    /// Where the pixels are in `bytes`.
    from: usize,
    codes: Vec<i64>,
    names: Option<Vec<Arc<str>>>,
    file: Arc<Path>,
    rows: usize,
    row: usize,
}

fn load(input: Input, most: u64) -> Result<Vec<u8>> {
    let file = Arc::clone(&input.file);
    let mut bytes = Vec::new();
    input.into_read(0).take(most + 1).read_to_end(&mut bytes).map_err(|e| read_error(e, &file))?;
    if bytes.len() as u64 > most {
        return Err(Error::data("the file is too large for a pickle of images").at_file(&file).hint(AGAIN));
    }
    Ok(bytes)
}

fn unpickled<'a>(bytes: &'a [u8], file: &Path) -> Result<Pickle<'a>> {
    pickle::read(bytes).map_err(|message| {
        Error::data(format!("the pickle is damaged, or not one of CIFAR's: {message}"))
            .at_file(file)
            .hint("fetch the file again; of pickles only CIFAR's are read")
    })
}

/// Opens `data_batch_1` and the like.
pub(super) fn open_python(input: Input, label: &Label) -> Result<Python> {
    let file = Arc::clone(&input.file);
    let wanted = wants_labels(label, &file)?;
    let bytes = load(input, MAX_PICKLE)?;
    let bad = |message: &str| {
        Error::data(format!("the pickle is not one of CIFAR's: {message}"))
            .at_file(&file)
            .hint("give data_batch_1 and the like, or CIFAR-100's train or test")
    };
    let (from, rows, codes, fine) = {
        let pickle = unpickled(&bytes, &file)?;
        let array = pickle.get("data").and_then(|v| pickle.array(v)).ok_or_else(|| bad("it has no array `data`"))?;
        let rows = match *array.shape {
            [rows, PIXELS] if rows > 0 => rows,
            _ => return Err(bad("its data are not rows of 3072 values")),
        };
        let fine = pickle.get("fine_labels");
        let labels = fine.or_else(|| pickle.get("labels"));
        let codes: Vec<i64> = match labels.and_then(|v| pickle.list(v)) {
            _ if !wanted => Vec::new(),
            Some(list) if list.len() == rows => {
                list.iter().map(|v| if let Value::Int(code) = v { *code } else { -1 }).collect()
            }
            Some(_) => return Err(bad("it has not as many labels as images")),
            None => return Err(bad("it has no list of labels")),
        };
        // The array's data lie within the bytes.
        (array.data.as_ptr() as usize - bytes.as_ptr() as usize, rows, codes, fine.is_some())
    };
    let (list, key, classes) =
        if fine { ("meta", "fine_label_names", 100) } else { ("batches.meta", "label_names", 10) };
    let names = if wanted { Some(pickled_names(&file.with_file_name(list), key, classes)?) } else { None };
    Ok(Python { bytes, from, codes, names, file, rows, row: 0 })
}

fn pickled_names(path: &Path, key: &str, classes: usize) -> Result<Vec<Arc<str>>> {
    if !path.is_file() {
        return names(path, classes);
    }
    let bytes = load(Input::open(path)?, 1 << 20)?;
    let pickle = unpickled(&bytes, path)?;
    let list = pickle.get(key).and_then(|v| pickle.list(v)).unwrap_or_default();
    let text = |v: &Value| match v {
        Value::Text(text) => Some(String::from_utf8_lossy(text).as_ref().into()),
        _ => None,
    };
    checked(list.iter().filter_map(text).collect(), classes, path)
}

impl ImageSource for Python {
    fn fill(&mut self, max: usize, items: &mut Vec<Item>) -> Result<usize> {
        let count = (self.rows - self.row).min(max);
        for row in self.row..self.row + count {
            let from = self.from + row * PIXELS;
            let mut content = match self.bytes.get(from..from + PIXELS) {
                Some(planes) => Content::Pixels(interleave(planes)),
                None => Content::Bad(Error::data("the row is not there").at_file(&self.file)),
            };
            let mut label = None;
            if let Some(names) = &self.names {
                let code = self.codes.get(row).copied().unwrap_or(-1);
                label = usize::try_from(code).ok().and_then(|code| names.get(code).cloned());
                if label.is_none() {
                    content = Content::Bad(bad_label(&self.file, row as u64 + 1, code, names.len()));
                }
            }
            items.push(Item { content, label, file: Arc::clone(&self.file), row: row as u64 + 1 });
        }
        self.row += count;
        Ok(count)
    }

    fn labeled(&self) -> bool {
        self.names.is_some()
    }

    fn expected(&self) -> Option<usize> {
        Some(self.rows)
    }

    fn shape(&self) -> Option<ImageShape> {
        Some(SHAPE)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ImageOptions, Images};
    use super::*;
    use std::path::PathBuf;

    fn planes(rows: usize) -> Vec<u8> {
        (0..rows * PIXELS).map(|i| (i * 7 % 251) as u8).collect()
    }

    fn put(dir: &Path, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn read(path: &Path) -> Result<Images> {
        Images::read(&[path.to_owned()], &ImageOptions::default()).map(|(images, _)| images)
    }

    fn check(images: &Images, planes: &[u8], labels: &[&str]) {
        assert_eq!((images.height, images.width, images.channels), (32, 32, 3));
        assert_eq!(images.rows(), labels.len());
        for row in 0..images.rows() {
            assert_eq!(images.label_name(row), Some(labels[row]));
            for (at, &value) in images.image(row).iter().enumerate() {
                assert_eq!(value, planes[row * PIXELS + at % 3 * 1024 + at / 3]);
            }
        }
    }

    #[test]
    fn binary_files() {
        let dir = tempfile::tempdir().unwrap();
        let planes = planes(3);
        let ten: Vec<u8> = planes.chunks(PIXELS).zip([3u8, 9, 0]).flat_map(|(p, l)| [&[l], p].concat()).collect();
        let path = put(dir.path(), "data_batch_1.bin", &ten);
        check(&read(&path).unwrap(), &planes, &["3", "9", "0"]);
        let list = "airplane automobile bird cat deer dog frog horse ship truck".replace(' ', "\n");
        put(dir.path(), "batches.meta.txt", list + "\n\n");
        check(&read(&path).unwrap(), &planes, &["cat", "truck", "airplane"]);
        // The folder gives the training files.
        put(dir.path(), "test_batch.bin", &ten[..PIXELS + 1]);
        let (images, notices) = Images::read(&[dir.path().to_owned()], &ImageOptions::default()).unwrap();
        assert_eq!((images.rows(), images.name(2)), (3, format!("{}, row 3", path.display())));
        assert!(notices[0].contains("train part"), "{notices:?}");
        let mut wrong = ten.clone();
        wrong[PIXELS + 1] = 10;
        let wrong = put(dir.path(), "data_batch_2.bin", wrong);
        let e = read(&wrong).unwrap_err();
        assert!(e.to_string().contains("row 2: the label 10 is not one of 10"), "{e}");
        let skip = ImageOptions { skip_bad: true, ..ImageOptions::default() };
        assert_eq!(Images::read(&[wrong], &skip).unwrap().0.rows(), 2);
        put(dir.path(), "batches.meta.txt", "cat\ndog\n");
        assert!(read(&path).unwrap_err().to_string().contains("batches.meta.txt"));
        let hundred: Vec<u8> =
            planes.chunks(PIXELS).zip([3u8, 99, 0]).flat_map(|(p, l)| [&[7, l], p].concat()).collect();
        check(&read(&put(dir.path(), "train.bin", &hundred)).unwrap(), &planes, &["3", "99", "0"]);
        assert!(read(&put(dir.path(), "x.bin", &hundred[1..])).is_err());
    }

    #[test]
    fn python_files() {
        let dir = tempfile::tempdir().unwrap();
        let planes = planes(2);
        let path = put(dir.path(), "data_batch_1", pickle::tests::batch("labels", &[9, 1], &planes));
        check(&read(&path).unwrap(), &planes, &["9", "1"]);
        check(&read(dir.path()).unwrap(), &planes, &["9", "1"]);
        let names: Vec<u8> = (0..10).flat_map(|n| [b'U', 2, b'c', b'0' + n]).collect();
        put(dir.path(), "batches.meta", [&b"\x80\x02}U\x0blabel_names]("[..], &names, b"es."].concat());
        check(&read(&path).unwrap(), &planes, &["c9", "c1"]);
        let fine = put(dir.path(), "train", pickle::tests::batch("fine_labels", &[99, 3], &planes));
        check(&read(&fine).unwrap(), &planes, &["99", "3"]);
        for (bytes, part) in [
            (pickle::tests::batch("labels", &[10, 1], &planes), "row 1: the label 10"),
            (pickle::tests::batch("other", &[1, 1], &planes), "no list of labels"),
            (b"\x80\x02}.".to_vec(), "no array"),
            (b"\x80\x02cos\nsystem\n.".to_vec(), "no array"),
        ] {
            let e = read(&put(dir.path(), "data_batch_1", bytes)).unwrap_err();
            assert!(e.to_string().contains(part) && e.hint_text().is_some(), "{e}");
        }
    }
}
