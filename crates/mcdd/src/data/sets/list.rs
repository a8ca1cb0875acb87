//! What is known of each set. A checksum stands here only where its publisher, or several who have used the file,
//! give the same one.

use super::set::Checksum::Md5;
use super::set::{Checksum, Download, Form, Set};

const fn file(url: &'static str, file: &'static str) -> Download {
    Download { url, file, bytes: None, checksum: None }
}

const fn known(url: &'static str, file: &'static str, bytes: u64, checksum: Checksum) -> Download {
    Download { url, file, bytes: Some(bytes), checksum: Some(checksum) }
}

/// The files of MNIST and of Fashion-MNIST.
const IDX: &[&str] =
    &["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"];

/// All sets, the paper's first.
pub static ALL: &[Set] = &[
    Set {
        name: "gas",
        title: "GasSensor",
        what: "UCI Gas Sensor Array Drift: six gases, measured by 16 chemical sensors over 36 months",
        rows: 13_910,
        features: 128,
        classes: 6,
        test_rows: 0,
        license: "CC BY 4.0; its authors ask for research use only",
        page: "https://archive.ics.uci.edu/dataset/224/gas+sensor+array+drift+dataset",
        downloads: &[file(
            "https://archive.ics.uci.edu/static/public/224/gas+sensor+array+drift+dataset.zip",
            "gas+sensor+array+drift+dataset.zip",
        )],
        folders: &["gas", "gas/Dataset", "Dataset"],
        files: &[
            "batch1.dat",
            "batch2.dat",
            "batch3.dat",
            "batch4.dat",
            "batch5.dat",
            "batch6.dat",
            "batch7.dat",
            "batch8.dat",
            "batch9.dat",
            "batch10.dat",
        ],
        form: Form::Sparse,
    },
    Set {
        name: "shuttle",
        title: "Shuttle",
        what: "UCI Statlog (Shuttle): states of the radiators of the space shuttle",
        rows: 58_000,
        features: 9,
        classes: 7,
        test_rows: 14_500,
        license: "CC BY 4.0",
        page: "https://archive.ics.uci.edu/dataset/148/statlog+shuttle",
        downloads: &[file("https://archive.ics.uci.edu/static/public/148/statlog+shuttle.zip", "statlog+shuttle.zip")],
        folders: &["shuttle"],
        files: &["shuttle.trn", "shuttle.tst"],
        form: Form::LabelLast,
    },
    Set {
        name: "drive",
        title: "DriveDiagnosis",
        what: "UCI Sensorless Drive Diagnosis: faults of a motor, from its currents",
        rows: 58_509,
        features: 48,
        classes: 11,
        test_rows: 0,
        license: "CC BY 4.0",
        page: "https://archive.ics.uci.edu/dataset/325/dataset+for+sensorless+drive+diagnosis",
        downloads: &[file(
            "https://archive.ics.uci.edu/static/public/325/dataset+for+sensorless+drive+diagnosis.zip",
            "dataset+for+sensorless+drive+diagnosis.zip",
        )],
        folders: &["drive"],
        files: &["Sensorless_drive_diagnosis.txt"],
        form: Form::LabelLast,
    },
    Set {
        name: "mnist",
        title: "MNIST",
        what: "handwritten digits, 28x28 gray pixels",
        rows: 70_000,
        features: 784,
        classes: 10,
        test_rows: 10_000,
        license: "CC BY-SA 3.0",
        page: "http://yann.lecun.com/exdb/mnist/",
        // The publisher's own site no longer serves them; this is the copy that PyTorch keeps.
        downloads: &[
            known(
                "https://ossci-datasets.s3.amazonaws.com/mnist/train-images-idx3-ubyte.gz",
                "train-images-idx3-ubyte.gz",
                9_912_422,
                Md5("f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            ),
            known(
                "https://ossci-datasets.s3.amazonaws.com/mnist/train-labels-idx1-ubyte.gz",
                "train-labels-idx1-ubyte.gz",
                28_881,
                Md5("d53e105ee54ea40749a09fcbcd1e9432"),
            ),
            known(
                "https://ossci-datasets.s3.amazonaws.com/mnist/t10k-images-idx3-ubyte.gz",
                "t10k-images-idx3-ubyte.gz",
                1_648_877,
                Md5("9fb629c4189551a2d022fa330f9573f3"),
            ),
            known(
                "https://ossci-datasets.s3.amazonaws.com/mnist/t10k-labels-idx1-ubyte.gz",
                "t10k-labels-idx1-ubyte.gz",
                4_542,
                Md5("ec29112dd5afa0611ce80d1b7f02629c"),
            ),
        ],
        folders: &["mnist", "MNIST/raw"],
        files: IDX,
        form: Form::Idx,
    },
    Set {
        name: "svhn",
        title: "SVHN",
        what: "house numbers from street views, cut to digits, 32x32 color pixels",
        rows: 99_289,
        features: 3_072,
        classes: 10,
        test_rows: 26_032,
        license: "non-commercial use only",
        page: "http://ufldl.stanford.edu/housenumbers/",
        downloads: &[
            known(
                "https://ufldl.stanford.edu/housenumbers/train_32x32.mat",
                "train_32x32.mat",
                182_040_794,
                Md5("e26dedcc434d2e4c54c9b2d4a06d8373"),
            ),
            known(
                "https://ufldl.stanford.edu/housenumbers/test_32x32.mat",
                "test_32x32.mat",
                64_275_384,
                Md5("eb5a983be6a315427106f1b164d9cef3"),
            ),
        ],
        folders: &["svhn"],
        files: &["train_32x32.mat", "test_32x32.mat"],
        form: Form::Matlab,
    },
    Set {
        name: "cifar10",
        title: "CIFAR-10",
        what: "photographs of ten kinds of things, 32x32 color pixels",
        rows: 60_000,
        features: 3_072,
        classes: 10,
        test_rows: 10_000,
        license: "none given; cite Krizhevsky 2009",
        page: "https://www.cs.toronto.edu/~kriz/cifar.html",
        downloads: &[known(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "cifar-10-binary.tar.gz",
            170_052_171,
            Md5("c32a1d4ab5d03f1284b67883e8d87530"),
        )],
        folders: &["cifar10", "cifar10/cifar-10-batches-bin", "cifar-10-batches-bin"],
        files: &[
            "data_batch_1.bin",
            "data_batch_2.bin",
            "data_batch_3.bin",
            "data_batch_4.bin",
            "data_batch_5.bin",
            "test_batch.bin",
        ],
        form: Form::Records(3_073),
    },
    Set {
        name: "cifar100",
        title: "CIFAR-100",
        what: "photographs of a hundred kinds of things, 32x32 color pixels",
        rows: 60_000,
        features: 3_072,
        classes: 100,
        test_rows: 10_000,
        license: "none given; cite Krizhevsky 2009",
        page: "https://www.cs.toronto.edu/~kriz/cifar.html",
        downloads: &[known(
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            "cifar-100-binary.tar.gz",
            168_513_733,
            Md5("03b5dce01913d631647c71ecec9e9cb8"),
        )],
        folders: &["cifar100", "cifar100/cifar-100-binary", "cifar-100-binary"],
        files: &["train.bin", "test.bin"],
        form: Form::Records(3_074),
    },
    Set {
        name: "tinyimagenet",
        title: "TinyImageNet",
        what: "random 32x32 crops of Tiny-ImageNet's test images, without labels (as made for ODIN)",
        rows: 10_000,
        features: 3_072,
        classes: 0,
        test_rows: 10_000,
        license: "research use only (ImageNet's terms)",
        page: "https://github.com/facebookresearch/odin",
        downloads: &[Download {
            url: "https://www.dropbox.com/s/avgm2u562itwpkl/Imagenet.tar.gz?dl=1",
            file: "Imagenet.tar.gz",
            bytes: None,
            checksum: Some(Md5("7c0827e4246c3718a5ee076e999e52e5")),
        }],
        folders: &["tinyimagenet", "tinyimagenet/Imagenet", "Imagenet_crop", "Imagenet"],
        files: &["test"],
        form: Form::Folder,
    },
    Set {
        name: "lsun",
        title: "LSUN",
        what: "random 32x32 crops of LSUN's test images, without labels (as made for ODIN)",
        rows: 10_000,
        features: 3_072,
        classes: 0,
        test_rows: 10_000,
        license: "none given; cite Yu and others 2015",
        page: "https://github.com/facebookresearch/odin",
        downloads: &[Download {
            url: "https://www.dropbox.com/s/fhtsw1m3qxlwj6h/LSUN.tar.gz?dl=1",
            file: "LSUN.tar.gz",
            bytes: None,
            checksum: Some(Md5("458a0a0ab8e5f1cb4516d7400568e460")),
        }],
        folders: &["lsun", "lsun/LSUN", "LSUN_crop", "LSUN"],
        files: &["test"],
        form: Form::Folder,
    },
    Set {
        name: "fashion-mnist",
        title: "Fashion-MNIST",
        what: "pictures of clothes in the form of MNIST, 28x28 gray pixels",
        rows: 70_000,
        features: 784,
        classes: 10,
        test_rows: 10_000,
        license: "MIT",
        page: "https://github.com/zalandoresearch/fashion-mnist",
        downloads: &[
            known(
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/train-images-idx3-ubyte.gz",
                "train-images-idx3-ubyte.gz",
                26_421_880,
                Md5("8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            ),
            known(
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/train-labels-idx1-ubyte.gz",
                "train-labels-idx1-ubyte.gz",
                29_515,
                Md5("25c81989df183df01b3e8a0aad5dffbe"),
            ),
            known(
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/t10k-images-idx3-ubyte.gz",
                "t10k-images-idx3-ubyte.gz",
                4_422_102,
                Md5("bef4ecab320f06d8554ea6380940ec79"),
            ),
            known(
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/t10k-labels-idx1-ubyte.gz",
                "t10k-labels-idx1-ubyte.gz",
                5_148,
                Md5("bb300cfdad3c16e7a12a480ee83cd310"),
            ),
        ],
        // The last is where Debian's package puts it.
        folders: &["fashion-mnist", "FashionMNIST/raw", "/usr/share/datasets/fashion-mnist"],
        files: IDX,
        form: Form::Idx,
    },
];

/// The set of this name, in any case.
pub fn find(name: &str) -> Option<&'static Set> {
    ALL.iter().find(|set| set.name.eq_ignore_ascii_case(name))
}
