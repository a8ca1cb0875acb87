//! Files of images that are cut, flipped or made of anything: an error, never a panic.
#![cfg(all(feature = "images", feature = "parquet"))]

use std::io::{Cursor, Write};
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch};
use image::{DynamicImage, ImageFormat, Rgb, RgbImage};
use mcdd::data::{ImageBatch, ImageOptions, ImageReader, ImageShape, Images, Label, Part};
use proptest::prelude::*;

fn encoded(format: ImageFormat) -> Vec<u8> {
    let image = RgbImage::from_fn(9, 7, |x, y| Rgb([(x * 25) as u8, (y * 30) as u8, (x * y) as u8]));
    let mut out = Cursor::new(Vec::new());
    DynamicImage::from(image).write_to(&mut out, format).unwrap();
    out.into_inner()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gz.write_all(bytes).unwrap();
    gz.finish().unwrap()
}

fn idx() -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, 3, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 3];
    bytes.extend(0..24);
    bytes
}

fn parquet_bytes() -> Vec<u8> {
    let images = [encoded(ImageFormat::Png), encoded(ImageFormat::Bmp)];
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("image", Arc::new(BinaryArray::from_iter_values(images))),
        ("label", Arc::new(Int64Array::from(vec![1, 0]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

/// An element of a MATLAB file.
fn element(kind: u32, data: &[u8]) -> Vec<u8> {
    let mut out = [kind.to_le_bytes(), (data.len() as u32).to_le_bytes()].concat();
    out.extend(data);
    out.resize(out.len().next_multiple_of(8), 0);
    out
}

fn matlab(pack: bool) -> Vec<u8> {
    let mut out = b"MATLAB 5.0 MAT-file".to_vec();
    out.resize(124, b' ');
    out.extend(b"\0\x01IM");
    let dims = |dims: &[i32]| element(5, &dims.iter().flat_map(|d| d.to_le_bytes()).collect::<Vec<_>>());
    let data: Vec<u8> = (0..2 * 12).collect();
    for (name, dims, data) in [("X", dims(&[2, 2, 3, 2]), element(2, &data)), ("y", dims(&[2, 1]), element(2, &[3, 1]))]
    {
        let array = [element(6, &[9, 0, 0, 0, 0, 0, 0, 0]), dims, element(1, name.as_bytes()), data].concat();
        let array = element(14, &array);
        if pack {
            let mut z = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
            z.write_all(&array).unwrap();
            let data = z.finish().unwrap();
            out.extend([15u32.to_le_bytes(), (data.len() as u32).to_le_bytes()].concat());
            out.extend(data);
        } else {
            out.extend(array);
        }
    }
    out
}

/// One image of CIFAR's, as Python 2 pickled them.
fn pickle() -> Vec<u8> {
    let mut out = b"\x80\x02}q\x01(U\x06labelsq\x02]q\x03K\x07aU\x04dataq\x04cnumpy.core.multiarray\n_reconstruct\nq\x05\
                    cnumpy\nndarray\nq\x06K\x00\x85U\x01b\x87Rq\x07(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nq\x08U\x02u1K\x00K\x01\
                    \x87Rq\x09(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T\x00\x0c\x00\x00"
        .to_vec();
    out.extend([200; 3072]);
    out.extend(b"tbu.");
    out
}

/// Name, content, and how many bytes at the end may be missing without harm.
fn samples() -> Vec<(&'static str, Vec<u8>, usize)> {
    vec![
        ("a.png", encoded(ImageFormat::Png), 16),
        ("a.jpg", encoded(ImageFormat::Jpeg), 0),
        ("a.webp", encoded(ImageFormat::WebP), 1),
        ("a.bmp", encoded(ImageFormat::Bmp), 0),
        ("a.gif", encoded(ImageFormat::Gif), 3),
        ("a.tif", encoded(ImageFormat::Tiff), 0),
        ("data_batch_1.bin", [&[3][..], &[9; 3072]].concat(), 0),
        ("train.bin", [&[3, 77][..], &[9; 3072]].concat(), 0),
        ("data_batch_1", pickle(), 0),
        ("a.mat", matlab(true), 0),
        ("b.mat", matlab(false), 6),
        ("a.idx", idx(), 0),
        ("b.idx.gz", gzip(&idx()), 0),
        ("a.parquet", parquet_bytes(), 0),
    ]
}

fn read(path: &Path, bytes: &[u8]) -> Result<Images, mcdd::Error> {
    std::fs::write(path, bytes).unwrap();
    let read = |label, skip_bad| {
        let options = ImageOptions { label, skip_bad, threads: 1, ..ImageOptions::default() };
        Images::read(&[path.to_owned()], &options).map(|(images, _)| images)
    };
    // Images may be readable where labels are not.
    let _ = read(Label::Auto, true);
    read(Label::Auto, false).or_else(|_| read(Label::None, false))
}

/// A cut must be seen with the labels that the file should have.
#[test]
fn a_file_that_is_cut_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes, spare) in samples() {
        let path = folder.path().join(name);
        let whole = read(&path, &bytes).unwrap_or_else(|e| panic!("{e}"));
        let label = if whole.labels.is_some() { Label::Auto } else { Label::None };
        let options = ImageOptions { label, threads: 1, ..ImageOptions::default() };
        let step = (bytes.len() / 150).max(1);
        let near_the_end = bytes.len().saturating_sub(30)..bytes.len();
        for length in (0..bytes.len()).step_by(step).chain(near_the_end) {
            std::fs::write(&path, &bytes[..length]).unwrap();
            match Images::read(std::slice::from_ref(&path), &options) {
                Err(e) => assert!(e.file().is_some() && e.hint_text().is_some(), "{name} {length}: {e}"),
                Ok(_) => assert!(length + spare >= bytes.len(), "{name} of {} cut at {length} was read", bytes.len()),
            }
        }
    }
}

#[test]
fn a_file_with_a_flipped_byte_does_not_panic() {
    let folder = tempfile::tempdir().unwrap();
    for (name, mut bytes, _) in samples() {
        let path = folder.path().join(name);
        // The pixels of CIFAR's files are any bytes anyway.
        let places: Vec<usize> =
            (0..bytes.len()).filter(|&at| bytes.len() < 2000 || at < 260 || at % 97 == 0).collect();
        for at in places {
            for flip in [0x01, 0x80, 0xff] {
                bytes[at] ^= flip;
                let _ = read(&path, &bytes);
                bytes[at] ^= flip;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        magic in proptest::sample::select(vec![
            &b""[..], b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"RIFF\x40\0\0\0WEBPVP8L", b"RIFF\x40\0\0\0WEBPVP8 ", b"BM",
            b"\0\0\x08\x03\0\0\0\x01\0\0\0\x02\0\0\0\x02", b"PAR1", b"\x80\x02", b"\x80\x02}(U\x04data", b"\x1f\x8b\x08\0", b"GIF89a",
        ]),
        name in proptest::sample::select(vec!["a.png", "a.jpg", "a", "a.bin", "a.mat", "train-images-idx3-ubyte", "x.parquet"]),
        mat: bool,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let class = folder.path().join("class");
        std::fs::create_dir(&class).unwrap();
        let path = class.join(name);
        let start = if mat { matlab(false)[..128].to_vec() } else { magic.to_vec() };
        std::fs::write(&path, [start, bytes].concat()).unwrap();
        for label in [Label::Auto, Label::None, Label::Last, Label::Name("label".into()), Label::File(path.clone())] {
            for skip_bad in [false, true] {
                for size in [None, Some((3, 2))] {
                    let label = label.clone();
                    let part = if skip_bad { Part::Train } else { Part::Test };
                    let options = ImageOptions { label, size, at_most: None, skip_bad, channels: size.map(|_| 1), threads: 1, part, unlabeled: skip_bad };
                    for path in [path.as_path(), folder.path()] {
                        let _ = Images::read(&[path.to_owned(), path.to_owned()], &options);
                    }
                    let shape = ImageShape { height: 4, width: 4, channels: 3 };
                    if let Ok(mut reader) = ImageReader::open(&[&path], shape, &options) {
                        let mut batch = ImageBatch::default();
                        while let Ok(true) = reader.next(3, &mut batch) {}
                        let _ = reader.notices();
                    }
                }
            }
        }
    }
}
