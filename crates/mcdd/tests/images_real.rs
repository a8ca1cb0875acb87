//! The published sets of images, where `MCDD_DATA` names a folder with them.
//!
//! Counts, sums and moments were taken by NumPy, SciPy (`loadmat`) and Pillow from the same files. A sum does not
//! depend on the order of images: it adds up the FNV-1a hashes (64 bits) of each image's label and bytes.
#![cfg(feature = "datasets")]

use std::io::Write;
use std::path::{Path, PathBuf};

use mcdd::data::sets::{self, Part};
use mcdd::data::{ImageBatch, ImageOptions, ImageReader, ImageSpec, Images, Label};

/// Past the test harness, which would swallow it.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn root() -> Option<PathBuf> {
    let root = std::env::var_os("MCDD_DATA").map(PathBuf::from);
    if root.is_none() {
        say("skipped: MCDD_DATA is not set");
    }
    root
}

fn read(root: &Path, name: &str, part: Part) -> Option<Images> {
    let set = sets::find(name).unwrap();
    if set.locate(root).is_none() {
        say(&format!("skipped: {name} is not there"));
        return None;
    }
    let loaded = set.read_images(root, part, None).unwrap();
    assert!(loaded.coverage.complete(), "{}", loaded.coverage);
    Some(loaded.images)
}

fn hash(label: u8, bytes: &[u8]) -> u64 {
    let step = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(step(0xcbf2_9ce4_8422_2325, label), |h, &b| step(h, b))
}

fn sum(images: &Images) -> u64 {
    let label = |row| images.label(row).map_or(0, |code| code as u8);
    (0..images.rows()).fold(0, |sum, row| sum.wrapping_add(hash(label(row), images.image(row))))
}

/// Reading in blocks gives the same.
fn check_stream(images: &Images, paths: &[PathBuf], label: Label) {
    let options = ImageOptions { label, ..ImageOptions::default() };
    let mut reader = ImageReader::open(paths, images.shape(), &options).unwrap();
    let (mut batch, mut at, mut row) = (ImageBatch::default(), 0, 0);
    while reader.next(777, &mut batch).unwrap() {
        assert!(batch.pixels == images.pixels[at..at + batch.pixels.len()], "near row {row}");
        at += batch.pixels.len();
        for i in 0..batch.rows {
            assert_eq!(batch.labels.as_ref().map(|labels| labels[i].as_str()), images.label_name(row));
            assert_eq!(batch.names[i], images.name(row));
            row += 1;
        }
    }
    assert_eq!(at, images.pixels.len());
}

fn close(got: &[f32], want: &[f64]) {
    assert!(got.len() == want.len() && got.iter().zip(want).all(|(g, w)| (f64::from(*g) - w).abs() < 1e-6), "{got:?}");
}

#[test]
fn cifar10() {
    let Some(root) = root() else { return };
    let Some(train) = read(&root, "cifar10", Part::Train) else { return };
    assert_eq!((train.rows(), train.height, train.width, train.channels), (50_000, 32, 32, 3));
    assert_eq!(train.class_sizes(), [5_000; 10]);
    assert_eq!((&train.classes()[0], &train.classes()[9]), (&"airplane".to_owned(), &"truck".to_owned()));
    assert_eq!(sum(&train), 0x9cee_1f79_b6c9_9657);
    let spec = ImageSpec::fit(&train, &(0..50_000).collect::<Vec<_>>()).unwrap();
    close(&spec.mean, &[0.49139968, 0.48215841, 0.44653091]);
    close(&spec.std, &[0.24703223, 0.24348513, 0.26158784]);
    let test = read(&root, "cifar10", Part::Test).unwrap();
    assert_eq!(sum(&test), 0x3cbc_5407_903c_a93e);
    let files: Vec<PathBuf> = test.files().map(Path::to_owned).collect();
    check_stream(&test, &files, Label::Auto);
    // The folder by itself gives the training part.
    let folder = files[0].parent().unwrap().to_owned();
    let (again, notices) = Images::read(&[folder], &ImageOptions::default()).unwrap();
    assert!(again == train && notices.len() == 1);
}

#[test]
fn svhn() {
    let Some(root) = root() else { return };
    let Some(test) = read(&root, "svhn", Part::Test) else { return };
    assert_eq!((test.rows(), test.height, test.width, test.channels), (26_032, 32, 32, 3));
    assert_eq!(test.class_sizes(), [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595]);
    let file = test.files().next().unwrap().to_owned();
    // The sum is that of crops that were made again, which came out a little smaller than the published file.
    if std::fs::metadata(&file).unwrap().len() == 63_555_978 {
        assert_eq!(sum(&test), 0xdea5_84a3_1489_48ed);
    }
    check_stream(&test, &[file], Label::Auto);
}

#[test]
fn digits_and_clothes() {
    let Some(root) = root() else { return };
    for (name, part, rows, want) in [
        ("mnist", Part::Train, 60_000, 0xe74f_8c69_a78c_ac67),
        ("mnist", Part::Test, 10_000, 0x00a5_0863_7d11_30a6),
        ("fashion-mnist", Part::Train, 60_000, 0x79e0_85b4_75e8_e61b),
        ("fashion-mnist", Part::Test, 10_000, 0xdc88_4428_7fb3_3680),
    ] {
        let Some(images) = read(&root, name, part) else { continue };
        assert_eq!((images.rows(), images.height, images.width, images.channels), (rows, 28, 28, 1));
        assert_eq!(sum(&images), want, "{name} {part}");
        let file = images.files().next().unwrap().to_owned();
        check_stream(&images, &[file], Label::Auto);
    }
}

#[test]
fn tiny_imagenet() {
    let Some(root) = root() else { return };
    let Some(test) = read(&root, "tinyimagenet", Part::Test) else { return };
    assert_eq!((test.rows(), test.height, test.width, test.channels), (10_000, 32, 32, 3));
    assert_eq!(sum(&test), 0xc77e_4eb5_8504_e6ea);
    let folder = test.files().next().unwrap().parent().unwrap().to_owned();
    check_stream(&test, &[folder], Label::None);
}

/// The same images as encoded files in Parquet, and pickled, where `parquet/` and `cifar-10-batches-py/` are there.
#[test]
fn cifar10_in_other_forms() {
    let Some(root) = root() else { return };
    for (file, want) in
        [("cifar10_train.parquet", 0x9cee_1f79_b6c9_9657), ("cifar10_test.parquet", 0x3cbc_5407_903c_a93e)]
    {
        let path = root.join("parquet").join(file);
        if !path.is_file() {
            say(&format!("skipped: {} is not there", path.display()));
            continue;
        }
        let (images, _) = Images::read(&[path], &ImageOptions::default()).unwrap();
        assert_eq!(sum(&images), want, "{file}");
    }
    let (folder, binary) = (root.join("cifar-10-batches-py"), root.join("cifar-10-batches-bin"));
    if !folder.is_dir() || !binary.is_dir() {
        say(&format!("skipped: {} is not there", folder.display()));
        return;
    }
    let read = |path: PathBuf| Images::read(&[path], &ImageOptions::default()).unwrap().0;
    let (pickled, plain) = (read(folder.join("data_batch_1")), read(binary.join("data_batch_1.bin")));
    assert!(pickled.pixels == plain.pixels && pickled.labels == plain.labels);
}
