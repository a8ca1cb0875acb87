//! `mcdd monitor`, `mcdd predict --fdr` and `mcdd serve` from the outside.

mod help;

use std::fs;
use std::process::Command;

use help::{Lab, stderr, stdout, table};
use mcdd::seed::Stream;

/// A row of one of two classes.
fn row(i: usize, shift: f64) -> String {
    let mut random = Stream::new(i as u64, "row");
    format!("{:.4},{:.4}", random.normal() + 6.0 * (i % 2) as f64, random.normal() + shift)
}

fn lab() -> Lab {
    let lab = Lab::new();
    lab.write("train.csv", &table(600, |i| format!("{},{}", row(i, 0.0), help::class(i)), "a,b,label"));
    lab.write("same.csv", &table(300, |i| row(i + 10_000, 0.0), "a,b"));
    lab.write("other.csv", &table(200, |i| row(i + 20_000, if i % 3 == 0 { 40.0 } else { 0.0 }), "a,b"));
    lab.write("reference.csv", &table(300, |i| row(i + 30_000, 0.0), "a,b"));
    lab.ok(&["train", "train.csv", "--preset", "fast", "--epochs", "5", "-q", "-o", "m.mcdd"]);
    lab
}

#[test]
fn a_stream_is_watched_over_several_runs() {
    let lab = lab();
    let first = lab.ok(&["monitor", "m.mcdd", "same.csv", "--state", "s.json", "-q"]);
    assert!(
        stdout(&first).contains("rows      300") && stdout(&first).contains("alarm     none"),
        "{}",
        stdout(&first)
    );
    // The output of predict, by way of stdin, gives the same state as the rows.
    let predictions = lab.ok(&["predict", "m.mcdd", "same.csv", "-q"]).stdout;
    let piped =
        lab.command(&["monitor", "m.mcdd", "-", "--state", "p.json", "-q"]).write_stdin(predictions).output().unwrap();
    assert_eq!(piped.status.code(), Some(0), "{}", stderr(&piped));
    assert!(fs::read(lab.path("s.json")).unwrap() == fs::read(lab.path("p.json")).unwrap());

    let args = [
        "monitor",
        "m.mcdd",
        "other.csv",
        "--state",
        "s.json",
        "--fail-on-alarm",
        "--report",
        "r.html",
        "--figure",
        "f.png",
    ];
    let alarm = lab.command(&args).output().unwrap();
    assert_eq!(alarm.status.code(), Some(1), "{}", stdout(&alarm));
    assert!(
        stderr(&alarm).contains("alarm at row 3") && stdout(&alarm).contains("rows      500"),
        "{}",
        stderr(&alarm)
    );
    assert!(fs::read_to_string(lab.path("r.html")).unwrap().contains("Alarm at row 3"));
    assert!(fs::read(lab.path("f.png")).unwrap().starts_with(b"\x89PNG"));
    // It stays until the restart.
    let json = stdout(&lab.ok(&["monitor", "m.mcdd", "--state", "s.json", "--json"]));
    assert!(json.contains("\"rows\": 500") && !json.contains("\"alarm\": null"), "{json}");
    let again = stdout(&lab.ok(&["monitor", "m.mcdd", "--state", "s.json", "--restart", "--json"]));
    assert!(again.contains("\"alarm\": null") && again.contains("\"restarts\": 1"), "{again}");

    lab.ok(&["train", "train.csv", "--preset", "fast", "--epochs", "2", "-q", "-o", "n.mcdd"]);
    for (args, part) in [
        (&["monitor", "n.mcdd", "same.csv", "--state", "s.json"][..], "another model"),
        (&["monitor", "m.mcdd"], "no rows"),
        (&["monitor", "m.mcdd", "same.csv", "--alpha", "2"], "--alpha"),
        (&["monitor", "m.mcdd", "same.csv", "--state", "s.json", "--alpha", "0.1"], "--state"),
        (&["monitor", "m.mcdd", "same.csv", "--state", "same.csv"], "overwrite"),
        (&["monitor", "m.mcdd", "same.csv", "--figure", "f.gif"], ".svg"),
    ] {
        let failed = lab.command(args).output().unwrap();
        assert!(failed.status.code() == Some(2) && stderr(&failed).contains(part), "{args:?}: {}", stderr(&failed));
    }
}

#[test]
fn the_column_that_changed_is_named() {
    let lab = lab();
    let out = lab.ok(&["monitor", "m.mcdd", "same.csv", "other.csv", "--reference", "reference.csv", "-q"]);
    let text = stdout(&out);
    assert!(text.contains("column b: other values") && !text.contains("column a"), "{text}");
}

#[test]
fn selection_at_a_false_discovery_rate() {
    let lab = lab();
    let out = lab.ok(&["predict", "m.mcdd", "other.csv", "--fdr", "0.1"]);
    // A third of 200 rows is far away: 67 rows.
    let unknown = stdout(&out).lines().filter(|l| l.contains(",unknown,")).count();
    assert!((60..=75).contains(&unknown), "{unknown}");
    assert!(stderr(&out).contains(&format!("selected {unknown} of 200 rows")), "{}", stderr(&out));
    assert_eq!(
        stdout(&lab.ok(&["predict", "m.mcdd", "same.csv", "--fdr", "0.05", "-q"])).matches(",unknown,").count(),
        0
    );
    for (args, part) in [
        (&["predict", "m.mcdd", "same.csv", "--fdr", "7"][..], "--fdr"),
        (&["predict", "m.mcdd", "-", "--fdr", "0.1"], "twice"),
        (&["predict", "m.mcdd", "same.csv", "--fdr", "0.1", "--tpr", "0.9"], "--tpr"),
    ] {
        let failed = lab.command(args).write_stdin("a,b\n1,2\n").output().unwrap();
        assert!(failed.status.code() == Some(2) && stderr(&failed).contains(part), "{args:?}: {}", stderr(&failed));
    }
}

#[test]
fn serve_says_what_it_cannot_do() {
    let lab = lab();
    lab.write("token.txt", "short");
    fs::create_dir(lab.path("empty")).unwrap();
    for (args, part) in [
        (&["serve", "none.mcdd"][..], "none.mcdd"),
        (&["serve", "train.csv"], "train.csv"),
        (&["serve", "empty"], "no model"),
        (&["serve", "m.mcdd", "--token-file", "token.txt"], "16"),
        (&["serve", "m.mcdd", "--alpha", "1"], "--alpha"),
        (&["serve", "m.mcdd", "--listen", "192.0.2.1:1"], "--listen"),
    ] {
        let failed = lab.command(args).output().unwrap();
        assert!(failed.status.code() == Some(2) && stderr(&failed).contains(part), "{args:?}: {}", stderr(&failed));
    }
}

/// `SIGTERM` ends the server with code 0.
#[cfg(unix)]
#[test]
fn serve_ends_when_it_is_told_to() {
    let lab = lab();
    let (mut server, address) = lab.serve("m.mcdd");
    let text = help::request(&address, "GET", "/v2/models/m", "text/plain", b"");
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("\"even\""), "{text}");
    assert!(Command::new("kill").arg(server.id().to_string()).status().unwrap().success());
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

/// The page in Chromium: the form has the model's columns, and the browser has nothing to complain about.
#[test]
fn the_page_of_the_server_has_the_columns_of_the_model() {
    let Some(browser) = help::browser() else { return };
    let lab = lab();
    let (mut server, address) = lab.serve("m.mcdd");
    let out = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=3000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", lab.path("profile").display()))
        .arg(format!("http://{address}/"))
        .output()
        .unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let (page, log) = (stdout(&out), stderr(&out));
    for part in
        ["It knows 2 classes: even, odd. Trained on 540 rows.", "<input name=\"a\">", "<input name=\"b\">", "No alarm."]
    {
        assert!(page.contains(part), "{part} in {page}");
    }
    let complaints: Vec<&str> = log.lines().filter(|l| l.contains("CONSOLE")).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
}
