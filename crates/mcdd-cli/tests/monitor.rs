//! `mcdd monitor`, `mcdd predict --fdr` and `mcdd serve` from the outside.

mod help;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;

use help::{Lab, stderr, stdout, table};
use mcdd::seed::Stream;
use serde_json::{Value, json};

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

/// A state is read, changed and written: of two at once one is refused, and no row is lost.
#[test]
fn one_process_at_a_time_writes_a_state() {
    let lab = lab();
    lab.ok(&["monitor", "m.mcdd", "same.csv", "--state", "s.json", "-q"]);
    let args = ["monitor", "m.mcdd", "-", "--state", "s.json", "-q"];
    let mut first = lab.std_command(&args);
    first.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut first = first.spawn().unwrap();
    let start = std::time::Instant::now();
    while !lab.path(".s.json.lock").exists() {
        assert!(start.elapsed().as_secs() < 120, "it does not begin");
        thread::sleep(std::time::Duration::from_millis(10));
    }
    // It waits for rows. Another one is refused, under any name of the file; looking at it is not.
    let part = "s.json: is in use by another process";
    lab.fails(&["monitor", "m.mcdd", "same.csv", "--state", "s.json"], part);
    lab.fails(&["monitor", "m.mcdd", "--restart", "--state", "s.json"], part);
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(lab.path("s.json"), lab.path("link.json")).unwrap();
        lab.fails(&["monitor", "m.mcdd", "same.csv", "--state", "link.json"], "link.json: is in use");
    }
    fs::copy(lab.path("m.mcdd"), lab.path("s.mcdd")).unwrap();
    lab.fails(&["serve", "s.mcdd", "--listen", "127.0.0.1:0", "--state", "."], part);
    assert!(stdout(&lab.ok(&["monitor", "m.mcdd", "--state", "s.json"])).contains("rows      300"));
    first.stdin.take().unwrap().write_all(&fs::read(lab.path("same.csv")).unwrap()).unwrap();
    let done = first.wait_with_output().unwrap();
    assert!(stdout(&done).contains("rows      600"), "{}", stdout(&done));
    assert!(!lab.path(".s.json.lock").exists());

    // Many at once: each row of those that were not refused counts.
    let children = [(); 6].map(|()| {
        let mut command = lab.std_command(&["monitor", "m.mcdd", "same.csv", "same.csv", "--state", "n.json", "-q"]);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).spawn().unwrap()
    });
    let mut counted = 0;
    for child in children {
        let out = child.wait_with_output().unwrap();
        match out.status.code() {
            Some(0) => counted += 1,
            code => assert!(code == Some(2) && stderr(&out).contains("in use by another process"), "{}", stderr(&out)),
        }
    }
    let text = stdout(&lab.ok(&["monitor", "m.mcdd", "--state", "n.json"]));
    assert!(counted > 0 && text.contains(&format!("rows      {}", 600 * counted)), "{counted}: {text}");
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
        (&["serve", "m.mcdd", "--limit", "m:rows=0"], "number from 1"),
        (&["serve", "m.mcdd", "--limit", "m:speed=3"], "queued-rows"),
        (&["serve", "m.mcdd", "--limit", "rows=3"], "a model and its limits"),
        (&["serve", "m.mcdd", "--otlp", "https://collector"], "--otlp"),
        (&["serve", "m.mcdd", "--tls-certificate", "token.txt", "--tls-key", "token.txt"], "certificate"),
        (&["serve", "m.mcdd", "--tls-key", "token.txt"], "--tls-certificate"),
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
    // As soon as the address is printed, too.
    for _ in 0..20 {
        let (mut server, _) = lab.serve("m.mcdd");
        assert!(Command::new("kill").arg(server.id().to_string()).status().unwrap().success());
        assert_eq!(server.wait().unwrap().code(), Some(0));
    }
}

/// `SIGHUP` makes the server look at its files, and does not end it; after `kill -9` the next one goes on with the monitor. The log has the
/// requests with their ids, and nothing of their rows.
#[cfg(unix)]
#[test]
fn serve_reads_again_when_told_to_and_goes_on_after_a_kill() {
    let lab = lab();
    lab.ok(&["train", "train.csv", "--preset", "fast", "--epochs", "2", "-q", "-o", "next.mcdd"]);
    let serve = || {
        let args = ["serve", "m.mcdd", "--listen", "127.0.0.1:0", "--state", "watched", "--log-requests"];
        let mut server = lab.std_command(&args).stderr(std::process::Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
        let address = lines.by_ref().find_map(|l| l.unwrap().split_once("http://").map(|(_, a)| a.to_owned())).unwrap();
        (server, address, thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>().join("\n")))
    };
    let signal = |server: &std::process::Child, name: &str| {
        assert!(Command::new("kill").args([name, &server.id().to_string()]).status().unwrap().success());
    };
    let json = |address: &str, path: &str| -> Value {
        let text = help::request(address, "GET", path, "text/plain", b"");
        serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    let until = |what: &str, done: &dyn Fn() -> bool| {
        let begun = std::time::Instant::now();
        while !done() {
            assert!(begun.elapsed().as_secs() < 60, "{what}");
            thread::sleep(std::time::Duration::from_millis(50));
        }
    };
    let (mut server, address, log) = serve();
    let mut stream = TcpStream::connect(&address).unwrap();
    let body = "a,b\n12345.6789,0.5\n";
    let head = "POST /predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-Id: order-17\r\nContent-Type: text/csv\r\n";
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200") && text.to_ascii_lowercase().contains("x-request-id: order-17"), "{text}");
    fs::rename(lab.path("next.mcdd"), lab.path("m.mcdd")).unwrap();
    signal(&server, "-HUP");
    until("the new file is not read", &|| json(&address, "/v2/models/m")["versions"] == json!(["2"]));
    // The calibration is another one, so the monitor began again.
    let same = fs::read(lab.path("same.csv")).unwrap();
    assert!(help::request(&address, "POST", "/predict", "text/csv", &same).starts_with("HTTP/1.1 200"));
    let state = || fs::read_to_string(lab.path("watched/m.json")).unwrap_or_default();
    until("the state is not written", &|| state().contains("\"rows\":300"));
    signal(&server, "-KILL");
    assert_eq!(server.wait().unwrap().code(), None);
    let log = log.join().unwrap();
    assert!(log.contains("request=order-17 method=POST path=/predict status=200"), "{log}");
    assert!(!log.contains("12345") && !log.contains("a,b"), "{log}");
    let (mut server, address, _) = serve();
    assert_eq!(json(&address, "/status")["models"][0]["monitor"]["rows"], 300);
    signal(&server, "-TERM");
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

/// Stands between a browser and the server: adds a script to the page, which its policy would forbid, and shows it in a frame
/// at `/frame`. Everything else is passed on.
fn between(address: &str, script: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = listener.local_addr().unwrap().to_string();
    let (address, script) = (address.to_owned(), script.to_owned());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (address, script) = (address.clone(), script.clone());
            thread::spawn(move || pass(stream, &address, &script));
        }
    });
    here
}

fn pass(mut stream: TcpStream, address: &str, script: &str) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if !line.to_ascii_lowercase().starts_with("connection:") {
            head.push_str(&line);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let path = head.split(' ').nth(1)?.to_owned();
    let own = match path.as_str() {
        "/frame" => Some("<!doctype html><iframe width=375 height=900 src=/></iframe>".to_owned()),
        "/script.js" => Some(script.to_owned()),
        _ => None,
    };
    let answer = match own {
        Some(text) => {
            let kind = if path == "/frame" { "text/html" } else { "text/javascript" };
            format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n{text}").into_bytes()
        }
        None => {
            let mut server = TcpStream::connect(address).ok()?;
            server.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).ok()?;
            server.write_all(&body).ok()?;
            let mut answer = Vec::new();
            server.read_to_end(&mut answer).ok()?;
            if path == "/" {
                let text = String::from_utf8(answer).ok()?;
                let open = |line: &&str| {
                    !["content-security-policy", "content-length"]
                        .iter()
                        .any(|h| line.to_ascii_lowercase().starts_with(h))
                };
                let text: String = text.split_inclusive("\r\n").filter(open).collect();
                answer = text.replace("</body>", "<script src=/script.js></script></body>").into_bytes();
            }
            answer
        }
    };
    stream.write_all(&answer).ok()
}

/// Opens an address in Chromium; the document at the end, and what the browser complains about.
fn chromium(browser: &Path, lab: &Lab, url: &str, dark: bool) -> (String, Vec<String>) {
    let out = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=8000", "--dump-dom", "--window-size=600,1000"])
        .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!dark)))
        .arg(format!("--user-data-dir={}", lab.path("profile").display()))
        .arg(url)
        .output()
        .unwrap();
    let complaints = stderr(&out).lines().filter(|l| l.contains("CONSOLE")).map(str::to_owned).collect();
    (stdout(&out), complaints)
}

/// The page in Chromium as it is, with its policy: the browser has nothing to complain about.
#[test]
fn the_page_of_the_server_has_the_columns_of_the_model() {
    let Some(browser) = help::browser() else { return };
    let lab = lab();
    let (mut server, address) = lab.serve("m.mcdd");
    let (page, complaints) = chromium(&browser, &lab, &format!("http://{address}/"), false);
    server.kill().unwrap();
    server.wait().unwrap();
    for part in
        ["It knows 2 classes: even, odd. Trained on 540 rows.", "<input name=\"a\">", "<input name=\"b\">", "No alarm."]
    {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(complaints.is_empty(), "{complaints:?}");
}

/// Fills the form in and sends it, twice; then measures the page.
const FILL: &str = "
  const outer = parent.document, later = (f) => new Promise((done) => { const t = setInterval(() => { if (f()) { clearInterval(t); done(); } }, 20); });
  const el = (id) => document.getElementById(id), out = {};
  (async () => {
    await later(() => el('fields').children.length);
    out.fields = [...el('fields').querySelectorAll('input, select')].map(f => [f.name, f.tagName, f.value]);
    const send = async (values) => {
      el('verdict').replaceChildren();
      for (const [name, value] of Object.entries(values)) el('fields').querySelector(`[name='${name}']`).value = value;
      el('form').requestSubmit();
      await later(() => el('verdict').children.length);
      return [el('verdict').firstChild.textContent, [...el('verdict').querySelectorAll('tr')].map(r => r.cells[0].textContent)];
    };
    out.known = await send({ a: '0.1', b: '0.2', color: 'red' });
    out.unknown = await send({ a: '0.1', b: '400', color: 'red' });
    out.wrong = await send({ b: 'long' });
    await later(() => el('hour').textContent.startsWith('2 '));
    out.hour = el('hour').textContent;
    out.bars = el('minutes').querySelectorAll('rect').length;
    out.inner = innerWidth;
    out.wide = document.documentElement.scrollWidth <= innerWidth;
    out.cut = [...document.querySelectorAll('input, select, button, h1, h2, p, td')].filter(e => e.getBoundingClientRect().right > innerWidth).map(e => e.outerHTML);
    out.dark = matchMedia('(prefers-color-scheme: dark)').matches;
    const light = (color) => { const [r, g, b] = color.match(/[0-9.]+/g).map(Number); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const of = (element, what) => light(getComputedStyle(element)[what]);
    const back = of(document.body, 'backgroundColor');
    out.back = back;
    out.contrast = ['known', 'unknown', 'note'].map(name => { const e = document.createElement('p'); e.className = name; document.body.append(e); return Math.abs(of(e, 'color') - back); });
  })().catch(e => { out.error = String(e.stack); }).then(() => {
    const result = outer.createElement('pre');
    result.id = 'result';
    result.textContent = JSON.stringify(out);
    outer.body.append(result);
  });
";

/// The form is built from the columns and says what the command says; it fits a phone of 375 pixels, light and dark.
#[test]
fn the_form_of_the_page_predicts_and_fits_a_phone() {
    let Some(browser) = help::browser() else { return };
    let lab = Lab::new();
    let colored = |i: usize, shift: f64| format!("{},{}", row(i, shift), ["red", "blue"][i % 2]);
    lab.write("train.csv", &table(600, |i| format!("{},{}", colored(i, 0.0), help::class(i)), "a,b,color,label"));
    lab.ok(&["train", "train.csv", "--preset", "fast", "--epochs", "5", "-q", "-o", "m.mcdd"]);
    for dark in [false, true] {
        let (mut server, address) = lab.serve("m.mcdd");
        let here = between(&address, FILL);
        let (page, complaints) = chromium(&browser, &lab, &format!("http://{here}/frame"), dark);
        server.kill().unwrap();
        server.wait().unwrap();
        // The wrong row is a 400, which the browser notes.
        assert!(complaints.iter().all(|c| c.contains("400")), "{complaints:?}");
        let result = page.split_once("<pre id=\"result\">").unwrap_or_else(|| panic!("{page}")).1;
        let text =
            result.split_once("</pre>").unwrap().0.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        let out: Value = serde_json::from_str(&text).unwrap();
        assert!(out["error"].is_null(), "{out}");
        let fields: Vec<(String, String, String)> = serde_json::from_value(out["fields"].clone()).unwrap();
        let kinds: Vec<(&str, &str)> = fields.iter().map(|(name, kind, _)| (&name[..], &kind[..])).collect();
        assert_eq!(kinds, [("a", "INPUT"), ("b", "INPUT"), ("color", "SELECT")]);
        // Each begins with a value of the training rows.
        assert!(
            fields[..2].iter().all(|f| f.2.parse::<f64>().is_ok()) && ["red", "blue"].contains(&&fields[2].2[..]),
            "{out}"
        );
        assert!(out["known"][0].as_str().unwrap().starts_with("even."), "{out}");
        assert!(out["unknown"][0].as_str().unwrap().starts_with("unknown, nearest to "), "{out}");
        assert!(out["unknown"][1].to_string().contains("\"b\""), "{out}");
        assert!(out["wrong"][0].as_str().unwrap().contains("long"), "{out}");
        assert_eq!((&out["hour"], &out["bars"]), (&json!("2 rows, 50% unknown"), &json!(1)));
        assert_eq!((&out["inner"], &out["wide"], &out["dark"]), (&json!(375), &json!(true), &json!(dark)), "{out}");
        assert!(out["cut"].as_array().unwrap().is_empty(), "{out}");
        assert!((out["back"].as_f64().unwrap() < 60.0) == dark, "{out}");
        assert!(out["contrast"].as_array().unwrap().iter().all(|c| c.as_f64().unwrap() > 80.0), "{out}");
    }
}
