//! `mcdd train --backbone` and `mcdd layers`: what a user of the command sees. `crates/mcdd/tests/backbone.rs` compares the numbers.

mod help;

use help::{Lab, stderr, stdout};
use std::fs;

#[test]
fn a_network_in_front_of_a_table() {
    let lab = Lab::new();
    lab.digits();
    let train_rows = fs::read_to_string(lab.path("train.csv")).unwrap();
    lab.network("net.onnx", &[64]);
    let out = stdout(&lab.ok(&["layers", "net.onnx"]));
    assert!(out.contains("Tanh") && out.contains("(default)") && out.contains("logits"), "{out}");
    let json: serde_json::Value = serde_json::from_str(&stdout(&lab.ok(&["layers", "net.onnx", "--json"]))).unwrap();
    assert_eq!(json["layers"][1]["features"], 8);
    let train =
        ["train", "train.csv", "--label", "label", "--epochs", "2", "--preset", "fast", "--backbone", "net.onnx"];
    lab.ok(&[&train[..], &["--test", "0.2", "--report", "r.html", "-o", "m.mcdd"]].concat());
    let text = stdout(&lab.ok(&["inspect", "m.mcdd"]));
    assert!(text.contains("backbone     net.onnx (in this file)"), "{text}");
    let expected = stdout(&lab.ok(&["predict", "m.mcdd", "train.csv"]));
    assert_eq!(stdout(&lab.ok(&["predict", "m.mcdd", "train.csv", "--threads", "1"])), expected);
    lab.ok(&["evaluate", "m.mcdd", "train.csv", "--bootstrap", "5"]);
    let few: Vec<&str> = train_rows.lines().take(3).collect();
    lab.write("few.csv", &few.join("\n"));
    lab.ok(&["explain", "m.mcdd", "few.csv"]);
    lab.ok(&["export", "m.mcdd", "-o", "m.onnx"]);
    // Without the network, which is found beside the model, or given.
    lab.ok(&[&train[..], &["--embed", "no", "-o", "small.mcdd"]].concat());
    lab.ok(&["predict", "small.mcdd", "train.csv"]);
    fs::rename(lab.path("net.onnx"), lab.path("moved.onnx")).unwrap();
    let e = lab.fails(&["predict", "small.mcdd", "train.csv"], "net.onnx");
    assert!(e.contains("--backbone"), "{e}");
    lab.ok(&["predict", "small.mcdd", "train.csv", "--backbone", "moved.onnx"]);
    lab.network("net.onnx", &[65]);
    lab.fails(&["predict", "small.mcdd", "train.csv"], "another backbone");
    // Errors name what to do.
    lab.fails(&train, "65 numbers");
    for (args, part) in [(["--layer", "x"], "--backbone"), (["--backbone=moved.onnx", "--net=cnn"], "--net")] {
        let out = lab.command(&["train", "train.csv", args[0], args[1]]).output().unwrap();
        assert!(out.status.code() == Some(2) && stderr(&out).contains(part), "{args:?}");
    }
    lab.fails(
        &["train", "train.csv", "--label", "label", "--backbone", "moved.onnx", "--layer", "nowhere"],
        "mcdd layers",
    );
    lab.fails(&["layers", "train.csv"], "not an ONNX file");
    lab.fails(&["layers", "missing.onnx"], "no such file");
}

#[test]
fn a_network_in_front_of_images() {
    let lab = Lab::new();
    lab.network("net.onnx", &[3, 12, 12]);
    for (class, base) in [("dark", 20u8), ("light", 200)] {
        fs::create_dir_all(lab.path(&format!("photos/{class}"))).unwrap();
        for i in 0..20u8 {
            // 6x6 pixels; a row of a BMP is a multiple of four bytes.
            let mut out = b"BM".to_vec();
            [54u32 + 6 * 20, 0, 54, 40, 6, 6].iter().for_each(|v| out.extend(v.to_le_bytes()));
            out.extend([1, 0, 24, 0]);
            out.extend([0; 24]);
            for y in 0..6u8 {
                (0..18u8).for_each(|x| out.push(base + (i * 7 + x * 3 + y) % 40));
                out.extend([0, 0]);
            }
            fs::write(lab.path(&format!("photos/{class}/{i}.bmp")), out).unwrap();
        }
    }
    let out =
        lab.ok(&["train", "photos", "--backbone", "net.onnx", "--epochs", "3", "--preset", "fast", "-o", "m.mcdd"]);
    assert!(stderr(&out).contains("ImageNet"), "{}", stderr(&out));
    assert!(stdout(&lab.ok(&["inspect", "m.mcdd"])).contains("6x6x3"));
    let options = ["--mean", "0.5,0.5,0.5", "--std", "0.5,0.5,0.5", "--channel-order", "bgr"];
    let train = ["train", "photos", "--backbone", "net.onnx", "--epochs", "3", "--preset", "fast", "-o", "n.mcdd"];
    let out = lab.ok(&[&train[..], &options].concat());
    assert!(!stderr(&out).contains("ImageNet"), "{}", stderr(&out));
    lab.ok(&["predict", "n.mcdd", "photos/dark"]);
    lab.ok(&["refit", "n.mcdd", "photos", "--detector", "mahalanobis", "-o", "o.mcdd"]);
    lab.ok(&["explain", "n.mcdd", "photos/dark/1.bmp"]);
    lab.fails(&[&train[..], &["--mean", "0.5"]].concat(), "--mean");
}
