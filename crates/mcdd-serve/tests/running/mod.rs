//! A server on a free port, and a client.
#![allow(dead_code)] // each test file uses a part

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mcdd::compute::pool::Pool;
use mcdd::data::{ReadOptions, Table};
use mcdd::model::Model;
use mcdd::stream::{self, Columns, Destination, Format, Output};
use mcdd::train::{Preset, Settings};
use mcdd_serve::{Config, Limits, Server};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// A table with numbers, a category and missing cells, in three classes.
pub fn csv(rows: usize, from: usize) -> String {
    let mut out = String::from("length,width,color,species\n");
    for i in from..from + rows {
        let (kind, noise) = (i % 3, (i * 7919 % 1000) as f64 / 1000.0);
        let width = if i % 17 == 0 { String::new() } else { format!("{}", 2.0 * kind as f64 - noise / 3.0) };
        let _ = writeln!(out, "{},{width},{},{}", kind as f64 + noise, ["red", "blue"][i % 2], ["a", "b", "c"][kind]);
    }
    out
}

/// Rows without their class.
pub fn unlabeled(rows: usize, from: usize) -> String {
    let cut = |line: &str| line.rsplit_once(',').map(|(row, _)| row.to_owned() + "\n");
    csv(rows, from).lines().filter_map(cut).collect()
}

pub fn model_file(folder: &Path, name: &str, seed: u64) -> PathBuf {
    static MODELS: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
    let models = MODELS.get_or_init(|| {
        [1, 2].map(|seed| {
            let table = Table::from_bytes(
                csv(400, 0).into_bytes(),
                "train.csv",
                &ReadOptions { label: "species".parse().unwrap_or_default(), ..Default::default() },
            )
            .unwrap();
            let settings = Settings::builder().preset(Preset::Fast).epochs(3).seed(seed).build().unwrap();
            Model::fit(&table, &settings).unwrap().to_bytes().unwrap()
        })
    });
    let path = folder.join(name);
    let beside = folder.join(format!("{name}.part"));
    std::fs::write(&beside, &models[seed as usize - 1]).unwrap();
    std::fs::rename(beside, &path).unwrap();
    path
}

/// A server on a free port, stopped at the end of the test.
pub struct Running {
    pub address: SocketAddr,
    pub stop: Arc<Notify>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
    pub folder: tempfile::TempDir,
}

pub fn config() -> Config {
    Config {
        models: Vec::new(),
        listen: "127.0.0.1:0".parse().unwrap(),
        threads: 2,
        token: None,
        alpha: 0.01,
        state: None,
        log_requests: false,
        tls: None,
        otlp: None,
        limits: Limits::default(),
        model_limits: Vec::new(),
    }
}

pub fn start(change: impl FnOnce(&mut Config)) -> Running {
    let folder = tempfile::tempdir().unwrap();
    let path = model_file(folder.path(), "flowers.mcdd", 1);
    let mut config = Config { models: vec![path], ..config() };
    change(&mut config);
    let server = Server::new(config).unwrap();
    let address = server.address().unwrap();
    let stop = Arc::new(Notify::new());
    let signal = Arc::clone(&stop);
    let thread = thread::spawn(move || {
        server.run_until(async move {
            signal.notified().await;
            Ok(())
        })
    });
    Running { address, stop, thread: Some(thread), folder }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.notify_one();
        let ended = self.thread.take().map(JoinHandle::join);
        if !thread::panicking() {
            ended.unwrap().unwrap().unwrap();
        }
    }
}

pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Response {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&self.body)))
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

/// Reads a whole answer; the connection is closed after it.
pub fn answer(stream: &mut TcpStream) -> Response {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut bytes = Vec::new();
    // A server that refuses a body may close before it is all sent.
    let _ = stream.read_to_end(&mut bytes);
    let at = bytes
        .windows(4)
        .position(|w| w == b"\r\n\r\n")
        .unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&bytes)));
    let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
    Response { status: head[9..12].parse().unwrap(), head, body: bytes[at + 4..].to_vec() }
}

impl Running {
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        headers.iter().for_each(|(k, v)| head.push_str(&format!("{k}: {v}\r\n")));
        stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
        let _ = stream.write_all(body);
        answer(&mut stream)
    }

    pub fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], b"")
    }

    pub fn post(&self, path: &str, content_type: &str, body: impl AsRef<[u8]>) -> Response {
        self.send("POST", path, &[("Content-Type", content_type)], body.as_ref())
    }

    pub fn model(&self) -> Model {
        Model::load(self.folder.path().join("flowers.mcdd")).unwrap()
    }
}

/// What `mcdd predict` writes for these rows.
pub fn predicted(model: &Model, rows: &str, format: Format) -> Vec<u8> {
    let source = model.schema().reader_from_bytes(rows.as_bytes().to_vec(), "rows", &ReadOptions::default());
    let mut out = Vec::new();
    let to = Destination::Writer(&mut out, "memory");
    let output = Output { format, columns: Columns::default(), to };
    stream::predict(model, [source], model.threshold().unwrap(), output, Pool::shared()).unwrap();
    out
}

/// Rows as JSON objects.
pub fn objects(rows: &str) -> Vec<Value> {
    let mut lines = rows.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let cell = |text: &str| match text {
        "" => Value::Null,
        _ => text.parse::<f64>().map_or_else(|_| json!(text), |v| json!(v)),
    };
    lines.map(|line| names.iter().zip(line.split(',')).map(|(n, c)| ((*n).to_owned(), cell(c))).collect()).collect()
}
