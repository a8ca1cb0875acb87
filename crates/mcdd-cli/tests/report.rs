//! Reports, figures and explanations as files and text; `browser.rs` looks at the page.

mod help;

use std::fs;

use help::{Lab, class, stderr, stdout, table};
use serde_json::Value;

/// What the page was made of.
fn data(lab: &Lab, page: &str) -> Value {
    let text = fs::read_to_string(lab.path(page)).unwrap();
    let (_, rest) = text.split_once("id=data>").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

/// Columns a to d, of which b separates the classes, and a category.
fn row(i: usize) -> String {
    let noise = |k: usize| ((i * 37 + k * 11) % 101) as f64 / 50.0 - 1.0;
    let side = if class(i) == "even" { 5.0 } else { -5.0 };
    let color = if class(i) == "even" { "red" } else { "blue" };
    format!("{},{},{},{},{color},{}", 100.0 + noise(1), side + noise(2), noise(3), 0.001 * noise(4), class(i))
}

const HEADER: &str = "a,b,c,d,color,label";

fn trained() -> Lab {
    let lab = Lab::new();
    lab.write("train.csv", &table(300, row, HEADER));
    lab.ok(&["train", "train.csv", "-o", "m.mcdd", "--preset", "fast", "--epochs", "10", "-q", "--report", "t.html"]);
    lab
}

#[test]
fn train_reports_on_its_calibration_rows() {
    let lab = trained();
    let report = data(&lab, "t.html");
    assert_eq!((report["rows"].as_u64(), report["sets"].as_array().unwrap().len()), (Some(31), 0));
    assert_eq!(report["about"]["on_calibration_rows"], true);
    assert_eq!(report["calibration_rows"], 31);
    let command = "mcdd train train.csv -o m.mcdd --preset fast --epochs 10 -q --report t.html";
    assert_eq!(report["about"]["command"], command);
    let page = fs::read_to_string(lab.path("t.html")).unwrap();
    assert!(page.contains("the threshold was set on them") && page.contains("calibration rows of train.csv"));
    assert_eq!(report["training"].as_array().unwrap().len(), 1);
    lab.fails(&["train", "train.csv", "--report", "no/where.html"], "no such folder");
}

#[test]
fn evaluate_writes_a_page_and_figures() {
    let lab = trained();
    lab.write("far.csv", &table(20, |i| format!("500,{i},0,0,red,even"), HEADER));
    lab.write("mixed.csv", &table(60, |i| if i % 6 == 0 { row(i).replace("even", "prime") } else { row(i) }, HEADER));
    let run = ["evaluate", "m.mcdd", "mixed.csv", "--ood", "far.csv", "--bootstrap", "0"];
    let plain = stdout(&lab.ok(&run));
    let out = lab.ok(&[&run[..], &["--report", "r.html", "--figures", "deep/figures"]].concat());
    assert_eq!(stdout(&out), plain);
    assert!(stderr(&out).contains("wrote r.html"), "{}", stderr(&out));
    let report = data(&lab, "r.html");
    let names: Vec<&str> = report["sets"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["mixed.csv: labels that are not classes of the model", "far.csv"]);
    assert_eq!(report["rows"], 50);
    // Rows have the line of the file, which has a header.
    let points = report["points"].as_array().unwrap();
    assert!(points.iter().all(|p| p["line"].as_u64() == p["row"].as_u64().map(|row| row + 1)), "{}", points[0]);
    let used = &report["positions"][report["used"].as_u64().unwrap() as usize];
    assert!(
        plain.contains(&format!("kept as known %                    {}", used["kept"].as_str().unwrap())),
        "{used} {plain}"
    );
    // The column that is out of range comes first.
    let far = report["groups"].as_array().unwrap().iter().find(|g| g["title"].as_str().unwrap().contains("far.csv"));
    let first = &far.unwrap()["rows"][0]["columns"][0];
    assert_eq!((first[0].as_str(), first[1].as_str()), (Some("a"), Some("500")), "{first}");
    for name in ["scores", "roc", "precision-recall-known", "risk-coverage", "calibration", "training", "latent"] {
        let file = |end: &str| fs::read(lab.path(&format!("deep/figures/{name}.{end}"))).unwrap();
        assert!(file("svg").starts_with(b"<svg ") && file("png").starts_with(b"\x89PNG"), "{name}");
    }
    // The same bytes on any number of threads.
    let again = |threads: &str| {
        lab.ok(&[&run[..], &["--report", "r.html", "-q", "--threads", threads]].concat());
        fs::read_to_string(lab.path("r.html")).unwrap().replace(&format!("--threads {threads}"), "")
    };
    assert!(again("1") == again("3"));
    lab.fails(&[&run[..], &["--report", "no/r.html"]].concat(), "no such folder");
}

#[test]
fn evaluate_lists_the_classes() {
    let lab = trained();
    lab.write("test.csv", &table(90, |i| if i % 9 == 0 { row(i).replace("odd", "even") } else { row(i) }, HEADER));
    let evaluate = ["evaluate", "m.mcdd", "test.csv", "--bootstrap", "0"];
    let text = stdout(&lab.ok(&evaluate));
    let json: Value = serde_json::from_str(&stdout(&lab.ok(&[&evaluate[..], &["--json"]].concat()))).unwrap();
    let classes = json["classes"].as_array().unwrap();
    assert_eq!(classes.iter().map(|c| c["name"].as_str().unwrap()).collect::<Vec<_>>(), ["even", "odd"]);
    assert_eq!((classes[0]["rows"].as_u64(), classes[1]["rows"].as_u64()), (Some(50), Some(40)));
    let right = |c: &Value| c["recall"].as_f64().unwrap() * c["rows"].as_f64().unwrap();
    let total: f64 = classes.iter().map(right).sum();
    assert!((total / 90.0 - json["accuracy"]["value"].as_f64().unwrap()).abs() < 1e-12);
    // Five rows have the label of the other class.
    assert!(classes[0]["recall"].as_f64().unwrap() < 1.0 && classes[1]["precision"].as_f64().unwrap() < 1.0);
    let line = text.lines().find(|l| l.starts_with("  even ")).unwrap();
    let percent = |c: &Value| format!("{:.2}", 100.0 * c.as_f64().unwrap());
    let cells: Vec<&str> = line.split_whitespace().collect();
    let [recall, precision, kept] = ["recall", "precision", "kept"].map(|key| percent(&classes[0][key]));
    assert_eq!(cells, ["even", "50", &recall, &precision, &kept], "{text}");
    // Without labels there is no table.
    let unlabeled = stdout(&lab.ok(&[&evaluate[..], &["--label", "none"]].concat()));
    assert!(unlabeled.contains("n/a (no labels)") && !unlabeled.contains("recall"), "{unlabeled}");
    // A long list is cut.
    let many = |i: usize| format!("{},{},c{:02}", i % 30, (i % 30) as f64 + (i * 7 % 11) as f64 / 100.0, i % 30);
    lab.write("many.csv", &table(600, many, "x,y,label"));
    lab.ok(&["train", "many.csv", "-o", "many.mcdd", "--preset", "fast", "--epochs", "2", "-q"]);
    let text = stdout(&lab.ok(&["evaluate", "many.mcdd", "many.csv", "--bootstrap", "0"]));
    assert!(text.contains("(20 of 30 classes, those with the lowest recall; --json lists all)"), "{text}");
}

/// A fraction as it is printed.
fn percent(fraction: &Value) -> String {
    format!("{:.2}", 100.0 * fraction.as_f64().unwrap())
}

/// The same as a text of the report; `null` stays.
fn shown(fraction: &Value) -> Value {
    if fraction.is_null() { Value::Null } else { percent(fraction).into() }
}

/// A value with its interval, of the JSON, as the text prints it; and the same of the report.
fn both(json: &Value, report: &Value) -> [String; 2] {
    let [low, high] = ["low", "high"].map(|end| percent(&json["interval95"][end]));
    let printed = |v: &Value| v.as_str().unwrap().to_owned();
    let [a, b] = [0, 1].map(|i| printed(&report["interval95"][i]));
    [format!("{}  [{low}, {high}]", percent(&json["value"])), format!("{}  [{a}, {b}]", printed(&report["value"]))]
}

#[test]
fn text_json_and_report_have_the_same_numbers() {
    let lab = trained();
    // Wrong labels, labels of no class, 32 rows of a class (fractions that end in 5), and two unknown sets.
    let row = |i: usize| match i {
        _ if i.is_multiple_of(9) => row(i).replace("odd", "even"),
        _ if i % 10 == 1 => row(i).replace("odd", "prime"),
        _ => row(i),
    };
    lab.write("test.csv", &table(64, row, HEADER));
    lab.write("far.csv", &table(16, |i| format!("500,{i},0,0,red,even"), HEADER));
    lab.write("near.csv", &table(32, |i| format!("100,{},0,0,red,even", i as f64 / 8.0), HEADER));
    let run = ["evaluate", "m.mcdd", "test.csv", "--ood", "far.csv", "near.csv", "--bootstrap", "60", "-q"];
    for tpr in ["0.95", "0.6"] {
        let run = [&run[..], &["--tpr", tpr, "--report", "r.html"]].concat();
        let text = stdout(&lab.ok(&run));
        let json: Value = serde_json::from_str(&stdout(&lab.ok(&[&run[..], &["--json"]].concat()))).unwrap();
        let report = data(&lab, "r.html");
        let line = |start: &str| {
            let found = text.lines().find(|l| l.trim_start().starts_with(start));
            found.unwrap_or_else(|| panic!("{start}: {text}")).trim_start()[start.len()..].trim().to_owned()
        };
        assert_eq!(json["rows"], report["rows"]);
        let [printed, page] = both(&json["accuracy"], &report["accuracy"]);
        assert_eq!((line("accuracy %"), &printed), (page, &printed));
        let used = &report["positions"][report["used"].as_u64().unwrap() as usize];
        assert_eq!(used["kept"], percent(&json["kept"]));
        assert!(line("kept as known %").starts_with(&percent(&json["kept"])));
        assert_eq!(used["right"], percent(&json["accuracy_among_kept"]));
        assert_eq!(line("accuracy among those kept %"), percent(&json["accuracy_among_kept"]));
        assert_eq!(used["set_for"], percent(&json["threshold"]["tpr"]));

        let classes = json["classes"].as_array().unwrap();
        assert_eq!(classes.len(), 2);
        for (i, class) in classes.iter().enumerate() {
            let name = class["name"].as_str().unwrap();
            let of_page = &report["classes"][i];
            assert_eq!((&of_page["name"], &of_page["rows"]), (&class["name"], &class["rows"]));
            assert_eq!(
                (&of_page["recall"], &of_page["precision"]),
                (&shown(&class["recall"]), &shown(&class["precision"]))
            );
            let all = report["counts"].as_array().unwrap().iter().map(|c| [0, 1, 2, 3].map(|k| c[k].as_u64().unwrap()));
            let kept: u64 =
                all.filter(|c| c[0] == i as u64 && c[2] <= report["used"].as_u64().unwrap()).map(|c| c[3]).sum();
            assert_eq!(percent(&(kept as f64 / class["rows"].as_f64().unwrap()).into()), percent(&class["kept"]));
            let cells = ["recall", "precision", "kept"].map(|key| percent(&class[key])).join(" ");
            let words = line(&format!("{name} ")).split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words, format!("{} {cells}", class["rows"]));
        }

        let sets = json["ood"].as_array().unwrap();
        assert_eq!((sets.len(), report["sets"].as_array().unwrap().len()), (3, 3));
        let blocks: Vec<&str> = text.split("\nout-of-distribution: ").skip(1).collect();
        for (i, set) in sets.iter().enumerate() {
            let of_page = &report["sets"][i];
            assert_eq!(of_page["rows"], set["rows"]);
            assert_eq!(used["rejected"][i], percent(&set["rejected"]));
            assert!(
                blocks[i].contains(&format!("rejected as unknown %              {:>6}\n", percent(&set["rejected"])))
            );
            let metrics = set["metrics"].as_object().unwrap();
            assert_eq!(of_page["metrics"].as_array().unwrap().len(), metrics.len() + 1);
            for metric in metrics.values() {
                let (name, positive) = (metric["name"].as_str().unwrap(), metric["positive"].as_str().unwrap());
                let title = format!("{name}, positive: {positive}");
                let found = of_page["metrics"].as_array().unwrap().iter().find(|m| m["name"] == title).unwrap();
                let [printed, page] = both(metric, &found["percent"]);
                assert_eq!(printed, page, "{title}");
                let pad = " ".repeat("100.00".len() - percent(&metric["value"]).len());
                let start = format!("  {:<34} {pad}{printed}\n", format!("{name} %, positive: {positive}"));
                assert!(blocks[i].contains(&start), "{start}: {}", blocks[i]);
            }
            let ties = of_page["metrics"].as_array().unwrap().iter().find(|m| m["name"] == "Tied pairs").unwrap();
            assert_eq!(ties["percent"]["value"], percent(&set["tie_fraction"]));
        }
    }
}

#[test]
fn a_small_table_has_one_story() {
    let lab = Lab::new();
    lab.write("small.csv", &table(110, row, HEADER));
    lab.ok(&["train", "small.csv", "-o", "m.mcdd", "--preset", "fast", "--epochs", "5", "-q", "--report", "t.html"]);
    let report = data(&lab, "t.html");
    let used = &report["positions"][report["used"].as_u64().unwrap() as usize];
    let [kept, expected] = ["kept", "set_for"].map(|key| used[key].as_str().unwrap());
    let rows = report["calibration_rows"].as_u64().unwrap();
    let sentence = used["sentence"].as_str().unwrap();
    let start = format!("Expected to keep {expected}% of new known rows. Keeps {kept}% of the {rows} calibration rows");
    assert!(sentence.starts_with(&start), "{sentence}");
    assert_ne!(kept, expected);
    // Nowhere else is a fraction of known rows named without these words.
    let page = std::fs::read_to_string(lab.path("t.html")).unwrap();
    assert!(!page.contains(&format!("Keeps {kept}% of known rows")) && page.contains("is not a measurement"));
}

#[test]
fn explain_lists_the_changed_column_first() {
    let lab = trained();
    let odd = |i: usize| match i {
        1 => row(i).replacen("99", "240", 1).replacen("100", "240", 1).replacen("101", "240", 1),
        2 => row(i).replace("red", "mauve"),
        _ => row(i),
    };
    lab.write("new.csv", &table(8, odd, HEADER));
    let text = stdout(&lab.ok(&["explain", "m.mcdd", "new.csv", "--row", "2", "--features", "2"]));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("row 2 (line 3): unknown, most like "), "{text}");
    assert!(lines[2].trim_start().starts_with("a ") && lines[2].contains(" 240."), "{text}");
    assert!(text.contains("the mean of class ") && !text.contains("row 3"), "{text}");
    let csv = stdout(&lab.ok(&["explain", "m.mcdd", "new.csv", "--format", "csv"]));
    assert_eq!(csv.lines().count(), 1 + 8 * 5);
    assert!(csv.starts_with("row,verdict,label,confidence,p_value,rank,column,value,expected,deviations,gain,note\n"));
    assert!(csv.contains(",color,mauve,red (100%),,"), "{csv}");
    let said = "\"\"mauve\"\" is not in training's categories: blue, red";
    assert!(csv.contains(said), "{csv}");
    let json = stdout(&lab.ok(&["explain", "m.mcdd", "new.csv", "--format", "jsonl", "--unknown", "--tpr", "0.9"]));
    let rows: Vec<Value> = json.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!(rows.iter().all(|r| r["verdict"] == "unknown") && rows.iter().any(|r| r["row"] == 2), "{json}");
    // The same confidence as that of predict.
    let predicted = stdout(&lab.ok(&["predict", "m.mcdd", "new.csv"]));
    let confidence = predicted.lines().nth(2).unwrap().split(',').nth(2).unwrap();
    let second = rows.iter().find(|r| r["row"] == 2).unwrap();
    assert_eq!(second["confidence"].as_f64(), confidence.parse().ok());
    lab.fails(&["explain", "m.mcdd", "new.csv", "--row", "9"], "no row 9");
    lab.fails(&["explain", "m.mcdd", "none.csv"], "none.csv");
}

#[test]
fn a_report_does_not_overwrite_other_files() {
    let lab = Lab::new();
    lab.model();
    let before = std::fs::read(lab.path("m.mcdd")).unwrap();
    for page in ["m.mcdd", "./test.csv", "ood.csv"] {
        let evaluate = ["evaluate", "m.mcdd", "test.csv", "--ood", "ood.csv", "--report", page];
        lab.fails(&evaluate, "another file of this command");
    }
    for page in ["new.mcdd", "./train.csv"] {
        lab.fails(&["train", "train.csv", "-o", "new.mcdd", "--report", page], "another file of this command");
    }
    assert!(lab.fails(&["evaluate", "m.mcdd", "test.csv", "--report", "."], "folder").contains("--report"));
    assert!(std::fs::read(lab.path("m.mcdd")).unwrap() == before && !lab.path("new.mcdd").exists());
}
