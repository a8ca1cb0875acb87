//! `mcdd export`: what it writes and what it refuses. `crates/mcdd/tests/onnx.rs` runs the files.

mod help;

use help::{Lab, stderr};
use std::fs;

#[test]
fn a_model_becomes_one_file() {
    let lab = Lab::new();
    lab.digits();
    let train = ["train", "train.csv", "--label", "label", "--epochs", "2", "--preset", "fast", "-q", "-o", "m.mcdd"];
    lab.ok(&train);
    let out = lab.ok(&["export", "m.mcdd", "-o", "m.onnx"]);
    assert!(out.stdout.is_empty() && stderr(&out).contains("wrote m.onnx"), "{}", stderr(&out));
    let file = |name: &str| fs::read(lab.path(name)).unwrap();
    let contains = |name: &str, text: &str| file(name).windows(text.len()).any(|w| w == text.as_bytes());
    // The threshold is an input with a default, and stays in the metadata if it is fixed.
    assert!(contains("m.onnx", "threshold") && contains("m.onnx", "label") && contains("m.onnx", "mcdd.classes"));
    assert!(lab.ok(&["export", "m.mcdd", "-q", "--core", "--tpr", "0.9", "-o", "core.onnx"]).stderr.is_empty());
    assert!(!contains("core.onnx", "unknown") && contains("core.onnx", "\"tpr\":0.9"));
    // The same model gives the same bytes.
    lab.ok(&["export", "m.mcdd", "-o", "again.onnx"]);
    assert!(file("m.onnx") == file("again.onnx"));

    lab.fails(&["export", "m.mcdd", "-o", "m.mcdd"], "overwrite");
    lab.fails(&["export", "m.mcdd", "-o", "missing/m.onnx"], "no such folder");
    lab.fails(&["export", "m.mcdd", "--tpr", "1.5", "-o", "x.onnx"], "--tpr");
    lab.fails(&["export", "train.csv", "-o", "x.onnx"], "train.csv");
    let odin = ["refit", "m.mcdd", "train.csv", "--label", "label", "--detector", "odin", "-q", "-o", "odin.mcdd"];
    lab.ok(&odin);
    let e = lab.fails(&["export", "odin.mcdd", "-o", "x.onnx"], "ONNX has no operators for gradients");
    assert!(e.contains("odin:epsilon=0"), "{e}");
    assert!(!lab.path("x.onnx").exists());
}
