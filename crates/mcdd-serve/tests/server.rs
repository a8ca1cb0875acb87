//! The server over real connections: every route, equal bits, reload, the monitor, and the end.

mod running;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mcdd::stream::Format;
use mcdd_serve::{Config, Server, TlsFiles};
use running::{answer, model_file, objects, predicted, start, unlabeled};
use serde_json::{Value, json};

#[test]
fn predictions_are_those_of_the_command_in_every_format() {
    let server = start(|_| ());
    let model = server.model();
    let rows = unlabeled(50, 1000);
    let csv = server.post("/predict", "text/csv", &rows);
    assert_eq!((csv.status, &csv.body), (200, &predicted(&model, &rows, Format::Csv)), "{}", csv.text());
    let json = server.post("/predict", "application/json", serde_json::to_vec(&objects(&rows)).unwrap());
    assert_eq!(json.body, predicted(&model, &rows, Format::Json));
    let lines: String = objects(&rows).iter().map(|o| format!("{o}\n")).collect();
    assert_eq!(
        server.post("/predict", "application/x-ndjson", lines).body,
        predicted(&model, &rows, Format::JsonLines)
    );
    // Without a content type, as curl sends it; and in the order of the columns.
    let form = server.post("/predict", "application/x-www-form-urlencoded", &rows);
    assert_eq!(form.body, csv.body);
    let arrays = json!([[1.5, 0.25, "red"], [2.5, null, "blue"]]);
    let named = "length,width,color\n1.5,0.25,red\n2.5,,blue\n";
    assert_eq!(
        server.post("/predict?model=flowers", "application/json", arrays.to_string()).body,
        predicted(&model, named, Format::Json)
    );
    assert_eq!(server.post("/predict", "application/json", "[]").json(), json!([]));

    let explained = server.post(
        "/predict?explain=1&tpr=0.5",
        "application/json",
        r#"{"length": 1, "width": null, "color": "green"}"#,
    );
    let row = &explained.json()[0];
    assert!(explained.status == 200 && row["columns"].as_array().is_some_and(|c| !c.is_empty()), "{row}");
}

/// A model on the features of a network from elsewhere needs nothing of its own.
#[test]
fn a_model_on_a_backbone_is_served_as_any_other() {
    use mcdd::backbone::{BackboneOptions, NetworkFile};
    use mcdd::model::Model;
    use mcdd::onnx::{Builder, Dim, Type};
    let mut g = Builder::new();
    g.reserve(&["logits"]);
    let x = g.input("x", Type::F32, &[Dim::Rows, Dim::Size(2)]);
    let w = g.constant_f32(&[2, 4], &[0.5, -0.25, 1.0, 0.0, 0.125, 1.0, -1.0, 2.0]);
    let h = g.op("MatMul", &[x, w]);
    let h = g.op("Tanh", &[h]);
    let w = g.constant_f32(&[4, 2], &[0.5; 8]);
    let y = g.op("MatMul", &[h, w]);
    g.output("logits", y, Type::F32, &[Dim::Rows, Dim::Size(2)]);
    let network = NetworkFile::from_bytes(&g.finish("network", &[]).unwrap(), "net.onnx").unwrap();
    let lines = |rows: std::ops::Range<usize>, label: bool| -> String {
        let head = format!("length,width{}\n", if label { ",species" } else { "" });
        let row = |i: usize| {
            let kind = i % 2;
            let end = if label { [",a", ",b"][kind] } else { "" };
            format!("{},{}{end}\n", kind as f64 + (i * 7919 % 1000) as f64 / 1000.0, (i * 31 % 97) as f64 / 97.0)
        };
        rows.map(row).fold(head, |text, line| text + &line)
    };
    let read = mcdd::data::ReadOptions { label: "species".parse().unwrap_or_default(), ..Default::default() };
    let table = mcdd::data::Table::from_bytes(lines(0..200, true).into_bytes(), "train.csv", &read).unwrap();
    let settings = mcdd::train::Settings::builder().preset(mcdd::train::Preset::Fast).epochs(3).build().unwrap();
    let run = mcdd::train::Run::default();
    let model = Model::fit_with_backbone(&table, &network, &BackboneOptions::default(), &settings, &run).unwrap().model;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("on_net.mcdd");
    model.save(&path).unwrap();
    let server = start(|config| config.models = vec![path]);
    let rows = lines(500..540, false);
    let found = server.post("/predict", "text/csv", &rows);
    assert_eq!((found.status, &found.body), (200, &predicted(&model, &rows, Format::Csv)), "{}", found.text());
}

#[test]
fn the_protocol_answers_with_tensors_and_bytes() {
    let server = start(|_| ());
    let rows = "length,width,color\n1.5,0.25,red\n2.5,1.75,blue\n";
    let expected: Value = serde_json::from_slice(&predicted(&server.model(), rows, Format::Json)).unwrap();
    assert_eq!(server.get("/v2").json()["extensions"], json!(["binary_tensor_data"]));
    for path in
        ["/v2/health/live", "/v2/health/ready", "/v2/models/flowers/ready", "/v2/models/flowers/versions/1/ready"]
    {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    let about = server.get("/v2/models/flowers").json();
    assert_eq!((&about["inputs"][0]["name"], &about["inputs"][2]["datatype"]), (&json!("length"), &json!("BYTES")));
    let columns = json!({ "id": "7", "inputs": [
        { "name": "color", "shape": [2, 1], "datatype": "BYTES", "data": ["red", "blue"] },
        { "name": "length", "shape": [2], "datatype": "FP64", "data": [1.5, 2.5] },
        { "name": "width", "shape": [2], "datatype": "FP32", "data": [0.25, 1.75] },
    ]});
    let response = server.post("/v2/models/flowers/infer", "application/json", columns.to_string());
    let answer = response.json();
    assert_eq!(
        (response.status, &answer["id"], &answer["model_name"]),
        (200, &json!("7"), &json!("flowers")),
        "{answer}"
    );
    let output = |answer: &Value, name: &str| {
        answer["outputs"].as_array().unwrap().iter().find(|o| o["name"] == name).unwrap().clone()
    };
    for (i, row) in expected.as_array().unwrap().iter().enumerate() {
        for name in ["label", "confidence", "p_value"] {
            assert_eq!(output(&answer, name)["data"][i], row[name], "{name}");
        }
        assert_eq!(output(&answer, "known")["data"][i], json!(row["verdict"] == "known"));
    }
    assert_eq!(output(&answer, "probabilities")["shape"], json!([2, 3]));

    // One matrix of texts, and answers as bytes.
    let texts = ["1.5", "0.25", "red", "2.5", "1.75", "blue"];
    let mut bytes = Vec::new();
    texts.iter().for_each(|t| {
        bytes.extend((t.len() as u32).to_le_bytes());
        bytes.extend(t.as_bytes());
    });
    let head = json!({
        "inputs": [{ "name": "rows", "shape": [2, 3], "datatype": "BYTES", "parameters": { "binary_data_size": bytes.len() } }],
        "outputs": [{ "name": "confidence", "parameters": { "binary_data": true } }, { "name": "explanation" }],
    })
    .to_string();
    let both = [head.as_bytes(), &bytes].concat();
    let length = head.len().to_string();
    let response = server.send(
        "POST",
        "/v2/models/flowers/versions/1/infer",
        &[("Inference-Header-Content-Length", &length)],
        &both,
    );
    let length = response
        .head
        .to_ascii_lowercase()
        .split("inference-header-content-length: ")
        .nth(1)
        .map(|r| r.split("\r\n").next().unwrap().parse::<usize>().unwrap());
    let (text, numbers) =
        response.body.split_at(length.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&response.body))));
    let answer: Value = serde_json::from_slice(text).unwrap();
    assert!(output(&answer, "explanation")["data"][0].as_str().is_some_and(|t| t.contains("\"gain\"")));
    let numbers: Vec<f64> = numbers.chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(json!(numbers), json!([expected[0]["confidence"], expected[1]["confidence"]]));
}

/// Clients of mixed sizes at once: each gets what the command writes, whatever was predicted together.
#[test]
fn bits_do_not_depend_on_what_is_predicted_together() {
    let server = start(|_| ());
    let model = Arc::new(server.model());
    thread::scope(|scope| {
        for client in 0..8usize {
            let (server, model) = (&server, Arc::clone(&model));
            scope.spawn(move || {
                for (i, size) in [1, 3, 5000, 1, 40, 700].into_iter().enumerate() {
                    let rows = unlabeled(size, 10_000 * client + 100 * i);
                    let got = server.post("/predict", "text/csv", &rows);
                    assert_eq!(got.status, 200);
                    assert!(got.body == predicted(&model, &rows, Format::Csv), "client {client}, {size} rows");
                }
            });
        }
    });
    let status = server.get("/status").json();
    assert_eq!(status["models"][0]["last_hour"]["rows"], json!(8 * 5745));
}

#[test]
fn models_are_replaced_while_requests_come() {
    let server = start(|config| config.models = vec![config.models[0].parent().unwrap().to_owned()]);
    let rows = unlabeled(20, 5);
    let old = predicted(&server.model(), &rows, Format::Csv);
    let wait = |what: &str, done: &dyn Fn() -> bool| {
        let until = Instant::now() + Duration::from_secs(60);
        while !done() {
            assert!(Instant::now() < until, "{what}");
            thread::sleep(Duration::from_millis(30));
        }
    };
    // A broken file leaves the old model, and is reported.
    let path = server.folder.path().join("flowers.mcdd");
    std::fs::write(&path, "broken").unwrap();
    wait("the broken file is not noticed", &|| server.get("/status").json()["not_loaded"][0]["model"] == "flowers");
    assert_eq!(server.post("/predict", "text/csv", &rows).body, old);
    model_file(server.folder.path(), "flowers.mcdd", 2);
    let new = predicted(&server.model(), &rows, Format::Csv);
    assert_ne!(old, new);
    wait("the new file is not read", &|| {
        let got = server.post("/predict", "text/csv", &rows);
        assert!(got.status == 200 && (got.body == old || got.body == new));
        got.body == new
    });
    assert_eq!(server.get("/v2/models/flowers/versions/2").status, 200);
    // A second model appears and goes.
    model_file(server.folder.path(), "roses.mcdd", 1);
    wait("the second model is not found", &|| server.get("/v2/models/roses").status == 200);
    assert_eq!(server.post("/predict", "text/csv", &rows).status, 404);
    assert_eq!(server.post("/predict?model=roses", "text/csv", &rows).body, old);
    std::fs::remove_file(server.folder.path().join("roses.mcdd")).unwrap();
    wait("the second model stays", &|| server.get("/v2/models/roses").status == 404);
}

#[test]
fn the_monitor_raises_an_alarm_and_keeps_its_state() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("watched");
    let strange: String = std::iter::once("length,width,color\n".to_owned())
        .chain((0..400).map(|i| format!("{},-900,red\n", 5000 + i)))
        .collect();
    {
        let server = start(|config| config.state = Some(state.clone()));
        assert_eq!(server.post("/predict", "text/csv", &strange).status, 200);
        let monitor = &server.get("/status").json()["models"][0]["monitor"];
        assert!(monitor["alarm"].as_u64().is_some_and(|row| row < 400), "{monitor}");
        let metrics = server.get("/metrics").text();
        for line in [
            "mcdd_alarm{model=\"flowers\"} 1",
            "mcdd_rows_total{model=\"flowers\"} 400",
            "mcdd_p_value_bucket",
            "mcdd_request_seconds_count",
            "mcdd_queued_rows 0",
        ] {
            assert!(metrics.contains(line), "{line} in\n{metrics}");
        }
    }
    // The next server continues, and can be told to start again.
    let server = start(|config| config.state = Some(state.clone()));
    let monitor = || server.get("/status").json()["models"][0]["monitor"].clone();
    assert_eq!((monitor()["rows"].as_u64(), monitor()["alarm"].is_u64()), (Some(400), true));
    assert_eq!(server.post("/models/flowers/restart", "", "").json()["alarm"], Value::Null);
    assert!(monitor()["alarm"].is_null());
    drop(server);
    // The restart is kept, too.
    let server = start(|config| config.state = Some(state.clone()));
    let monitor = &server.get("/status").json()["models"][0]["monitor"];
    assert_eq!((monitor["rows"].as_u64(), monitor["alarm"].is_null()), (Some(400), true), "{monitor}");
}

/// Spans of requests arrive at a collector, with the trace of the client.
#[test]
fn spans_are_sent_to_a_collector() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", collector.local_addr().unwrap());
    let server = start(|config| config.otlp = Some(url));
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let rows = unlabeled(7, 0);
    for (parent, path) in [(trace, "/predict"), (&trace.replace("-01", "-00"), "/status"), ("", "/nothing")] {
        let method = if path == "/predict" { "POST" } else { "GET" };
        server.send(method, path, &[("traceparent", parent), ("Content-Type", "text/csv")], rows.as_bytes());
    }
    let mut spans = Vec::new();
    while spans.len() < 2 {
        let (mut stream, _) = collector.accept().unwrap();
        let mut bytes = Vec::new();
        let body = loop {
            let mut part = [0; 4096];
            let count = stream.read(&mut part).unwrap();
            bytes.extend_from_slice(&part[..count]);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let length =
                text.split("Content-Length: ").nth(1).and_then(|t| t.split("\r\n").next()?.parse::<usize>().ok());
            if let (Some((head, body)), Some(length)) = (text.split_once("\r\n\r\n"), length)
                && body.len() == length
            {
                assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
                break body.to_owned();
            }
        };
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        let message: Value = serde_json::from_str(&body).unwrap();
        spans.extend(message["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone());
    }
    assert_eq!(spans.len(), 2, "{spans:?}");
    let predict = &spans[0];
    assert_eq!((&predict["name"], &predict["kind"]), (&json!("POST /predict"), &json!(2)));
    assert_eq!(predict["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(predict["parentSpanId"], "00f067aa0ba902b7");
    let text = predict["attributes"].to_string();
    for part in ["\"flowers\"", "\"intValue\":\"7\"", "\"intValue\":\"200\""] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let times = ["startTimeUnixNano", "endTimeUnixNano"].map(|t| predict[t].as_str().unwrap().parse::<u128>().unwrap());
    assert!(times[0] < times[1]);
    assert!(spans[1]["name"] == "GET other" && spans[1]["parentSpanId"].is_null(), "{}", spans[1]);
}

/// HTTPS by the files of the tests, which are valid for a hundred years.
#[test]
fn connections_are_secret_and_certificates_are_renewed() {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, ServerName};
    use tokio_rustls::rustls;

    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls");
    let folder = tempfile::tempdir().unwrap();
    let [certificates, key] = ["certificate.pem", "key.pem"].map(|name| {
        std::fs::copy(files.join(name), folder.path().join(name)).unwrap();
        folder.path().join(name)
    });
    let server = start(|config| config.tls = Some(TlsFiles { certificates: certificates.clone(), key: key.clone() }));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&certificates).unwrap()).unwrap();
    let client = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client = Arc::new(client);
    let rows = unlabeled(3000, 0);
    let ask = || {
        let name = ServerName::try_from("localhost").unwrap();
        let mut connection = rustls::ClientConnection::new(Arc::clone(&client), name).unwrap();
        let mut socket = TcpStream::connect(server.address).unwrap();
        let mut stream = rustls::Stream::new(&mut connection, &mut socket);
        let head = format!(
            "POST /predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: text/csv\r\nContent-Length: {}\r\n\r\n",
            rows.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(rows.as_bytes()).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    };
    let good = predicted(&server.model(), &rows, Format::Csv);
    assert!(ask().ends_with(&good));
    // Without TLS there is no answer, and a damaged renewal leaves the former certificate.
    let mut plain = TcpStream::connect(server.address).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"));
    std::fs::write(&certificates, "damaged").unwrap();
    thread::sleep(Duration::from_millis(2500));
    assert!(ask().ends_with(&good));
    let config = |certificates: &Path, key: &Path| Config {
        tls: Some(TlsFiles { certificates: certificates.to_owned(), key: key.to_owned() }),
        models: vec![server.folder.path().join("flowers.mcdd")],
        ..running::config()
    };
    for (certificates, key, part) in [
        (&certificates, &key, "no certificate"),
        (&files.join("certificate.pem"), &certificates, "no private key"),
        (&files.join("nothing.pem"), &key, "nothing.pem"),
    ] {
        let e = Server::new(config(certificates, key)).err().unwrap().to_string();
        assert!(e.contains(part), "{e}");
    }
}

#[test]
fn requests_under_way_are_answered_at_the_end() {
    let server = start(|_| ());
    let rows = unlabeled(20_000, 0);
    let mut slow = TcpStream::connect(server.address).unwrap();
    let head = format!(
        "POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: text/csv\r\nContent-Length: {}\r\n\r\n",
        rows.len()
    );
    slow.write_all(head.as_bytes()).unwrap();
    slow.write_all(&rows.as_bytes()[..1000]).unwrap();
    thread::sleep(Duration::from_millis(300));
    server.stop.notify_one();
    thread::sleep(Duration::from_millis(300));
    slow.write_all(&rows.as_bytes()[1000..]).unwrap();
    let got = answer(&mut slow);
    assert!(got.status == 200 && got.text().lines().count() == 20_001, "{}", got.head);
}

#[test]
fn the_page_loads_nothing_from_elsewhere_and_the_description_is_true() {
    let server = start(|_| ());
    let page = server.get("/");
    assert!(page.head.contains("default-src 'none'") && !page.text().contains("http"), "{}", page.head);
    assert!(server.get("/page.js").status == 200 && server.get("/page.css").status == 200);
    let description = server.get("/openapi.json").json();
    assert_eq!(description["paths"].as_object().unwrap().len(), 15);
    assert_eq!(description["components"]["responses"]["Failure"]["content"].as_object().unwrap().len(), 1);
    assert_eq!(
        description["paths"]["/v2/models/{model}"]["get"]["parameters"][0]["schema"]["enum"],
        json!(["flowers"])
    );
    assert!(!description.to_string().contains(":null"), "{description}");
    for (path, operations) in description["paths"].as_object().unwrap() {
        let path = path.replace("{model}", "flowers").replace("{version}", "1");
        for method in operations.as_object().unwrap().keys() {
            let status = server.send(&method.to_uppercase(), &path, &[], b"{}").status;
            assert!(!matches!(status, 404 | 405 | 500), "{method} {path}: {status}");
        }
    }
}
