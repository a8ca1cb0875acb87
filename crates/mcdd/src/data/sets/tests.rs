use std::path::Path;

use super::super::lzw::tests::pack;
use super::*;

fn write(dir: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(bytes).unwrap();
    gz.finish().unwrap()
}

fn gas_rows(rows: usize, features: usize) -> String {
    let row = |r: usize| (1..=features).map(|f| format!(" {f}:{}.5", r * f % 17)).collect::<String>();
    (0..rows).map(|r| format!("{}{}\n", r % 6 + 1, row(r))).collect()
}

fn separated(rows: usize, features: usize, classes: usize) -> String {
    let row = |r: usize| (0..features).map(|f| format!("{} ", r * f % 13)).collect::<String>();
    (0..rows).map(|r| format!("{}{}\n", row(r), r % classes + 1)).collect()
}

fn idx(rows: usize, width: usize) -> (Vec<u8>, Vec<u8>) {
    let size = |n: usize| (n as u32).to_be_bytes();
    let pixels: Vec<u8> = (0..rows * width * width).map(|i| (i % 251) as u8).collect();
    let labels: Vec<u8> = (0..rows).map(|i| (i % 10) as u8).collect();
    (
        [&[0, 0, 8, 3], &size(rows)[..], &size(width), &size(width), &pixels].concat(),
        [&[0, 0, 8, 1], &size(rows)[..], &labels].concat(),
    )
}

fn coverage(name: &str, dir: &Path) -> String {
    find(name).unwrap().read(dir).unwrap().coverage.to_string()
}

fn refused(name: &str, dir: &Path) -> String {
    let e = find(name).unwrap().read(dir).unwrap_err();
    assert!(e.hint_text().is_some());
    e.to_string()
}

#[test]
fn the_list_is_sound() {
    let mut names: Vec<&str> = ALL.iter().map(|s| s.name).collect();
    assert_eq!(names.len(), 10);
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 10);
    for set in ALL {
        assert!(std::ptr::eq(find(&set.name.to_uppercase()).unwrap(), set));
        assert!(!set.downloads.is_empty() && !set.files.is_empty());
        assert!(set.folders[0] == set.name, "what is fetched is found first");
        for download in set.downloads {
            assert!(download.url.starts_with("https://"));
            assert!(download.url.split('?').next().unwrap().ends_with(download.file));
            assert!(!download.file.contains('/'));
            let digits = match download.checksum {
                Some(Checksum::Md5(sum)) => Some((sum, 32)),
                Some(Checksum::Sha256(sum)) => Some((sum, 64)),
                None => None,
            };
            if let Some((sum, length)) = digits {
                assert!(sum.len() == length && sum.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')));
            }
        }
    }
    assert!(find("iris").is_none());
    assert_eq!([0, 999, 1000, 13_910, 1_000_000].map(thousands), ["0", "999", "1,000", "13,910", "1,000,000"]);
}

#[test]
fn nothing_there() {
    let dir = tempfile::tempdir().unwrap();
    for set in ALL.iter().filter(|set| set.name != "fashion-mnist") {
        assert_eq!(set.locate(dir.path()), None);
    }
    assert!(refused("gas", dir.path()).contains("gas/batch1.dat"));
    assert!(refused("svhn", dir.path()).contains("image models"));
    // Labels alone are not a set.
    write(dir.path(), "mnist/train-labels-idx1-ubyte", idx(3, 28).1);
    refused("mnist", dir.path());
}

#[test]
fn gas_in_part() {
    let dir = tempfile::tempdir().unwrap();
    let gas = find("gas").unwrap();
    for (batch, rows) in [(10, 7), (2, 5)] {
        write(dir.path(), &format!("gas/Dataset/batch{batch}.dat"), gas_rows(rows, 128));
    }
    let found = gas.locate(dir.path()).unwrap();
    let names: Vec<_> = found.files.iter().map(|f| f.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["batch2.dat", "batch10.dat"]);
    assert_eq!(found.missing.len(), 8);
    assert_eq!(gas.count(&found).unwrap(), Some(12));
    let loaded = gas.read(dir.path()).unwrap();
    assert!(!loaded.coverage.complete());
    assert_eq!(loaded.coverage.to_string(), "GasSensor: 12 of 13,910 rows");
    assert_eq!(loaded.table.label_name(5), Some("1"), "batch2 has five rows");
    write(dir.path(), "gas/Dataset/batch10.dat", "1 1:2 128:3\n");
    write(dir.path(), "gas/Dataset/batch2.dat", "4 1:2 128:3\n");
    assert_eq!(coverage("gas", dir.path()), "GasSensor: 2 of 13,910 rows, 2 of 6 classes");
    // Those in gas/ go before those in gas/Dataset.
    write(dir.path(), "gas/batch1.dat", gas_rows(20, 127));
    assert!(refused("gas", dir.path()).contains("batch1.dat: this is not GasSensor: it has 127 features"));
    write(dir.path(), "gas/batch1.dat", gas_rows(13_911, 128));
    assert!(refused("gas", dir.path()).contains("13,911 rows, and GasSensor has 13,910"));
}

#[test]
fn shuttle_as_its_archive_unpacks() {
    let dir = tempfile::tempdir().unwrap();
    let text = separated(43_500, 9, 7);
    write(dir.path(), "shuttle/shuttle.trn.Z", pack(text.as_bytes(), 16, Some(60_000)));
    assert_eq!(coverage("shuttle", dir.path()), "Shuttle: 43,500 of 58,000 rows");
    write(dir.path(), "shuttle/shuttle.tst", separated(14_500, 9, 7));
    assert_eq!(coverage("shuttle", dir.path()), "Shuttle: 58,000 rows, 9 features, 7 classes");
    let set = find("shuttle").unwrap();
    let found = set.locate(dir.path()).unwrap();
    assert!(found.missing.is_empty());
    assert_eq!(set.count(&found).unwrap(), Some(58_000));
    write(dir.path(), "shuttle/shuttle.tst", separated(14_500, 9, 8));
    assert!(refused("shuttle", dir.path()).contains("8 classes, and Shuttle has 7"));
    write(dir.path(), "shuttle/shuttle.tst", separated(14_500, 10, 7));
    assert!(refused("shuttle", dir.path()).contains("shuttle.tst"));
    write(dir.path(), "shuttle/shuttle.trn.Z", b"\x1f\x9d\x90\xff\xff");
    assert!(refused("shuttle", dir.path()).contains("shuttle.trn.Z"));
}

#[test]
fn drive_and_the_digits() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "drive/Sensorless_drive_diagnosis.txt", separated(2_200, 48, 11));
    assert_eq!(coverage("drive", dir.path()), "DriveDiagnosis: 2,200 of 58,509 rows");
    for (folder, name) in [("mnist", "mnist"), ("FashionMNIST/raw", "fashion-mnist")] {
        let (images, labels) = idx(30, 28);
        write(dir.path(), &format!("{folder}/train-images-idx3-ubyte.gz"), gzip(&images));
        write(dir.path(), &format!("{folder}/train-labels-idx1-ubyte"), labels);
        let (images, labels) = idx(10, 28);
        write(dir.path(), &format!("{folder}/t10k-images.idx3-ubyte"), images);
        write(dir.path(), &format!("{folder}/t10k-labels.idx1-ubyte.gz"), gzip(&labels));
        let set = find(name).unwrap();
        assert_eq!(coverage(name, dir.path()), format!("{}: 40 of 70,000 rows", set.title));
        let found = set.locate(dir.path()).unwrap();
        assert!(found.missing.is_empty());
        assert_eq!(set.count(&found).unwrap(), Some(40));
    }
    let (images, labels) = idx(10, 27);
    write(dir.path(), "mnist/t10k-images-idx3-ubyte", images);
    write(dir.path(), "mnist/t10k-labels-idx1-ubyte", labels);
    assert!(refused("mnist", dir.path()).contains("t10k-images-idx3-ubyte"));
}

#[test]
fn images_are_found_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "cifar-10-batches-bin/test_batch.bin", vec![0; 3 * 3073]);
    write(dir.path(), "cifar100/cifar-100-binary/train.bin", vec![0; 2 * 3074]);
    write(dir.path(), "svhn/test_32x32.mat", "MATLAB 5.0");
    for image in 0..5 {
        write(dir.path(), &format!("Imagenet_crop/test/{image}.png"), "");
        write(dir.path(), &format!("lsun/LSUN/test/test_{image}.jpg"), "");
    }
    write(dir.path(), "lsun/LSUN/test/notes.txt", "");
    for (name, missing, rows) in [
        ("cifar10", 5, Some(3)),
        ("cifar100", 1, Some(2)),
        ("svhn", 1, None),
        ("tinyimagenet", 0, Some(5)),
        ("lsun", 0, Some(5)),
    ] {
        let set = find(name).unwrap();
        let found = set.locate(dir.path()).unwrap();
        assert_eq!((found.missing.len(), set.count(&found).unwrap()), (missing, rows), "{name}");
    }
}

/// A record of each label, and the pixels of CIFAR.
fn records(labels: &[u8]) -> Vec<u8> {
    labels.iter().flat_map(|&label| [&[label][..], &[label; 3072]].concat()).collect()
}

#[test]
fn images_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let read = |name: &str, part| find(name).unwrap().read_images(dir.path(), part, None);
    let coverage = |name: &str, part| read(name, part).unwrap().coverage.to_string();
    let refused = |name: &str, part, text: &str| {
        let e = read(name, part).unwrap_err();
        assert!(e.to_string().contains(text) && e.hint_text().is_some(), "{e}");
    };
    refused("cifar10", Part::Test, "is not there");
    refused("gas", Part::Train, "is a table");
    refused("lsun", Part::Train, "test with only");
    write(dir.path(), "cifar10/cifar-10-batches-bin/data_batch_2.bin", records(&[1, 2, 9]));
    refused("cifar10", Part::Test, "the test part of CIFAR-10 is not there");
    write(dir.path(), "cifar10/cifar-10-batches-bin/test_batch.bin", records(&[4, 4]));
    assert_eq!(coverage("cifar10", Part::Train), "CIFAR-10 (train): 3 of 50,000 images, 3 of 10 classes");
    assert_eq!(coverage("cifar10", Part::Test), "CIFAR-10 (test): 2 of 10,000 images, 1 of 10 classes");
    let (images, labels) = idx(30, 28);
    write(dir.path(), "mnist/train-images-idx3-ubyte.gz", gzip(&images));
    write(dir.path(), "mnist/train-labels-idx1-ubyte", labels);
    let (images, labels) = idx(10_000, 28);
    write(dir.path(), "mnist/t10k-images.idx3-ubyte", images);
    write(dir.path(), "mnist/t10k-labels.idx1-ubyte.gz", gzip(&labels));
    assert_eq!(coverage("mnist", Part::Train), "MNIST (train): 30 of 60,000 images");
    assert_eq!(coverage("mnist", Part::Test), "MNIST (test): 10,000 images, 10 classes");
    assert!(read("mnist", Part::Test).unwrap().coverage.complete());
    let mut png = std::io::Cursor::new(Vec::new());
    image::RgbImage::new(32, 32).write_to(&mut png, image::ImageFormat::Png).unwrap();
    write(dir.path(), "Imagenet_crop/test/0.png", png.get_ref());
    assert_eq!(coverage("tinyimagenet", Part::Test), "TinyImageNet (test): 1 of 10,000 images");
    let mut png = std::io::Cursor::new(Vec::new());
    image::RgbImage::new(36, 36).write_to(&mut png, image::ImageFormat::Png).unwrap();
    write(dir.path(), "lsun/test/0.png", png.get_ref());
    refused("lsun", Part::Test, "this is not LSUN: it has 3,888 features");
    for set in ALL {
        assert!(set.is_table() || set.is_images());
        assert!(set.test_rows <= set.rows);
    }
}
