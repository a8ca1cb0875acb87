//! What people bring: other formats and encodings, several files, tables without rows.

mod help;

use std::fs;
use std::io::Write;

use help::{Lab, stderr, stdout};

/// Three columns and a class, from four places.
fn row(i: usize) -> (f64, usize, &'static str, &'static str) {
    let class = i % 2;
    ((class * 5) as f64 + (i * 7 % 10) as f64 / 10.0, i * 3 % 4, ["rot", "grün"][i / 2 % 2], ["süß", "herb"][class])
}

fn csv(rows: usize) -> String {
    let line = |i: usize| {
        let (a, b, color, class) = row(i);
        format!("{a},{b},{color},{class}\n")
    };
    std::iter::once("größe,zahl,farbe,klasse\n".into()).chain((0..rows).map(line)).collect()
}

fn json_lines(rows: usize) -> String {
    let line = |i: usize| {
        let (a, b, color, class) = row(i);
        serde_json::json!({ "klasse": class, "zahl": b, "größe": a, "farbe": color }).to_string() + "\n"
    };
    (0..rows).map(line).collect()
}

/// A workbook with a sheet of notes and one with the table.
fn workbook(rows: usize) -> Vec<u8> {
    let sheet = |cells: String| format!("<worksheet><sheetData>{cells}</sheetData></worksheet>");
    let text = |t: &str| format!("<c t=\"inlineStr\"><is><t>{t}</t></is></c>");
    let line = |i: usize| {
        let (a, b, color, class) = row(i);
        format!("<row><c><v>{a}</v></c><c><v>{b}</v></c>{}{}</row>", text(color), text(class))
    };
    let names = ["größe", "zahl", "farbe", "klasse"].map(text).concat();
    let table = sheet(format!("<row>{names}</row>{}", (0..rows).map(line).collect::<String>()));
    let office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
    let relation = |id: usize, kind: &str, target: &str| {
        format!("<Relationship Id=\"r{id}\" Type=\"{office}/{kind}\" Target=\"{target}\"/>")
    };
    let relations = |all: String| format!("<Relationships>{all}</Relationships>");
    let sheets = "<sheet name=\"Notes\" sheetId=\"1\" r:id=\"r1\"/><sheet name=\"Data\" sheetId=\"2\" r:id=\"r2\"/>";
    let both = relation(1, "worksheet", "worksheets/sheet1.xml") + &relation(2, "worksheet", "worksheets/sheet2.xml");
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, content) in [
        ("_rels/.rels", relations(relation(1, "officeDocument", "xl/workbook.xml"))),
        ("xl/workbook.xml", format!("<workbook><sheets>{sheets}</sheets></workbook>")),
        ("xl/_rels/workbook.xml.rels", relations(both)),
        ("xl/worksheets/sheet1.xml", sheet(format!("<row>{}</row>", text("made by hand")))),
        ("xl/worksheets/sheet2.xml", table),
    ] {
        let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        writer.start_file(name, stored).unwrap();
        writer.write_all(content.as_bytes()).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

const TRAIN: [&str; 8] = ["--label", "klasse", "--preset", "fast", "--epochs", "3", "-o", "m.mcdd"];

#[test]
fn the_same_table_in_every_format() {
    let lab = Lab::new();
    let text = csv(120);
    lab.write("a.csv", &text);
    lab.write("a.jsonl", &json_lines(120));
    fs::write(lab.path("latin.csv"), text.chars().map(|c| c as u8).collect::<Vec<u8>>()).unwrap();
    fs::write(lab.path("wide.csv"), text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>()).unwrap();
    fs::write(lab.path("a.xlsx"), workbook(120)).unwrap();
    lab.ok(&[&["train", "a.csv", "-q"], &TRAIN[..]].concat());
    let model = fs::read(lab.path("m.mcdd")).unwrap();
    let expected = stdout(&lab.ok(&["predict", "m.mcdd", "a.csv"]));
    let evaluated = stdout(&lab.ok(&["evaluate", "m.mcdd", "a.csv", "--json", "--bootstrap", "0"]));
    let explained = stdout(&lab.ok(&["explain", "m.mcdd", "a.csv", "--row", "3"]));
    assert!(explained.starts_with("row 3 (line 4): "), "{explained}");
    for (name, more, said) in [
        ("latin.csv", &[][..], "latin.csv is not UTF-8; read as Windows-1252"),
        ("wide.csv", &[], "wide.csv is not UTF-8; read as UTF-16 (little-endian)"),
        ("a.xlsx", &["--sheet", "Data"], ""),
        ("a.jsonl", &[], ""),
    ] {
        let out = lab.ok(&[&["predict", "m.mcdd", name], more].concat());
        assert!(stdout(&out) == expected, "{name}");
        assert!(stderr(&out).contains(said), "{name}: {}", stderr(&out));
        let out = lab.ok(&[&["evaluate", "m.mcdd", name, "--json", "--bootstrap", "0"], more].concat());
        assert!(stdout(&out) == evaluated && stderr(&out).contains(said), "{name}: {}", stderr(&out));
        let out = lab.ok(&[&["explain", "m.mcdd", name, "--row", "3"], more].concat());
        // A file without a header has its rows on the lines of their numbers.
        let line = if name == "a.jsonl" { "" } else { " (line 4)" };
        assert!(stdout(&out) == explained.replacen(" (line 4)", line, 1), "{name}: {}", stdout(&out));
        if name != "a.jsonl" {
            // Keys of JSON are columns in their own order.
            let out = lab.ok(&[&["train", name], &TRAIN[..], more].concat());
            assert!(stderr(&out).contains(said), "{name}: {}", stderr(&out));
            assert!(fs::read(lab.path("m.mcdd")).unwrap() == model, "{name}");
        }
    }
    let twice = lab.ok(&["predict", "m.mcdd", "a.jsonl", "latin.csv", "-q"]);
    assert_eq!((stdout(&twice).lines().count(), twice.stderr.len()), (241, 0));
    lab.ok(&[&["train", "a.jsonl", "latin.csv"], &TRAIN[..]].concat());
    let e = lab.fails(&["predict", "m.mcdd", "a.xlsx"], "größe");
    assert!(e.contains("the sheet \"Notes\" is read; --sheet chooses another one (Data)"), "{e}");
    lab.fails(&["predict", "m.mcdd", "a.csv", "--sheet", "Data"], "--sheet is for Excel files");
    lab.fails(&["predict", "m.mcdd", "a.xlsx", "--sheet", "Daten"], "Notes, Data");
}

#[test]
fn tables_without_rows() {
    let lab = Lab::new();
    lab.write("a.csv", &csv(120));
    lab.ok(&[&["train", "a.csv", "-q"], &TRAIN[..]].concat());
    lab.write("empty.csv", "größe,zahl,farbe\n");
    lab.write("empty.jsonl", "");
    let header = "label,verdict,confidence,p_value\n";
    for name in ["empty.csv", "empty.jsonl"] {
        let out = lab.ok(&["predict", "m.mcdd", name]);
        assert_eq!(stdout(&out), header);
        assert!(stderr(&out).contains(&format!("{name} has no rows")), "{}", stderr(&out));
        assert_eq!(stdout(&lab.ok(&["predict", "m.mcdd", name, "--format", "jsonl"])), "");
        lab.ok(&["predict", "m.mcdd", name, "--format", "parquet", "-o", "p.parquet"]);
        // What was written is a table without rows, too.
        assert!(fs::read(lab.path("p.parquet")).unwrap().starts_with(b"PAR1"));
        lab.fails(&["evaluate", "m.mcdd", name], "there are no rows to evaluate");
        lab.fails(&["evaluate", "m.mcdd", "a.csv", "--ood", name], "has no rows");
        assert!(lab.fails(&["explain", "m.mcdd", name, "--row", "1"], "there is no row 1").contains("has no rows"));
        assert_eq!(stdout(&lab.ok(&["explain", "m.mcdd", name])), "");
        lab.fails(&["train", name, "--label", "klasse"], name);
    }
    let out = lab.command(&["predict", "m.mcdd", "-"]).write_stdin("größe,farbe,zahl\n").output().unwrap();
    assert_eq!((out.status.code(), stdout(&out).as_str()), (Some(0), header));
    let out = lab.command(&["predict", "m.mcdd", "-"]).write_stdin("").output().unwrap();
    assert_eq!((out.status.code(), out.stdout.len()), (Some(2), 0));
    let said = stderr(&out);
    assert!(said.contains("standard input: it is empty") && said.contains("at least its header"), "{said}");
    // A wrong header is an error without rows, too.
    lab.write("wrong.csv", "größe,zahl\n");
    lab.fails(&["predict", "m.mcdd", "wrong.csv"], "farbe");
}
