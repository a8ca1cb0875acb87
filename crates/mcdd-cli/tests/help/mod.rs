//! A temporary folder for each test, and the command in it.
#![allow(dead_code)] // each test file uses only some of it

use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;

pub struct Lab(tempfile::TempDir);

pub fn stdout(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned()
}

pub fn stderr(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

pub fn class(i: usize) -> &'static str {
    if i.is_multiple_of(2) { "even" } else { "odd" }
}

/// A table as CSV: a header and `rows` rows.
pub fn table(rows: usize, row: impl Fn(usize) -> String, header: &str) -> String {
    std::iter::once(header.to_owned()).chain((0..rows).map(row)).map(|l| l + "\n").collect()
}

impl Lab {
    pub fn new() -> Lab {
        Lab(tempfile::tempdir().unwrap())
    }

    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// A part of the data set Shuttle in a folder of data sets: 9 features, 3 of its classes, 30 rows of each.
    pub fn shuttle(&self, folder: &str) {
        let row = |i: usize| {
            let features = (0..9).map(|j| format!("{} ", (i * 7 + j * 13) % 19 + 10 * (i % 3) * (j % 2)));
            format!("{}{}\n", features.collect::<String>(), i % 3 + 1)
        };
        std::fs::create_dir_all(self.path(folder).join("shuttle")).unwrap();
        self.write(&format!("{folder}/shuttle/shuttle.trn"), &(0..90).map(row).collect::<String>());
    }

    pub fn program(&self) -> PathBuf {
        PathBuf::from(env!("CARGO_BIN_EXE_mcdd"))
    }

    pub fn command(&self, args: &[&str]) -> Command {
        Command::from_std(self.std_command(args))
    }

    pub fn std_command(&self, args: &[&str]) -> std::process::Command {
        let mut c = std::process::Command::new(self.program());
        c.current_dir(self.0.path()).args(args);
        c
    }

    /// Runs the command, which must succeed.
    pub fn ok(&self, args: &[&str]) -> Output {
        let out = self.command(args).output().unwrap();
        assert_eq!(out.status.code(), Some(0), "mcdd {}\n{}", args.join(" "), stderr(&out));
        out
    }

    /// Runs the command, which must exit with code 2, print an error that contains `part`, and a hint as the last line.
    pub fn fails(&self, args: &[&str], part: &str) -> String {
        let out = self.command(args).output().unwrap();
        let text = stderr(&out);
        assert_eq!(out.status.code(), Some(2), "mcdd {}\n{text}", args.join(" "));
        assert!(text.contains("error: ") && text.contains(part), "mcdd {}\n{text}", args.join(" "));
        assert!(text.lines().last().unwrap().starts_with("hint: "), "mcdd {}\n{text}", args.join(" "));
        assert!(out.stdout.is_empty());
        text
    }

    /// Writes the embedded digits: train.csv and test.csv without the sevens, ood.csv with the sevens.
    pub fn digits(&self) {
        let (known, unknown) = mcdd::data::digits().leave_out("7").unwrap();
        let (train, test) = known.split(0.2, 0).unwrap();
        for (name, table) in [("train.csv", train), ("test.csv", test), ("ood.csv", unknown)] {
            let mut bytes = Vec::new();
            table.write_csv(&mut bytes).unwrap();
            std::fs::write(self.path(name), bytes).unwrap();
        }
    }

    /// The same, and trains a model on them: m.mcdd.
    pub fn model(&self) {
        self.digits();
        self.ok(&["train", "train.csv", "-o", "m.mcdd", "--epochs", "8", "--quiet"]);
    }
}
