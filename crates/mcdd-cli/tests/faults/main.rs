//! Kills, full and read-only disks, short and interrupted calls, and two processes on one output. An output is the old one,
//! the new one or absent, and never a part; and the next run ends in the same bytes as one without a fault.
#![cfg(target_os = "linux")]

#[path = "../help/mod.rs"]
mod help;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Cursor, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use help::{Lab, class, stderr, table};

/// Random points in time, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most.max(1)
    }
}

/// A command, and what it writes.
struct Job {
    args: Vec<String>,
    output: &'static str,
    /// What is in the folder of the output and differs from run to run: times.
    ignored: &'static [&'static str],
}

fn jobs() -> Vec<Job> {
    let job = |args: &str, output, ignored| Job { args: args.split(' ').map(String::from).collect(), output, ignored };
    vec![
        job("train t.csv --preset fast --epochs 3 --quiet -o out.mcdd", "out.mcdd", &[]),
        job("train t.csv --epochs 3 --members 2 --quiet --checkpoint c --resume -o long.mcdd", "long.mcdd", &[]),
        job("predict m.mcdd many.csv --keep all -o out.csv", "out.csv", &[]),
        job("predict m.mcdd many.csv -o out.parquet", "out.parquet", &[]),
        job("predict m.mcdd many.csv -o out.jsonl", "out.jsonl", &[]),
        job("datasets get drive --data d --from mirror", "d/drive", &[]),
        job(
            "bench t.csv --methods softmax --folds 2 --epochs 2 --quiet --jobs 1 -o study",
            "study",
            &["results.jsonl", "index.html", ".lock"],
        ),
    ]
}

/// All that the jobs read.
fn prepare() -> Lab {
    let lab = Lab::new();
    let row = |i: usize| format!("{},{},{}", i % 5 + 3 * (i % 3), i % 7, ["x", "y", "z"][i % 3]);
    lab.write("t.csv", &table(90, row, "a,b,label"));
    lab.write("many.csv", &table(20_000, |i| format!("{},{},{}", i % 9, i % 7, class(i)), "a,b,kept"));
    lab.ok(&["train", "t.csv", "--preset", "fast", "--epochs", "2", "--quiet", "-o", "m.mcdd"]);
    fs::create_dir(lab.path("mirror")).unwrap();
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("Sensorless_drive_diagnosis.txt", zip::write::SimpleFileOptions::default()).unwrap();
    let line =
        |i: usize| (0..48).map(|f| format!("{} ", (i * 31 + f) % 101)).collect::<String>() + &format!("{}\n", i % 11);
    (0..2000).for_each(|i| zip.write_all(line(i).as_bytes()).unwrap());
    let bytes = zip.finish().unwrap().into_inner();
    fs::write(lab.path("mirror/dataset+for+sensorless+drive+diagnosis.zip"), bytes).unwrap();
    lab
}

/// A file, or all files of a folder that do not differ from run to run.
fn contents(path: &Path, ignored: &[&str]) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut open = vec![path.to_owned()];
    while let Some(next) = open.pop() {
        let name = next.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if next.is_dir() {
            open.extend(fs::read_dir(&next).unwrap().map(|e| e.unwrap().path()));
        } else if next.exists() && !ignored.contains(&name.as_str()) {
            all.insert(next.clone(), fs::read(next).unwrap());
        }
    }
    all
}

fn remove(path: &Path) {
    let _ = fs::remove_file(path);
    let _ = fs::remove_dir_all(path);
}

fn clean(lab: &Lab, job: &Job) {
    for path in [job.output, "c", "d"] {
        remove(&lab.path(path));
    }
}

fn unfinished(folder: &Path) -> Vec<PathBuf> {
    let name = |p: &Path| p.file_name().unwrap_or_default().to_string_lossy().into_owned();
    contents(folder, &[]).into_keys().filter(|p| name(p).starts_with(".mcdd-")).collect()
}

fn run(lab: &Lab, job: &Job) {
    // A set of which only a part was published here is not fetched twice.
    if job.output == "d/drive" && lab.path(job.output).exists() {
        return;
    }
    let args: Vec<&str> = job.args.iter().map(String::as_str).collect();
    lab.ok(&args);
}

/// Kills in all, over all jobs.
const KILLS: u64 = 200;

#[test]
fn after_kills_the_next_run_ends_in_the_same_bytes() {
    let lab = prepare();
    let mut random = Random(25);
    let jobs = jobs();
    let mut hit = 0;
    for job in &jobs {
        let start = Instant::now();
        run(&lab, job);
        let mut usual = start.elapsed().as_millis() as u64;
        let whole = contents(&lab.path(job.output), job.ignored);
        assert!(!whole.is_empty(), "{:?}", job.args);
        clean(&lab, job);
        for kill in 0..KILLS.div_ceil(jobs.len() as u64) {
            let mut child = Command::new(lab.program())
                .args(&job.args)
                .current_dir(lab.folder())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_millis(random.below(usual + usual / 8 + 2)));
            child.kill().unwrap();
            match child.wait().unwrap().signal() {
                Some(_) => hit += 1,
                // It had ended before: the first run was slower than usual.
                None => usual -= usual / 4,
            }
            // Of a file there is nothing or all of it; a study is complete at its end only.
            let left = contents(&lab.path(job.output), job.ignored);
            let file = lab.path(job.output).is_file() || job.output == "d/drive";
            assert!(left.is_empty() || !file || left == whole, "kill {kill} of {:?}", job.args);
            if kill % 8 == 7 {
                run(&lab, job);
                assert!(contents(&lab.path(job.output), job.ignored) == whole, "kill {kill} of {:?}", job.args);
                clean(&lab, job);
            }
        }
        run(&lab, job);
        assert!(contents(&lab.path(job.output), job.ignored) == whole, "{:?}", job.args);
        assert_eq!(unfinished(lab.folder()), Vec::<PathBuf>::new(), "after {:?}", job.args);
        clean(&lab, job);
    }
    println!("{hit} of {KILLS} kills hit a run under way");
    assert!(hit >= KILLS / 2, "only {hit} of {KILLS} kills hit a run under way");
}

/// The library that makes calls fail; none without a C compiler.
fn shim(lab: &Lab) -> Option<PathBuf> {
    let (source, library) = (concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/shim.c"), lab.path("shim.so"));
    let made = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).args([source, "-ldl"]).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no C compiler for the library that makes calls fail");
        return None;
    }
    Some(library)
}

/// The library stands before every call that the standard library writes files with.
#[test]
fn faults_reach_every_way_to_write() {
    use std::io::{ErrorKind, IoSlice};
    use std::os::unix::fs::FileExt;
    const PLACE: &str = "MCDD_FAULT_PLACE";
    if let Some(folder) = std::env::var_os(PLACE) {
        // This is the process with the library.
        let (folder, fault) = (PathBuf::from(folder), std::env::var("MCDD_FAULT").unwrap());
        let file = fs::File::create(folder.join("new")).unwrap();
        let content = [7; 100];
        let calls: [(&str, &dyn Fn() -> std::io::Result<usize>); 4] = [
            ("write", &|| (&file).write(&content)),
            ("writev", &|| (&file).write_vectored(&[IoSlice::new(&content[..2]), IoSlice::new(&content)])),
            ("pwrite", &|| file.write_at(&content, 0)),
            ("copy_file_range", &|| fs::copy(folder.join("old"), folder.join("copy")).map(|n| n as usize)),
        ];
        for (name, call) in calls {
            match &fault[..] {
                "full:0" => assert_eq!(call().unwrap_err().kind(), ErrorKind::StorageFull, "{name}"),
                // A copy goes on after a short call.
                "short" if name == "copy_file_range" => assert_eq!(call().unwrap(), 100),
                // Every fifth call transfers more.
                "short" => assert!(call().unwrap() == 3 || call().unwrap() == 3, "{name}"),
                _ => {
                    let interrupted =
                        |outcome: std::io::Result<usize>| outcome.is_err_and(|e| e.kind() == ErrorKind::Interrupted);
                    assert!(interrupted(call()) || interrupted(call()), "{name}");
                }
            }
        }
        assert!(fault != "short" || fs::read(folder.join("copy")).unwrap() == content);
        return;
    }
    let lab = Lab::new();
    let Some(library) = shim(&lab) else { return };
    fs::write(lab.path("old"), [7; 100]).unwrap();
    for fault in ["full:0", "short", "eintr"] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "faults_reach_every_way_to_write"]).env(PLACE, lab.folder());
        let out = child.env("LD_PRELOAD", &library).env("MCDD_FAULT", fault).output().unwrap();
        assert!(out.status.success(), "{fault}: {}{}", String::from_utf8_lossy(&out.stdout), stderr(&out));
    }
}

fn faulty(lab: &Lab, job: &Job, library: &Path, fault: &str) -> (Option<i32>, String) {
    let mut command = Command::new(lab.program());
    command.args(&job.args).current_dir(lab.folder()).env("LD_PRELOAD", library).env("MCDD_FAULT", fault);
    let out = command.output().unwrap();
    (out.status.code(), stderr(&out))
}

#[test]
fn full_and_read_only_disks_and_interrupted_calls() {
    let lab = prepare();
    let Some(library) = shim(&lab) else { return };
    let mut random = Random(7);
    for job in &jobs() {
        run(&lab, job);
        let whole = contents(&lab.path(job.output), job.ignored);
        let mut size: u64 = contents(&lab.path(job.output), &[]).values().map(|b| b.len() as u64).sum();
        if !job.ignored.is_empty() {
            // Times have more or fewer digits in another run.
            size -= size / 5;
        }
        clean(&lab, job);
        for fault in ["short", "eintr"] {
            let (code, text) = faulty(&lab, job, &library, fault);
            assert_eq!(code, Some(0), "{fault}: {:?}\n{text}", job.args);
            assert!(contents(&lab.path(job.output), job.ignored) == whole, "{fault}: {:?}", job.args);
            clean(&lab, job);
        }
        for room in [0, 1, random.below(size), random.below(size), size - 1] {
            let (code, text) = faulty(&lab, job, &library, &format!("full:{room}"));
            // A run that is resumed writes less than all files together.
            assert!(
                matches!(code, Some(2 | 3)) && text.contains("no space left"),
                "{room}: {code:?} {:?}\n{text}",
                job.args
            );
            // Before it is the name of the file.
            assert!(!text.contains("error: no space left"), "without a file: {text}");
            let left = contents(&lab.path(job.output), job.ignored);
            assert!(left.is_empty() || job.output == "study", "{room} bytes: {:?}", job.args);
            run(&lab, job);
            assert!(contents(&lab.path(job.output), job.ignored) == whole, "after {room} bytes: {:?}", job.args);
            assert_eq!(unfinished(lab.folder()), Vec::<PathBuf>::new(), "after {:?}", job.args);
            // The old output stays where the new one cannot be written.
            if lab.path(job.output).is_file() {
                let (code, text) = faulty(&lab, job, &library, &format!("full:{}", room.min(20)));
                assert!(code == Some(2) || job.output == "long.mcdd", "{text}");
                assert!(contents(&lab.path(job.output), job.ignored) == whole, "{:?}", job.args);
            }
            clean(&lab, job);
        }
        let (code, text) = faulty(&lab, job, &library, "read-only");
        assert!(code == Some(2) && text.contains("read-only"), "{:?}: {code:?}\n{text}", job.args);
        assert!(text.lines().last().unwrap().starts_with("hint: "), "{text}");
        assert!(contents(&lab.path(job.output), job.ignored).is_empty());
        clean(&lab, job);
    }
}

#[test]
fn two_processes_on_one_output() {
    let lab = prepare();
    let args = |seed: &'static str| {
        ["train", "t.csv", "--preset", "fast", "--epochs", "3", "--quiet", "-o", "same.mcdd", "--seed", seed]
    };
    let alone = ["1", "2"].map(|seed| {
        lab.ok(&args(seed));
        fs::read(lab.path("same.mcdd")).unwrap()
    });
    assert!(alone[0] != alone[1]);
    for _ in 0..5 {
        let children = ["1", "2"].map(|seed| lab.std_command(&args(seed)).spawn().unwrap());
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        let found = fs::read(lab.path("same.mcdd")).unwrap();
        assert!(alone.contains(&found), "a mixture of two models");
    }
    // Of two studies in one folder one is refused, and the other is complete.
    let study =
        ["bench", "t.csv", "--methods", "softmax", "--folds", "2", "--epochs", "40", "--jobs", "1", "-o", "study"];
    let children =
        [(); 2].map(|()| lab.std_command(&study).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    let outcomes = children.map(|child| child.wait_with_output().unwrap());
    let refused =
        |out: &std::process::Output| out.status.code() == Some(2) && stderr(out).contains("in use by another run");
    // A study that ends before the other one begins leaves it nothing to do.
    assert!(outcomes.iter().all(|out| out.status.success() || refused(out)));
    assert!(outcomes.iter().any(|out| out.status.success()));
    assert_eq!(unfinished(lab.folder()), Vec::<PathBuf>::new());
}
