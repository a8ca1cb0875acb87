use image::{DynamicImage, GrayImage, ImageFormat, Luma, Rgb, RgbImage};

use std::path::{Path, PathBuf};

use super::super::options::Label;
use super::super::text::Notices;
use super::*;
use crate::error::Result;

fn put(dir: &Path, name: &str, image: impl Into<DynamicImage>) -> PathBuf {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut out = std::io::Cursor::new(Vec::new());
    image.into().write_to(&mut out, ImageFormat::from_path(&path).unwrap()).unwrap();
    std::fs::write(&path, out.into_inner()).unwrap();
    path
}

fn gray(width: u32, height: u32, value: u8) -> GrayImage {
    GrayImage::from_pixel(width, height, Luma([value]))
}

fn color(width: u32, height: u32, value: u8) -> RgbImage {
    RgbImage::from_pixel(width, height, Rgb([value, value / 2, 3]))
}

fn read(path: &Path, options: &ImageOptions) -> Result<(Images, Notices)> {
    Images::read(&[path.to_owned()], options)
}

#[test]
fn a_folder_of_classes() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..5 {
        put(dir.path(), &format!("cat/{n}.png"), color(4, 3, 10 + n));
        put(dir.path(), &format!("dog/{n}.bmp"), color(4, 3, 20 + n));
        put(dir.path(), &format!("ant/{n}.webp"), color(4, 3, 30 + n));
    }
    let (images, notices) = read(dir.path(), &ImageOptions::default()).unwrap();
    assert!(notices.is_empty());
    assert_eq!((images.rows(), images.height, images.width, images.channels), (15, 3, 4, 3));
    assert_eq!(images.classes(), ["ant", "cat", "dog"]);
    assert_eq!(images.class_sizes(), [5, 5, 5]);
    for row in 0..15 {
        let value = [30, 10, 20][row / 5] + (row % 5) as u8;
        assert_eq!(images.image(row), [value, value / 2, 3].repeat(12));
    }
    assert!(images.name(6).ends_with("1.png") && images.files().count() == 15);
    let (rest, out) = images.leave_out("cat").unwrap();
    assert_eq!((rest.rows(), rest.classes(), out.rows()), (10, &["ant".to_owned(), "dog".into()][..], 5));
    assert_eq!((out.image(0), out.name(0)), (images.image(5), images.name(5)));
    let (train, test) = images.split_rows(0.2, 1).unwrap();
    assert_eq!((images.select(&train).class_sizes(), images.select(&test).class_sizes()), (vec![4; 3], vec![1; 3]));
    assert_eq!(images.folds(5, 1).len(), 5);
    images.check_classes(5).unwrap();
    assert!(images.check_classes(6).unwrap_err().to_string().contains("ant (5)"));
}

#[test]
fn sizes_are_made_alike() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "a/1.png", gray(4, 3, 10));
    put(dir.path(), "a/2.png", gray(9, 7, 20));
    put(dir.path(), "b/3.png", gray(2, 2, 30));
    let (images, notices) = read(dir.path(), &ImageOptions::default()).unwrap();
    assert_eq!(images.pixels, [[10; 12], [20; 12], [30; 12]].concat());
    assert!(notices[0].contains("2 images resized to 3x4") && notices[0].contains("1.png"), "{notices:?}");
    let options = ImageOptions { size: Some((2, 5)), channels: Some(3), ..ImageOptions::default() };
    let (images, notices) = read(dir.path(), &options).unwrap();
    assert_eq!((images.height, images.width, images.channels), (2, 5, 3));
    assert_eq!(images.pixels, [[10; 30], [20; 30], [30; 30]].concat());
    assert_eq!(notices, ["3 images resized to 2x5", "3 gray images made color"]);
    for (size, channels) in [(Some((0, 2)), None), (Some((2, 1 << 20)), None), (None, Some(2))] {
        assert!(read(dir.path(), &ImageOptions { size, channels, ..ImageOptions::default() }).is_err());
    }
}

#[test]
fn bad_images_are_named_or_counted() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "a/1.png", color(3, 3, 10));
    put(dir.path(), "b/1.png", color(3, 3, 20));
    std::fs::write(dir.path().join("a/notes.txt"), "hello").unwrap();
    let refused = |part: &str| {
        let e = read(dir.path(), &ImageOptions::default()).unwrap_err();
        assert!(e.to_string().contains(part) && e.file().is_some() && e.hint_text().is_some(), "{e}");
    };
    refused("notes.txt: it is not an image");
    std::fs::remove_file(dir.path().join("a/notes.txt")).unwrap();
    let whole = std::fs::read(dir.path().join("a/1.png")).unwrap();
    std::fs::write(dir.path().join("b/2.png"), &whole[..whole.len() - 20]).unwrap();
    refused("2.png: the image is damaged");
    std::fs::remove_file(dir.path().join("b/2.png")).unwrap();
    put(dir.path(), "b/3.png", gray(3, 3, 9));
    refused("3.png: the image is gray, and others are in color (");
    std::fs::write(dir.path().join("b/2.png"), b"").unwrap();
    std::fs::create_dir(dir.path().join("c")).unwrap();
    let skip = ImageOptions { skip_bad: true, ..ImageOptions::default() };
    let (images, notices) = read(dir.path(), &skip).unwrap();
    assert_eq!((images.rows(), images.classes().len()), (2, 2));
    assert_eq!(notices[0], "1 class folder without images left out: c");
    assert!(notices[1].starts_with("1 bad image skipped: "), "{notices:?}");
    assert!(notices[1].ends_with("2.png: the file is empty"), "{notices:?}");
    assert!(notices[2].starts_with("1 gray image left out, as the first (") && notices[2].contains("`channels` 3"));
    std::fs::create_dir(dir.path().join("lost")).unwrap();
    std::fs::write(dir.path().join("lost/1.png"), b"").unwrap();
    let (images, notices) = read(dir.path(), &skip).unwrap();
    assert_eq!(images.classes().len(), 2);
    assert_eq!(notices.last().unwrap(), "classes left out that have no good image: lost");
    // Of many bad images the first are named.
    for at in 2..9 {
        std::fs::write(dir.path().join(format!("lost/{at}.png")), b"").unwrap();
    }
    let (_, notices) = read(dir.path(), &skip).unwrap();
    assert!(
        notices[1].starts_with("9 bad images skipped: ") && notices[1].ends_with("empty; and 6 more"),
        "{notices:?}"
    );
    std::fs::remove_dir_all(dir.path().join("lost")).unwrap();
    // If nothing is left, that is an error too.
    let bad = dir.path().join("b/2.png");
    assert!(read(&bad, &ImageOptions { label: Label::None, ..skip.clone() }).is_err());
    std::fs::remove_dir(dir.path().join("c")).unwrap();
    std::fs::remove_file(bad).unwrap();
    let alike = ImageOptions { channels: Some(1), ..ImageOptions::default() };
    assert_eq!(read(dir.path(), &alike).unwrap().0.rows(), 3);
}

#[test]
fn labels_from_elsewhere_or_none() {
    let dir = tempfile::tempdir().unwrap();
    let files = [put(dir.path(), "x/1.png", gray(2, 2, 1)), put(dir.path(), "x/2.jpg", gray(2, 2, 2))];
    let flat = dir.path().join("x");
    for path in [&flat, &files[0]] {
        let e = read(path, &ImageOptions::default()).unwrap_err();
        assert!(e.to_string().contains("no labels") && e.hint_text().unwrap().contains("`label`"), "{e}");
    }
    let none = ImageOptions { label: Label::None, ..ImageOptions::default() };
    let (images, _) = Images::read(&files, &none).unwrap();
    assert_eq!((images.rows(), &images.labels), (2, &None));
    assert!(images.classes().is_empty() && images.class_sizes().is_empty() && images.label(0).is_none());
    let list = dir.path().join("labels.txt");
    std::fs::write(&list, "dog\ncat\n").unwrap();
    let listed = ImageOptions { label: Label::File(list.clone()), ..ImageOptions::default() };
    let (images, _) = read(&flat, &listed).unwrap();
    assert_eq!((images.label_name(0), images.label_name(1)), (Some("dog"), Some("cat")));
    for (text, part) in [("dog\n", "fewer labels"), ("dog\ncat\ncat\n", "more labels")] {
        std::fs::write(&list, text).unwrap();
        let e = read(&flat, &listed).unwrap_err();
        assert!(e.to_string().contains(part), "{e}");
    }
    // A bad image has its label too.
    std::fs::write(flat.join("0.png"), b"?").unwrap();
    std::fs::write(&list, "owl\ndog\ncat\n").unwrap();
    let (images, _) = read(&flat, &ImageOptions { skip_bad: true, ..listed }).unwrap();
    assert_eq!((images.label_name(0), images.label_name(1)), (Some("dog"), Some("cat")));
    assert!(Images::read(&[], &none).is_err());
}

#[test]
fn idx_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("train-images-idx3-ubyte");
    let pixels: Vec<u8> = (0..18).collect();
    std::fs::write(&path, [&[0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 3][..], &pixels].concat()).unwrap();
    assert!(read(&path, &ImageOptions::default()).unwrap_err().to_string().contains("no labels"));
    let labels = dir.path().join("train-labels-idx1-ubyte");
    std::fs::write(&labels, [0, 0, 8, 1, 0, 0, 0, 3, 7, 4, 7]).unwrap();
    let (images, _) = read(&path, &ImageOptions::default()).unwrap();
    assert_eq!((images.height, images.width, images.channels, &images.pixels), (2, 3, 1, &pixels));
    assert_eq!((images.classes(), images.label(1)), (&["4".to_owned(), "7".into()][..], Some(0)));
    assert_eq!(read(dir.path(), &ImageOptions::default()).unwrap().0.rows(), 3);
    std::fs::write(&labels, [0, 0, 8, 1, 0, 0, 0, 2, 7, 4]).unwrap();
    assert!(read(&path, &ImageOptions::default()).unwrap_err().to_string().contains("2 labels for 3 images"));
}

#[test]
fn reading_for_prediction() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..7 {
        put(dir.path(), &format!("a/{n}.png"), color(4 + n, 3, 10 + n as u8));
        put(dir.path(), &format!("b/{n}.png"), gray(4, 3, 20 + n as u8));
    }
    std::fs::write(dir.path().join("b/9.png"), b"?").unwrap();
    let shape = ImageShape { height: 3, width: 4, channels: 3 };
    let mut batch = ImageBatch::default();
    let mut all: Vec<ImageBatch> = Vec::new();
    for threads in [1, 4] {
        for max in [1, 3, 100] {
            let options = ImageOptions { skip_bad: true, threads, ..ImageOptions::default() };
            let mut reader = ImageReader::open(&[dir.path()], shape, &options).unwrap();
            assert!(reader.has_labels() && reader.shape() == shape);
            let mut joined = ImageBatch { labels: Some(Vec::new()), ..ImageBatch::default() };
            while reader.next(max, &mut batch).unwrap() {
                assert!(batch.rows <= max && batch.pixels.len() == batch.rows * shape.values());
                joined.rows += batch.rows;
                joined.pixels.extend(&batch.pixels);
                joined.names.append(&mut batch.names);
                joined.labels.as_mut().unwrap().append(batch.labels.as_mut().unwrap());
            }
            assert_eq!((reader.rows(), joined.rows), (14, 14));
            let notices = reader.notices();
            assert!(notices[0].contains("9.png") && notices.len() == 3, "{notices:?}");
            assert_eq!(notices[1..], ["6 images resized to 3x4", "7 gray images made color"]);
            all.push(joined);
        }
    }
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(all[0].labels.as_ref().unwrap()[6..8], ["a", "b"]);
    let mut strict = ImageReader::open(&[dir.path()], shape, &ImageOptions::default()).unwrap();
    let outcome = loop {
        match strict.next(5, &mut batch) {
            Ok(true) => {}
            other => break other,
        }
    };
    assert!(outcome.unwrap_err().to_string().contains("9.png"));
}

#[test]
fn from_bytes() {
    let shape = ImageShape { height: 1, width: 2, channels: 3 };
    let images = Images::from_pixels(vec![1; 12], shape, Some(&["b", "a"])).unwrap();
    assert_eq!((images.rows(), images.label(0), images.name(1)), (2, Some(1), "image 2".to_owned()));
    assert_eq!(images.select(&[1, 1, 0]).rows(), 3);
    for (bytes, channels, labels) in [(11, 3, 2), (12, 3, 1), (0, 3, 0), (12, 2, 3)] {
        let labels = vec!["x"; labels];
        let shape = ImageShape { channels, ..shape };
        assert!(Images::from_pixels(vec![0; bytes], shape, Some(&labels)).is_err());
    }
}
