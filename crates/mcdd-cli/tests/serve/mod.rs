//! A local HTTP server for tests, which can misbehave in many ways.
#![allow(dead_code)] // each test file uses a part

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub struct Request {
    pub path: String,
    /// The start of the requested part.
    pub range: Option<usize>,
    pub if_range: Option<String>,
}

/// The bytes of a response, and what follows.
#[derive(Clone)]
pub struct Reply {
    head: String,
    body: Vec<u8>,
    then: Then,
}

#[derive(Clone, Copy)]
enum Then {
    Close,
    /// Sends data until the client disconnects.
    Endless,
    /// Sends nothing for a while.
    Silent(Duration),
    /// Sends a byte from time to time until the client disconnects.
    Drip(Duration),
}

pub fn status(line: &str) -> Reply {
    Reply { head: format!("HTTP/1.1 {line}\r\nConnection: close\r\n"), body: Vec::new(), then: Then::Close }
}

/// The whole file, whatever was requested.
pub fn whole(bytes: &[u8]) -> Reply {
    status("200 OK").header("Content-Length", bytes.len()).body(bytes)
}

/// The requested part, if the tag is the same.
pub fn ranged(request: &Request, bytes: &[u8], tag: &str) -> Reply {
    match request.range {
        Some(start) if request.if_range.as_deref().is_none_or(|t| t == tag) => {
            if start >= bytes.len() {
                return status("416 Range Not Satisfiable").header("Content-Length", 0);
            }
            let range = format!("bytes {start}-{}/{}", bytes.len() - 1, bytes.len());
            status("206 Partial Content")
                .header("Content-Range", range)
                .header("Content-Length", bytes.len() - start)
                .header("ETag", tag)
                .body(&bytes[start..])
        }
        _ => whole(bytes).header("ETag", tag),
    }
}

impl Reply {
    pub fn header(mut self, name: &str, value: impl std::fmt::Display) -> Reply {
        self.head += &format!("{name}: {value}\r\n");
        self
    }

    pub fn body(mut self, bytes: &[u8]) -> Reply {
        self.body = bytes.to_vec();
        self
    }

    /// Closes the connection after this many bytes of the body.
    pub fn cut(mut self, bytes: usize) -> Reply {
        self.body.truncate(bytes);
        self
    }

    pub fn endless(mut self) -> Reply {
        self.then = Then::Endless;
        self
    }

    pub fn dripping(mut self, pause: Duration) -> Reply {
        self.then = Then::Drip(pause);
        self
    }

    pub fn silent(mut self, time: Duration) -> Reply {
        self.then = Then::Silent(time);
        self
    }
}

pub struct Server {
    pub base: String,
    log: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Starts a server; `answer` gets a request and the number of requests before it.
    pub fn start(answer: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let log: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (answer, seen) = (Arc::new(answer), Arc::clone(&log));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, seen) = (Arc::clone(&answer), Arc::clone(&seen));
                std::thread::spawn(move || {
                    let Some(request) = read(&stream) else { return };
                    let before = {
                        let mut seen = seen.lock().unwrap();
                        seen.push(request.clone());
                        seen.len() - 1
                    };
                    send(stream, &answer(&request, before));
                });
            }
        });
        Server { base, log }
    }

    /// All requests.
    pub fn log(&self) -> Vec<Request> {
        self.log.lock().unwrap().clone()
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut request = Request::default();
    for (at, line) in BufReader::new(stream).lines().enumerate() {
        let line = line.ok()?;
        if at == 0 {
            request.path = line.split(' ').nth(1)?.to_owned();
        }
        let Some((name, value)) = line.split_once(": ") else {
            if line.is_empty() {
                return Some(request);
            }
            continue;
        };
        match name.to_ascii_lowercase().as_str() {
            "range" => request.range = value.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok(),
            "if-range" => request.if_range = Some(value.to_owned()),
            _ => {}
        }
    }
    None
}

fn send(mut stream: TcpStream, reply: &Reply) {
    // Errors mean that the client has disconnected.
    let _ = stream.write_all(format!("{}\r\n", reply.head).as_bytes());
    let _ = stream.write_all(&reply.body);
    match reply.then {
        Then::Close => {}
        Then::Endless => while stream.write_all(&[b'x'; 4096]).is_ok() {},
        Then::Silent(time) => std::thread::sleep(time),
        Then::Drip(pause) => {
            while stream.write_all(b"x").is_ok() {
                std::thread::sleep(pause);
            }
        }
    }
}
