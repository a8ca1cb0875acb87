//! `mcdd check`, and what `train` does about identifiers, missing labels and small classes.

mod help;

use help::{Lab, stderr, stdout, table};

/// A number from 0 to 1 that is the same in every run.
fn noise(i: usize, j: usize) -> f64 {
    let mut bits = (i as u64 * 64 + j as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((bits ^ (bits >> 31)) >> 40) as f64 / (1 << 24) as f64
}

/// A table as a business has it: an identifier, names, texts among numbers, rows without a label, a rare class.
fn people(lab: &Lab) {
    let label = |i: usize| match i {
        _ if i % 50 == 7 => "",
        11 | 100 => "maybe",
        _ if i.is_multiple_of(3) => "yes",
        _ => "no",
    };
    let age = |i: usize| if i == 20 || i == 90 { "unknown".to_owned() } else { (18 + i * 7 % 60).to_string() };
    let row = |i: usize| {
        let size = noise(i, 1) + if label(i) == "yes" { 2.0 } else { 0.0 };
        format!("C{:05},{size:.3},{},{},{}", 10_000 + i, age(i), ["north", "south"][i % 2], label(i))
    };
    lab.write("people.csv", &table(200, row, "customer,size,age,region,churn"));
}

/// Options that make training fast.
const FAST: [&str; 4] = ["--preset", "fast", "--epochs", "2"];

/// The command that `check` printed, as arguments.
fn printed(text: &str) -> Vec<String> {
    let line = text.lines().map(str::trim).find(|l| l.starts_with("mcdd train")).unwrap_or_else(|| panic!("{text}"));
    line.split_whitespace().skip(1).map(|w| w.trim_matches('\'').to_owned()).collect()
}

#[test]
fn all_problems_at_once_and_the_command_that_works() {
    let lab = Lab::new();
    people(&lab);
    // Without options training stops at the first problem.
    let text = lab.fails(&["train", "people.csv", "--label", "churn"], "people.csv");
    assert!(text.contains("mcdd check"), "{text}");

    let text = stdout(&lab.ok(&["check", "people.csv"]));
    for part in [
        "194 of 196 labeled rows",
        "label churn: maybe (2), no (",
        "no column is called label",
        "4 rows have no label: rows 8 (line 9), 58 (line 59), 108 (line 109), 158 (line 159)",
        "--skip-unlabeled",
        "1 class has fewer than 5 rows: maybe (2)",
        "--min-class 5",
        "customer: a code that differs in every row",
        "--keep \"customer\"",
        "rows 21 (line 22), 91 (line 92)",
        "\"unknown\" is not a number",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let command = printed(&text);
    let mut args: Vec<&str> = command.iter().map(String::as_str).collect();
    assert!(
        args.starts_with(&["train", "people.csv", "--label", "churn", "--skip-unlabeled", "--min-class", "5"]),
        "{args:?}"
    );
    args.extend(FAST);
    let trained = stderr(&lab.ok(&args));
    assert!(trained.contains("4 rows without a label left out"), "{trained}");
    assert!(trained.contains("1 class with fewer than 5 rows left out: maybe (2)"), "{trained}");
    assert!(
        trained.contains("1 identifier left out: customer (a code that differs in every row); --keep"),
        "{trained}"
    );
    // The identifier may be there or not.
    lab.ok(&["predict", "people.mcdd", "people.csv"]);
    lab.write("new.csv", "region,size\nnorth,1.5\n");
    assert_eq!(stdout(&lab.ok(&["predict", "people.mcdd", "new.csv"])).lines().count(), 2);
    assert!(stdout(&lab.ok(&["inspect", "people.mcdd"])).contains("customer (identifier)"));
    // The other spelling, and silence.
    let quiet =
        ["train", "people.csv", "--label", "churn", "--skip-unlabelled", "--min-class", "5", "--drop", "age", "-q"];
    assert_eq!(stderr(&lab.ok(&[&quiet[..], &FAST].concat())), "");
}

#[test]
fn the_json_has_the_same_findings() {
    let lab = Lab::new();
    people(&lab);
    let found: serde_json::Value = serde_json::from_slice(&lab.ok(&["check", "people.csv", "--json"]).stdout).unwrap();
    let problems: Vec<&str> =
        found["findings"].as_array().unwrap().iter().map(|f| f["problem"].as_str().unwrap()).collect();
    for problem in ["no_label", "missing_labels", "small_classes", "unreadable", "identifier"] {
        assert!(problems.contains(&problem), "{problems:?}");
    }
    let unreadable = found["findings"].as_array().unwrap().iter().find(|f| f["problem"] == "unreadable").unwrap();
    assert_eq!((unreadable["count"].as_u64(), unreadable["places"][0]["row"].as_u64()), (Some(2), Some(21)));
    assert_eq!(unreadable["columns"][0], "age");
    assert!(
        found["ready"].as_bool().unwrap() && found["command"].as_str().unwrap().starts_with("mcdd train people.csv")
    );
}

#[test]
fn what_no_option_helps_is_said_too() {
    let lab = Lab::new();
    lab.write("numbers.csv", &table(60, |i| format!("{},{}", noise(i, 1), noise(i, 2)), "x,label"));
    let out = lab.command(&["check", "numbers.csv"]).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(stdout(&out).contains("numbers, not classes") && !stdout(&out).contains("Next:"), "{}", stdout(&out));
    lab.write("one.csv", &table(60, |i| format!("{},a", noise(i, 1)), "x,label"));
    let out = lab.command(&["check", "one.csv"]).output().unwrap();
    assert!(out.status.code() == Some(2) && stdout(&out).contains("one class only"), "{}", stdout(&out));
    lab.write("none.csv", &table(60, |i| format!("{},{}", noise(i, 1), noise(i, 2)), "x,z"));
    let out = lab.command(&["check", "none.csv"]).output().unwrap();
    assert!(out.status.code() == Some(2) && stdout(&out).contains("--label"), "{}", stdout(&out));
    lab.write("ragged.csv", "x,label\n1,a\n2\n");
    let out = lab.command(&["check", "ragged.csv"]).output().unwrap();
    assert!(out.status.code() == Some(2) && stdout(&out).contains("row 2 (line 3)"), "{}", stdout(&out));
    lab.fails(&["check", "nothing.csv"], "no such file");
    lab.fails(&["check", "ragged.csv", "--drop", "y"], "no column \"y\"");
    std::fs::create_dir(lab.path("empty")).unwrap();
    lab.fails(&["check", "empty"], "the folder has no files");
    // A table without problems.
    let row = |i: usize| format!("{:.4},{:.4},{}", noise(i, 1), noise(i, 2) + (i % 2) as f64 * 0.4, i % 2);
    lab.write("good.csv", &table(200, row, "x,y2,label"));
    let text = stdout(&lab.ok(&["check", "good.csv"]));
    assert!(text.contains("No problem was found") && text.contains("  mcdd train good.csv -o good.mcdd"), "{text}");
}

#[test]
fn a_column_that_cannot_be_used_is_left_out_by_the_printed_command() {
    let lab = Lab::new();
    let row = |i: usize| format!("{:.2};{},{};{}", noise(i, 1) * 9.0, i % 50, i % 10, ["a", "b"][i % 2]);
    lab.write("comma.csv", &table(200, row, "x;weight;kind"));
    let mut args = printed(&stdout(&lab.ok(&["check", "comma.csv"])));
    args.extend(FAST.map(str::to_owned));
    lab.ok(&args.iter().map(String::as_str).collect::<Vec<_>>());
}

/// A table with everything that a reader could stop at: ragged rows, an open quote, a cell that spoils its column, a row
/// without a label, a small class.
fn broken() -> String {
    let row = |i: usize| {
        let label = match i {
            30 => "",
            40 => "rare",
            _ => ["a", "b"][i % 2],
        };
        let rate = if i == 20 { "n.a.".to_owned() } else { format!("{:.1}%", 90.0 * noise(i, 1)) };
        let row = format!("{:.3},{rate},\"x, {}\",{label}", noise(i, 2), i % 3);
        match i {
            5 => row.replacen(',', " ", 1),
            9 => format!("{row},more"),
            // The quote is closed by that of the next row.
            50 => row.replace("\",", ","),
            _ => row,
        }
    };
    table(60, row, "size,rate,text,class")
}

#[test]
fn rows_that_cannot_be_read_are_listed_with_all_other_problems() {
    let lab = Lab::new();
    lab.write("broken.csv", &broken());
    let out = lab.command(&["check", "broken.csv"]).output().unwrap();
    let text = stdout(&out);
    assert_eq!(out.status.code(), Some(2), "{text}");
    for part in [
        "3 rows cannot be read: row 6 (line 7): the row has 3 cells where the first row has 4; \
         row 10 (line 11): the row has 5 cells where the first row has 4; row 51 (line 52): the row has 5 cells where the first row has 4; its quotes go from line 52 to 53",
        "complete the row",
        "rate: row 21 (line 22): \"n.a.\" is not a percentage such as 12.5%",
        "else leave the column out by --drop \"rate\"",
        "1 row has no label: row 31 (line 32)",
        "1 class has fewer than 5 rows: rare (1)",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    // Rows after the open quote are there.
    assert!(text.contains("broken.csv: 55 of 56 labeled rows, 3 feature columns"), "{text}");
    assert!(!text.contains("mcdd train") && !text.contains("the command below"), "{text}");

    // A quote that is never closed.
    let open = broken().lines().take(50).collect::<Vec<_>>().join("\n") + "\n\"0.5,1%,x,a\n0.6,2%,y,b\n";
    lab.write("open.csv", &open);
    let text = stdout(&lab.command(&["check", "open.csv"]).output().unwrap());
    assert!(text.contains("row 50 (line 51): a quote is opened and never closed"), "{text}");
    assert!(text.contains("close the quote"), "{text}");

    // The header is short: no row can be read.
    lab.write("short.csv", &table(30, |i| format!("{i},{},a", i * 3), "x,class"));
    let text = stdout(&lab.command(&["check", "short.csv"]).output().unwrap());
    let rows = "rows 1 (line 2), 2 (line 3), 3 (line 4), 4 (line 5), 5 (line 6), …: the row has 3 cells";
    assert!(text.contains(rows) && text.contains("short.csv: 0 rows"), "{text}");

    let json = |i: usize| match i {
        3 => "{\"x\": 1,".to_owned(),
        7 => "{\"x\": [1], \"class\": \"a\"}".to_owned(),
        9 => "{\"x\": 1, \"x\": 2, \"class\": \"a\"}".to_owned(),
        _ => format!("{{\"x\": {:.3}, \"z\": {:.3}, \"class\": \"{}\"}}", noise(i, 1), noise(i, 2), ["a", "b"][i % 2]),
    };
    lab.write("a.jsonl", &(0..40).map(|i| json(i) + "\n").collect::<String>());
    let text = stdout(&lab.command(&["check", "a.jsonl"]).output().unwrap());
    for part in [
        "row 4: the line ends within its JSON object",
        "row 10: the key is given twice",
        "x: 1 cell cannot be used: the value is a list (row 8)",
        "a.jsonl: 38 rows",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }

    lab.write("a.svm", "a 1:1 2:2\nb 1:x\na 1:3 2:1\nb 0:1\na 1:2\nb 1:5 2:5\n");
    let text = stdout(&lab.command(&["check", "a.svm"]).output().unwrap());
    for part in ["row 2: \"x\" is not a number", "row 4: the index 0 is not in", "a.svm: 4 rows", "no class has 5 rows"]
    {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

/// What is wrong with a header does not hide the other problems.
#[test]
fn a_header_that_cannot_be_used_is_listed_with_all_other_problems() {
    let lab = Lab::new();
    let check = |args: &[&str]| {
        let out = lab.command(&[&["check"], args].concat()).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{}{}", stdout(&out), stderr(&out));
        stdout(&out)
    };
    let all = |text: &str, parts: &[&str]| {
        parts.iter().for_each(|part| assert!(text.contains(part), "{part:?} is not in\n{text}"));
    };
    let row = |i: usize| format!("{i},{:.3},{:.3},{}", noise(i, 1), noise(i, 2), ["a", "b", ""][i % 3]);
    let names =
        "file: twice.csv, line 1, column 3: two columns have the name \"x\"\n      give each column a name of its own";
    lab.write("twice.csv", &(table(60, row, "id,x,x,class") + "1,2,3\n"));
    let parts = [
        "twice.csv: 40 rows, 3 feature columns",
        names,
        "row 61 (line 62): the row has 3 cells",
        "20 rows have no label",
        "id: an identifier",
    ];
    all(&check(&["twice.csv"]), &parts);
    let json: serde_json::Value = serde_json::from_str(&check(&["twice.csv", "--json"])).unwrap();
    assert!(json["findings"].as_array().unwrap().iter().any(|f| f["problem"] == "file"), "{json}");

    lab.write("more.csv", "a,a,b,b,y\n1,2,3,4,x\n");
    let more =
        "line 1, column 2: two columns have the name \"a\"; column 4: two columns have the name \"b\"\n      give";
    all(&check(&["more.csv"]), &[more, "no class has 5 rows"]);

    // A quote in the header that is not closed.
    lab.write("open.csv", &table(60, row, "\"id,x,z,class"));
    let quote = "file: open.csv, line 1: a quote is opened and never closed\n      close the quote";
    all(
        &check(&["open.csv"]),
        &["open.csv: 40 rows, 3 feature columns", quote, "20 rows have no label", "id: an identifier"],
    );

    // The first line of JSON, and all of them.
    let json = |i: usize| format!("{{\"x\": {:.3}, \"class\": \"{}\"}}\n", noise(i, 1), ["a", "b"][i % 2]);
    let json = (0..40).map(json).collect::<String>();
    lab.write("a.jsonl", &format!("{{\"x\": 1,\n{json}"));
    all(&check(&["a.jsonl"]), &["a.jsonl: 40 rows, 1 feature column", "row 1: the line ends within its JSON object"]);
    lab.write("b.jsonl", "{\"x\"\n{\"x\"\n");
    all(&check(&["b.jsonl"]), &["file: b.jsonl, row 1: the line ends within its JSON object", "jq -c"]);

    // A file that cannot be used, beside others.
    lab.write("empty.csv", "");
    lab.write("array.json", "[{\"x\": 1}]");
    let text = check(&["twice.csv", "empty.csv", "array.json"]);
    all(
        &text,
        &[names, "file: empty.csv: it is empty", "file: array.json: it is a JSON array", "20 rows have no label"],
    );
    // The columns of a file are not those of the first.
    lab.write("other.csv", "id,x,class\n1,2,a\n");
    let text = check(&["twice.csv", "other.csv"]);
    all(&text, &[names, "file: other.csv: it lacks columns of twice.csv: column 3\n", "20 rows have no label"]);
    assert!(!text.contains("--drop"), "{text}");

    // Neither a label nor a column of one form.
    let row = |i: usize| {
        let rate = if i == 20 { "n.a.".to_owned() } else { format!("{:.1}%", 90.0 * noise(i, 1)) };
        format!("{:.3},{rate},{}", noise(i, 2), ["a", "b"][i % 2])
    };
    lab.write("rate.csv", &table(60, row, "x,rate,kind"));
    let text = stdout(&lab.ok(&["check", "rate.csv"]));
    all(&text, &["rate: row 21 (line 22): \"n.a.\" is not a percentage", "--label kind --drop rate"]);
}

/// Labels in a file of their own stay with their rows where rows before them cannot be read.
#[test]
fn labels_in_another_file_stay_with_their_rows() {
    let lab = Lab::new();
    // The class is the sign of x.
    let class = |i: usize| noise(i, 1) > 0.5;
    let row = |i: usize| match i {
        0 | 7 | 8 | 59 => "1".to_owned(),
        _ => format!("{:.3},{}", noise(i, 2), if class(i) { 1 } else { -1 }),
    };
    let labels = |n: usize| (0..n).map(|i| if class(i) { "up\n" } else { "down\n" }).collect::<String>();
    lab.write("a.csv", &table(60, row, "z,x"));
    lab.write("labels.txt", &labels(60));
    let text = stdout(&lab.command(&["check", "a.csv", "--label", "labels.txt"]).output().unwrap());
    for part in ["a.csv: 56 rows", "rows 1 (line 2), 8 (line 9), 9 (line 10), 60 (line 61): the row has 1 cell"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(text.contains("x: alone predicts the class of 100.0% of the rows"), "{text}");

    // Too few labels are a problem among others.
    lab.write("labels.txt", &labels(59));
    let text = stdout(&lab.command(&["check", "a.csv", "--label", "labels.txt"]).output().unwrap());
    for part in ["a.csv: 56 rows", "label: labels.txt, column label: there are fewer labels than rows", "has 1 cell"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn what_is_missing_is_said_and_the_rest_is_checked() {
    let lab = Lab::new();
    let small = |i: usize| format!("{:.2},{},{}", noise(i, 1), i + 1, ["a", "b", "c"][i % 3]);
    lab.write("small.csv", &table(12, small, "x,id,class"));
    let text = stdout(&lab.command(&["check", "small.csv"]).output().unwrap());
    for part in [
        "small.csv: 12 rows, 2 feature columns",
        "class: no class has 5 rows: a (4), b (4), c (4)",
        "add rows until two classes have 5 or more, or give another column by --label",
        "id: counts the rows",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(!text.contains("--min-class"), "{text}");
    let one = |i: usize| format!("{:.2},{},{}", noise(i, 1), i * i % 7, ["a", "a", "b"][i % 3]);
    lab.write("one.csv", &table(12, one, "x,z,class"));
    let text = stdout(&lab.command(&["check", "one.csv"]).output().unwrap());
    assert!(text.contains("class: only a (8) has 5 rows or more, and two classes are needed; others: b (4)"), "{text}");
    assert!(text.contains("one.csv: 12 rows"), "{text}");

    // No row has a label, and the other columns are looked at all the same.
    lab.write("none.csv", &table(30, |i| format!("{i},{:.2},", noise(i, 1)), "id,x,class"));
    let text = stdout(&lab.command(&["check", "none.csv"]).output().unwrap());
    for part in ["none.csv: 30 rows", "class: no row has a label", "id: counts the rows"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    // The only column cannot be used.
    let only = |i: usize| format!("{},{}", if i == 3 { "x".to_owned() } else { format!("{:.3}", noise(i, 1)) }, i % 2);
    lab.write("only.csv", &table(30, only, "x,class"));
    let text = stdout(&lab.command(&["check", "only.csv"]).output().unwrap());
    for part in ["\"x\" is not a number", "there is no column besides the label"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

/// What training reads as numbers is listed as that, and not as texts to be left out.
#[test]
fn how_columns_are_read_is_listed() {
    let lab = Lab::new();
    let row = |i: usize| {
        let class = i * 7 % 3;
        let (rate, price) = (30.0 * noise(i, 1) + 20.0 * class as f64, 1000.0 + 5000.0 * noise(i, 2));
        let comment = format!("a remark, the {i}th, of {:.6}", noise(i, 3));
        let (day, month) = (1 + i % 12, 1 + i * 5 % 12);
        format!(
            "{rate:.1}%,\"{},{:06.2}\",{day:02}/{month:02}/2024,{:.2},\"{comment}\",caf\u{e9} {class}",
            1 + i % 9,
            price % 1000.0,
            noise(i, 4)
        )
    };
    let text = table(120, row, "rate,price,day,x,comment,class");
    std::fs::write(lab.path("a.csv"), text.chars().map(|c| c as u8).collect::<Vec<u8>>()).unwrap();
    let text = stdout(&lab.ok(&["check", "a.csv"]));
    for part in [
        "file: a.csv is not UTF-8; read as Windows-1252",
        "rate: percent\n      read as numbers",
        "price: thousands separators\n      read as numbers",
        "day: dates, month first\n      read as a number, day of week; a date outside the training period may look unknown, --drop leaves",
        "is taken as 2024-",
        "comment: text (120 different texts in 120 cells)\n      left out, --categorical \"comment\"",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(!printed(&text).contains(&"--drop".to_owned()) && !text.contains("copies"), "{text}");
    let text = stderr(&lab.ok(&[&["train", "a.csv", "-o", "m.mcdd"], &FAST[..]].concat()));
    assert!(text.contains("rate: percent; read as numbers"), "{text}");
}

#[test]
fn a_label_is_suggested_beside_cells_that_cannot_be_read() {
    let lab = Lab::new();
    let row = |i: usize| {
        let size = format!("{:.2}", 1.0 + noise(i, 1)).replace('.', ",");
        format!("{};{};{}", if i == 7 { "n.a.".into() } else { size }, i % 5, ["pump", "valve"][i % 2])
    };
    lab.write("a.csv", &table(60, row, "size;load;kind"));
    lab.write("b.csv", &table(60, |i| row(i + 60), "size;load;kind"));
    let text = stdout(&lab.ok(&["check", "a.csv", "b.csv"]));
    for part in ["120 rows", "label kind: pump (60), valve (60)", "size: row 8 (line 9) of a.csv: \"n.a.\" is not"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert_eq!(printed(&text)[3..], ["--label", "kind", "--drop", "size", "-o", "a.mcdd"]);
}

#[test]
fn standard_input_is_checked() {
    let lab = Lab::new();
    let text = table(60, |i| format!("{},{:.3},{}", i, noise(i, 1), ["a", "b", ""][i % 3]), "id,x,kind");
    let out = lab.command(&["check", "-"]).write_stdin(text).output().unwrap();
    assert!(out.status.success() && stdout(&out).contains("20 rows have no label"), "{}", stdout(&out));
    assert!(stdout(&out).contains("--label kind --skip-unlabeled -o model.mcdd"), "{}", stdout(&out));
}

/// With the index of a data frame and sorted classes, the index would tell the class.
#[test]
fn a_row_counter_is_not_a_feature() {
    let lab = Lab::new();
    let class = |i: usize| ["ant", "bee", "cat"][i / 100];
    let cells = |i: usize| format!("{:.3},{:.3}", noise(i, 1) + 0.3 * (i / 100) as f64, noise(i, 2));
    lab.write("sorted.csv", &table(300, |i| format!("{i},{},{}", cells(i), class(i)), ",width,height,species"));
    let other = |i: usize| format!("{},{},{}", 299 - i, cells(i), class(i));
    lab.write("again.csv", &table(300, other, ",width,height,species"));
    let train = |more: &[&str]| {
        let first = ["train", "sorted.csv", "--label", "species", "-o", "m.mcdd", "--preset", "fast", "--epochs", "40"];
        stderr(&lab.ok(&[&first, more].concat()))
    };
    let accuracy = |file: &str| {
        let out = lab.ok(&["evaluate", "m.mcdd", file, "--json", "--bootstrap", "0"]);
        let value: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        value["accuracy"]["value"].as_f64().unwrap()
    };
    let text = train(&[]);
    assert!(text.contains("1 identifier left out: 1 (counts the rows); --keep trains on a column"), "{text}");
    assert_eq!(accuracy("sorted.csv"), accuracy("again.csv"));
    let text = train(&["--keep", "1"]);
    assert!(!text.contains("left out"), "{text}");
    assert!(accuracy("sorted.csv") > accuracy("again.csv") + 0.2);
}

#[test]
fn lists_and_patterns_of_columns() {
    let lab = Lab::new();
    let row = |i: usize| format!("{i},n{},s{},t{},{:.3},{}", i % 9, i % 7, i % 5, noise(i, 1), i % 2);
    lab.write("a.csv", &table(60, row, "key,name,addr_street,addr_town,x,label"));
    let train =
        |drop: &[&str]| lab.command(&[&["train", "a.csv", "-o", "m.mcdd"], drop, &FAST[..]].concat()).output().unwrap();
    for drop in [
        &["--drop", "key,name", "--drop", "addr_*"][..],
        &["--drop", "1,2,addr_????,addr_street"],
        &["--drop", "*_*,key,name"],
    ] {
        assert!(train(drop).status.success(), "{}", stderr(&train(drop)));
        let columns = stdout(&lab.ok(&["inspect", "m.mcdd"]));
        assert!(
            columns.contains("dropped      4: key (asked), name (asked), addr_street (asked), addr_town (asked)"),
            "{columns}"
        );
    }
    let text = lab.fails(&["train", "a.csv", "--drop", "key,nmae"], "there is no column \"nmae\"");
    assert!(text.contains("similar names are \"name\""), "{text}");
    lab.fails(&["train", "a.csv", "--keep", "zip_*"], "no column matches \"zip_*\"");
    lab.fails(&["train", "a.csv", "--categorical", "addr"], "there is no column \"addr\"");
}

#[test]
fn chance_and_leaks_are_found_in_training() {
    let lab = Lab::new();
    let row = |i: usize| {
        format!("{:.4},{:.4},{}", noise(i, 1), noise(i, 2), ["w", "x", "y", "z"][(noise(i, 3) * 4.0) as usize])
    };
    lab.write("chance.csv", &table(600, row, "a,b,class"));
    let text = stderr(&lab.ok(&[&["train", "chance.csv", "-o", "m.mcdd"], &FAST[..]].concat()));
    assert!(text.contains("warning: the validation accuracy of") && text.contains("not clearly above"), "{text}");
    assert!(stdout(&lab.ok(&["inspect", "m.mcdd"])).contains("warning      the validation accuracy of"));

    let row =
        |i: usize| format!("{:.4},{:.4},{},{}", noise(i, 1), noise(i, 2), i * 7 % 3 * 10, ["w", "x", "y"][i * 7 % 3]);
    lab.write("leak.csv", &table(600, row, "a,b,code,class"));
    let text = stderr(&lab.ok(&[&["train", "leak.csv", "-o", "m.mcdd"], &FAST[..]].concat()));
    let leak = "column code: alone predicts the class of 100.0% of the rows";
    // Once, and before training.
    assert_eq!(text.matches(leak).count(), 1, "{text}");
    assert!(text.find(leak) < text.find("epoch 1 of"), "{text}");
    assert!(text.contains("leave it out by --drop \"code\""), "{text}");
    assert!(stdout(&lab.ok(&["inspect", "m.mcdd"])).contains(leak));
}

#[test]
fn rows_without_a_label_can_be_left_out_of_evaluation_and_benchmarks() {
    let lab = Lab::new();
    let row = |i: usize| {
        let class = (i * 13 + i / 7) % 3;
        let label = if i % 20 == 3 { "" } else { ["a", "b", "c"][class] };
        format!("{:.3},{:.3},{label}", noise(i, 1) + class as f64, noise(i, 2) - class as f64)
    };
    lab.write("a.csv", &table(240, row, "x,z,label"));
    lab.fails(
        &["train", "a.csv"],
        "12 labels are missing: rows 4 (line 5), 24 (line 25), 44 (line 45), 64 (line 65), 84 (line 85), …",
    );
    lab.ok(&[&["train", "a.csv", "--skip-unlabeled", "-o", "m.mcdd"], &FAST[..]].concat());
    let text = lab.fails(&["evaluate", "m.mcdd", "a.csv"], "some rows have a label and some have none");
    assert!(text.contains("--skip-unlabeled"), "{text}");
    let out = lab.ok(&["evaluate", "m.mcdd", "a.csv", "--skip-unlabeled"]);
    assert!(stdout(&out).contains("(228 rows)"), "{}", stdout(&out));
    assert!(stderr(&out).contains("12 rows without a label left out"), "{}", stderr(&out));
    lab.fails(&["bench", "a.csv", "--methods", "fast", "--epochs", "1", "--test-folds", "1"], "12 labels are missing");
    let bench = ["bench", "a.csv", "--methods", "fast", "--epochs", "1", "--test-folds", "1", "--skip-unlabelled"];
    let text = stderr(&lab.ok(&bench));
    assert!(text.contains("12 rows without a label left out"), "{text}");
}
