//! The report and the pages of a benchmark and of a reproduction in headless Chromium. Without a browser the tests print a message and do nothing.

mod help;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use help::{Lab, browser, stdout, table};
use serde_json::Value;

/// A window, and the width of a frame in it that shows the page.
#[derive(Clone, Copy)]
struct Window {
    width: u32,
    dark: bool,
    frame: Option<u32>,
}

const WIDE: Window = Window { width: 1200, dark: false, frame: None };
/// The narrowest window of the browser; the page has its layout for phones below 640.
const PHONE: Window = Window { width: 500, dark: true, frame: None };
/// The width of a phone.
const NARROW: Window = Window { width: 600, dark: false, frame: Some(375) };

/// The document of a page, and the messages of the browser console.
fn open(browser: &Path, lab: &Lab, page: &str, window: Window) -> (String, Vec<String>) {
    let (dom, log) = (lab.path("dom.html"), lab.path("log.txt"));
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("--window-size={},900", window.width))
        .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!window.dark)))
        .arg(format!("--user-data-dir={}", lab.path("profile").display()))
        .arg(format!("file://{}", lab.path(page).display()))
        .stdin(Stdio::null())
        .stdout(fs::File::create(&dom).unwrap())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > Duration::from_secs(300) {
            child.kill().unwrap();
            panic!("the browser does not end: {}", fs::read_to_string(&log).unwrap_or_default());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let log = String::from_utf8_lossy(&fs::read(&log).unwrap()).into_owned();
    let complaints = log.lines().filter(|l| l.contains("CONSOLE")).map(String::from).collect();
    (String::from_utf8_lossy(&fs::read(&dom).unwrap()).into_owned(), complaints)
}

/// Runs a script in a copy of a page that allows it, and returns its `out`.
fn run(browser: &Path, lab: &Lab, page: &str, window: Window, script: &str) -> Value {
    let whole = fs::read_to_string(lab.path(page)).unwrap();
    let (head, rest) = whole.split_once("<meta http-equiv=Content-Security-Policy").unwrap();
    let (_, rest) = rest.split_once(">\n").unwrap();
    let plain = "s => s.replace(/[^ -~]|[<>&]/g, c => '\\\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'))";
    let more = format!(
        "<pre id=result></pre>\n<script>{{ const out = {{}}; const plain = {plain};\ntry {{ {script} }} catch (e) {{ out.error = String(e.stack); }}\n\
         document.getElementById('result').textContent = plain(JSON.stringify(out)); }}</script>\n</body>"
    );
    let copy = format!("{head}{}", rest.replace("</body>", &more));
    match window.frame {
        None => lab.write("copy.html", &copy),
        Some(width) => {
            // A file in a frame is of another origin; it sends its result.
            let sent =
                copy.replace("document.getElementById('result').textContent = plain(", "parent.postMessage(plain(");
            lab.write("inner.html", &sent.replace("(JSON.stringify(out));", "(JSON.stringify(out)), '*');"));
            let script = "onmessage = e => { document.getElementById('result').textContent = e.data; };";
            let whole = format!(
                "<!doctype html><meta charset=utf-8><pre id=result></pre><script>{script}</script>\
                 <iframe width={width} height=700 src=inner.html></iframe>"
            );
            lab.write("copy.html", &whole);
        }
    }
    let (dom, complaints) = open(browser, lab, "copy.html", window);
    assert!(complaints.is_empty(), "{complaints:?}");
    let (_, result) = dom.split_once("<pre id=\"result\">").unwrap();
    let out: Value = serde_json::from_str(result.split_once("</pre>").unwrap().0).unwrap();
    assert!(out["error"].is_null(), "{out}");
    out
}

/// The number after a name in the output of `mcdd evaluate`.
fn printed(text: &str, name: &str) -> String {
    let line = text.lines().find(|l| l.trim_start().starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    let value = line.trim_start()[name.len()..].split_whitespace().next().unwrap();
    format!("{value}%")
}

const SLIDE: &str = "
  const input = document.getElementById('tpr'), text = id => document.getElementById(id).textContent;
  const positions = JSON.parse(text('data')).positions;
  out.positions = [input.valueAsNumber, 0, 17, 40, 77, positions.length - 1].map(i => {
    input.value = i;
    input.dispatchEvent(new Event('input', { bubbles: true }));
    return { option: text('option'), kept: text('kept'), right: text('right'), rejected: text('rejected-0'), verdict: text('verdict') };
  });
  const sum = () => [...document.querySelectorAll('#confusion td')].map(t => Number(t.textContent.replace(/\\D/g, ''))).reduce((a, b) => a + b, 0);
  out.sum = sum();
  document.getElementById('reset').click();
  out.back = text('option');
";

const POINT: &str = "
  const plot = document.querySelector('.plot svg'), box = plot.getBoundingClientRect();
  const card = document.getElementById('card');
  const move = (x, y) => plot.dispatchEvent(new PointerEvent('pointermove', { clientX: x, clientY: y, pointerId: 1, bubbles: true }));
  const cards = new Set();
  out.empty = card.textContent;
  for (let x = box.left + 5; x < box.right; x += 9) for (let y = box.top + 5; y < box.bottom; y += 9) { move(x, y); cards.add(card.textContent); }
  out.cards = [...cards].slice(0, 400);
  out.picture = !!card.querySelector('canvas');
  plot.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }));
  out.key = card.textContent;
  document.getElementById('in').click();
  out.wide = document.documentElement.scrollWidth <= window.innerWidth;
";

#[test]
fn the_page_shows_what_evaluate_prints() {
    let Some(browser) = browser() else { return };
    let lab = Lab::new();
    lab.model();
    let evaluate = ["evaluate", "m.mcdd", "test.csv", "--ood", "ood.csv", "--bootstrap", "0", "--quiet"];
    lab.ok(&[&evaluate[..], &["--report", "r.html"]].concat());
    assert!(fs::metadata(lab.path("r.html")).unwrap().len() < 2_000_000);

    // The page itself, with its own content security policy.
    let (dom, complaints) = open(&browser, &lab, "r.html", WIDE);
    assert!(complaints.is_empty(), "{complaints:?}");
    for part in
        ["<tbody>", "class=\"sphere\"", "Most confident mistakes", "Unknown rows that look most known", "--tpr 0.95"]
    {
        assert!(dom.contains(part), "{part}");
    }

    let out = run(&browser, &lab, "r.html", WIDE, &format!("{SLIDE}{POINT}"));
    let positions = out["positions"].as_array().unwrap();
    assert_eq!((positions[0]["option"].as_str(), out["back"].as_str()), (Some("--tpr 0.95"), Some("--tpr 0.95")));
    let mut seen = std::collections::BTreeSet::new();
    for p in positions {
        let option = p["option"].as_str().unwrap();
        let tpr = option.strip_prefix("--tpr ").unwrap();
        let text = stdout(&lab.ok(&[&evaluate[..], &["--tpr", tpr]].concat()));
        for (id, name) in [
            ("kept", "kept as known %"),
            ("right", "accuracy among those kept %"),
            ("rejected", "rejected as unknown %"),
        ] {
            let wanted = printed(&text, name);
            assert_eq!(p[id].as_str(), Some(&wanted[..]), "{option} {name}");
            assert!(p["verdict"].as_str().unwrap().contains(&wanted), "{p}");
        }
        seen.insert(option);
    }
    assert_eq!(seen.len(), 6);
    let rows = |name: &str| fs::read_to_string(lab.path(name)).unwrap().lines().count() as u64 - 1;
    assert_eq!(out["sum"].as_u64(), Some(rows("test.csv") + rows("ood.csv")));

    assert_eq!(out["empty"], "");
    let cards: Vec<&str> = out["cards"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(cards.len() > 30, "{}", cards.len());
    for word in ["row ", "label", "predicted", "confidence", "p-value", "known", "of ood.csv"] {
        assert!(cards.iter().any(|c| c.contains(word)), "{word}");
    }
    assert!(out["picture"].as_bool().unwrap() && out["wide"].as_bool().unwrap());
    assert_ne!(out["key"], "");
}

#[test]
fn hostile_names_are_text() {
    let Some(browser) = browser() else { return };
    let lab = Lab::new();
    let script = "<script>window.hacked=1</script>";
    let image = "<img src=x onerror=window.hacked=1>";
    let names = [
        script.to_owned(),
        format!("\"\"'{image}"),
        "x".repeat(10_000),
        "\u{202e}\u{5d0}\u{5d1}\u{5d2} \u{627}\u{644}".to_owned(),
        "--> ]]> </style></title></script><script>window.hacked=1</script>".to_owned(),
    ];
    let quoted = |t: &str| format!("\"{t}\"");
    let header = format!("{},{},color,label", quoted(script), quoted(&names[1]));
    let row = |i: usize| {
        let k = i % 5;
        let noise = (i * 7919 % 101) as f64 / 100.0;
        format!(
            "{},{},{},{}",
            3.0 * k as f64 + noise,
            10.0 - k as f64 - noise,
            quoted(&names[(i / 5) % 2 * 4]),
            quoted(&names[k])
        )
    };
    lab.write("rows.csv", &table(200, row, &header));
    lab.write("<b>ood & \"1\".csv", &table(20, |i| format!("{},99,pink,{}", i, quoted(image)), &header));
    lab.ok(&["train", "rows.csv", "-o", "m.mcdd", "--preset", "fast", "--epochs", "5", "-q", "--report", "train.html"]);
    lab.ok(&[
        "evaluate",
        "m.mcdd",
        "rows.csv",
        "--ood",
        "<b>ood & \"1\".csv",
        "--bootstrap",
        "0",
        "-q",
        "--report",
        "r.html",
    ]);
    for page in ["train.html", "r.html"] {
        let (_, complaints) = open(&browser, &lab, page, PHONE);
        assert!(complaints.is_empty(), "{page}: {complaints:?}");
        let look = "
          out.hacked = window.hacked ?? null;
          out.scripts = document.scripts.length;
          out.images = document.images.length;
          out.text = [...document.querySelectorAll('bdi')].map(b => b.textContent);
          out.long = Math.max(...[...document.querySelectorAll('bdi')].map(b => b.getBoundingClientRect().width));
          out.wide = document.documentElement.scrollWidth <= window.innerWidth;
        ";
        let out = run(&browser, &lab, page, PHONE, look);
        assert!(out["hacked"].is_null() && out["images"] == 0 && out["scripts"] == 3, "{out}");
        assert!(out["wide"] == true, "{page} is wider than the window");
        let texts: Vec<&str> = out["text"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let wanted = [&names[0][..], &names[1][2..], &"x".repeat(120), "\u{5d0}\u{5d1}\u{5d2}", &names[4][..40]];
        for name in wanted {
            assert!(texts.iter().any(|t| t.contains(name)), "{page}: {name}");
        }
    }
}

const MEASURE: &str = "
  const marks = kind => [...document.querySelectorAll(`.plot svg .${kind}`)].map(p => (p.getAttribute('d').match(/M/g) || []).length).reduce((a, b) => a + b, 0);
  out.dots = marks('dots');
  out.crosses = marks('crosses');
  out.cut = [...document.querySelectorAll('.card td')].filter(t => t.scrollWidth > t.clientWidth + 1).map(t => t.textContent);
  out.wide = document.documentElement.scrollWidth <= window.innerWidth;
  out.inner = window.innerWidth;
  out.dark = matchMedia('(prefers-color-scheme: dark)').matches;
  out.rows = [...document.querySelectorAll('#confusion tbody tr')].map(r => r.textContent);
  out.unknown = [...document.querySelectorAll('#confusion tr > :last-child')].every(c => c.getBoundingClientRect().right <= window.innerWidth);
  out.names = [...document.querySelectorAll('.tile bdi')].map(b => b.textContent);
";

#[test]
fn models_without_classes_and_small_numbers_fit_a_phone() {
    let Some(browser) = browser() else { return };
    let lab = Lab::new();
    let noise = |i: usize| (i * 7919 % 101) as f64 / 100.0;
    let row = |i: usize| format!("{},{},{}", 1e-7 * noise(i), 1e9 + noise(3 * i + 1), ["red", ""][i % 2]);
    let header = "mass,distance,color";
    lab.write("known.csv", &table(200, row, header));
    lab.write("test.csv", &table(60, |i| row(i + 500), header));
    for (folder, shift) in [("a", 20.0), ("b", 0.0)] {
        fs::create_dir(lab.path(folder)).unwrap();
        let far = |i: usize| format!("{},{},pink", 1e-7 * (noise(i) + shift), 1e9 + shift);
        lab.write(&format!("{folder}/x.csv"), &table(10, far, header));
    }
    let train =
        ["train", "known.csv", "--label", "none", "--method", "deep-svdd", "--epochs", "5", "-q", "-o", "m.mcdd"];
    lab.ok(&train);
    let sets = ["--ood", "a/x.csv", "b/x.csv", "--bootstrap", "0", "-q", "--report", "r.html"];
    lab.ok(&[&["evaluate", "m.mcdd", "test.csv", "--label", "none"], &sets[..]].concat());
    let (_, complaints) = open(&browser, &lab, "r.html", PHONE);
    assert!(complaints.is_empty(), "{complaints:?}");
    let out = run(&browser, &lab, "r.html", PHONE, MEASURE);
    assert_eq!((out["inner"].as_u64(), out["dark"].as_bool()), (Some(500), Some(true)), "{out}");
    let count = |key: &str| out[key].as_u64().unwrap();
    assert!(count("dots") > 50 && count("dots") <= 60 && count("crosses") <= 20, "{out}");
    assert!(out["cut"].as_array().unwrap().is_empty() && out["wide"] == true && out["unknown"] == true, "{out}");
    let rows: Vec<&str> = out["rows"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(rows.len() == 3 && rows[0].starts_with("known rows") && rows[1].starts_with("a/x.csv"), "{rows:?}");
    assert_eq!(out["names"].to_string(), "[\"a/x.csv\",\"b/x.csv\"]");
}

const CONTENTS: &str = "
  const links = [...document.querySelectorAll('.contents a')];
  out.links = links.map(a => a.textContent);
  out.headings = [...document.querySelectorAll('section:not([hidden]) h2')].map(h => h.textContent);
  const bar = document.querySelector('.slider');
  out.gaps = links.map(a => {
    a.click();
    // The numbers of the bar appear when the tiles are out of sight.
    const summary = document.getElementById('summary');
    if (summary) summary.hidden = false;
    const heading = document.querySelector(a.getAttribute('href') + ' h2').getBoundingClientRect();
    const bottom = bar ? bar.getBoundingClientRect().bottom : 0;
    return [heading.top - bottom, window.innerHeight - heading.bottom];
  });
  out.wide = document.documentElement.scrollWidth <= window.innerWidth;
";

/// Every section is linked, and no heading lands below the bar at the top or out of sight.
fn check_contents(out: &Value) {
    assert!(out["links"].as_array().unwrap().len() > 5 && out["links"] == out["headings"], "{out}");
    for gap in out["gaps"].as_array().unwrap() {
        assert!(gap[0].as_f64().unwrap() >= 0.0 && gap[1].as_f64().unwrap() >= 0.0, "{out}");
    }
    assert!(out["wide"] == true, "wider than the window");
}

const CLASSES: &str = "
  const table = document.querySelector('#classes table');
  const cells = () => [...table.tBodies[0].rows].map(r => [...r.cells].map(c => c.textContent));
  const positions = JSON.parse(document.getElementById('data').textContent).positions;
  const input = document.getElementById('tpr');
  out.head = [...table.tHead.rows[0].cells].map(c => c.textContent);
  out.classes = [input.valueAsNumber, 5, 60].map(i => {
    input.value = i;
    input.dispatchEvent(new Event('input', { bubbles: true }));
    return [positions[i].tpr, cells()];
  });
  const metrics = [...document.querySelectorAll('#detection tbody tr')].map(r => [...r.cells].map(c => c.textContent));
  out.metrics = metrics;
  out.accuracy = document.getElementById('accuracy').parentNode.textContent;
  const button = table.tHead.rows[0].cells[2].querySelector('button');
  button.click();
  out.sorted = cells().map(c => Number.parseFloat(c[2]));
  out.order = table.tHead.rows[0].cells[2].getAttribute('aria-sort');
";

#[test]
fn the_page_has_the_classes_and_intervals_that_evaluate_prints() {
    let Some(browser) = browser() else { return };
    let lab = Lab::new();
    lab.model();
    let evaluate = ["evaluate", "m.mcdd", "test.csv", "--ood", "ood.csv", "--bootstrap", "40", "--quiet"];
    let text = stdout(&lab.ok(&[&evaluate[..], &["--report", "r.html"]].concat()));
    let out = run(&browser, &lab, "r.html", WIDE, CLASSES);
    let line = |text: &str, start: &str| -> Vec<String> {
        let found =
            text.lines().find(|l| l.trim_start().starts_with(start)).unwrap_or_else(|| panic!("{start}: {text}"));
        found.trim_start()[start.len()..].split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(out["head"][2], "recall");
    let mut rows = 0;
    for position in out["classes"].as_array().unwrap() {
        let tpr = position[0].as_str().unwrap();
        let printed = stdout(&lab.ok(&[&evaluate[..], &["--tpr", tpr]].concat()));
        for class in position[1].as_array().unwrap() {
            let cells: Vec<String> =
                (0..5).map(|i| class[i].as_str().unwrap().trim_end_matches('%').to_owned()).collect();
            assert_eq!(line(&printed, &format!("{} ", cells[0])), cells[1..], "--tpr {tpr}: {printed}");
            rows += 1;
        }
    }
    assert_eq!(rows, 3 * 9);
    for metric in out["metrics"].as_array().unwrap() {
        let (name, value) = (metric[0].as_str().unwrap(), metric[1].as_str().unwrap());
        let start = match name.split_once(',') {
            Some((name, rest)) => format!("{name} %,{rest}"),
            None => "tied pairs %".to_owned(),
        };
        assert_eq!(line(&text, &start).join(" "), value, "{text}");
    }
    let accuracy = line(&text, "accuracy %");
    let tile = out["accuracy"].as_str().unwrap();
    assert!(tile.starts_with(&format!("{}%", accuracy[0])) && tile.ends_with(&accuracy[1..].join(" ")), "{tile}");
    let sorted: Vec<f64> = out["sorted"].as_array().unwrap().iter().filter_map(Value::as_f64).collect();
    assert!(sorted.len() == 9 && sorted.windows(2).all(|w| w[0] >= w[1]) && out["order"] == "descending", "{sorted:?}");

    for window in [WIDE, PHONE, NARROW] {
        check_contents(&run(&browser, &lab, "r.html", window, CONTENTS));
    }
}

const BENCH: &str = "
  const means = document.querySelector('#means table'), head = means.tHead.rows[0].cells;
  const names = table => [...table.tBodies[0].rows].map(r => r.cells[0].textContent);
  const seen = list => [...list].filter(e => e.getClientRects().length);
  const column = i => seen(means.tBodies[0].rows).map(r => Number.parseFloat(r.cells[i].textContent));
  out.rows = names(means);
  out.shown = seen(means.tBodies[0].rows).map(r => r.cells[0].textContent);
  out.columns = seen(document.querySelector('#auroc table').tHead.rows[0].cells).length;
  const fold = document.querySelector('#auroc .fold button');
  out.folded = [fold.textContent, fold.getAttribute('aria-expanded')];
  const at = fold.getBoundingClientRect().top;
  fold.click();
  out.moved = Math.abs(fold.getBoundingClientRect().top - at);
  out.unfolded = [fold.textContent, fold.getAttribute('aria-expanded'), seen(means.tBodies[0].rows).length,
    seen(document.querySelector('#auroc table').tHead.rows[0].cells).length];
  const button = head[4].querySelector('button');
  out.button = [button.tabIndex, button.textContent, head[4].getAttribute('aria-sort')];
  const press = () => { button.click(); return [head[4].getAttribute('aria-sort'), column(4), document.getElementById('order').textContent]; };
  out.pressed = [press(), press(), press()];
  out.after = names(means);
  head[0].querySelector('button').click();
  out.byName = names(means);
  const auroc = document.querySelector('#auroc table');
  auroc.tHead.rows[0].cells[1].querySelector('button').click();
  out.last = auroc.rows[auroc.rows.length - 1].cells[0].textContent;
  fold.click();
  out.again = seen(means.tBodies[0].rows).length;
  out.legend = [...document.querySelectorAll('figure svg text')].map(t => t.textContent);
  out.hacked = window.hacked ?? null;
";

#[test]
fn the_page_of_a_benchmark_sorts_and_folds() {
    let Some(browser) = browser() else { return };
    let lab = Lab::new();
    let hostile = "<img src=x onerror=window.hacked=1>";
    let names = ["x", hostile, "z\u{202e}z", &"long".repeat(400)];
    let row = |i: usize| {
        let c = i % 4;
        let noise = |k: usize| ((i * 37 + k * 11) % 101) as f64 / 50.0;
        format!("{},{},{}", c as f64 + noise(1), noise(2) - c as f64, names[c])
    };
    lab.write("t.csv", &table(120, row, "a,b,kind"));
    let many: Vec<String> = (1..=14).map(|k| format!("gda+knn:k={k}")).chain(["gda".into()]).collect();
    let bench = |methods: &str| {
        lab.ok(&["bench", "t.csv", "--label", "kind", "--folds", "2", "--methods", methods, "-o", "out", "-q"])
    };
    let text = stdout(&bench(&many.join(",")));
    // The same folder again: only gda was asked for.
    bench("gda");
    let (_, complaints) = open(&browser, &lab, "out/index.html", WIDE);
    assert!(complaints.is_empty(), "{complaints:?}");
    let out = run(&browser, &lab, "out/index.html", WIDE, BENCH);
    let list =
        |v: &Value| -> Vec<String> { v.as_array().unwrap().iter().map(|t| t.as_str().unwrap().to_owned()).collect() };
    let rows = list(&out["rows"]);
    let shown = list(&out["shown"]);
    assert!(rows.len() == 15 && shown.len() == 10 && shown.contains(&"gda".to_owned()), "{out}");
    assert_eq!(out["columns"], 11);
    assert_eq!((&out["folded"][0], &out["folded"][1]), (&"Show all 15 methods".into(), &"false".into()));
    assert_eq!(
        (&out["unfolded"][1], &out["unfolded"][2], &out["unfolded"][3]),
        (&"true".into(), &15.into(), &16.into())
    );
    assert!(out["moved"].as_f64().unwrap() < 2.0 && out["again"] == 10, "{out}");
    // A button that the keyboard reaches; highest first, lowest first, then as before.
    assert_eq!((&out["button"][0], &out["button"][1], &out["button"][2]), (&0.into(), &"AUROC".into(), &"none".into()));
    let column = |i: usize| -> Vec<f64> {
        out["pressed"][i][1].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
    };
    assert!(out["pressed"][0][0] == "descending" && column(0).windows(2).all(|w| w[0] >= w[1]), "{out}");
    assert!(out["pressed"][1][0] == "ascending" && column(1).windows(2).all(|w| w[0] <= w[1]), "{out}");
    assert!(out["pressed"][2][0] == "none" && out["pressed"][0][2] == "Sorted by AUROC, descending.", "{out}");
    assert_eq!(list(&out["after"]), rows);
    assert_eq!(list(&out["byName"])[1..4], ["gda+knn:k=1", "gda+knn:k=2", "gda+knn:k=3"]);
    assert_eq!(out["last"], "mean");
    // One spelling: in the terminal, the tables and the legend.
    let legend = list(&out["legend"]);
    for name in &shown {
        assert!(legend.contains(name) && text.lines().any(|l| l.starts_with(&format!("{name} "))), "{name}");
    }
    assert!(out["hacked"].is_null());
    // The same numbers in the terminal.
    let line = text.lines().find(|l| l.starts_with(&format!("{} ", rows[0]))).unwrap();
    let auroc: f64 = line.split_whitespace().nth(4).unwrap().parse().unwrap();
    assert_eq!(column(2)[0], auroc, "{line}");

    for window in [WIDE, PHONE, NARROW] {
        let out = run(&browser, &lab, "out/index.html", window, CONTENTS);
        check_contents(&out);
        assert_eq!(out["links"][0], "Mean over the classes");
    }
}

const REPRODUCTION: &str = "
  out.tables = document.querySelectorAll('table').length;
  out.sortable = document.querySelectorAll('thead button').length;
  out.images = [...document.images].map(i => [i.alt, i.complete && i.naturalWidth > 0]);
  const details = document.querySelector('details');
  details.open = true;
  const frame = details.querySelector('.wide'), box = frame.getBoundingClientRect();
  out.inside = box.right <= window.innerWidth && frame.scrollHeight > 0;
  out.size = Number.parseFloat(getComputedStyle(details.querySelector('td')).fontSize);
";

#[test]
fn the_page_of_a_reproduction_shows_tables_and_figures() {
    let Some(browser) = browser() else { return };
    let lab = Lab::new();
    lab.shuttle("data");
    lab.ok(&["reproduce", "tables", "figures", "--quick", "--data", "data", "-q", "-o", "out"]);
    let (_, complaints) = open(&browser, &lab, "out/index.html", WIDE);
    assert!(complaints.is_empty(), "{complaints:?}");
    for window in [WIDE, PHONE, NARROW] {
        let out = run(&browser, &lab, "out/index.html", window, CONTENTS);
        let links = ["AUROC at a glance", "Not run, or run in part", "Table 2, Shuttle", "nu, Shuttle", "Figures"];
        assert!(out["links"] == serde_json::json!(links) && out["links"] == out["headings"], "{out}");
        assert!(out["wide"] == true, "wider than the window");
        let out = run(&browser, &lab, "out/index.html", window, REPRODUCTION);
        let images = out["images"].as_array().unwrap();
        assert!(images.len() == 3 && images.iter().all(|i| i[1] == true), "{out}");
        // The overview, and for both studies the means and five metrics by class.
        assert!(out["tables"] == 13 && out["sortable"].as_u64().unwrap() > 50, "{out}");
        assert!(out["inside"] == true && out["size"].as_f64().unwrap() >= 12.0, "{out}");
    }
}
