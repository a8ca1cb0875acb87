//! Requests that are wrong, too large, too slow or broken: each gets its answer, and no other suffers.

mod running;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use mcdd::seed::Stream;
use mcdd_serve::{Limits, ModelLimits};
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
    assert_eq!(server.send("POST", "/predict", &[("Content-Encoding", "br")], b"x").status, 415);
    assert_eq!(server.send("GET", "/v2", &[("X-A", &"a".repeat(20_000))], b"").status, 431);
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

/// A folder of models that also contains files that are not models.
#[cfg(unix)]
#[test]
fn what_is_no_model_in_a_folder_is_listed_and_the_rest_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let models = folder.path().join("models");
    let states = folder.path().join("states");
    std::fs::create_dir_all(models.join("folder.mcdd")).unwrap();
    std::fs::create_dir(&states).unwrap();
    let pipe = |path| assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    pipe(models.join("pipe.mcdd"));
    // A state that would be waited for.
    pipe(states.join("good.json"));
    std::os::unix::fs::symlink("loop.mcdd", models.join("loop.mcdd")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", models.join("device.mcdd")).unwrap();
    std::fs::write(models.join("empty.mcdd"), "").unwrap();
    std::fs::File::create(models.join("large.mcdd")).unwrap().set_len(1 << 36).unwrap();
    let good = running::model_file(&models, "good.mcdd", 1);
    let terminal = "t\u{1b}[31m\u{9b}31m\u{202e}";
    std::fs::copy(&good, models.join(format!("{terminal}.mcdd"))).unwrap();
    let config = |folder: &std::path::Path| mcdd_serve::Config {
        models: vec![folder.join("models")],
        state: Some(folder.join("states")),
        ..running::config()
    };
    // A state that cannot be one stops the server before it begins.
    let e = mcdd_serve::Local::new(config(folder.path())).err().unwrap();
    assert!(e.to_string().contains("good.json: is not a file") && e.hint_text().is_some(), "{e}");
    std::fs::remove_file(states.join("good.json")).unwrap();

    let server = mcdd_serve::Local::new(config(folder.path())).unwrap();
    // Two servers would overwrite each other's states.
    let e = mcdd_serve::Local::new(config(folder.path())).err().unwrap();
    assert!(e.to_string().contains("in use by another process"), "{e}");
    let (code, body) = server.answer("GET", "/status", &[], Vec::new()).unwrap();
    assert_eq!(code, 200);
    let status: Value = serde_json::from_slice(&body).unwrap();
    let names = |list: &str, key: &str| -> Vec<String> {
        status[list].as_array().unwrap().iter().map(|m| m[key].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("models", "name"), ["good", "t\u{fffd}[31m\u{fffd}31m\u{fffd}"]);
    assert_eq!(names("not_loaded", "model"), ["device", "empty", "folder", "large", "loop", "pipe"]);
    let (_, metrics) = server.answer("GET", "/metrics", &[], Vec::new()).unwrap();
    let metrics = String::from_utf8(metrics).unwrap();
    assert!(
        metrics.contains("good") && !metrics.chars().any(|c| c != '\n' && mcdd::error::is_harmful(c)),
        "{metrics:?}"
    );
    drop(server);
    assert!(mcdd_serve::Local::new(config(folder.path())).is_ok());
}

#[test]
fn a_full_queue_is_503_with_the_time_to_wait() {
    let server = start(|config| config.limits = Limits { total_bytes: 4096, ..Limits::default() });
    // Its body takes all of the memory for requests, and does not end.
    let mut first = TcpStream::connect(server.address).unwrap();
    first.write_all(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\n").unwrap();
    first.write_all(&[b'x'; 3500]).unwrap();
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

/// While the queue and the line are full, a request is refused before its body is received. A client that sends it in spite of that gets the answer, too.
#[test]
fn a_request_that_would_wait_in_vain_is_refused_before_its_body() {
    let server = start(|config| {
        config.limits = Limits { rows: 100, queued_rows: 100, read_time: Duration::from_secs(20), ..Limits::default() };
    });
    // So many bytes of one body have arrived as the rows of the queue and the line have.
    let mut first = TcpStream::connect(server.address).unwrap();
    first.write_all(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\n").unwrap();
    first.write_all(&[b'x'; 40_000]).unwrap();
    thread::sleep(Duration::from_millis(1500));
    let length = 5_000_000;
    let head = |more: &str| format!("POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{more}\r\n");
    for (more, sent) in [("", 0), ("Expect: 100-continue\r\n", 0), ("", 100_000), ("", length)] {
        let begun = Instant::now();
        let mut client = TcpStream::connect(server.address).unwrap();
        client.write_all(head(more).as_bytes()).unwrap();
        client.write_all(&vec![b'y'; sent]).expect("the rest is taken");
        let got = answer(&mut client);
        assert_eq!(got.status, 503, "{}", got.head);
        let lines = got.head.to_ascii_lowercase();
        assert!(lines.contains("retry-after: 1") && lines.contains("connection: close"), "{}", got.head);
        let took = begun.elapsed();
        assert!(took > Duration::from_millis(900) && took < Duration::from_secs(10), "{took:?}");
    }
    // One that is small and all there leaves its connection as it was.
    let mut client = TcpStream::connect(server.address).unwrap();
    for closing in ["", "Connection: close\r\n"] {
        let head = format!("POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n{closing}\r\n");
        client.write_all(head.as_bytes()).unwrap();
        client.write_all(&[b'z'; 100_000]).unwrap();
    }
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut both = String::new();
    client.read_to_string(&mut both).unwrap();
    assert_eq!(both.matches("HTTP/1.1 503").count(), 2, "{both}");
    // A small one waits, and is answered when there is room.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| server.post("/predict", "text/csv", unlabeled(3, 0)).status);
        thread::sleep(Duration::from_millis(300));
        drop(first);
        assert_eq!(waiting.join().unwrap(), 200);
    });
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

#[test]
fn compressed_requests_are_read_up_to_the_limit() {
    let server = start(|config| config.limits.body_bytes = 100_000);
    let rows = unlabeled(200, 0);
    let plain = server.post("/predict", "text/csv", &rows);
    let send = |body: &[u8]| {
        server.send("POST", "/predict", &[("Content-Type", "text/csv"), ("Content-Encoding", "gzip")], body)
    };
    let packed = gzip(rows.as_bytes());
    assert_eq!((send(&packed).status, send(&packed).body), (200, plain.body.clone()));
    // Two members that follow each other are one text.
    let (first, second) = rows.as_bytes().split_at(1000);
    assert_eq!(send(&[gzip(first), gzip(second)].concat()).body, plain.body);
    // A small body that becomes large, bodies that are cut or no gzip.
    let bomb = gzip(&vec![b'\n'; 30_000_000]);
    assert!(bomb.len() < 100_000);
    assert_eq!(send(&bomb).status, 413);
    for bad in [&packed[..packed.len() / 2], &packed[..5], b"length,width,color\n1,2,red\n", b""] {
        let got = send(bad);
        assert!(got.status == 400, "{} {}", got.status, got.text());
    }
    let infer = json!({ "inputs": [{ "name": "x", "shape": [1, 3], "datatype": "BYTES", "data": ["1", "2", "red"] }] });
    let got = server.send(
        "POST",
        "/v2/models/flowers/infer",
        &[("Content-Encoding", "gzip")],
        &gzip(infer.to_string().as_bytes()),
    );
    assert_eq!(got.status, 200, "{}", got.text());
}

#[test]
fn a_model_has_limits_of_its_own() {
    let server = start(|config| {
        running::model_file(config.models[0].parent().unwrap(), "roses.mcdd", 2);
        config.models = vec![config.models[0].parent().unwrap().to_owned()];
        let roses = ModelLimits { rows: 10, body_bytes: 2000, ..ModelLimits::default() };
        config.model_limits = vec![("roses".into(), roses), ("tulips".into(), roses)];
    });
    let send = |model: &str, rows: &str| server.post(&format!("/predict?model={model}"), "text/csv", rows).status;
    assert_eq!((send("roses", &unlabeled(10, 0)), send("roses", &unlabeled(11, 0))), (200, 413));
    assert_eq!((send("roses", &"x".repeat(2001)), send("flowers", &unlabeled(500, 0))), (413, 200));
    // They hold for the protocol, too.
    let infer = |model: &str| {
        let data: Vec<String> = (0..33).map(|i| if i % 3 == 2 { "red".to_owned() } else { i.to_string() }).collect();
        let request = json!({ "inputs": [{ "name": "x", "shape": [11, 3], "datatype": "BYTES", "data": data }] });
        server.post(&format!("/v2/models/{model}/infer"), "application/json", request.to_string()).status
    };
    assert_eq!((infer("roses"), infer("flowers")), (413, 200));
}

/// Requests that would need much more memory than they have bytes.
#[test]
fn memory_is_counted_before_it_is_taken() {
    let server = start(|config| config.limits = Limits { total_bytes: 2 << 20, ..Limits::default() });
    let rows = unlabeled(40_000, 0);
    let got = server.post("/predict", "text/csv", &rows);
    assert!(got.status == 413 && got.text().contains("2 MB of memory"), "{}", got.text());
    let many = format!("[{}]", vec!["[1]"; 200_000].join(","));
    assert_eq!(server.post("/predict", "application/json", &many).status, 413);
    let outputs = vec![json!({ "name": "probabilities" }); 2];
    let twice = json!({ "outputs": outputs, "inputs": [{ "name": "x", "shape": [1, 3], "datatype": "BYTES", "data": ["1", "2", "red"] }] });
    let got = server.post("/v2/models/flowers/infer", "application/json", twice.to_string());
    assert!(got.status == 400 && got.text().contains("twice"), "{}", got.text());
    assert_eq!(server.post("/predict", "text/csv", unlabeled(1000, 0)).status, 200);
}

/// Clients that send a request and do not read its answer lose their connection, and their memory is given back.
#[test]
fn answers_that_nobody_reads_are_given_up() {
    let server = start(|config| {
        config.limits = Limits { total_bytes: 40 << 20, read_time: Duration::from_millis(500), ..Limits::default() };
    });
    let (rows, fewer) = (unlabeled(120_000, 0), unlabeled(60_000, 0));
    let head = format!(
        "POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: text/csv\r\nContent-Length: {}\r\n\r\n",
        rows.len()
    );
    let send = || {
        let mut client = TcpStream::connect(server.address).unwrap();
        client.write_all(head.as_bytes()).unwrap();
        let _ = client.write_all(rows.as_bytes());
        client
    };
    let first = send();
    // Its rows are counted, not estimated: they and their answer have memory.
    let until = Instant::now() + Duration::from_secs(120);
    while server.get("/status").json()["queued_rows"].as_u64() < Some(90_000) {
        assert!(Instant::now() < until, "no request is under way");
        thread::sleep(Duration::from_millis(2));
    }
    let clients = [first, send(), send()];
    // First there is no room for another request, then there is.
    for (status, what) in [(503, "no memory was taken"), (200, "the memory was not given back")] {
        let until = Instant::now() + Duration::from_secs(120);
        while server.post("/predict", "text/csv", &fewer).status != status {
            assert!(Instant::now() < until, "{what}");
            thread::sleep(Duration::from_millis(30));
        }
    }
    drop(clients);
}

/// A client that has sent everything and closes its side still gets its answer; many that send nothing hinder no one.
#[test]
fn half_closed_and_idle_connections_hinder_no_others() {
    let server = start(|config| config.limits.read_time = Duration::from_secs(2));
    let idle: Vec<TcpStream> = (0..500).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    let rows = unlabeled(5, 0);
    for _ in 0..20 {
        let mut client = TcpStream::connect(server.address).unwrap();
        let head = format!(
            "POST /predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: text/csv\r\nContent-Length: {}\r\n\r\n",
            rows.len()
        );
        client.write_all(head.as_bytes()).unwrap();
        client.write_all(rows.as_bytes()).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(answer(&mut client).status, 200);
    }
    // They are closed when their time is over.
    for mut client in idle {
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).expect("the server closes the connection");
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
