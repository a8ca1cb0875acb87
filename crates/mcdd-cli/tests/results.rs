//! Results that can be joined with the input, and outputs that never overwrite an input.

mod help;

use std::fs;

use help::{Lab, stderr, stdout, table};
use mcdd::data::{Column, ReadOptions, Table};
use serde_json::Value;

/// Flowers with names and notes that the model `m.mcdd` does not use.
fn lab() -> Lab {
    let lab = Lab::new();
    let row = |i: usize| {
        let (a, b) = ((i % 3) as f64 * 4.0 + (i * 7 % 5) as f64 / 5.0, (i * 3 % 7) as f64 / 7.0);
        format!("{i:05},{a},{b},{},\"no, {i}\"", ["iris", "rose", "tulip"][i % 3])
    };
    lab.write("train.csv", &table(120, row, "id,a,b,label,note"));
    // Cells as no program would write them.
    let row = |i: usize| format!("\"say \"\"{i}\"\"\",1e0,+0.50,rose,00{i}");
    lab.write("new.csv", &table(3, row, "note,a,b,label,id"));
    let train = ["train", "train.csv", "--drop", "id", "--drop", "note", "--preset", "fast", "--epochs", "4", "-q"];
    lab.ok(&[&train[..], &["-o", "m.mcdd"]].concat());
    lab
}

#[test]
fn columns_of_the_input_come_first_and_as_they_were() {
    let lab = lab();
    let csv = stdout(&lab.ok(&["predict", "m.mcdd", "new.csv", "--keep", "id,a,label", "--keep", "note"]));
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("id,a,label_input,note,label,verdict,confidence,p_value"));
    assert!(lines.next().unwrap().starts_with("000,1e0,rose,\"say \"\"0\"\"\","), "{csv}");
    // The predictions are those without the columns.
    let plain = stdout(&lab.ok(&["predict", "m.mcdd", "new.csv"]));
    let tail = |line: &str| line.rsplitn(5, ',').take(4).map(str::to_owned).collect::<Vec<_>>();
    assert!(csv.lines().skip(1).zip(plain.lines().skip(1)).all(|(a, b)| tail(a) == tail(&format!(",{b}"))));
    // Columns of a pipe, and all columns in the order of the file.
    let text = fs::read(lab.path("new.csv")).unwrap();
    let out = lab.command(&["predict", "m.mcdd", "-", "--keep", "all", "--format", "tsv"]).write_stdin(text).output();
    let tsv = stdout(&out.unwrap());
    assert!(tsv.starts_with("note\ta\tb\tlabel_input\tid\tlabel\tverdict\t"), "{tsv}");
    assert!(tsv.lines().nth(1).unwrap().contains("\t1e0\t+0.50\trose\t000\t"), "{tsv}");
    let e = lab.fails(&["predict", "m.mcdd", "new.csv", "--keep", "id,color"], "no column \"color\"");
    assert!(e.contains("--keep"), "{e}");
    // Another file must have the columns too; their order may differ.
    let row = |i: usize| format!("{i},2,3");
    lab.write("other.csv", &table(2, row, "id,b,a"));
    let both = stdout(&lab.ok(&["predict", "m.mcdd", "new.csv", "other.csv", "--keep", "id"]));
    assert_eq!(both.lines().filter(|l| l.starts_with("00") || l.starts_with("0,") || l.starts_with("1,")).count(), 5);
    lab.fails(&["predict", "m.mcdd", "new.csv", "other.csv", "--keep", "note", "-o", "x.csv"], "no column \"note\"");
    assert!(!lab.path("x.csv").exists());
}

#[test]
fn the_extension_of_the_output_is_its_format() {
    let lab = lab();
    let predict = |more: &[&str]| lab.ok(&[&["predict", "m.mcdd", "new.csv", "--keep", "id", "-q"], more].concat());
    let read = |name: &str| fs::read_to_string(lab.path(name)).unwrap();
    for name in ["out.csv", "out.tsv", "out.jsonl", "out.ndjson", "out.json", "out.parquet", "out.txt", "out"] {
        predict(&["-o", name]);
    }
    assert!(read("out.csv").starts_with("id,label,verdict,") && read("out.csv") == read("out"));
    assert_eq!(read("out.txt"), read("out"));
    assert!(read("out.tsv").starts_with("id\tlabel\tverdict\t"));
    let first: Value = serde_json::from_str(read("out.jsonl").lines().next().unwrap()).unwrap();
    let all: Value = serde_json::from_str(&read("out.json")).unwrap();
    assert!(first["id"] == "000" && all[0] == first && all.as_array().unwrap().len() == 3);
    assert!(read("out.jsonl").starts_with("{\"id\":\"000\",\"label\":") && read("out.jsonl") == read("out.ndjson"));
    let table = Table::read(&[lab.path("out.parquet")], &ReadOptions::default()).unwrap();
    assert_eq!((table.rows(), &table.names[0]), (3, &"id".to_owned()));
    // --format decides where it is given, and what cannot be written is refused before anything is read.
    predict(&["-o", "odd.parquet", "--format", "csv"]);
    assert_eq!(read("odd.parquet"), read("out.csv"));
    for name in ["out.csv.gz", "out.xlsx"] {
        let e = lab.fails(&["predict", "missing.mcdd", "new.csv", "-o", name], name);
        assert!(e.contains("--format") && !lab.path(name).exists(), "{e}");
    }
    lab.write("f.csv", &table_of_numbers(40));
    lab.ok(&["score", "--detector", "knn", "--train-features", "f.csv", "--features", "f.csv", "-o", "s.jsonl", "-q"]);
    assert!(serde_json::from_str::<Value>(read("s.jsonl").lines().next().unwrap()).is_ok());
}

fn table_of_numbers(rows: usize) -> String {
    table(rows, |i| format!("{},{}", i * 7 % 11, i * 3 % 13), "x,y")
}

/// From Parquet and to Parquet, columns keep their types; from NumPy too.
#[test]
fn typed_columns_stay_typed() {
    let lab = lab();
    lab.ok(&["predict", "m.mcdd", "new.csv", "--keep", "all", "-q", "-o", "one.parquet"]);
    // Numbers of the output, texts of the input.
    let predict = ["predict", "m.mcdd", "one.parquet", "--keep", "confidence,a", "-q"];
    // The texts of `a` are numbers, so that the model reads them.
    lab.ok(&[&predict[..], &["-o", "two.parquet"]].concat());
    let options = ReadOptions { label: mcdd::data::Label::None, ..ReadOptions::default() };
    let table = Table::read(&[lab.path("two.parquet")], &options).unwrap();
    let column = |name: &str| &table.columns[table.names.iter().position(|n| n == name).unwrap()];
    assert_eq!(column("confidence_input"), column("confidence"));
    assert!(matches!(column("confidence_input"), Column::Number(_)));
    let json = stdout(&lab.ok(&[&predict[..], &["--format", "jsonl"]].concat()));
    let first: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert!(first["confidence_input"].is_f64() && first["confidence_input"] == first["confidence"], "{json}");
    assert_eq!(first["a"], "1e0");
    // NumPy: integers beyond 2^53 are exact.
    let big = i64::MAX - 1;
    let header = format!("{:<117}\n", "{'descr': '<i8', 'fortran_order': False, 'shape': (2, 2), }");
    let mut npy = [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes()].concat();
    npy.extend([1, big, 2, -3].iter().flat_map(|v: &i64| v.to_le_bytes()));
    fs::write(lab.path("x.npy"), npy).unwrap();
    lab.write("f.csv", &table_of_numbers(40));
    lab.ok(&["fit-detector", "--detector", "knn", "--train-features", "f.csv", "-o", "knn.mcdd", "-q"]);
    let csv = stdout(&lab.ok(&["predict", "knn.mcdd", "x.npy", "--keep", "2", "-q"]));
    assert!(csv.starts_with("column 2,label,") && csv.contains(&format!("\n{big},")) && csv.contains("\n-3,"), "{csv}");
}

/// In a file of features, columns that the detector was not fitted on are only passed through.
#[test]
fn a_detector_keeps_columns_too() {
    let lab = Lab::new();
    lab.write("f.csv", &table_of_numbers(40));
    lab.write("g.csv", &table(5, |i| format!("name {i},{i},{}", 2 * i), "id,x,y"));
    let base = ["score", "--detector", "knn", "--train-features", "f.csv", "-q", "--features"];
    let csv = stdout(&lab.ok(&[&base[..], &["g.csv", "--keep", "id"]].concat()));
    assert!(csv.starts_with("id,label,verdict,") && csv.contains("\nname 4,"), "{csv}");
    // Features may be passed through as well.
    let csv = stdout(&lab.ok(&[&base[..], &["f.csv", "--keep", "all"]].concat()));
    assert!(csv.starts_with("x,y,label,verdict,") && csv.lines().count() == 41, "{csv}");
    lab.fails(&[&base[..], &["g.csv"]].concat(), "g.csv");
}

#[test]
fn an_output_never_overwrites_an_input() {
    let lab = lab();
    lab.write("f.csv", &table_of_numbers(40));
    lab.write("y.txt", &"a\nb\n".repeat(20));
    fs::hard_link(lab.path("new.csv"), lab.path("hard.csv")).unwrap();
    fs::create_dir(lab.path("sub")).unwrap();
    let before = |name: &str| fs::read(lab.path(name)).unwrap();
    let (data, model, features) = (before("new.csv"), before("m.mcdd"), before("f.csv"));
    let knn = ["--detector", "knn", "--train-features", "f.csv"];
    let cases: Vec<Vec<&str>> = vec![
        vec!["train", "train.csv", "-o", "train.csv"],
        vec!["train", "missing.csv", "-o", "./missing.csv"],
        vec!["train", "train.csv", "-o", "sub/../train.csv"],
        vec!["train", "train.csv", "-o", "x.mcdd", "--report", "x.mcdd"],
        vec!["train", "train.csv", "-o", "x.mcdd", "--report", "train.csv"],
        vec!["train", "train.csv", "--label", "y.txt", "-o", "y.txt"],
        vec!["train", "sub", "--net", "resnet8", "--checkpoint", "./sub"],
        vec!["train", "sub", "--net", "resnet8", "--figures", "sub"],
        vec!["predict", "m.mcdd", "new.csv", "-o", "new.csv"],
        vec!["predict", "m.mcdd", "new.csv", "-o", "hard.csv"],
        vec!["predict", "m.mcdd", "new.csv", "-o", "m.mcdd"],
        vec!["evaluate", "m.mcdd", "new.csv", "--report", "m.mcdd"],
        [&["fit-detector"][..], &knn, &["-o", "f.csv"]].concat(),
        [&["score"][..], &knn, &["--features", "new.csv", "-o", "f.csv"]].concat(),
        [&["score"][..], &knn, &["--features", "new.csv", "-o", "new.csv"]].concat(),
        vec!["figure", "samples", "m.mcdd", "x.svg", "-o", "x"],
    ];
    for args in &cases {
        lab.fails(args, "another file of this command");
    }
    // Standard input is the file that it is read from.
    #[cfg(unix)]
    {
        let stdin = fs::File::open(lab.path("new.csv")).unwrap();
        let out = lab.std_command(&["predict", "m.mcdd", "-", "-o", "new.csv"]).stdin(stdin).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
    }
    assert!(before("new.csv") == data && before("m.mcdd") == model && before("f.csv") == features);
    // A device is not a file that is overwritten.
    lab.ok(&["predict", "m.mcdd", "new.csv", "-o", "/dev/null"]);
}

#[test]
fn test_rows_are_used_for_nothing_else() {
    let lab = Lab::new();
    lab.digits();
    let train = |data: &str, name: &str, more: &[&str]| {
        let base = ["train", data, "-o", name, "--preset", "fast", "--epochs", "3", "-q", "--seed", "3"];
        stdout(&lab.ok(&[&base[..], more].concat()))
    };
    let printed = train("train.csv", "m.mcdd", &["--test", "0.2", "--report", "r.html"]);
    assert!(
        printed.starts_with("in-distribution: test rows of train.csv (") && printed.contains("accuracy %"),
        "{printed}"
    );
    assert!(fs::read_to_string(lab.path("r.html")).unwrap().contains("test rows of train.csv"));
    assert_eq!(printed, train("train.csv", "again.mcdd", &["--test", "0.2"]));
    let bytes = |name: &str| fs::read(lab.path(name)).unwrap();
    assert!(bytes("m.mcdd") == bytes("again.mcdd"));
    // The same model without the test rows, which evaluate judges in the same way.
    let whole = Table::read(&[lab.path("train.csv")], &ReadOptions::default()).unwrap();
    let (rest, test) = whole.split(0.2, 3).unwrap();
    for (name, part) in [("rest.csv", &rest), ("held.csv", &test)] {
        let mut csv = Vec::new();
        part.write_csv(&mut csv).unwrap();
        fs::write(lab.path(name), csv).unwrap();
    }
    assert_eq!(train("rest.csv", "rest.mcdd", &[]), "");
    assert!(bytes("m.mcdd") == bytes("rest.mcdd"));
    let evaluated = stdout(&lab.ok(&["evaluate", "m.mcdd", "held.csv", "--seed", "3"]));
    assert_eq!(evaluated.replace("held.csv", "test rows of train.csv"), printed);
    lab.fails(&["train", "train.csv", "--test", "1.5"], "--test is 1.5");
    lab.fails(&["train", "train.csv", "--test", "-1"], "--test is -1");
}

/// With two classes each is rejected by methods that are trained on the other alone.
#[test]
fn two_classes_are_compared_without_classes() {
    let lab = Lab::new();
    let row = |i: usize| {
        let far = if i.is_multiple_of(2) { 0 } else { 9 };
        format!("{},{},{}", far + i * 7 % 5, far + i * 3 % 4, ["a", "b"][i % 2])
    };
    lab.write("two.csv", &table(80, row, "x,y,label"));
    let bench = ["bench", "two.csv", "--folds", "2", "--epochs", "2", "-q", "-o", "out"];
    let printed = stdout(&lab.ok(&bench));
    for method in ["deep-svdd", "deep-svdd+knn:on=inputs", "deep-svdd+isolation-forest:on=inputs"] {
        assert!(printed.lines().any(|l| l.starts_with(&format!("{method} "))), "{printed}");
    }
    let e = lab
        .fails(&["bench", "two.csv", "--methods", "softmax+msp", "-o", "x"], "softmax+msp is trained on two classes");
    assert!(e.contains("--methods one-class") && !lab.path("x").exists(), "{e}");
    lab.write("one.csv", &table(40, |i| format!("{i},{},same", i % 3), "x,y,label"));
    lab.fails(&["bench", "one.csv"], "there is 1 class");
}

/// A detector with logits predicts the class of the highest one.
#[test]
fn logits_give_a_label() {
    let lab = Lab::new();
    let row = |i: usize| {
        (0..3).map(|j| format!("{}", (i * (j + 3)) % 7 + 8 * usize::from(i % 3 == j))).collect::<Vec<_>>().join(",")
    };
    lab.write("l.csv", &table(60, row, "p,q,r"));
    lab.write("y.txt", &(0..60).map(|i| format!("{}\n", ["cat", "dog", "owl"][i % 3])).collect::<String>());
    let labels = |args: &[&str]| {
        let out = stdout(&lab.ok(args));
        out.lines().skip(1).take(3).map(|l| l.split(',').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let fit = ["fit-detector", "--detector", "energy", "--train-logits", "l.csv", "-q"];
    lab.ok(&[&fit[..], &["--train-labels", "y.txt", "-o", "named.mcdd"]].concat());
    assert_eq!(labels(&["predict", "named.mcdd", "l.csv"]), ["cat", "dog", "owl"]);
    // Without labels a class is the number of its logit.
    lab.ok(&[&fit[..], &["-o", "numbers.mcdd"]].concat());
    assert_eq!(labels(&["predict", "numbers.mcdd", "l.csv"]), ["0", "1", "2"]);
    assert_eq!(
        labels(&["score", "--detector", "msp", "--train-logits", "l.csv", "--logits", "l.csv"]),
        ["0", "1", "2"]
    );
    let probs = stdout(&lab.ok(&["predict", "named.mcdd", "l.csv", "--probs"]));
    assert!(probs.starts_with("label,verdict,confidence,p_value,prob:cat,prob:dog,prob:owl\n"), "{probs}");
}

#[test]
fn messages_say_what_is_wrong() {
    let lab = lab();
    // A negative number is a value of the option.
    let e = lab.fails(&["train", "train.csv", "--lr", "-1"], "--lr is -1");
    assert!(e.contains("--lr must be"), "{e}");
    lab.fails(&["predict", "m.mcdd", "new.csv", "--tpr", "-0.5"], "-0.5");
    // One is not a plural.
    lab.write("row.csv", "a,b,label\n1,2,rose\n");
    let one = stdout(&lab.ok(&["evaluate", "m.mcdd", "row.csv", "--bootstrap", "1"]));
    assert!(one.contains("row.csv (1 row)") && one.contains("1 replicate for"), "{one}");
    // The place in a plan is shown.
    lab.write("plan.toml", "data = \"train.csv\"\nfolds = \"many\"\n");
    let out = lab.command(&["bench", "plan.toml"]).output().unwrap();
    let e = stderr(&out);
    assert!(e.contains("line 2, column 9") && e.contains("2 | folds = \"many\"\n") && e.contains("^^^^^^"), "{e}");
    assert_eq!((out.status.code(), e.lines().last().unwrap().starts_with("hint: ")), (Some(2), true), "{e}");
    // A missing score is not a header.
    lab.write("scores.txt", "NaN\n1\n2\n");
    lab.fails(&["metrics", "scores.txt", "scores.txt"], "row 1: the score is missing");
    lab.write("words.txt", "1\n2\nabc\n");
    let e = lab.fails(&["metrics", "words.txt", "words.txt"], "abc");
    assert!(!e.contains("--categorical") && e.contains("--column"), "{e}");
}
