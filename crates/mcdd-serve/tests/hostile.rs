//! Requests that are wrong, too large, too slow or broken: each gets its answer, and no other suffers.

mod running;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use mcdd::seed::Stream;
use mcdd_serve::Limits;
use running::{answer, objects, start, unlabeled};
use serde_json::{Value, json};

#[test]
fn requests_past_the_limits_are_refused_and_hurt_no_others() {
    let server = start(|config| {
        config.limits = Limits {
            body_bytes: 50_000,
            rows: 100,
            explained_rows: 2,
            read_time: Duration::from_millis(300),
            ..Limits::default()
        };
    });
    let rows = |n: usize| unlabeled(n, 0);
    assert_eq!(server.post("/predict", "text/csv", rows(101)).status, 413);
    assert_eq!(server.post("/predict", "text/csv", "x".repeat(50_001)).status, 413);
    assert_eq!(server.post("/predict?explain=1", "application/json", json!(objects(&rows(3))).to_string()).status, 413);
    assert_eq!(server.post("/predict", "text/csv", b"\x1f\x8b\x08").status, 415);
    assert_eq!(server.send("POST", "/predict", &[("Content-Encoding", "gzip")], b"x").status, 415);
    // A body that does not end, a head that does not end, and a body in pieces that grows too large.
    let mut slow = TcpStream::connect(server.address).unwrap();
    slow.write_all(b"POST /predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 100\r\n\r\nlength")
        .unwrap();
    assert_eq!(answer(&mut slow).status, 408);
    let mut loris = TcpStream::connect(server.address).unwrap();
    loris.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nX-A: ").unwrap();
    loris.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut rest = Vec::new();
    loris.read_to_end(&mut rest).expect("the server closes the connection");
    let mut chunked = TcpStream::connect(server.address).unwrap();
    chunked
        .write_all(b"POST /predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
        .unwrap();
    let piece = format!("4e20\r\n{}\r\n", "y".repeat(20_000));
    (0..3).for_each(|_| drop(chunked.write_all(piece.as_bytes())));
    assert_eq!(answer(&mut chunked).status, 413);
    assert_eq!(server.post("/predict", "text/csv", rows(100)).status, 200);
}

#[test]
fn a_full_queue_is_503_with_the_time_to_wait() {
    let server = start(|config| config.limits = Limits { total_bytes: 1024, ..Limits::default() });
    // Its body takes all of the memory for bodies, and does not end.
    let mut first = TcpStream::connect(server.address).unwrap();
    first.write_all(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\nlength").unwrap();
    thread::sleep(Duration::from_millis(200));
    let refused = server.post("/predict", "text/csv", unlabeled(1, 0));
    assert_eq!(refused.status, 503);
    assert!(refused.head.to_ascii_lowercase().contains("retry-after: 1"), "{}", refused.head);
    drop(first);
    let until = Instant::now() + Duration::from_secs(20);
    while server.post("/predict", "text/csv", unlabeled(1, 0)).status != 200 {
        assert!(Instant::now() < until, "the memory was not given back");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn wrong_requests_say_what_is_wrong() {
    let server = start(|_| ());
    let tensor = |name: &str, data: Value| {
        json!({ "inputs": [{ "name": name, "shape": [1, 3], "datatype": "BYTES", "data": data }] }).to_string()
    };
    let infer = "/v2/models/flowers/infer";
    for (method, path, body, status, part) in [
        ("GET", "/nothing", "", 404, "nothing here"),
        ("GET", "/predict", "", 405, "method"),
        ("GET", "/v2/models/roses", "", 404, "flowers"),
        ("GET", "/v2/models/flowers/versions/9", "", 404, "version 1"),
        ("POST", "/predict?model=roses", "a", 404, "roses"),
        ("POST", "/predict?tpr=2", "a", 400, "tpr"),
        ("POST", "/predict?colour=red", "a", 400, "colour"),
        ("POST", "/predict", "length,width\n1,2\n", 400, "color"),
        ("POST", "/predict", "length,width,color\n1,2,red\nlong,2,red\n", 400, "row 2"),
        ("POST", "/predict", "[1]", 400, "array of rows"),
        ("POST", "/predict", "[[1,2]]", 400, "2 cells"),
        ("POST", "/predict", "{\"length\": [[[", 400, "request"),
        ("POST", infer, "{}", 400, "inputs"),
        ("POST", infer, r#"{"inputs":[]}"#, 400, "no inputs"),
        ("POST", infer, &tensor("x", json!(["1", "2"])), 400, "2 elements"),
        ("POST", infer, &tensor("x", json!(["long", "2", "red"])), 400, "long"),
        ("POST", infer, &"[".repeat(40_000), 400, "inference request"),
    ] {
        let got = server.send(method, path, &[], body.as_bytes());
        assert_eq!(got.status, status, "{method} {path} {}: {}", &body[..body.len().min(80)], got.text());
        let message = got.json()["error"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains(part), "{method} {path}: {message}");
    }
}

#[test]
fn a_token_guards_everything_but_health_and_the_page() {
    let server = start(|config| config.token = Some("a-long-secret-token".into()));
    let ask = |path: &str, token: &str| server.send("GET", path, &[("Authorization", token)], b"").status;
    for path in ["/status", "/metrics", "/v2", "/openapi.json"] {
        assert_eq!((ask(path, ""), ask(path, "Bearer a-long-secret-tokem")), (401, 401), "{path}");
        assert_eq!(ask(path, "Bearer a-long-secret-token"), 200, "{path}");
    }
    for path in ["/", "/page.js", "/v2/health/ready"] {
        assert_eq!(ask(path, ""), 200, "{path}");
    }
}

/// Good requests with bytes changed, cut, repeated and added: the answer is never a failure of the server.
#[test]
fn damaged_requests_are_refused_or_answered() {
    let server = start(|_| ());
    let texts = b"\x03\0\0\x001.5\x01\0\0\x002\x03\0\0\0red";
    let head = json!({ "inputs": [{ "name": "x", "shape": [1, 3], "datatype": "BYTES", "parameters": { "binary_data_size": texts.len() } }] }).to_string();
    let numbers = json!({ "inputs": [
        { "name": "length", "shape": [2], "datatype": "FP64", "data": [1.5, 2.5] },
        { "name": "width", "shape": [2], "datatype": "INT32", "data": [1, 2] },
        { "name": "color", "shape": [2, 1], "datatype": "BYTES", "data": [["red"], ["blue"]] },
    ], "outputs": [{ "name": "known" }, { "name": "explanation", "parameters": { "binary_data": true } }] });
    let length = head.len().to_string();
    let infer = "/v2/models/flowers/infer";
    let good: [(&str, &str, &str, Vec<u8>); 5] = [
        (infer, "Inference-Header-Content-Length", &length, [head.as_bytes(), texts].concat()),
        (infer, "Content-Type", "application/json", numbers.to_string().into_bytes()),
        ("/predict", "Content-Type", "text/csv", unlabeled(3, 0).into_bytes()),
        (
            "/predict?explain=1",
            "Content-Type",
            "application/json",
            json!(objects(&unlabeled(2, 0))).to_string().into_bytes(),
        ),
        ("/predict", "Content-Type", "application/vnd.apache.arrow.stream", b"\xff\xff\xff\xff\x10\0\0\0".repeat(9)),
    ];
    let mut random = Stream::new(1, "damage");
    let mut refused = 0;
    for round in 0..600 {
        let (path, key, value, body) = &good[round % good.len()];
        let mut body = body.clone();
        for _ in 0..random.below(4) {
            let at = random.below(body.len());
            match random.below(4) {
                0 => body[at] = random.below(256) as u8,
                1 => body.truncate(at.max(1)),
                2 => body.insert(at, b"[{\"]},9-e\0"[random.below(10)]),
                _ => body.extend_from_within(at..),
            }
        }
        let got = server.send("POST", path, &[(*key, *value)], &body);
        assert!(matches!(got.status, 200 | 400 | 413 | 415), "{} for {}", got.status, String::from_utf8_lossy(&body));
        refused += usize::from(got.status != 200);
    }
    assert!(refused > 100, "{refused}");
    assert!(server.get("/metrics").text().contains("mcdd_panics_total 0"));
}
