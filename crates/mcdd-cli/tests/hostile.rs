//! Inputs that were made to do harm: pipes that nobody writes to, images that claim to be large, text that a terminal obeys.

mod help;

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use help::{Lab, class, stderr, stdout, table};
use mcdd::error::is_harmful;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// A table and a model of it.
fn model(lab: &Lab) {
    lab.write("t.csv", &table(80, |i| format!("{},{},{}", i % 5 + 3 * (i % 2), i % 7, class(i)), "a,b,label"));
    lab.ok(&["train", "t.csv", "--preset", "fast", "--epochs", "2", "--quiet", "-o", "m.mcdd"]);
}

/// Runs the command, which must end: a machine that is busy gets some minutes.
fn ends(lab: &Lab, args: &[&str]) -> Output {
    let mut child =
        lab.std_command(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Read meanwhile, so that a long output does not make it wait.
    fn all(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            from.read_to_end(&mut bytes).unwrap();
            bytes
        })
    }
    let (out, err) = (all(child.stdout.take().unwrap()), all(child.stderr.take().unwrap()));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > Duration::from_secs(300) {
            child.kill().unwrap();
            panic!("mcdd {} does not end", args.join(" "));
        }
        thread::sleep(Duration::from_millis(10));
    };
    Output { status, stdout: out.join().unwrap(), stderr: err.join().unwrap() }
}

/// 16x16 pixels as BMP.
fn bmp(shift: usize) -> Vec<u8> {
    let mut out = b"BM".to_vec();
    for v in [54u32 + 768, 0, 54, 40, 16, 16] {
        out.extend(v.to_le_bytes());
    }
    out.extend([1, 0, 24, 0]);
    out.extend([0; 24]);
    out.extend((0..768).map(|i| (i * (shift + 3)) as u8));
    out
}

fn photos(lab: &Lab) {
    for (i, folder) in ["photos/a", "photos/b"].iter().enumerate() {
        fs::create_dir_all(lab.path(folder)).unwrap();
        for k in 0..12 {
            fs::write(lab.path(&format!("{folder}/{k}.bmp")), bmp(2 * k + i)).unwrap();
        }
    }
}

const TRAIN: [&str; 10] =
    ["train", "photos", "--net", "resnet8", "--epochs", "1", "--quiet", "-o", "p.mcdd", "--skip-bad"];

#[cfg(unix)]
#[test]
fn pipes_do_not_hang() {
    let lab = Lab::new();
    model(&lab);
    photos(&lab);
    let pipe = |name: &str| assert!(Command::new("mkfifo").arg(lab.path(name)).status().unwrap().success());
    // In a folder of images.
    pipe("photos/a/p.png");
    let out = ends(&lab, &TRAIN);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    let out = ends(&lab, &TRAIN[..9]);
    assert!(out.status.code() == Some(2) && stderr(&out).contains("p.png: it is not a file"), "{}", stderr(&out));
    // A format whose directory is at its end, through a pipe.
    let parquet = lab.path("t.parquet");
    lab.ok(&["predict", "m.mcdd", "t.csv", "--keep", "all", "-o", "t.parquet"]);
    let npz = lab.path("t.npz");
    fs::write(&npz, b"PK\x03\x04 as an archive begins").unwrap();
    for (i, file) in [&parquet, &npz].into_iter().enumerate() {
        for command in [&["train"][..], &["predict", "m.mcdd"], &["check"], &["train", "--net", "resnet8"]] {
            let name = format!("pipe{i}{}", command.concat().replace('.', ""));
            pipe(&name);
            let mut writer = Command::new("sh")
                .args(["-c", "exec cat \"$0\" > \"$1\" 2> /dev/null"])
                .args([file, &lab.path(&name)])
                .spawn()
                .unwrap();
            let out = ends(&lab, &[command, &[&name]].concat());
            // Where it was not opened, the writer still waits.
            let _ = writer.kill();
            writer.wait().unwrap();
            let text = stdout(&out) + &stderr(&out);
            let expected = text.contains("cannot be read from a stream") || text.contains("not read from a pipe");
            assert!(out.status.code() == Some(2) && expected && text.contains("save it to a file"), "{text}");
        }
    }
}

/// Small files that are read as a whole: a pipe is not waited for, and what has no end is not read.
#[cfg(unix)]
#[test]
fn pipes_and_devices_in_place_of_small_files() {
    let lab = Lab::new();
    model(&lab);
    photos(&lab);
    let row = |i: usize| format!("{},{},{}", i % 5 + 3 * (i % 3), i % 7, ["x", "y", "z"][i % 3]);
    lab.write("three.csv", &table(90, row, "a,b,label"));
    fs::create_dir(lab.path("study")).unwrap();
    for name in ["pipe", "pipe.toml", "pipe.onnx", "study/results.jsonl"] {
        assert!(Command::new("mkfifo").arg(lab.path(name)).status().unwrap().success());
    }
    for args in [
        &["monitor", "m.mcdd", "t.csv", "--state", "pipe"][..],
        &["monitor", "m.mcdd", "t.csv", "--state", "/dev/zero"],
        &["monitor", "m.mcdd", "--state", "pipe"],
        &["monitor", "m.mcdd", "--state", "/dev/zero"],
        &["bench", "three.csv", "--methods", "softmax", "--epochs", "1", "--folds", "2", "-o", "study"],
        &["bench", "pipe.toml"],
        &["figure", "bars", "study", "-o", "f.svg"],
        &["train", "photos", "--net", "resnet8", "--init", "pipe"],
        &["train", "t.csv", "--backbone", "pipe.onnx"],
        &["layers", "pipe.onnx"],
        &["layers", "/dev/zero"],
        &["inspect", "pipe"],
        &["inspect", "/dev/zero"],
        &["serve", "pipe"],
        &["export", "pipe", "-o", "x.onnx"],
        &["refit", "pipe", "t.csv", "-o", "x.mcdd"],
    ] {
        let out = ends(&lab, args);
        let text = stderr(&out);
        assert!(out.status.code() == Some(2) && text.contains("hint: "), "mcdd {args:?}: {text}");
        let named = text.contains("is not a file") || text.contains("there are no results");
        assert!(named, "mcdd {args:?}: {text}");
    }
    // A file without an end, almost: only its start is read.
    fs::File::create(lab.path("large.mcdd")).unwrap().set_len(1 << 36).unwrap();
    lab.fails(&["inspect", "large.mcdd"], "large.mcdd: not an mcdd");
    lab.fails(&["layers", "large.mcdd"], "longer than 1073741824 bytes");
}

/// Files whose headers are those of mcdd, and fit their lengths.
#[cfg(target_os = "linux")]
#[test]
fn models_that_take_all_memory_are_refused() {
    let lab = Lab::new();
    let file = |name: &str, bytes: u64| {
        let tensor = format!(r#""w":{{"dtype":"U8","shape":[{bytes}],"data_offsets":[0,{bytes}]}}"#);
        let about = r#""__metadata__":{"format":"mcdd model 1","checksum":"","mcdd":"{}"}"#;
        let header = format!("{{{about},{tensor}}}");
        lab.write(name, "");
        let mut file = fs::File::options().write(true).open(lab.path(name)).unwrap();
        file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
        file.write_all(header.as_bytes()).unwrap();
        file.set_len(8 + header.len() as u64 + bytes).unwrap();
    };
    file("long.mcdd", 1 << 40);
    file("some.mcdd", 1 << 30);
    for (name, part) in [("long.mcdd", "16 GiB at most"), ("some.mcdd", "there is no memory for its 1024 MiB")] {
        let script = "ulimit -v 1000000; exec \"$0\" inspect \"$1\"";
        let mut command = Command::new("bash");
        command.args(["-c", script]).arg(lab.program()).arg(name).current_dir(lab.folder());
        let out = command.output().unwrap();
        let text = stderr(&out);
        assert_eq!(out.status.code(), Some(2), "{name}: {:?} {text}", out.status);
        assert!(text.contains(&format!("{name}: ")) && text.contains(part) && text.contains("hint: "), "{text}");
    }
}

/// With a limit on the memory of the process, an image that takes too much of it is an error of this image.
#[cfg(target_os = "linux")]
#[test]
fn an_image_without_memory_is_a_bad_image() {
    let lab = Lab::new();
    photos(&lab);
    lab.ok(&TRAIN);
    fs::create_dir(lab.path("new")).unwrap();
    fs::write(lab.path("new/1.bmp"), bmp(3)).unwrap();
    // 11,000 x 11,000 black pixels, compressed.
    let mut large = b"BM".to_vec();
    let side = 11_000u32;
    for v in [54, 0, 54, 40, side, side] {
        large.extend(v.to_le_bytes());
    }
    large.extend([1, 0, 8, 0, 1, 0, 0, 0]);
    large.extend([0; 20]);
    large.extend([0; 1024]);
    for _ in 0..side {
        for _ in 0..side / 250 {
            large.extend([250, 0]);
        }
        large.extend([0, 0]);
    }
    large.extend([0, 1]);
    large[10..14].copy_from_slice(&(54u32 + 1024).to_le_bytes());
    fs::write(lab.path("new/2.bmp"), large).unwrap();
    let run = |limit: &str| {
        let script = format!("ulimit -v {limit}; exec \"$0\" predict p.mcdd new --skip-bad --threads 1");
        let out = Command::new("bash").args(["-c", &script]).arg(lab.program()).current_dir(lab.folder()).output();
        let out = out.unwrap();
        assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
        stdout(&out)
    };
    // With less than its pixels take.
    let text = run("400000");
    assert!(text.lines().count() == 3 && text.contains("there is no memory for 11000x11000 pixels"), "{text}");
    assert!(text.lines().nth(1).unwrap().contains("known"), "{text}");
}

/// A model whose text is changed, with the right checksum.
fn changed(bytes: &[u8], change: impl FnOnce(&str) -> String) -> Vec<u8> {
    let (length, rest) = bytes.split_first_chunk::<8>().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let mut header: serde_json::Map<String, Value> = serde_json::from_slice(header).unwrap();
    let mut about = header.remove("__metadata__").unwrap();
    let text = change(about["mcdd"].as_str().unwrap());
    let mut hash = Sha256::new();
    hash.update(&text);
    for (name, tensor) in &header {
        let shape: Vec<u64> = serde_json::from_value(tensor["shape"].clone()).unwrap();
        hash.update(format!("\n{name} {} {shape:?}", tensor["dtype"].as_str().unwrap()));
    }
    hash.update("\n");
    hash.update(data);
    about["checksum"] = hash.finalize().iter().map(|b| format!("{b:02x}")).collect::<String>().into();
    about["mcdd"] = text.into();
    header.insert("__metadata__".into(), about);
    let header = Value::Object(header).to_string();
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

#[test]
fn a_model_whose_epochs_are_too_large_has_a_report() {
    let lab = Lab::new();
    model(&lab);
    let bytes = fs::read(lab.path("m.mcdd")).unwrap();
    // Its checksum is the library's.
    fs::write(lab.path("same.mcdd"), changed(&bytes, str::to_owned)).unwrap();
    lab.ok(&["inspect", "same.mcdd"]);
    let last = changed(&bytes, |text| {
        // Of the history; the epoch that was kept must be in it.
        assert!(text.contains("{\"epoch\":1,"), "{text}");
        text.replace("{\"epoch\":1,", "{\"epoch\":18446744073709551615,")
    });
    fs::write(lab.path("last.mcdd"), last).unwrap();
    for args in [
        &["evaluate", "last.mcdd", "t.csv", "--report", "r.html"][..],
        &["inspect", "last.mcdd"],
        &["inspect", "last.mcdd", "--json"],
        &["figure", "samples", "last.mcdd", "t.csv", "-o", "f.svg"],
        &["explain", "last.mcdd", "t.csv", "--row", "1"],
        &["refit", "last.mcdd", "t.csv", "--detector", "knn", "-o", "again.mcdd"],
    ] {
        let out = ends(&lab, args);
        assert!(matches!(out.status.code(), Some(0 | 2)), "mcdd {args:?}: {:?} {}", out.status, stderr(&out));
    }
    assert!(fs::read_to_string(lab.path("r.html")).unwrap().contains("18446744073709551615"));
}

/// Every message and table, with names and cells that a terminal would obey.
#[cfg(unix)]
#[test]
fn no_message_has_what_a_terminal_obeys() {
    let lab = Lab::new();
    let nasty = "x\u{1b}]0;t\u{7}\u{9b}31m\u{202e}\u{2066}y";
    let file = |name: &str| format!("{nasty}{name}");
    let row = |i: usize| format!("{},{},{}", i % 5 + 3 * (i % 3), i % 7, [nasty, "plain", "other"][i % 3]);
    let header = format!("{nasty}a,b,{nasty}label");
    lab.write(&file(".csv"), &table(80, row, &header));
    lab.write(&file("bad.csv"), &table(80, |i| if i == 40 { format!("1,{nasty},q") } else { row(i) }, &header));
    lab.write(&file("short.csv"), &table(3, |_| "1,2".into(), &header));
    lab.write("scores.csv", &format!("{nasty},{nasty}2\n1,2\n3,4\n"));
    lab.write(&file(".toml"), &format!("[{nasty}"));
    let (csv, label, trained) = (file(".csv"), format!("{nasty}label"), file(".mcdd"));
    lab.ok(&["train", &csv, "--label", &label, "--preset", "fast", "--epochs", "2", "--quiet", "-o", &trained]);
    fs::create_dir(lab.path(&file("folder"))).unwrap();
    let (bad, short, folder, report) = (file("bad.csv"), file("short.csv"), file("folder"), file(".html"));
    let (none, onnx, state, monitored) = (file("none"), file(".onnx"), file(".json"), file("monitor.html"));
    let commands: Vec<Vec<&str>> = vec![
        vec!["train", &bad, "--label", &label],
        vec!["train", &short, "--label", &label],
        vec!["train", &csv, "--label", &none],
        vec!["train", &csv, "--label", &label, "--drop", nasty],
        vec!["train", &csv, "--label", &label, "--method", nasty],
        vec!["train", &csv, "--label", &label, "--detector", nasty],
        vec!["train", &none],
        vec!["train", &folder],
        vec!["train", &csv, "--label", &label, "--epochs", "1", "--preset", "fast", "--test", "0.2", "-o", "m2"],
        vec!["check", &csv, "--label", &label],
        vec!["check", &bad, "--label", &label],
        vec!["check", &bad, "--label", &label, "--json"],
        vec!["predict", &trained, &bad, "-o", "out.csv"],
        vec!["predict", &trained, "scores.csv", "-o", "out.csv"],
        vec!["predict", &trained, &csv, "--keep", nasty, "-o", "out.csv"],
        vec!["predict", &csv, &csv],
        vec!["evaluate", &trained, &csv, "--label", &label, "--ood", &csv, "--report", &report],
        vec!["evaluate", &trained, &csv, "--label", &label, "--json"],
        vec!["explain", &trained, &csv],
        vec!["inspect", &trained],
        vec!["inspect", &trained, "--json"],
        vec!["metrics", "scores.csv", "scores.csv"],
        vec!["metrics", "scores.csv", &csv, "--column", nasty],
        vec!["metrics", &csv, &none],
        vec!["export", &trained, "-o", &onnx],
        vec!["export", &csv, "-o", "m.onnx"],
        vec!["monitor", &trained, &csv, "--state", &state, "--report", &monitored],
        vec!["monitor", &trained, "--state", &csv],
        vec!["serve", &none],
        vec!["refit", &trained, &csv, "--label", &none, "-o", "r.mcdd"],
        vec!["figure", "samples", &trained, &csv, "-o", "samples.svg"],
        vec!["bench", &csv, "--label", &label, "--methods", "softmax", "--epochs", "1", "--folds", "2", "-o", &folder],
        vec!["bench", &csv, "--label", &label, "--methods", nasty],
        vec!["refit", &trained, &csv, "--label", &label, "--detector", "mahalanobis", "-o", "r.mcdd"],
        vec!["explain", &trained, &csv, "--row", "1"],
        vec!["layers", &none],
        vec!["layers", &csv],
        vec!["reproduce", "--data", &folder],
        vec!["fit-detector", "--detector", "knn", "--train-features", &csv, "-o", "d.mcdd"],
        vec!["train", &csv, "--label", &label, "--backbone", &none],
        vec!["methods", nasty],
        // What is wrong with the arguments.
        vec![nasty],
        vec!["demo", nasty],
        vec!["train", &csv, "--epochs", nasty],
        vec!["datasets", "--data", &folder],
        vec!["datasets", "get", nasty, "--data", &folder],
        vec!["score", "--detector", nasty, "--train-features", &csv, "--features", &csv],
    ];
    let harmless = |text: &str| !text.chars().any(|c| c != '\n' && c != '\t' && is_harmful(c));
    for args in &commands {
        let out = ends(&lab, args);
        assert!(matches!(out.status.code(), Some(0 | 2 | 3)), "{args:?}: {}", stderr(&out));
        for text in [stdout(&out), stderr(&out)] {
            assert!(harmless(&text), "mcdd {args:?}\n{text:?}");
        }
    }
    // Pages and figures: names of these characters do not come through.
    let mut pages = 0;
    let mut open = vec![lab.folder().to_owned()];
    while let Some(next) = open.pop() {
        for path in fs::read_dir(next).unwrap().map(|e| e.unwrap().path()) {
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "html" || e == "svg" || e == "md" || e == "tex") {
                pages += 1;
                let text = fs::read_to_string(&path).unwrap();
                assert!(harmless(&text), "{}", path.display());
                let policy = "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'";
                let page = path.extension().is_some_and(|e| e == "html");
                assert!(!page || text.contains(policy), "{}", path.display());
            }
        }
    }
    assert!(pages >= 3, "{pages}");
    assert!(Path::new(&lab.path(&report)).exists());
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_that_names_the_output() {
    let lab = Lab::new();
    model(&lab);
    for args in
        [&["--help"][..], &["train", "--help"], &["--version"], &["inspect", "m.mcdd"], &["predict", "m.mcdd", "t.csv"]]
    {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let out = lab.std_command(args).stdout(full).output().unwrap();
        let text = stderr(&out);
        assert_eq!(out.status.code(), Some(2), "mcdd {args:?}: {text}");
        assert!(text.contains("standard output: no space left on the disk"), "{text}");
    }
    let e = lab.fails(&["predict", "m.mcdd", "t.csv", "-o", "/dev/full"], "/dev/full: no space left on the disk");
    assert!(e.contains("hint: free some space"), "{e}");
}

#[test]
fn long_texts_of_a_model_are_cut() {
    let lab = Lab::new();
    model(&lab);
    let bytes = fs::read(lab.path("m.mcdd")).unwrap();
    let long = "v".repeat(100_000);
    let long_version = changed(&bytes, |text| {
        let mut about: Value = serde_json::from_str(text).unwrap();
        about["version"] = long.clone().into();
        about.to_string()
    });
    let many_findings = changed(&bytes, |text| {
        let mut about: Value = serde_json::from_str(text).unwrap();
        about["findings"] = vec![&long[..100]; 10_000].into();
        about.to_string()
    });
    for changed in [long_version, many_findings] {
        fs::write(lab.path("c.mcdd"), changed).unwrap();
        let length = lab.ok(&["inspect", "c.mcdd"]).stdout.len();
        assert!(length < 20_000, "inspect prints {length} bytes");
    }
}

#[test]
fn long_names_are_cut() {
    let lab = Lab::new();
    let name = |i: usize| format!("{}{}", "n".repeat(100_000), i % 2);
    lab.write(
        "t.csv",
        &table(60, |i| format!("{},{},{}", i % 5, i % 7, name(i)), &format!("{},b,label", "c".repeat(100_000))),
    );
    lab.ok(&["train", "t.csv", "--preset", "fast", "--epochs", "2", "--quiet", "-o", "m.mcdd"]);
    lab.write("other.csv", "x,b\n1,2\n");
    let label = "l".repeat(100_000);
    for args in [
        &["inspect", "m.mcdd"][..],
        &["evaluate", "m.mcdd", "t.csv"],
        &["check", "t.csv"],
        &["explain", "m.mcdd", "t.csv", "--row", "1", "--row", "2"],
        &["monitor", "m.mcdd", "t.csv"],
        &["export", "m.mcdd", "-o", "m.onnx"],
        // Errors too.
        &["predict", "m.mcdd", "other.csv"],
        &["train", "t.csv", "--label", &label],
        &["layers", "m.mcdd"],
        &["train", "t.csv", "--epochs", &label],
        &[&label],
    ] {
        let out = ends(&lab, args);
        assert!(matches!(out.status.code(), Some(0 | 2)), "{}", stderr(&out));
        let length = out.stdout.len() + out.stderr.len();
        assert!(length < 20_000, "mcdd {} prints {length} bytes", args[0]);
    }
    // A network whose layer has a long name.
    use mcdd::onnx::{Builder, Dim, Type};
    let (mut g, long) = (Builder::new(), "y".repeat(100_000));
    g.reserve(&[&long]);
    let x = g.input("x", Type::F32, &[Dim::Rows, Dim::Size(3)]);
    let y = g.op("Tanh", &[x]);
    g.output(&long, y, Type::F32, &[Dim::Rows, Dim::Size(3)]);
    fs::write(lab.path("n.onnx"), g.finish("network", &[]).unwrap()).unwrap();
    let out = lab.ok(&["layers", "n.onnx"]);
    assert!(stdout(&out).contains("yyy…") && out.stdout.len() < 20_000, "{} bytes", out.stdout.len());
}
