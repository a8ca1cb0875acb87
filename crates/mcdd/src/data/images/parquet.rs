//! Parquet with encoded images, as the Hugging Face hub keeps them: a column `image` of bytes, or of bytes with a path.

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Schema};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader};
use parquet::file::reader::Length;

use super::super::arrow_text;
use super::super::options::{LABEL_NAMES, Label};
use super::super::pages::Handle;
use super::super::parquet::{guarded, reader};
use super::super::text::list;
use super::item::{Content, ImageSource, Item};
use crate::error::{Error, Result};

/// About how many bytes of images are handed on at a time.
const BLOCK: usize = 32 << 20;

/// The images that are read at a time, at most.
const BATCH: usize = 1024;

/// No encoded image is shorter.
const LEAST_IMAGE: u64 = 20;

pub(super) struct ParquetImages {
    handle: Handle,
    metadata: ArrowReaderMetadata,
    wanted: Vec<usize>,
    /// The next row group, and the rows of the one before it.
    group: usize,
    reader: Option<ParquetRecordBatchReader>,
    file: Arc<Path>,
    images: ArrayRef,
    labels: Option<ArrayRef>,
    labeled: bool,
    /// Names of the classes that numbers stand for.
    names: Vec<Arc<str>>,
    /// The next row of the batch, and of the file.
    next: usize,
    row: u64,
    expected: Option<usize>,
}

/// Whether a column holds bytes, and whether they are in a field of it.
fn holds_bytes(kind: &DataType) -> bool {
    match kind {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => true,
        DataType::Struct(fields) => fields.iter().any(|f| f.name() == "bytes" && holds_bytes(f.data_type())),
        _ => false,
    }
}

fn image_column(schema: &Schema, file: &Path) -> Result<usize> {
    let fields = schema.fields();
    let named = ["image", "img"]
        .iter()
        .find_map(|want| fields.iter().position(|f| f.name().eq_ignore_ascii_case(want) && holds_bytes(f.data_type())));
    let mut all = fields.iter().enumerate().filter(|(_, f)| holds_bytes(f.data_type())).map(|(at, _)| at);
    match (named, all.next(), all.next()) {
        (Some(at), ..) | (None, Some(at), None) => Ok(at),
        _ => {
            let names: Vec<&str> = fields.iter().map(|f| f.name().as_str()).collect();
            Err(Error::data(format!("it is not clear which column holds images; the columns are: {}", list(&names)))
                .at_file(file)
                .hint("name the column of encoded images image; for tables of numbers leave out `net`"))
        }
    }
}

fn label_column(schema: &Schema, label: &Label, file: &Path) -> Result<Option<usize>> {
    let fields = schema.fields();
    let at = match label {
        Label::None | Label::File(_) => return Ok(None),
        Label::Auto => LABEL_NAMES
            .iter()
            .chain(&["fine_label"])
            .find_map(|want| fields.iter().position(|f| f.name().eq_ignore_ascii_case(want))),
        Label::First => Some(0),
        Label::Last => fields.len().checked_sub(1),
        Label::Index(index) => index.checked_sub(1).filter(|at| *at < fields.len()),
        Label::Name(name) => fields.iter().position(|f| f.name() == name),
    };
    let Some(at) = at else {
        if let Label::Auto = label {
            return Ok(None);
        }
        let names: Vec<&str> = fields.iter().map(|f| f.name().as_str()).collect();
        return Err(Error::data(format!("there is no such column for the label; the columns are: {}", list(&names)))
            .at_file(file)
            .hint("give `label` as it is in the file"));
    };
    let field = &fields[at];
    if !field.data_type().is_integer()
        && !matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
    {
        return Err(Error::data(format!("values of the type {} cannot be labels", field.data_type()))
            .at_file(file)
            .at_column(field.name())
            .hint("give a column of integers or texts by `label`, or `label` none"));
    }
    Ok(Some(at))
}

/// The class names that the hub's own description in the file gives for a column.
fn class_names(schema: &Schema, column: &str) -> Vec<Arc<str>> {
    let names = || {
        let about: serde_json::Value = serde_json::from_str(schema.metadata().get("huggingface")?).ok()?;
        let names = about.get("info")?.get("features")?.get(column)?.get("names")?.as_array()?.clone();
        names.iter().map(|name| name.as_str().map(Arc::from)).collect::<Option<Vec<Arc<str>>>>()
    };
    names().unwrap_or_default()
}

/// The bytes at a place of an array; nothing where they are null.
fn bytes(array: &ArrayRef, at: usize) -> Option<&[u8]> {
    if array.is_null(at) {
        return None;
    }
    match array.data_type() {
        DataType::Binary => Some(array.as_binary::<i32>().value(at)),
        DataType::LargeBinary => Some(array.as_binary::<i64>().value(at)),
        DataType::BinaryView => Some(array.as_binary_view().value(at)),
        _ => None,
    }
}

fn load(path: &Path) -> Result<(Handle, ArrowReaderMetadata)> {
    let handle = Handle::open(path)?;
    let options = ArrowReaderOptions::new();
    let metadata = guarded(path, || ArrowReaderMetadata::load(&handle, options).map_err(|e| e.to_string()))?;
    Ok((handle, metadata))
}

/// Whether a file has a column of images.
pub(super) fn has_images(path: &Path) -> bool {
    load(path).is_ok_and(|(_, metadata)| image_column(metadata.schema(), path).is_ok())
}

/// Reads the metadata.
pub(super) fn open(path: &Path, label: &Label) -> Result<ParquetImages> {
    let (handle, metadata) = load(path)?;
    let length = handle.len();
    let schema = Arc::clone(metadata.schema());
    let image = image_column(&schema, path)?;
    let label = label_column(&schema, label, path)?;
    let names = label.map_or(Vec::new(), |at| class_names(&schema, schema.field(at).name()));
    let rows = u64::try_from(metadata.metadata().file_metadata().num_rows()).unwrap_or(0);
    Ok(ParquetImages {
        handle,
        metadata,
        wanted: std::iter::once(image).chain(label).collect(),
        group: 0,
        reader: None,
        file: path.into(),
        images: arrow_array::new_empty_array(&DataType::Binary),
        labels: None,
        labeled: label.is_some(),
        names,
        next: 0,
        row: 0,
        expected: usize::try_from(rows).ok().filter(|_| rows <= length / LEAST_IMAGE),
    })
}

impl ParquetImages {
    /// Reads the next batch; `false` at the end.
    fn load(&mut self) -> Result<bool> {
        (self.images, self.labels) = (arrow_array::new_empty_array(&DataType::Binary), None);
        loop {
            if self.load_from_group()? {
                return Ok(true);
            }
            let wanted = self.wanted.iter().copied();
            self.reader = reader(&self.handle, &self.metadata, wanted, self.group, BATCH, &self.file)?;
            if self.reader.is_none() {
                return Ok(false);
            }
            self.group += 1;
        }
    }

    /// Reads the next batch of the row group; `false` at its end.
    fn load_from_group(&mut self) -> Result<bool> {
        let labeled = self.labeled;
        let reader = &mut self.reader;
        let batch = guarded(&self.file, || {
            loop {
                let Some(batch) = reader.as_mut().and_then(Iterator::next) else { return Ok(None) };
                let batch = batch.map_err(|e| e.to_string())?;
                if batch.num_rows() == 0 {
                    continue;
                }
                let (mut images, mut labels) = (None, None);
                // The columns keep the file's order.
                for column in batch.columns() {
                    if holds_bytes(column.data_type()) && images.is_none() {
                        let bytes = match column.as_struct_opt() {
                            Some(parts) => {
                                Arc::clone(parts.column_by_name("bytes").ok_or("the field bytes is missing")?)
                            }
                            None => Arc::clone(column),
                        };
                        images = Some(bytes);
                    } else {
                        labels = Some(Arc::clone(column));
                    }
                }
                let images = images.ok_or("the images are missing")?;
                if labeled && labels.is_none() {
                    return Err("the labels are missing".into());
                }
                return Ok(Some((images, labels)));
            }
        })?;
        let Some((images, labels)) = batch else { return Ok(false) };
        (self.images, self.labels, self.next) = (images, labels, 0);
        Ok(true)
    }

    /// The label of a row of the batch: its text, or the name that its number stands for.
    fn label(&self, at: usize) -> Option<Arc<str>> {
        let (text, _) = arrow_text::value(self.labels.as_ref()?, at)?;
        let text = text.trim();
        match text.parse::<usize>().ok().and_then(|code| self.names.get(code)) {
            Some(name) => Some(Arc::clone(name)),
            None => (!text.is_empty()).then(|| text.into()),
        }
    }
}

impl ImageSource for ParquetImages {
    fn fill(&mut self, max: usize, items: &mut Vec<Item>) -> Result<usize> {
        let (mut count, mut size) = (0, 0);
        while count < max && size < BLOCK {
            if self.next >= self.images.len() && (count > 0 || !self.load()?) {
                break;
            }
            let at = self.next;
            self.next += 1;
            self.row += 1;
            count += 1;
            let missing = |what: &str| {
                let e = Error::data(format!("the {what} is missing")).at_file(&self.file).at_row(self.row);
                Content::Bad(e.hint("put it in, or leave the row out; `skip_bad` goes on without it"))
            };
            let label = self.label(at);
            let content = match bytes(&self.images, at) {
                None => missing("image"),
                Some(_) if self.labeled && label.is_none() => missing("label"),
                Some(bytes) => {
                    size += bytes.len();
                    Content::Encoded(bytes.to_vec())
                }
            };
            items.push(Item { content, label, file: Arc::clone(&self.file), row: self.row });
        }
        Ok(count)
    }

    fn labeled(&self) -> bool {
        self.labeled
    }

    fn expected(&self) -> Option<usize> {
        self.expected
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ImageOptions, Images};
    use super::*;
    use arrow_array::{BinaryArray, Int64Array, RecordBatch, StringArray, StructArray};
    use arrow_schema::Field;
    use std::collections::HashMap;
    use std::fs::File;
    use std::path::PathBuf;

    fn png(value: u8) -> Vec<u8> {
        let mut out = std::io::Cursor::new(Vec::new());
        image::GrayImage::from_pixel(2, 3, image::Luma([value])).write_to(&mut out, image::ImageFormat::Png).unwrap();
        out.into_inner()
    }

    fn put(dir: &Path, columns: Vec<(&str, ArrayRef)>, metadata: &str) -> PathBuf {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let about = HashMap::from([("huggingface".to_owned(), metadata.to_owned())]);
        let schema = Arc::new(batch.schema().as_ref().clone().with_metadata(about));
        let batch = batch.with_schema(schema).unwrap();
        let path = dir.join("a.parquet");
        let file = File::create(&path).unwrap();
        let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        path
    }

    fn read(path: &Path, label: Label, skip_bad: bool) -> Result<(Images, Vec<String>)> {
        Images::read(&[path.to_owned()], &ImageOptions { label, skip_bad, ..ImageOptions::default() })
    }

    fn names(images: &Images) -> Vec<Option<&str>> {
        (0..images.rows()).map(|row| images.label_name(row)).collect()
    }

    #[test]
    fn the_hubs_layout() {
        let dir = tempfile::tempdir().unwrap();
        let bytes: ArrayRef = Arc::new(BinaryArray::from_iter_values([png(5), png(6), png(7)]));
        let paths: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c"]));
        let image: ArrayRef = Arc::new(StructArray::from(vec![
            (Arc::new(Field::new("bytes", DataType::Binary, true)), bytes.clone()),
            (Arc::new(Field::new("path", DataType::Utf8, true)), paths.clone()),
        ]));
        let fine: ArrayRef = Arc::new(Int64Array::from(vec![1, 0, 2]));
        let about = r#"{"info": {"features": {"fine_label": {"names": ["dog", "cat"], "_type": "ClassLabel"}}}}"#;
        let path = put(dir.path(), vec![("fine_label", fine.clone()), ("img", image)], about);
        let (images, _) = read(&path, Label::Auto, false).unwrap();
        assert_eq!((images.rows(), images.height, images.width, images.channels), (3, 3, 2, 1));
        assert_eq!(names(&images), [Some("cat"), Some("dog"), Some("2")]);
        assert_eq!(images.pixels, [[5; 6], [6; 6], [7; 6]].concat());
        // Plain bytes, and numbers without names.
        let path = put(dir.path(), vec![("image", bytes.clone()), ("label", fine), ("file", paths.clone())], "{");
        assert_eq!(names(&read(&path, Label::Auto, false).unwrap().0), [Some("1"), Some("0"), Some("2")]);
        let (images, _) = read(&path, Label::Name("file".into()), false).unwrap();
        assert_eq!(names(&images), [Some("a"), Some("b"), Some("c")]);
        assert_eq!(read(&path, Label::None, false).unwrap().0.labels, None);
        for label in [Label::Name("image".into()), Label::Name("x".into()), Label::Index(9)] {
            assert!(read(&path, label, false).is_err());
        }
        let path = put(dir.path(), vec![("a", bytes.clone()), ("b", bytes)], "");
        assert!(read(&path, Label::None, false).unwrap_err().to_string().contains("a, b"));
        let path = put(dir.path(), vec![("a", paths)], "");
        assert!(read(&path, Label::None, false).is_err());
    }

    #[test]
    fn bad_rows_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let (good, bad) = (png(5), b"no image".to_vec());
        let all = [Some(good.as_slice()), Some(&bad), None, Some(&good)];
        let image: ArrayRef = Arc::new(BinaryArray::from_iter(all));
        let label: ArrayRef = Arc::new(StringArray::from(vec![Some("x"), Some("x"), Some("x"), None]));
        let path = put(dir.path(), vec![("image", image), ("label", label)], "");
        let e = read(&path, Label::Auto, false).unwrap_err();
        assert!(e.to_string().contains("row 2: it is not an image"), "{e}");
        let (images, notices) = read(&path, Label::Auto, true).unwrap();
        assert_eq!(images.rows(), 1);
        assert!(notices[0].starts_with("3 bad images skipped: "), "{notices:?}");
        let e = read(&path, Label::Auto, false).unwrap_err();
        assert!(e.hint_text().is_some());
    }
}
