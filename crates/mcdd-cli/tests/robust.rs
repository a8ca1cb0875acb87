//! Robustness: bad input, damaged files, kills, closed pipes, long input.

mod help;

use help::{Lab, class, stderr, stdout, table};
use mcdd::compute::Level;
use std::fs;

#[test]
fn bad_input_is_exit_2_with_a_place_and_a_hint_and_writes_nothing() {
    let lab = Lab::new();
    let good = |i: usize| format!("{},{},{}", i % 5, i % 3, class(i));
    let with = |at: usize, line: &str| table(60, |i| if i == at { line.into() } else { good(i) }, "a,b,label");
    let cases: Vec<(&str, Vec<u8>, &[&str])> = vec![
        ("ragged.csv", with(10, "1,2").into_bytes(), &["row 11 (line 12)"]),
        ("text.csv", with(10, "1,oops,odd").into_bytes(), &["row 11 (line 12)", "column b", "oops"]),
        ("infinite.csv", with(7, "inf,1,odd").into_bytes(), &["row 8 (line 9)", "column a"]),
        ("empty.csv", vec![], &[]),
        ("header.csv", b"a,b,label\n".to_vec(), &[]),
        ("one.csv", table(60, |i| format!("{i},1,same"), "a,b,label").into_bytes(), &["one class", "column label"]),
        ("few.csv", with(3, "1,2,rare").into_bytes(), &["rare"]),
        ("binary.csv", (0..=255u8).cycle().take(3000).collect(), &[]),
        ("mixed.csv", [with(70, "").as_bytes(), b"1,\xc3\xa9,caf\xe9\n"].concat(), &["row 61 (line 62)", "column b"]),
        ("nolabel.csv", table(60, |i| format!("{i},{}", i % 3), "a,b").into_bytes(), &["label"]),
        ("constant.csv", table(60, |i| format!("1,2,{}", class(i)), "a,b,label").into_bytes(), &["constant"]),
    ];
    for (name, bytes, expected) in cases {
        fs::write(lab.path(name), bytes).unwrap();
        let e = lab.fails(&["train", name, "-o", "never.mcdd", "--quiet"], name);
        for part in expected {
            assert!(e.contains(part), "{name}: {part:?} is not in\n{e}");
        }
        assert_eq!(e.lines().count(), 2, "exactly an error and a hint:\n{e}");
    }
    lab.fails(&["train", "nowhere.csv"], "nowhere.csv");
    lab.write("good.csv", &table(60, good, "a,b,label"));
    lab.fails(&["train", "good.csv", "-o", "no/such/folder/m"], "no/such/folder");
    // Errors of the library name settings; the command prints its options.
    let e = lab.fails(&["train", "good.csv", "--lr", "0"], "--lr is 0");
    assert!(e.contains("hint: --lr must be") && !e.contains('`'), "{e}");
    lab.fails(&["train", "good.csv", "--calibration-fraction", "2"], "--calibration-fraction is 2");
    lab.fails(&["train", "good.csv", "--weight-decay=-1"], "--weight-decay is -1");
    let e = lab.fails(&["train", "good.csv", "--detector", "softmax"], "softmax is a method, not a detector");
    assert!(e.contains("hint: give --method softmax"), "{e}");
    lab.fails(&["train", "good.csv", "--method", "magic"], "magic");
    lab.fails(&["train", "good.csv", "--label", "color"], "color");
    lab.fails(&["predict", "good.csv", "good.csv"], "not an mcdd model file");
    let left = fs::read_dir(lab.folder()).unwrap().map(|e| e.unwrap().path());
    let left: Vec<_> = left.filter(|p| p.extension().is_none_or(|e| e != "csv")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn one_seed_one_file() {
    let lab = Lab::new();
    lab.digits();
    let train = |name: &str, more: &[&str]| {
        let base = ["train", "train.csv", "-o", name, "--epochs", "3", "--quiet"];
        let out = lab.ok(&[&base[..], more].concat());
        assert!(out.stderr.is_empty());
        fs::read(lab.path(name)).unwrap()
    };
    let one = train("1", &["--threads", "1"]);
    assert!(one == train("2", &["--threads", "2"]));
    assert!(one == train("again", &["--threads", "2"]));
    assert!(one != train("other", &["--seed", "1"]));
}

/// Models and predictions have the same bytes, whatever instructions the processor has.
#[test]
fn every_level_of_instructions_gives_the_same_bytes() {
    let lab = Lab::new();
    lab.digits();
    let best = ["train", "train.csv", "--epochs", "1", "--members", "2"];
    let paper = ["train", "train.csv", "--preset", "paper", "--epochs", "1", "--detector", "mahalanobis"];
    let softmax = ["train", "train.csv", "--method", "softmax", "--epochs", "1", "--detector", "ocsvm"];
    let at = |level: Level, args: &[&str]| {
        let out = lab.command(args).env("MCDD_SIMD", level.name()).output().unwrap();
        assert!(out.status.success(), "{level:?}: {}", stderr(&out));
        out.stdout
    };
    for train in [&best[..], &paper, &softmax] {
        let mut first: Option<(Vec<u8>, Vec<u8>)> = None;
        for level in Level::ALL {
            if !level.is_available() {
                eprintln!("skipped: this machine has no {}", level.name());
                continue;
            }
            at(level, &[train, &["-o", "level.mcdd", "--quiet"]].concat());
            let predictions = at(level, &["predict", "level.mcdd", "test.csv", "--quiet"]);
            let both = (fs::read(lab.path("level.mcdd")).unwrap(), predictions);
            assert!(first.get_or_insert_with(|| both.clone()) == &both, "{train:?} at {level:?}");
        }
    }
    let wrong = |value: &str| {
        let out = lab.command(&["methods"]).env("MCDD_SIMD", value).output().unwrap();
        assert_eq!(out.status.code(), Some(2));
        stderr(&out)
    };
    let e = wrong("sse9");
    assert!(e.contains("MCDD_SIMD is \"sse9\"; it can be portable"), "{e}");
    if let Some(missing) = Level::ALL.into_iter().find(|l| !l.is_available()) {
        let e = wrong(missing.name());
        assert!(e.contains(&format!("this machine has no {}", missing.name())), "{e}");
    }
}

/// A run that is killed with SIGKILL and resumed gives the same bytes as an uninterrupted one.
#[cfg(unix)]
#[test]
fn a_killed_run_resumes_to_the_same_bytes() {
    use std::time::Duration;
    let lab = Lab::new();
    lab.digits();
    let args = |name: &'static str| ["train", "train.csv", "-o", name, "--epochs", "40", "--members", "2", "--quiet"];
    lab.ok(&args("whole"));
    let again = [&args("resumed")[..], &["--checkpoint", "c", "--resume"]].concat();
    let mut kills = 0;
    for attempt in 0..200u64 {
        let mut child = lab.std_command(&again).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(40 + attempt * 37 % 150));
        if child.try_wait().unwrap().is_some() {
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
    }
    lab.ok(&again);
    assert!(kills > 0);
    assert!(fs::read(lab.path("whole")).unwrap() == fs::read(lab.path("resumed")).unwrap(), "after {kills} kills");
    // Without --resume the checkpoints of an earlier run are not overwritten.
    lab.fails(&[&args("resumed")[..], &["--checkpoint", "c"]].concat(), "earlier run");
}

/// Ctrl-C stops after the current step, writes a usable model, says so, and is an exit code of its own.
#[cfg(unix)]
#[test]
fn an_interrupt_writes_a_model() {
    use std::io::{BufRead, BufReader, Read};
    let lab = Lab::new();
    lab.digits();
    let mut child = lab
        .std_command(&["train", "train.csv", "-o", "m.mcdd", "--preset", "fast", "--epochs", "100000"])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut messages = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("epoch 1 of 100000:") {
        line.clear();
        assert!(messages.read_line(&mut line).unwrap() > 0, "training did not start");
    }
    let interrupt = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    let mut rest = String::new();
    messages.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest}");
    assert!(rest.contains("training was stopped"), "{rest}");
    assert!(rest.contains("warning: interrupted: m.mcdd has the model as far as it was trained"), "{rest}");
    lab.ok(&["predict", "m.mcdd", "test.csv"]);
}

#[test]
fn damaged_models_are_errors() {
    let lab = Lab::new();
    lab.model();
    let bytes = fs::read(lab.path("m.mcdd")).unwrap();
    for cut in [0, 7, 8, 100, bytes.len() / 2, bytes.len() - 1] {
        fs::write(lab.path("cut.mcdd"), &bytes[..cut]).unwrap();
        lab.fails(&["inspect", "cut.mcdd"], "cut.mcdd");
    }
    let mut flipped = bytes.clone();
    flipped[bytes.len() - 1000] ^= 4;
    fs::write(lab.path("flipped.mcdd"), flipped).unwrap();
    lab.fails(&["predict", "flipped.mcdd", "test.csv"], "damaged");
}

#[cfg(unix)]
#[test]
fn a_closed_pipe_is_not_an_error() {
    let lab = Lab::new();
    lab.model();
    let many = " test.csv".repeat(200);
    let script = format!("\"$0\" predict m.mcdd{many} | head -n 1; echo \"${{PIPESTATUS[0]}}\"");
    let out = std::process::Command::new("bash")
        .args(["-c", &script])
        .arg(lab.program())
        .current_dir(lab.folder())
        .output()
        .unwrap();
    assert_eq!(stdout(&out), "label,verdict,confidence,p_value\n0\n");
    assert!(out.stderr.is_empty(), "{}", stderr(&out));
}

/// `predict` on a table ten times as long takes about the same memory, once all blocks between reading and writing are in use.
#[cfg(target_os = "linux")]
#[test]
fn memory_does_not_grow_with_the_input() {
    use std::io::Write;
    let lab = Lab::new();
    lab.model();
    let text = fs::read_to_string(lab.path("test.csv")).unwrap();
    let (header, rows) = text.split_once('\n').unwrap();
    let peak = |times: usize| {
        let mut child = lab
            .std_command(&["predict", "m.mcdd", "-", "-o", "/dev/null", "--threads", "2", "--keep", "all"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        writeln!(stdin, "{header}").unwrap();
        for _ in 0..times {
            stdin.write_all(rows.as_bytes()).unwrap();
        }
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        drop(stdin);
        assert!(child.wait().unwrap().success());
        let line = status.lines().find(|l| l.starts_with("VmHWM")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()
    };
    let (short, long) = (peak(100), peak(1000));
    assert!(long < short + 20_000, "{short} KB, then {long} KB");
}
