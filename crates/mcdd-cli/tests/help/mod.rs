//! A temporary folder for each test, and the command in it.
#![allow(dead_code)] // each test file uses only some of it

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};

use assert_cmd::Command;

pub struct Lab(tempfile::TempDir);

/// The browser: `MCDD_BROWSER`, or one of the common names.
pub fn browser() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("MCDD_BROWSER").filter(|b| !b.is_empty()) {
        return Some(given.into());
    }
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).flat_map(|p| names.map(|n| p.join(n))).find(|p| p.is_file());
    if found.is_none() {
        eprintln!("skipped: no Chromium found; install it, or set MCDD_BROWSER");
    }
    found
}

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

/// The head and the body of an answer.
pub fn request(address: &str, method: &str, path: &str, content_type: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
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

    /// A server on a free port, and its address.
    pub fn serve(&self, model: &str) -> (Child, String) {
        let args = ["serve", model, "--listen", "127.0.0.1:0"];
        let mut server = self.std_command(&args).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
        let address = lines.by_ref().find_map(|l| l.unwrap().split_once("http://").map(|(_, a)| a.to_owned())).unwrap();
        // The log is read to its end, so that the server never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        (server, address)
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

    /// An ONNX network for images (channels, height and width) or rows, which ends with a linear layer to `logits`.
    pub fn network(&self, name: &str, input: &[usize]) {
        use mcdd::onnx::{Attribute, Builder, Dim, Type};
        let mut g = Builder::new();
        g.reserve(&["logits"]);
        let dims: Vec<Dim> = [Dim::Rows].into_iter().chain(input.iter().map(|&d| Dim::Size(d))).collect();
        let x = g.input("x", Type::F32, &dims);
        let wave = |n: usize| (0..n).map(|i| ((i * i + 3 * i) as f32).sin() * 0.4).collect::<Vec<f32>>();
        let hidden = match input {
            [channels, ..] if input.len() == 3 => {
                let w = g.constant_f32(&[8, *channels, 3, 3], &wave(8 * channels * 9));
                let h = g.op_with(
                    "Conv",
                    &[x, w],
                    &[("kernel_shape", Attribute::Ints(vec![3; 2])), ("pads", Attribute::Ints(vec![1; 4]))],
                );
                let h = g.op("Relu", &[h]);
                let h = g.op("GlobalAveragePool", &[h]);
                g.op("Flatten", &[h])
            }
            _ => {
                let w = g.constant_f32(&[input[0], 8], &wave(8 * input[0]));
                let h = g.op("MatMul", &[x, w]);
                g.op("Tanh", &[h])
            }
        };
        let w = g.constant_f32(&[8, 3], &wave(24));
        let y = g.op("Gemm", &[hidden, w]);
        g.output("logits", y, Type::F32, &[Dim::Rows, Dim::Size(3)]);
        std::fs::write(self.path(name), g.finish("network", &[]).unwrap()).unwrap();
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
