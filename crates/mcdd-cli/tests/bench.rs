//! `mcdd bench`: its outputs, and runs that are stopped and resumed.

mod help;

use help::{Lab, stderr, stdout};
use std::fs;
use std::time::Duration;

/// Four classes around four points; `few` rows of the last.
fn classes(lab: &Lab, few: usize) {
    let row = |i: usize| {
        let c = i % 3;
        format!(
            "{},{},{}\n",
            c as f64 * 3.0 + (i * 7 % 11) as f64 / 11.0,
            (i * 5 % 13) as f64 / 13.0 - c as f64,
            ["x", "y", "z"][c]
        )
    };
    let last = (0..few).map(|i| format!("{},9,w\n", i as f64 / 5.0));
    lab.write("t.csv", &(String::from("a,b,kind\n") + &(0..120).map(row).chain(last).collect::<String>()));
}

const SMALL: [&str; 8] =
    ["bench", "t.csv", "--label", "kind", "--epochs", "3", "--methods", "softmax+msp,deep-mcdd,fast"];

/// A file without times.
fn timeless(text: &str) -> String {
    let cells = text.lines().map(|line| {
        let mut json: serde_json::Value = serde_json::from_str(line).unwrap();
        if let Some(seconds) = json.get_mut("seconds") {
            *seconds = 0.into();
        }
        json.to_string() + "\n"
    });
    cells.collect()
}

#[test]
fn a_table_is_tested_and_everything_written() {
    let lab = Lab::new();
    classes(&lab, 30);
    let out = lab.ok(&[&SMALL[..], &["-o", "out", "--folds", "3"]].concat());
    let (text, talk) = (stdout(&out), stderr(&out));
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.lines().all(|l| l.starts_with("method") || l.ends_with("  3")), "{text}");
    assert!(talk.contains("t.csv: 150 rows, 2 features, 4 classes") && talk.contains("36 of 36 cells"), "{talk}");
    for name in ["table.md", "table.csv", "table.tex", "index.html"] {
        let text = fs::read_to_string(lab.path("out").join(name)).unwrap();
        assert!(text.contains("deep-mcdd") && !text.contains("NaN"), "{name}");
    }
    let results = fs::read_to_string(lab.path("out/results.jsonl")).unwrap();
    assert_eq!(results.lines().count(), 37);
    let cell: serde_json::Value = serde_json::from_str(results.lines().nth(1).unwrap()).unwrap();
    assert!(cell["settings"]["epochs"] == 3 && cell["version"].is_string() && cell["seconds"][0].is_number());

    // The same options from a file, on one thread: the same bytes.
    lab.write(
        "study.toml",
        "data = \"t.csv\"\nlabel = \"kind\"\nmethods = [\"softmax+msp\", \"deep-mcdd\", \"fast\"]\nfolds = 3\nepochs = 3\njobs = 1\noutput = \"again\"\n",
    );
    lab.ok(&["bench", "study.toml", "-q"]);
    for name in ["table.md", "table.csv", "table.tex", "index.html"] {
        assert!(
            fs::read(lab.path("out").join(name)).unwrap() == fs::read(lab.path("again").join(name)).unwrap(),
            "{name}"
        );
    }
    assert_eq!(timeless(&results), timeless(&fs::read_to_string(lab.path("again/results.jsonl")).unwrap()));

    // More methods in the same folder: no cell is computed again, and a figure in the folder is included in the page, but not a
    // chart that the page has anyway.
    lab.ok(&["figure", "bars", "again", "-o", "again/bars.svg"]);
    lab.ok(&["figure", "bars", "again", "--methods", "fast,deep-mcdd", "-o", "again/mine.svg"]);
    let more = lab.ok(&["bench", "study.toml", "--methods", "gda,fast", "--test-folds", "1"]);
    assert!(stderr(&more).contains("4 of 8 cells are done") && stdout(&more).contains("1 of 3"), "{}", stderr(&more));
    assert_eq!(fs::read_to_string(lab.path("again/results.jsonl")).unwrap().lines().count(), 41);
    let page = fs::read_to_string(lab.path("again/index.html")).unwrap();
    assert!(page.contains("<img alt=\"mine\" src=\"data:image/svg+xml;base64,"), "{page}");
    assert_eq!((page.matches("<img ").count(), page.matches("<figure").count()), (1, 2));
}

#[test]
fn a_killed_run_resumes() {
    let lab = Lab::new();
    classes(&lab, 30);
    let args = |folder: &'static str| [&SMALL[..], &["--folds", "3", "-q", "-o", folder]].concat();
    lab.ok(&args("whole"));
    // Killed after every write, then left to finish.
    let mut size = 0;
    for _ in 0..6 {
        let mut child = lab.std_command(&args("parts")).stdout(std::process::Stdio::null()).spawn().unwrap();
        let grown = || fs::metadata(lab.path("parts/results.jsonl")).map_or(0, |m| m.len());
        while grown() <= size && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        size = grown();
    }
    lab.ok(&args("parts"));
    for name in ["table.md", "table.csv", "table.tex", "index.html"] {
        assert!(
            fs::read(lab.path("whole").join(name)).unwrap() == fs::read(lab.path("parts").join(name)).unwrap(),
            "{name}"
        );
    }
    let read = |folder: &str| timeless(&fs::read_to_string(lab.path(folder).join("results.jsonl")).unwrap());
    assert_eq!(read("whole"), read("parts"));
}

#[test]
fn small_classes_and_failures_are_reported() {
    let lab = Lab::new();
    classes(&lab, 3);
    // Too small to train on, but left out in its turn.
    let out = lab.ok(&[&SMALL[..], &["--ood", "w", "x", "-o", "a"]].concat());
    assert!(stderr(&out).contains("used only as left out: w (3)"), "{}", stderr(&out));
    for name in ["table.md", "table.tex", "index.html"] {
        let text = fs::read_to_string(lab.path("a").join(name)).unwrap();
        assert!(text.contains("used only as left out: w (3)"), "{name}: {text}");
    }
    // Without x only classes are left that are too small for so many folds.
    lab.write("t.csv", &help::table(24, |i| format!("{i},{}", ["x", "x", "y", "z"][i % 4]), "a,kind"));
    let out = lab.command(&["bench", "t.csv", "--label", "kind", "--methods", "gda", "-o", "b"]).output().unwrap();
    assert_eq!(out.status.code(), Some(3), "{}", stderr(&out));
    assert!(stderr(&out).contains("cells failed, first: gda without x, fold 0") && stderr(&out).contains("--retry"));
    assert!(fs::read_to_string(lab.path("b/table.md")).unwrap().contains("has no rows to test"));
    assert!(stdout(&out).contains("n/a"));
    let again = lab.command(&["bench", "t.csv", "--label", "kind", "--methods", "gda", "-o", "b", "--retry", "-q"]);
    assert_eq!({ again }.output().unwrap().status.code(), Some(3));
}

#[test]
fn errors_are_reported() {
    let lab = Lab::new();
    classes(&lab, 30);
    let bench = |more: &[&'static str]| [&["bench", "t.csv", "--label", "kind"][..], more].concat();
    lab.fails(&bench(&["--methods", "sofmax"]), "sofmax");
    lab.fails(&bench(&["--methods", "msp"]), "detector");
    lab.fails(&bench(&["--folds", "1"]), "folds");
    lab.fails(&bench(&["--test-folds", "6"]), "must be 1 to 5");
    lab.fails(&bench(&["--seeds", "0"]), "seeds");
    lab.fails(&bench(&["--ood", "v"]), "no class");
    lab.fails(&bench(&["--epochs", "0"]), "epochs");
    lab.fails(&["bench", "no.csv"], "no such file");
    lab.write("two.csv", "a,label\n1,x\n2,y\n3,x\n4,y\n");
    lab.fails(&["bench", "two.csv"], "too small for 5 folds");
    lab.fails(&["bench", "gas", "--data", "nowhere"], "GasSensor");
    lab.write("bad.toml", "data = \"t.csv\"\nfold = 3\n");
    lab.fails(&["bench", "bad.toml"], "fold");
    lab.write("bad.toml", "data = ");
    lab.fails(&["bench", "bad.toml"], "bad.toml");
    lab.fails(&["bench", "none.toml"], "no such file");
    // A folder with other results.
    lab.ok(&bench(&["--methods", "gda", "--folds", "2", "-q", "-o", "out"]));
    lab.fails(&bench(&["--methods", "gda", "-o", "out"]), "2 folds");
    lab.fails(&["bench", "t.csv", "--label", "kind", "--methods", "softmax", "--folds", "2", "-o", "t.csv"], "t.csv");
    // Other files are not overwritten.
    fs::create_dir(lab.path("mine")).unwrap();
    lab.write("mine/index.html", "mine");
    lab.fails(&bench(&["--methods", "gda", "-o", "mine"]), "has files in it");
    lab.write("mine/results.jsonl", "{}");
    lab.fails(&bench(&["--methods", "gda", "-o", "mine"]), "not a results file");
    assert_eq!(fs::read_to_string(lab.path("mine/results.jsonl")).unwrap(), "{}");
    // Errors before the first cell.
    lab.fails(&bench(&["--folds", "41"]), "too small for 41 folds");
    lab.fails(&["bench", "shutle"], "no file or data set");
    lab.fails(&["bench", "gas", "t.csv"], "is a data set, not a file");
    lab.fails(&["bench", "gas", "--label", "x"], "known");
}

#[test]
fn tables_describe_what_was_run() {
    let lab = Lab::new();
    lab.write("n.csv", &help::table(90, |i| format!("{},{},{}", i % 3, i * 7 % 11, i % 3), "a,b,label"));
    lab.write(
        "study.toml",
        "data = \"n.csv\"\nlabel = \"label\"\nmethods = \"softmax+msp\"\nood = [1.0, 2]\nepochs = 2\n",
    );
    let out = lab.ok(&["bench", "study.toml", "--test-folds", "1", "-o", "out"]);
    assert!(stderr(&out).contains("2 of 2 cells"), "{}", stderr(&out));
    lab.ok(&["bench", "n.csv", "--ood", "1.0", "2", "--test-folds", "1", "--methods", "gda", "-o", "out", "-q"]);
    for name in ["table.md", "table.tex", "index.html"] {
        let text = fs::read_to_string(lab.path("out").join(name)).unwrap();
        assert!(text.contains("2 of 3 classes left out in turn, 1 of 5 folds"), "{name}: {text}");
        assert!(text.contains("softmax+msp: epochs 2 instead of 100"), "{name}: {text}");
    }
    // Columns of a user's table, and all other fields of a TOML file.
    lab.write("odd.txt", &help::table(90, |i| format!("{};{};{};{}", i % 3, i * 7 % 11, i % 3, i % 5), "a;b;label;c"));
    lab.write(
        "odd.toml",
        "data = \"odd.txt\"\nlabel = 3\nheader = true\nseparator = \";\"\ndrop = \"a\"\ncategorical = [\"c\"]\n\
         methods = \"softmax:select=best+msp\"\nschedule = \"cosine\"\nepochs = 2\ntest-folds = 1\nretry = true\n",
    );
    let from_file = lab.ok(&["bench", "odd.toml", "-o", "odd1"]);
    assert!(stderr(&from_file).contains("odd.txt: 90 rows, 2 features, 3 classes"), "{}", stderr(&from_file));
    let typed = [
        &[
            "bench",
            "odd.txt",
            "--label",
            "3",
            "--drop",
            "a",
            "--categorical",
            "c",
            "--methods",
            "softmax:select=best+msp",
        ][..],
        &["--schedule", "cosine", "--epochs", "2", "--test-folds", "1", "-o", "odd2", "-q"][..],
    ];
    lab.ok(&typed.concat());
    let table = |folder: &str| fs::read_to_string(lab.path(folder).join("table.md")).unwrap();
    assert_eq!(table("odd1"), table("odd2"));
    assert!(table("odd1").contains("select"), "{}", table("odd1"));
    lab.write("odd.toml", "data = \"odd.txt\"\nseparator = \"ab\"\n");
    lab.fails(&["bench", "odd.toml"], "separator");
    // Other settings of the same method, with another class.
    lab.fails(&["bench", "n.csv", "--methods", "softmax+msp", "--ood", "0", "-o", "out"], "other settings");
    let out = lab.ok(&["figure", "bars", "out", "-o", "b.png"]);
    assert!(stderr(&out).contains("wrote b.svg and b.png"), "{}", stderr(&out));
    assert!(fs::read_to_string(lab.path("b.svg")).unwrap().contains("softmax+msp"));
    lab.fails(&["figure", "bars", "out", "--methods", "alad"], "no results of alad");
    lab.fails(&["figure", "nu", "out"], "three values of nu");
}
