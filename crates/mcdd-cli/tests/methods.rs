//! Methods, detectors, and features of other networks, end to end.

mod help;

use help::{Lab, stderr, stdout};
use mcdd::detector::DetectorConfig;
use mcdd::head::HeadConfig;
use std::fs;

/// Writes rows as an NPY file of f64.
fn npy(lab: &Lab, name: &str, rows: &[Vec<f64>]) {
    let shape = format!("({}, {})", rows.len(), rows[0].len());
    let mut header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(rows.iter().flatten().flat_map(|v| v.to_le_bytes()));
    fs::write(lab.path(name), bytes).unwrap();
}

/// Three Gaussian classes at different corners, all moved by `shift`.
fn blobs(rows: usize, shift: f64) -> (Vec<Vec<f64>>, Vec<usize>) {
    let mut s = mcdd::seed::Stream::new(rows as u64, "blobs");
    let labels: Vec<usize> = (0..rows).map(|i| i % 3).collect();
    let row = |&y: &usize| (0..4).map(|d| if d == y { 4.0 } else { 0.0 } + shift + 0.5 * s.normal()).collect();
    (labels.iter().map(row).collect::<Vec<Vec<f64>>>(), labels)
}

/// Features and the logits of a linear layer on them: f.npy, l.npy, y.txt for training; g.npy, m.npy for 30 known rows and
/// 30 far-away ones.
fn features(lab: &Lab) {
    let logits = |rows: &[Vec<f64>]| {
        rows.iter().map(|r| r[..3].iter().map(|v| 2.0 * v - 1.0).collect()).collect::<Vec<Vec<f64>>>()
    };
    let (train, labels) = blobs(300, 0.0);
    npy(lab, "f.npy", &train);
    npy(lab, "l.npy", &logits(&train));
    lab.write("y.txt", &labels.iter().map(|y| format!("class{y}\n")).collect::<String>());
    let test = [blobs(30, 0.0).0, blobs(31, 25.0).0[..30].to_vec()].concat();
    npy(lab, "g.npy", &test);
    npy(lab, "m.npy", &logits(&test));
}

#[test]
fn every_detector_scores_features_and_is_saved() {
    let lab = Lab::new();
    features(&lab);
    for config in DetectorConfig::all() {
        let (name, needs) = (config.name(), config.about().needs);
        let mut fit: Vec<&str> = vec!["--detector", name, "--train-labels", "y.txt"];
        let (mut asked, mut predict): (Vec<&str>, Vec<&str>) = (vec![], vec!["predict", "d.mcdd"]);
        if needs.features {
            fit.extend(["--train-features", "f.npy"]);
            asked.extend(["--features", "g.npy"]);
            predict.push("g.npy");
        }
        if needs.logits {
            fit.extend(["--train-logits", "l.npy"]);
            asked.extend(["--logits", "m.npy"]);
            predict.extend(if needs.features { vec!["--logits", "m.npy"] } else { vec!["m.npy"] });
        }
        if needs.head {
            lab.fails(&[&["score"], &fit[..], &asked[..]].concat(), "needs");
            continue;
        }
        let text = stdout(&lab.ok(&[&["score"], &fit[..], &asked[..]].concat()));
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("label,verdict,confidence,p_value"), "{name}");
        let rows: Vec<Vec<&str>> = lines.map(|l| l.split(',').collect()).collect();
        assert_eq!(rows.len(), 60, "{name}");
        let unknown = |part: &[Vec<&str>]| part.iter().filter(|r| r[1] == "unknown").count();
        assert!(unknown(&rows[..30]) <= 8, "{name} rejects {} known rows", unknown(&rows[..30]));
        if needs.features && !needs.logits {
            assert!(unknown(&rows[30..]) >= 25, "{name} rejects {} far rows", unknown(&rows[30..]));
        }
        let classifies = !rows[0][0].is_empty();
        if classifies {
            let right = rows[..30].iter().enumerate().filter(|(i, r)| r[0] == format!("class{}", i % 3)).count();
            assert!(right >= 29, "{name}");
        }
        lab.ok(&[&["fit-detector"], &fit[..], &["-o", "d.mcdd"]].concat());
        assert_eq!(stdout(&lab.ok(&predict)), text, "{name}");
        assert!(stdout(&lab.ok(&["inspect", "d.mcdd"])).contains(name));
    }
}

#[test]
fn features_are_read_from_csv_and_several_layers() {
    let lab = Lab::new();
    features(&lab);
    let (rows, labels) = blobs(300, 0.0);
    let csv = |rows: &[Vec<f64>], labels: &[usize]| {
        let line = |(r, y): (&Vec<f64>, &usize)| format!("{},{},{},class{y},{}\n", r[0], r[1], r[2], r[3]);
        String::from("a,b,c,label,d\n") + &rows.iter().zip(labels).map(line).collect::<String>()
    };
    lab.write("f.csv", &csv(&rows, &labels));
    let (test, test_labels) = blobs(30, 0.0);
    lab.write("g.csv", &csv(&test, &test_labels));
    npy(&lab, "g30.npy", &test);
    let csv =
        stdout(&lab.ok(&["score", "--detector", "mahalanobis", "--train-features", "f.csv", "--features", "g.csv"]));
    let from_npy = ["score", "--detector", "mahalanobis", "--train-features", "f.npy", "--train-labels", "y.txt"];
    assert_eq!(csv, stdout(&lab.ok(&[&from_npy[..], &["--features", "g30.npy"]].concat())));
    let two = ["--train-features", "f.csv", "--train-features", "f.npy"];
    let ensemble = [&["score", "--detector", "mahalanobis-ensemble"], &two[..]].concat();
    lab.ok(&[&ensemble[..], &["--features", "g.csv", "--features", "g30.npy", "--format", "jsonl"]].concat());
    lab.fails(&[&ensemble[..], &["--features", "g.csv"]].concat(), "2 files");
    lab.ok(&[&["fit-detector", "--detector", "mahalanobis-ensemble", "-o", "e.mcdd"], &two[..]].concat());
    assert!(stdout(&lab.ok(&["inspect", "e.mcdd"])).contains("layers of [4, 4]"));
    lab.ok(&["predict", "e.mcdd", "g.csv", "g30.npy", "-o", "out.csv"]);
    assert_eq!(fs::read_to_string(lab.path("out.csv")).unwrap().lines().count(), 31);
}

#[test]
fn missing_and_mismatched_inputs_are_errors() {
    let lab = Lab::new();
    features(&lab);
    let score = |rest: &[&str], part: &str| lab.fails(&[&["score"], rest].concat(), part);
    let hint = score(&["--detector", "mahalanobs", "--train-features", "f.npy", "--features", "g.npy"], "no detector");
    assert!(hint.contains("did you mean mahalanobis"), "{hint}");
    assert!(score(&["--detector", "knn:kk=3", "--train-features", "f.npy"], "no setting").contains("k=5"));
    score(&["--detector", "knn", "--train-logits", "l.npy"], "needs features");
    score(&["--detector", "energy", "--train-features", "f.npy"], "needs logits");
    score(&["--detector", "mahalanobis", "--train-features", "f.npy", "--features", "g.npy"], "needs the classes");
    score(&["--detector", "knn", "--train-features", "f.npy", "--features", "m.npy"], "3 features in a row, and 4");
    score(&["--detector", "knn", "--train-features", "f.npy"], "one file");
    score(
        &["--detector", "vim", "--train-features", "f.npy", "--train-logits", "l.npy", "--features", "g.npy"],
        "logits",
    );
    lab.write("short.txt", "a\nb\n");
    score(&["--detector", "gda", "--train-features", "f.npy", "--train-labels", "short.txt"], "2 labels for 300 rows");
    lab.write("nan.csv", "a,b,c,d\n1,2,3,4\n1,,3,4\n");
    let text = score(&["--detector", "knn", "--train-features", "f.npy", "--features", "nan.csv"], "missing");
    assert!(text.contains("row 2 (line 3)") && text.contains('b'), "{text}");
    // Logits that are not a linear function of the features.
    let (rows, _) = blobs(300, 0.0);
    npy(&lab, "odd.npy", &rows.iter().map(|r| vec![r[0].powi(3), r[1].sin() * 5.0, r[2] * r[3]]).collect::<Vec<_>>());
    let odd = ["--detector", "react", "--train-features", "f.npy", "--train-logits", "odd.npy", "--features", "g.npy"];
    score(&[&odd[..], &["--logits", "m.npy"]].concat(), "linear");
    // A detector's file where a model is wanted, and the other way round.
    lab.ok(&["fit-detector", "--detector", "knn", "--train-features", "f.npy", "-o", "d.mcdd"]);
    lab.fails(&["evaluate", "d.mcdd", "g.npy"], "an mcdd detector file, not an mcdd model file");
    lab.fails(&["predict", "d.mcdd", "g.npy", "--logits", "m.npy"], "does not use logits");
    lab.write("empty.csv", "a,b,c,d\n");
    assert_eq!(stdout(&lab.ok(&["predict", "d.mcdd", "empty.csv"])), "label,verdict,confidence,p_value\n");
    let e =
        lab.fails(&["score", "--detector", "gda:covariance=round", "--train-features", "f.npy"], "covariance=round");
    assert!(e.contains("diagonal"), "{e}");
    // A column named y is the label by default.
    let (rows, _) = blobs(60, 0.0);
    let xy: String = rows.iter().map(|r| format!("{},{}\n", r[0], r[1])).collect();
    lab.write("xy.csv", &format!("x,y\n{xy}"));
    let xy = ["score", "--detector", "knn", "--train-features", "xy.csv", "--features", "xy.csv"];
    assert!(stdout(&lab.ok(&[&xy[..], &["--label", "none"]].concat())) != stdout(&lab.ok(&xy)));
    lab.fails(&["predict", "d.mcdd", "g.npy", "--probs"], "no probs");
    lab.fails(&["fit-detector", "--detector", "knn", "--train-features", "f.npy", "-o", "no/such/place"], "folder");
    assert!(lab.fails(&["methods", "knnn"], "knnn").contains("did you mean knn? see mcdd methods"));
}

#[test]
fn every_method_trains_predicts_and_evaluates() {
    let lab = Lab::new();
    lab.digits();
    for config in HeadConfig::all() {
        let entry = config.about();
        let train = ["train", "train.csv", "--label", "label", "-q", "-o", "m.mcdd", "--epochs", "8", "--lr", "0.003"];
        lab.ok(&[&train[..], &["--method", entry.name, "--hidden", "32", "--latent", "8"]].concat());
        let classifies = config.classifies();
        let text = stdout(&lab.ok(&["predict", "m.mcdd", "test.csv"]));
        let labels: Vec<&str> = text.lines().skip(1).filter_map(|l| l.split(',').next()).collect();
        assert!(labels.iter().all(|l| l.is_empty() != classifies), "{}", entry.name);
        let text = stdout(&lab.ok(&["evaluate", "m.mcdd", "test.csv", "--ood", "ood.csv", "--bootstrap", "0"]));
        assert_eq!(text.contains("n/a (the method does not classify)"), !classifies, "{text}");
        assert!(stdout(&lab.ok(&["inspect", "m.mcdd"])).contains(entry.name));
        if classifies {
            let json = stdout(&lab.ok(&["evaluate", "m.mcdd", "test.csv", "--json", "--bootstrap", "0"]));
            let json: serde_json::Value = serde_json::from_str(&json).unwrap();
            let accuracy = json["accuracy"]["value"].as_f64().unwrap();
            assert!(accuracy > 0.6, "{}: {accuracy}", entry.name);
        } else {
            lab.fails(&["predict", "m.mcdd", "test.csv", "--probs"], "does not classify");
            let line = stdout(&lab.ok(&["predict", "m.mcdd", "test.csv", "--format", "jsonl"]));
            assert!(line.lines().all(|l| l.contains("\"label\":null")), "{line}");
            lab.ok(&["predict", "m.mcdd", "test.csv", "--format", "parquet", "-o", "p.parquet"]);
        }
    }
}

#[test]
fn methods_without_labels_train_on_rows_alone() {
    let lab = Lab::new();
    let (rows, _) = blobs(200, 0.0);
    let csv = |rows: &[Vec<f64>]| {
        let line = |r: &Vec<f64>| format!("{},{},{},{}\n", r[0], r[1], r[2], r[3]);
        String::from("a,b,c,d\n") + &rows.iter().map(line).collect::<String>()
    };
    lab.write("rows.csv", &csv(&rows));
    lab.write("far.csv", &csv(&blobs(40, 25.0).0));
    for method in ["deep-svdd", "deep-svdd:boundary=soft", "alad"] {
        let out =
            lab.ok(&["train", "rows.csv", "--label", "none", "--method", method, "-o", "m.mcdd", "--epochs", "30"]);
        assert!(stderr(&out).contains("accuracy n/a"), "{}", stderr(&out));
        let text = stdout(&lab.ok(&["predict", "m.mcdd", "far.csv"]));
        let unknown = text.lines().filter(|l| l.contains(",unknown,")).count();
        assert!(unknown >= 38, "{method}: {unknown} of 40 far rows are unknown");
    }
    lab.fails(&["train", "rows.csv", "--label", "none", "--method", "softmax"], "no labels");
    lab.fails(
        &["train", "rows.csv", "--label", "none", "--method", "deep-svdd", "--detector", "energy"],
        "needs logits",
    );
}

#[test]
fn a_detector_gives_the_confidence_of_a_model() {
    let lab = Lab::new();
    lab.digits();
    let train = ["train", "train.csv", "--label", "label", "-q", "--epochs", "8", "--lr", "0.003", "--hidden", "32,16"];
    let more = ["--latent", "8", "--method", "softmax", "--checkpoint", "kept", "--resume", "-o", "m.mcdd"];
    let mut seen = std::collections::HashSet::new();
    let on = |name: &str| match name {
        "knn" | "lof" => vec![name.to_owned(), format!("{name}:on=inputs")],
        other => vec![other.to_owned()],
    };
    for detector in DetectorConfig::all().iter().flat_map(|c| on(c.name())) {
        // The network is the same for all detectors, and is trained once.
        lab.ok(&[&train[..], &more[..], &["--detector", &detector]].concat());
        let text = stdout(&lab.ok(&["predict", "m.mcdd", "test.csv"]));
        assert!(!text.contains("NaN") && !text.contains("inf"), "{detector}");
        assert!(seen.insert(text) || detector == "msp", "{detector} gives the same as another");
    }
    lab.fails(&[&train[..], &["--detector", "vim"]].concat(), "linear last layer");
    lab.fails(&[&train[..], &["--method", "softmx"]].concat(), "no method");
    lab.fails(&[&train[..], &["--method", "softmax", "--nu", "1"]].concat(), "softmax has no --nu");
    lab.fails(&[&train[..], &["--detector", "knn:on=moon"]].concat(), "moon");
    lab.fails(&[&train[..], &["--detector", "energy:on=inputs"]].concat(), "no features");
    lab.fails(&[&train[..], &["--method", "knn"]].concat(), "is a detector");
    lab.fails(&[&train[..], &["--detector", "gdaa"]].concat(), "no detector");
    lab.fails(&[&train[..], &["--method", "alad", "--detector", "mahalanobis-ensemble"]].concat(), "alad");
}

#[test]
fn the_list_is_complete() {
    let lab = Lab::new();
    let text = stdout(&lab.ok(&["methods"]));
    let json: serde_json::Value = serde_json::from_str(&stdout(&lab.ok(&["methods", "--json"]))).unwrap();
    let names: Vec<&str> =
        HeadConfig::all().iter().map(|c| c.name()).chain(DetectorConfig::all().iter().map(|c| c.name())).collect();
    assert_eq!(json.as_array().unwrap().len(), names.len());
    for name in names {
        assert!(text.lines().any(|l| l.trim_start().starts_with(&format!("{name} "))), "{name}");
        assert!(stdout(&lab.ok(&["methods", name])).contains("settings"), "{name}");
    }
    assert!(text.lines().all(|l| l.chars().count() < 170), "{text}");
}
