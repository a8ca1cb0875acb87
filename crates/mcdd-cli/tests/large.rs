//! Tables that are too large to be trained on as a whole, and tables in parts.

mod help;

use std::fs;

use help::{Lab, stderr, stdout, table};

/// Three classes, one of them with few rows.
fn rows(lab: &Lab) {
    let class = |i: usize| if i % 400 == 7 { "rare" } else { ["x", "y"][i % 2] };
    let row = |i: usize| format!("{},{},{}", (i * 7919 % 100) as f64 / 10.0 + 20.0 * (i % 2) as f64, i % 11, class(i));
    lab.write("t.csv", &table(9000, row, "a,b,label"));
}

const FAST: [&str; 4] = ["--preset", "fast", "--epochs", "2"];

#[test]
fn a_sample_is_trained_on_and_reported() {
    let lab = Lab::new();
    rows(&lab);
    let train =
        |max: &'static str, to: &'static str| [&["train", "t.csv", "--max-rows", max, "-o", to][..], &FAST].concat();
    let out = lab.ok(&train("1000", "a.mcdd"));
    let said = stderr(&out);
    assert!(said.contains("1,000 of 9,000 rows are used: a random sample, with small classes whole"), "{said}");
    lab.ok(&[&train("1000", "b.mcdd")[..], &["--threads", "1"]].concat());
    assert_eq!(fs::read(lab.path("a.mcdd")).unwrap(), fs::read(lab.path("b.mcdd")).unwrap());
    // All 23 rows of the small class are in it.
    let known = stdout(&lab.ok(&["inspect", "a.mcdd", "--json"]));
    assert!(known.contains("rare"), "{known}");
    // Another detector on the same sample.
    let refit = ["refit", "a.mcdd", "t.csv", "--detector", "mahalanobis", "-o", "c.mcdd"];
    lab.ok(&[&refit[..], &["--max-rows", "1000"]].concat());
    lab.ok(&[&train("1000", "d.mcdd")[..], &["--detector", "mahalanobis"]].concat());
    assert_eq!(fs::read(lab.path("c.mcdd")).unwrap(), fs::read(lab.path("d.mcdd")).unwrap());
    lab.fails(&refit, "not the rows that the model was trained on");
    let out = lab.command(&["train", "t.csv", "--max-rows", "0"]).output().unwrap();
    assert!(out.status.code() == Some(2) && stderr(&out).contains("--max-rows"));
}

#[test]
fn a_folder_is_a_table_in_parts() {
    let lab = Lab::new();
    rows(&lab);
    let text = fs::read_to_string(lab.path("t.csv")).unwrap();
    let (header, body) = text.split_once('\n').unwrap();
    let lines: Vec<&str> = body.lines().collect();
    fs::create_dir(lab.path("parts")).unwrap();
    for (part, lines) in lines.chunks(4000).enumerate() {
        lab.write(&format!("parts/part-{part}.csv"), &format!("{header}\n{}\n", lines.join("\n")));
    }
    lab.write("parts/_SUCCESS", "");
    lab.write("parts/.part-0.csv.crc", "x");
    for (from, to) in [("t.csv", "one.mcdd"), ("parts", "parts.mcdd")] {
        lab.ok(&[&["train", from, "-o", to, "--max-rows", "2000"][..], &FAST].concat());
    }
    assert_eq!(fs::read(lab.path("one.mcdd")).unwrap(), fs::read(lab.path("parts.mcdd")).unwrap());
    lab.ok(&["check", "parts"]);
    fs::create_dir(lab.path("empty")).unwrap();
    lab.fails(&["train", "empty"], "the folder has no files");
}
