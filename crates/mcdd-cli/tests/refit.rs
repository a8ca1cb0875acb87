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
