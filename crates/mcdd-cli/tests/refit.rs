//! `mcdd refit`: another detector or calibration for a trained model.

mod help;

use std::fs;

use help::{Lab, stderr, stdout};

#[test]
fn a_refitted_file_is_the_one_that_train_would_have_written() {
    let lab = Lab::new();
    lab.digits();
    let train = |more: &[&str], to: &str| {
        let quick = ["train", "train.csv", "--preset", "fast", "--epochs", "4", "-q", "-o", to];
        lab.ok(&[&quick[..], more].concat());
    };
    let refit = |from: &str, more: &[&str], to: &str| lab.ok(&[&["refit", from, "train.csv", "-o", to], more].concat());
    let same =
        |a: &str, b: &str| assert!(fs::read(lab.path(a)).unwrap() == fs::read(lab.path(b)).unwrap(), "{a} and {b}");
    train(&[], "m.mcdd");
    train(&["--detector", "mahalanobis", "--tpr", "0.9"], "wanted.mcdd");
    let out = refit("m.mcdd", &["--detector", "mahalanobis", "--tpr", "0.9"], "refitted.mcdd");
    assert!(stderr(&out).contains("which keeps 90.00% of known rows"), "{}", stderr(&out));
    same("wanted.mcdd", "refitted.mcdd");
    train(&["--test", "0.25", "--seed", "3", "--per-class"], "wanted.mcdd");
    train(&["--test", "0.25", "--seed", "3"], "m3.mcdd");
    refit("m3.mcdd", &["--test", "0.25", "--per-class", "-q"], "refitted.mcdd");
    same("wanted.mcdd", "refitted.mcdd");
    // The rows of another run.
    let e = lab.fails(&["refit", "m3.mcdd", "train.csv", "-o", "x.mcdd"], "not the rows that the model was trained on");
    assert!(e.contains("--calibrate"), "{e}");
    lab.fails(&["refit", "m.mcdd", "test.csv", "-o", "x.mcdd"], "not the rows that the model was trained on");
    lab.fails(&["refit", "m.mcdd", "train.csv", "-o", "m.mcdd"], "overwrite");
    lab.fails(&["refit", "m.mcdd", "train.csv", "--detector", "vim", "-o", "x.mcdd"], "needs a linear last layer");
    assert!(!lab.path("x.mcdd").exists());
}

#[test]
fn new_rows_set_the_threshold() {
    let lab = Lab::new();
    lab.model();
    lab.ok(&["refit", "m.mcdd", "--calibrate", "ood.csv", "--label", "none", "-q", "-o", "sevens.mcdd"]);
    // The rows that calibrate are kept as often as was asked for.
    let json = |model: &str| -> serde_json::Value {
        let out = lab.ok(&["evaluate", model, "ood.csv", "--label", "none", "--json", "--bootstrap", "0"]);
        serde_json::from_str(&stdout(&out)).unwrap()
    };
    let kept = |model: &str| json(model)["kept"].as_f64().unwrap();
    assert!(kept("m.mcdd") < 0.5 && kept("sevens.mcdd") >= 0.95, "{} {}", kept("m.mcdd"), kept("sevens.mcdd"));
    // A file without labels, and one with the labels of the model.
    let text = fs::read_to_string(lab.path("ood.csv")).unwrap();
    let bare: String = text.lines().map(|l| format!("{}\n", l.rsplit_once(',').unwrap().0)).collect();
    lab.write("bare.csv", &bare);
    lab.ok(&["refit", "m.mcdd", "--calibrate", "bare.csv", "-q", "-o", "bare.mcdd"]);
    assert!(fs::read(lab.path("bare.mcdd")).unwrap() == fs::read(lab.path("sevens.mcdd")).unwrap());
    lab.ok(&["refit", "m.mcdd", "--calibrate", "test.csv", "-q", "-o", "test.mcdd"]);
    let e = lab.fails(&["refit", "m.mcdd", "--calibrate", "ood.csv", "-o", "x.mcdd"], "does not know the class \"7\"");
    assert!(e.contains("ood.csv"), "{e}");
}

/// Of a folder with a training and a test part, the test part calibrates, and the training part is what was trained on.
#[test]
fn published_images_calibrate_with_their_test_part() {
    let lab = Lab::new();
    fs::create_dir(lab.path("set")).unwrap();
    let idx = |dims: &[u32], data: &[u8]| {
        let head: Vec<u8> = dims.iter().flat_map(|d| d.to_be_bytes()).collect();
        [&[0, 0, 8, dims.len() as u8], &head[..], data].concat()
    };
    for (name, n) in [("train", 60u32), ("t10k", 25)] {
        let pixels: Vec<u8> = (0..n * 64).map(|i| (i * 37 % 97 + i / 64 % 2 * 120) as u8).collect();
        let labels: Vec<u8> = (0..n).map(|i| (i % 2) as u8).collect();
        fs::write(lab.path(&format!("set/{name}-images-idx3-ubyte")), idx(&[n, 8, 8], &pixels)).unwrap();
        fs::write(lab.path(&format!("set/{name}-labels-idx1-ubyte")), idx(&[n], &labels)).unwrap();
    }
    lab.ok(&["train", "set", "--net", "cnn8", "--epochs", "2", "--batch", "20", "-q", "-o", "m.mcdd"]);
    let out = lab.ok(&["refit", "m.mcdd", "set", "--detector", "msp", "-o", "msp.mcdd"]);
    assert!(stderr(&out).contains("calibrated on 12 images"), "{}", stderr(&out));
    let out = lab.ok(&["refit", "m.mcdd", "--calibrate", "set", "-o", "new.mcdd"]);
    assert!(stderr(&out).contains("calibrated on 25 images"), "{}", stderr(&out));
}
