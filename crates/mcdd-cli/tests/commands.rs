//! The commands end to end: what they print and write.

mod help;

use help::{Lab, class, stderr, stdout, table};
use std::fs;

#[test]
fn train_predict_evaluate_inspect() {
    let lab = Lab::new();
    lab.digits();
    let out = lab.ok(&["train", "train.csv", "--label", "label", "-o", "m.mcdd", "--epochs", "20", "--lr", "0.003"]);
    assert!(out.stdout.is_empty(), "messages go to stderr");
    assert!(stderr(&out).contains("wrote m.mcdd") && stderr(&out).contains("epoch 20"), "{}", stderr(&out));

    let text = stdout(&lab.ok(&["predict", "m.mcdd", "test.csv"]));
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("label,verdict,confidence,p_value"));
    let rows: Vec<Vec<&str>> = lines.map(|l| l.split(',').collect()).collect();
    assert_eq!(rows.len(), fs::read_to_string(lab.path("test.csv")).unwrap().lines().count() - 1);
    for r in &rows {
        let p: f64 = r[3].parse().unwrap();
        assert!(r[2].parse::<f64>().unwrap().is_finite() && p > 0.0 && p <= 1.0);
        assert_eq!(r[1] == "unknown", p <= 0.05, "{r:?}");
    }

    let out = lab.ok(&["evaluate", "m.mcdd", "test.csv", "--ood", "ood.csv", "--json", "--bootstrap", "50"]);
    let json: serde_json::Value = serde_json::from_str(&stdout(&out)).unwrap();
    assert!(json["accuracy"]["value"].as_f64().unwrap() > 0.8);
    let auroc = &json["ood"][0]["metrics"]["auroc"];
    assert!(auroc["value"].as_f64().unwrap() > 0.7 && auroc["positive"] == "ID");
    assert!(auroc["interval95"]["low"].as_f64().unwrap() <= auroc["value"].as_f64().unwrap());
    let text = stdout(&lab.ok(&["evaluate", "m.mcdd", "test.csv", "--ood", "ood.csv", "--bootstrap", "20"]));
    assert!(text.contains("accuracy %") && text.contains("positive: OOD"), "{text}");

    // Rows of a class that the model does not know are out-of-distribution.
    let sevens = fs::read_to_string(lab.path("ood.csv")).unwrap();
    let both = fs::read_to_string(lab.path("test.csv")).unwrap() + sevens.split_once('\n').unwrap().1;
    lab.write("both.csv", &both);
    let out = lab.ok(&["evaluate", "m.mcdd", "both.csv", "--json", "--bootstrap", "0"]);
    let split: serde_json::Value = serde_json::from_str(&stdout(&out)).unwrap();
    assert_eq!(split["ood"][0]["metrics"]["auroc"]["value"], auroc["value"]);

    let json = stdout(&lab.ok(&["inspect", "m.mcdd", "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["classes"].as_array().unwrap().len(), 9);
    let text = stdout(&lab.ok(&["inspect", "m.mcdd"]));
    let network = "-> clip ±5 -> 128 BatchNorm ReLU -> 128 BatchNorm ReLU -> 32\n";
    assert!(text.contains(network) && text.contains("validation accuracy"), "{text}");
    assert!(text.contains("members      7") && text.contains("preset       best; changed: epochs, steps\n"), "{text}");
}

#[test]
fn options_override_the_preset() {
    let lab = Lab::new();
    lab.digits();
    let train = ["train", "train.csv", "--label", "label", "-o", "m.mcdd", "--epochs", "3"];
    let inspect = |more: &[&str]| {
        lab.ok(&[&train[..], more].concat());
        stdout(&lab.ok(&["inspect", "m.mcdd"]))
    };
    let text = inspect(&["--preset", "fast", "--lr", "0.01"]);
    assert!(
        text.contains("preset       fast; changed: epochs, lr, steps\n") && text.contains("members      1"),
        "{text}"
    );
    let text = inspect(&["--preset", "paper"]);
    for words in
        ["-> 128 ReLU -> 128 ReLU -> 128\n", "lr 0.001 constant", "confidence   the method's own", "members      1"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    let text =
        inspect(&["--preset", "fast", "--clip", "off", "--batch-norm", "off", "--steps", "off", "--latent", "7"]);
    assert!(text.contains("network      60 -> 128 ReLU -> 128 ReLU -> 7\n"), "{text}");
    // A method comes with its own score.
    let text = inspect(&["--preset", "fast", "--method", "softmax"]);
    assert!(text.contains("confidence   the method's own"), "{text}");
    // A limit of steps that shortens training is reported.
    let messages = stderr(&lab.ok(&[&train[..], &["--preset", "fast", "--steps", "10"]].concat()));
    assert!(messages.contains("1 epoch instead of 3") && messages.contains("--steps"), "{messages}");
    for wrong in [["--preset", "fst"], ["--clip", "five"], ["--steps", "-1"]] {
        assert_eq!(lab.command(&[&train[..], &wrong].concat()).output().unwrap().status.code(), Some(2), "{wrong:?}");
    }
    lab.fails(&[&train[..], &["--batch", "1"]].concat(), "too small for batch normalization");
    lab.fails(&[&train[..], &["--method", "deep-svdd", "--batch-norm", "on"]].concat(), "cannot have");
}

#[test]
fn the_three_formats_agree() {
    let lab = Lab::new();
    lab.model();
    let csv = stdout(&lab.ok(&["predict", "m.mcdd", "test.csv", "--probs", "--distances"]));
    let header = csv.lines().next().unwrap();
    assert!(header.contains(",prob:0,") && header.contains(",distance:9"), "{header}");
    let jsonl = stdout(&lab.ok(&["predict", "m.mcdd", "test.csv", "--probs", "--distances", "--format", "jsonl"]));
    for (line, row) in jsonl.lines().zip(csv.lines().skip(1)) {
        let json: serde_json::Value = serde_json::from_str(line).unwrap();
        let cells: Vec<&str> = row.split(',').collect();
        assert_eq!(json["label"], cells[0]);
        assert_eq!(json["verdict"], cells[1]);
        assert_eq!(json["confidence"].as_f64(), cells[2].parse().ok());
        assert_eq!(json["probs"]["0"].as_f64(), cells[4].parse().ok());
        assert_eq!(json["distances"]["9"].as_f64(), cells[cells.len() - 1].parse().ok());
    }
    assert_eq!(jsonl.lines().count() + 1, csv.lines().count());
    // The library reads Parquet back.
    lab.ok(&["predict", "m.mcdd", "test.csv", "--format", "parquet", "-o", "p.parquet"]);
    lab.write("p.csv", &csv);
    let read = |name: &str| {
        let options = mcdd::data::ReadOptions { label: mcdd::data::Label::None, ..Default::default() };
        mcdd::data::Table::read(&[lab.path(name)], &options).unwrap()
    };
    let (a, b) = (read("p.parquet"), read("p.csv"));
    assert_eq!(a.names, ["label", "verdict", "confidence", "p_value"]);
    assert_eq!((a.rows(), &a.columns[2]), (b.rows(), &b.columns[2]));
}

#[test]
fn stdin_several_files_and_thresholds() {
    let lab = Lab::new();
    lab.model();
    let once = stdout(&lab.ok(&["predict", "m.mcdd", "test.csv"]));
    let input = fs::read(lab.path("test.csv")).unwrap();
    let piped = lab.command(&["predict", "m.mcdd", "-"]).write_stdin(input).output().unwrap();
    assert_eq!(stdout(&piped), once);
    let twice = stdout(&lab.ok(&["predict", "m.mcdd", "test.csv", "test.csv"]));
    assert_eq!(twice.lines().count(), 2 * once.lines().count() - 1);
    let unknown =
        |tpr: &str| stdout(&lab.ok(&["predict", "m.mcdd", "test.csv", "--tpr", tpr])).matches(",unknown,").count();
    assert!(unknown("0.5") > unknown("0.9") && unknown("0.9") > unknown("0.98"));
    // Too few calibration rows for a fraction are reported.
    let out = lab.ok(&["predict", "m.mcdd", "test.csv", "--tpr", "0.9999"]);
    assert!(stderr(&out).contains("too few for a threshold"), "{}", stderr(&out));
    lab.fails(&["predict", "m.mcdd", "test.csv", "--tpr", "1.5"], "fraction");
    let out = lab.command(&["predict", "m.mcdd", "ood.csv", "--fail-on-unknown"]).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    let quiet = lab.ok(&["predict", "m.mcdd", "test.csv", "--quiet", "--tpr", "0.9999"]);
    assert!(quiet.stderr.is_empty());
}

#[test]
fn columns_are_matched_by_name() {
    let lab = Lab::new();
    lab.write("a.csv", &table(200, |i| format!("{},{},{}", i % 7, (i * 13) % 11, class(i)), "width,height,label"));
    lab.ok(&["train", "a.csv", "-o", "a.mcdd", "--epochs", "2"]);
    let expected = stdout(&lab.ok(&["predict", "a.mcdd", "a.csv"]));
    lab.write("b.csv", &table(200, |i| format!("{},x{i},{}", (i * 13) % 11, i % 7), "height,extra,width"));
    let out = lab.ok(&["predict", "a.mcdd", "b.csv"]);
    assert_eq!(stdout(&out), expected);
    assert_eq!(stderr(&out).matches("ignored").count(), 1, "{}", stderr(&out));
    lab.write("c.csv", "height,depth\n1,2\n");
    let e = lab.fails(&["predict", "a.mcdd", "c.csv", "-o", "out.csv"], "width");
    assert!(e.contains("c.csv") && e.contains("depth"), "{e}");
    lab.write("d.csv", "width,height\n1,2\n3,abc\n");
    let e = lab.fails(&["predict", "a.mcdd", "d.csv", "-o", "out.csv"], "abc");
    assert!(e.contains("d.csv") && e.contains("row 2 (line 3)") && e.contains("height"), "{e}");
    assert!(!lab.path("out.csv").exists());
}

#[test]
fn missing_cells_categories_and_constants_are_reported() {
    let lab = Lab::new();
    let row = |i: usize| {
        let number = if i.is_multiple_of(10) { "NA".into() } else { (i % 7).to_string() };
        format!("{number},{},5,{}", ["red", "green", "blue"][i % 3], class(i))
    };
    lab.write("t.csv", &table(200, row, "n,color,same,label"));
    let messages = stderr(&lab.ok(&["train", "t.csv", "-o", "t.mcdd", "--epochs", "2"]));
    assert!(messages.contains("same") && messages.contains("constant") && messages.contains("missing"), "{messages}");
    lab.write("new.csv", "n,color\n3,teal\n,red\n2,blue\n");
    let messages = stderr(&lab.ok(&["predict", "t.mcdd", "new.csv"]));
    assert!(messages.contains("teal") && messages.contains("missing"), "{messages}");
    let text = stdout(&lab.ok(&["inspect", "t.mcdd"]));
    assert!(text.contains("color (3)") && text.contains("same (constant)"), "{text}");
}

#[test]
fn metrics_reads_predictions() {
    let lab = Lab::new();
    lab.model();
    for name in ["test", "ood"] {
        lab.ok(&["predict", "m.mcdd", &format!("{name}.csv"), "-o", &format!("{name}.scores.csv")]);
    }
    let files = ["metrics", "test.scores.csv", "ood.scores.csv"];
    let text = stdout(&lab.ok(&[&files[..], &["--bootstrap", "50"]].concat()));
    assert!(text.contains("AUROC") && text.contains("OOD"), "{text}");
    let json = stdout(&lab.ok(&[&files[..], &["--json"]].concat()));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let out = lab.ok(&["evaluate", "m.mcdd", "test.csv", "--ood", "ood.csv", "--json"]);
    let evaluated: serde_json::Value = serde_json::from_str(&stdout(&out)).unwrap();
    assert_eq!(json["metrics"]["auroc"]["value"], evaluated["ood"][0]["metrics"]["auroc"]["value"]);
    for compat in ["authors", "openood"] {
        assert!(stdout(&lab.ok(&[&files[..], &["--compat", compat]].concat())).contains(compat));
    }
    // Infinite scores are valid; a missing score is an error.
    lab.write("a.txt", "-inf\n1\ninf\n");
    lab.write("b.txt", "0\n-inf\n");
    lab.ok(&["metrics", "a.txt", "b.txt", "--bootstrap", "0"]);
    lab.write("nan.txt", "1\nNaN\n2\n");
    let e = lab.fails(&["metrics", "a.txt", "nan.txt"], "nan.txt");
    assert!(e.contains("row 2"), "{e}");
}

#[test]
fn demo_writes_the_files_that_it_names() {
    let lab = Lab::new();
    let text = stdout(&lab.ok(&["demo", "--quiet"]));
    assert!(text.contains("mcdd") && text.contains("softmax (MSP)") && text.contains("says unknown"), "{text}");
    let commands: Vec<&str> = text.lines().skip_while(|l| !l.starts_with("Try next")).skip(1).collect();
    assert_eq!(commands.len(), 6);
    let page = fs::read_to_string(lab.path("mcdd-demo/report.html")).unwrap();
    assert!(page.contains("Handwritten digits without any 7") && page.len() < 1_000_000);
    assert!(text.contains("open mcdd-demo/report.html in a browser"), "{text}");
    for line in commands {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(words[0].ends_with("mcdd"), "{line}");
        lab.ok(&words[1..]);
    }
}

#[test]
fn help_has_examples_and_completions_are_scripts() {
    let lab = Lab::new();
    for command in ["train", "predict", "evaluate", "explain", "metrics", "inspect", "demo", "completions"] {
        let text = stdout(&lab.ok(&[command, "--help"]));
        assert!(text.contains("Examples:") && text.contains(&format!("mcdd {command}")), "{command}");
    }
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(stdout(&lab.ok(&["completions", shell])).contains("predict"));
    }
    assert_eq!(lab.command(&["nonsense"]).output().unwrap().status.code(), Some(2));
}
