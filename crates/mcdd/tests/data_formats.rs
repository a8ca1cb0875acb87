//! Encodings, Excel, JSON Lines and Arrow, in training and prediction.
#![cfg(all(feature = "excel", feature = "npz", feature = "parquet"))]

mod data_help;

use std::io::Cursor;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_ipc::CompressionType;
use data_help::*;
use mcdd::data::{Batch, Column, ReadOptions, Schema, Table};

fn utf16(text: &str, big: bool) -> Vec<u8> {
    text.encode_utf16().flat_map(|u| if big { u.to_be_bytes() } else { u.to_le_bytes() }).collect()
}

/// The inputs, labels and notices of all rows, read for prediction.
fn predicted(schema: &Schema, path: &std::path::Path, block: usize) -> (Vec<f32>, Vec<Option<String>>, Vec<String>) {
    let mut reader = schema.reader(path, &ReadOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let (mut batch, mut x, mut labels) = (Batch::default(), Vec::new(), Vec::new());
    while reader.next(block, &mut batch).unwrap_or_else(|e| panic!("{e}")) {
        x.extend_from_slice(&batch.x);
        labels.extend(batch.labels.take().unwrap_or_default());
    }
    (x, labels, reader.notices())
}

#[test]
fn texts_in_other_encodings() {
    let folder = Folder::new();
    let text = "größe,\"stra\nße\",class\n1,\"né, \"\"x\"\"\",ä\n2,b,ö\n3,né,ä\n";
    let latin: Vec<u8> = text.chars().map(|c| c as u8).collect();
    let want = read(&folder.put("a.csv", text), &ReadOptions::default()).unwrap();
    assert!(want.notices().is_empty());
    let (schema, _) = Schema::fit(&want, &[0, 1, 2]).unwrap();
    let inputs = schema.transform(&want, None).unwrap();
    let bom = format!("\u{feff}{text}");
    for (bytes, encoding) in [
        (latin, "Windows-1252"),
        (utf16(text, false), "UTF-16 (little-endian)"),
        (utf16(text, true), "UTF-16 (big-endian)"),
        (utf16(&bom, false), "UTF-16 (little-endian)"),
        (utf16(&bom, true), "UTF-16 (big-endian)"),
    ] {
        for (name, bytes) in [("b.csv", bytes.clone()), ("b.csv.gz", gzip(&bytes))] {
            let path = folder.put(name, bytes.clone());
            let table = read(&path, &ReadOptions::default()).unwrap_or_else(|e| panic!("{encoding}: {e}"));
            assert_eq!((&table.names, &table.columns, &table.labels), (&want.names, &want.columns, &want.labels));
            let notice = format!("{} is not UTF-8; read as {encoding}", path.display());
            assert_eq!(table.notices(), [notice.as_str()]);
            let (x, labels, notices) = predicted(&schema, &path, 2);
            assert_eq!((x, labels[1].as_deref()), (inputs.clone(), Some("ö")));
            assert!(notices.contains(&notice), "{notices:?}");
            let table = Table::read_from(Cursor::new(bytes), "-", &ReadOptions::default()).unwrap();
            assert_eq!(table.notices(), [format!("standard input is not UTF-8; read as {encoding}")]);
        }
    }
}

#[test]
fn a_late_character_and_positions_in_other_encodings() {
    let folder = Folder::new();
    let mut text = String::from("a,b,label\n");
    for row in 0..40_000 {
        text += &format!("{row},x{},k{}\n", row % 7, row % 2);
    }
    text += "1,é,k0\n\n\"2\n\",oops,k1\nbad,ü,k1\n";
    for bytes in [text.chars().map(|c| c as u8).collect::<Vec<u8>>(), utf16(&text, false), utf16(&text, true)] {
        let e = read(&folder.put("a.csv", bytes), &ReadOptions::default()).unwrap_err();
        // A blank line and a line break within quotes lie before it.
        assert_eq!((e.row(), e.line(), e.column()), (Some(40_003), Some(40_006), Some("a")), "{e}");
    }
    // Mostly UTF-8: the byte is the mistake.
    let e = read(&folder.put("a.csv", b"a,b,y\n1,\xc3\xa9,x\n2,\xff,x\n"), &ReadOptions::default()).unwrap_err();
    assert!(e.to_string().contains("row 2 (line 3), column b: the text is not valid UTF-8"), "{e}");
}

#[test]
fn a_row_is_a_row_of_data() {
    let folder = Folder::new();
    for (text, place) in [
        ("a,b,y\n1,2,x\n1,q,x\n", "row 2 (line 3), column b"),
        ("1,2,x\n1,q,x\n", "row 2, column 2"),
        ("\n\na,b,y\n\n1,2,x\n\n1,q,x\n", "row 2 (line 7), column b"),
        ("a,b,y\n1,2,\"x\ny\nz\"\n1,q,x\n", "row 2 (line 5), column b"),
        ("a,b,y\n1,2,x\n1,2\n", "row 2 (line 3), column 3"),
        ("a,b,y\n1,q,x\n\n1,2,x\n", "row 1 (line 2), column b"),
        ("a,a,y\n1,2,x\n", "line 1, column 2"),
        ("a,b,y\n1,\"2,x\n", "row 1 (line 2)"),
        ("a,\"b,y\n", "line 1"),
        ("# note\n1 1:2\n\n2 1:2 1:3\n", "row 2 (line 4), column 1"),
        ("{\"a\":1,\"y\":\"p\"}\n\n{\"a\":[1],\"y\":\"q\"}\n", "row 2 (line 3), column a"),
    ] {
        let path = folder.put("t.txt", text);
        let header = text.contains("a,b,y").then_some(true);
        let last = if text.starts_with("1,2") { "last" } else { "auto" };
        let e = read(&path, &ReadOptions { header, ..label(last) }).unwrap_err();
        assert!(e.to_string().starts_with(&format!("{}, {place}: ", path.display())), "{place}: {e}");
    }
    let e = read(&folder.put("t.txt", "a,b,y\n1,q,x\n\n1,2,x\n"), &ReadOptions::default()).unwrap_err();
    assert!(e.to_string().contains("(row 2 (line 4): 2)"), "{e}");
    // Of several files the row is that of its own.
    let a = folder.put("a.csv", "w,label\n1,x\n2,y\n");
    let b = folder.put("b.csv", "w,label\n1,x\n2,y\n3,\n");
    let e = Table::read(&[a.clone(), b.clone()], &ReadOptions::default()).unwrap_err();
    assert_eq!((e.file(), e.row(), e.line()), (Some(b.as_path()), Some(3), Some(4)));
    let table = Table::read(&[a.clone(), a.clone()], &ReadOptions::default()).unwrap();
    assert_eq!((table.row_name(1), table.row_name(2)), ("a.csv, row 2".into(), "a.csv, row 1".into()));
    assert_eq!(table.select(&[3]).row_name(0), "a.csv, row 2");
    assert_eq!(read(&a, &ReadOptions::default()).unwrap().row_name(1), "row 2");
    // And of a file of labels.
    let labels = folder.put("labels.txt", "x\n\nNA\n");
    let e = Table::read(&[a], &label(labels.to_str().unwrap())).unwrap_err();
    assert_eq!((e.file(), e.row(), e.line()), (Some(labels.as_path()), Some(2), Some(3)), "{e}");
}

const SHEET: &str = "width,color,when,ok,class;1.5,red,@45943,true,x;-2,blue,@45943.5,false,y;,red,@45944,true,x";

#[test]
fn excel_sheets() {
    let folder = Folder::new();
    for shared in [true, false] {
        let path = folder.put("a.xlsx", xlsx(&[("Data", SHEET)], shared));
        let table = read(&path, &ReadOptions::default()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((table.names.join(" "), table.rows()), ("width color when ok".into(), 3));
        assert_eq!(numbers(&table, 0)[..2], [1.5, -2.0]);
        assert!(numbers(&table, 0)[2].is_nan());
        let days = vec!["2025-10-13".into(), "2025-10-13T12:00:00".into(), "2025-10-14".into()];
        assert_eq!(table.columns[2], Column::Text { codes: vec![0, 1, 2], names: days });
        assert_eq!(table.columns[3], Column::Text { codes: vec![0, 1, 0], names: vec!["true".into(), "false".into()] });
        assert_eq!((labels(&table), table.notices().len()), (vec!["x", "y", "x"], 0));
    }
    // The same table as CSV gives the same inputs, and files of both kinds go together.
    let csv = folder.put("a.csv", "width,color,class\n1.5,red,x\n-2,blue,y\n,red,x\n");
    let excel = folder.put("b.xlsx", xlsx(&[("Data", "width,color,class;1.5,red,x;-2,blue,y;,red,x")], true));
    let table = read(&csv, &ReadOptions::default()).unwrap();
    let (schema, _) = Schema::fit(&table, &[0, 1, 2]).unwrap();
    let inputs = schema.transform(&table, None).unwrap();
    for block in [1, 2, 100] {
        let (x, labels, _) = predicted(&schema, &excel, block);
        assert_eq!((x, labels[1].as_deref()), (inputs.clone(), Some("y")));
    }
    assert_eq!(Table::read(&[csv, excel], &ReadOptions::default()).unwrap().rows(), 6);
    // A long sheet comes in blocks; the table need not begin in the first cell.
    let rows: String = (0..3000).map(|i| format!(";,,{i},k{}", i % 2)).collect();
    let path = folder.put("long.xlsx", xlsx(&[("Data", &format!(";,,n,label{rows}"))], false));
    let table = read(&path, &ReadOptions::default()).unwrap();
    assert_eq!((table.rows(), numbers(&table, 0)[2999]), (3000, 2999.0));
    let bytes: Arc<[u8]> = std::fs::read(&path).unwrap().into();
    assert_eq!(Table::from_bytes(bytes, "memory", &ReadOptions::default()).unwrap().rows(), 3000);
}

#[test]
fn sheets_are_chosen() {
    let folder = Folder::new();
    let book = xlsx(&[("First", "a,label;1,x"), ("Second one", "a,label;5,y;6,z"), ("3", "a,label;7,w")], true);
    let path = folder.put("a.xlsx", book);
    let sheet = |name: &str| ReadOptions { sheet: Some(name.into()), ..ReadOptions::default() };
    let table = read(&path, &ReadOptions::default()).unwrap();
    assert_eq!(labels(&table), ["x"]);
    let notice = "the sheet \"First\" is read; `sheet` chooses another one (Second one, 3)";
    assert_eq!(table.notices(), [format!("{}: {notice}", path.display())]);
    let e = read(&path, &label("species")).unwrap_err();
    assert!(e.hint_text().unwrap().contains("`sheet` chooses another one"), "{e}");
    for (name, want) in [("Second one", vec!["y", "z"]), ("2", vec!["y", "z"]), ("3", vec!["w"]), ("1", vec!["x"])] {
        let table = read(&path, &sheet(name)).unwrap();
        assert_eq!((labels(&table), table.notices().len()), (want, 0), "{name}");
    }
    for name in ["0", "4", "first"] {
        let e = read(&path, &sheet(name)).unwrap_err();
        assert!(e.to_string().contains("First, Second one, 3") && e.hint_text().is_some(), "{e}");
    }
    for (name, bytes) in
        [("a.csv", b"a,label\n1,x\n".to_vec()), ("a.npz", npz(&[("x", npy("|u1", false, "(2, 1)", &[1, 2]))], false))]
    {
        let e = read(&folder.put(name, bytes), &sheet("1")).unwrap_err();
        assert!(e.to_string().contains("`sheet` is for Excel"), "{e}");
    }
}

#[test]
fn bad_sheets_are_errors() {
    let folder = Folder::new();
    for (cells, row, line, column, part) in [
        ("a,label;1,x;;q,y;2,x", Some(2), Some(4), Some("a"), "\"q\" is not a number"),
        ("a,label;1,x;2,", Some(2), Some(3), Some("label"), "label is missing"),
        ("a,label;1,x;#DIV/0!,y", Some(2), Some(3), Some("a"), "the error #DIV/0!"),
        ("a,label;1,x;2,y,3", Some(2), Some(3), Some("C"), "outside"),
        (";,a,label;,1,x;9,2,y", Some(2), Some(4), Some("A"), "outside"),
        ("a,a;1,x", None, Some(1), Some("2"), "two columns"),
        ("", None, None, None, "empty"),
        ("a,label", None, None, None, "no rows"),
    ] {
        let path = folder.put("a.xlsx", xlsx(&[("Data", cells)], true));
        let e = read(&path, &ReadOptions::default()).unwrap_err();
        assert!(e.to_string().contains(part), "{e}");
        assert_eq!((e.file(), e.row(), e.line(), e.column()), (Some(path.as_path()), row, line, column), "{e}");
        assert!(e.hint_text().is_some(), "{e}");
    }
    let path = folder.put("a.xlsx", xlsx(&[("Data", "a,label;#N/A,x;2,y")], true));
    assert!(numbers(&read(&path, &ReadOptions::default()).unwrap(), 0)[0].is_nan());
}

/// A workbook whose parts are replaced.
fn forged(replace: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = zip::ZipArchive::new(Cursor::new(xlsx(&[("Data", "a,label;1,x")], true))).unwrap();
    let mut parts = Vec::new();
    for i in 0..archive.len() {
        let mut part = archive.by_index(i).unwrap();
        let (name, mut text) = (part.name().unwrap().into_owned(), String::new());
        std::io::Read::read_to_string(&mut part, &mut text).unwrap();
        for (from, to) in replace {
            text = text.replace(from, to);
        }
        parts.push((name, text));
    }
    data_help::zip(&parts)
}

#[test]
fn hostile_workbooks_are_bounded() {
    let folder = Folder::new();
    for (replace, part) in [
        // Texts that are announced and not there; calamine would make room for them.
        (&[("uniqueCount=\"3\"", "uniqueCount=\"99999999999\"")][..], Some("announce 99999999999 texts")),
        // A wrong size is not believed.
        (&[("A1:B2", "A1:XFD1048576")], None),
        (&[("r=\"B2\"", "r=\"XFD1048576\"")], Some("outside of the columns")),
        (&[("r=\"B2\"", "r=\"ZZZZZZ99999999\"")], Some("damaged")),
        (&[("r=\"A2\"", "r=\"A1\"")], Some("not in order")),
        (&[("t=\"s\"><v>2", "t=\"s\"><v>77")], Some("")),
        (&[("sheet1.xml", "sheet7.xml")], Some("damaged")),
    ] {
        let path = folder.put("a.xlsx", forged(replace));
        match (read(&path, &ReadOptions::default()), part) {
            (Ok(table), None) => assert_eq!(table.rows(), 1),
            (Err(e), Some(part)) => assert!(e.to_string().contains(part) && e.hint_text().is_some(), "{e}"),
            (got, _) => panic!("{replace:?}: {got:?}"),
        }
    }
    // A few kilobytes that would become gigabytes of cells.
    let names: String = (0..1000).map(|i| format!("<c><v>{i}</v></c>")).collect();
    let rows = "<row><c><v>1</v></c></row>".repeat(60_000);
    let data = format!("<sheetData><row>{names}</row>{rows}</sheetData><x>");
    let path = folder.put("a.xlsx", forged(&[("<sheetData>", &data)]));
    let e = read(&path, &label("none")).unwrap_err();
    assert!(e.to_string().contains("of which") && e.hint_text().unwrap().contains("sparse"), "{e}");
}

#[test]
fn json_lines() {
    let folder = Folder::new();
    let text = "{\"a\":1,\"color\":\"red\",\"ok\":true,\"class\":\"x\"}\n\n \
                {\"class\":\"y\",\"a\":null,\"color\":\"bl\\u00fce\\n\"}\r\n{\"a\":\"2.5\",\"class\":7,\"ok\":false}";
    let expected = |table: &Table| {
        assert_eq!((table.names.join(" "), table.rows()), ("a color ok".into(), 3));
        assert!(numbers(table, 0)[1].is_nan() && numbers(table, 0)[2] == 2.5);
        let names = vec!["red".into(), "blüe".into()];
        assert_eq!(table.columns[1], Column::Text { codes: vec![0, 1, u32::MAX], names });
        let names = vec!["true".into(), "false".into()];
        assert_eq!(table.columns[2], Column::Text { codes: vec![0, u32::MAX, 1], names });
        assert_eq!(labels(table), ["x", "y", "7"]);
    };
    for (name, bytes) in [
        ("a.jsonl", text.as_bytes().to_vec()),
        ("a.txt", utf16(&format!("\u{feff}{text}"), true)),
        ("a.json.gz", gzip(text.as_bytes())),
    ] {
        expected(&read(&folder.put(name, &bytes), &ReadOptions::default()).unwrap());
        expected(&Table::read_from(Cursor::new(bytes), "-", &ReadOptions::default()).unwrap());
    }
    for (text, row, column, part) in [
        ("{\"a\":1,\"y\":\"p\"}\n{\"a\":[1],\"y\":\"p\"}\n", Some(2), Some("a"), "the value is a list"),
        ("{\"a\":1,\"y\":\"p\"}\n{\"y\":\"p\",\"a\":{\"b\":1}}\n", Some(2), Some("a"), "the value is an object"),
        ("{\"a\":1,\"y\":\"p\"}\n{\"a\":1}\n", Some(2), Some("y"), "label is missing"),
        ("{\"a\":1,\"y\":\"p\"}\n{\"a\":1,\"a\":2,\"y\":\"p\"}\n", Some(2), Some("a"), "twice"),
        ("{\"a\":1,\"y\":\"p\"}\n{\"a\":\"q\",\"y\":\"p\"}\n", Some(2), Some("a"), "\"q\" is not a number"),
        ("{\"a\":1,\"y\":\"p\"}\n{\"a\":1,\"y\n", Some(2), None, "ends within"),
        ("{\n  \"a\": 1\n}\n", Some(1), None, "ends within"),
        ("[{\"a\":1}]", None, None, "JSON array"),
        ("", None, None, "empty"),
    ] {
        let e = read(&folder.put("bad.jsonl", text), &ReadOptions::default()).unwrap_err();
        assert!(e.to_string().contains(part), "{e}");
        assert_eq!((e.row(), e.column()), (row, column), "{e}");
        assert!(e.file().is_some() && e.hint_text().is_some(), "{e}");
    }
}

#[test]
fn keys_that_come_late() {
    let folder = Folder::new();
    let mut text = String::new();
    for row in 0..5000 {
        let late = if row >= 4000 { format!(",\"late\":{}", row % 10) } else { String::new() };
        text += &format!("{{\"a\":{},\"label\":\"k{}\"{late}}}\n", row % 17, row % 2);
    }
    let path = folder.put("a.jsonl", &text);
    let table = read(&path, &ReadOptions::default()).unwrap();
    assert_eq!(table.names, ["a", "late"]);
    let late = numbers(&table, 1);
    assert!(late[..4000].iter().all(|v| v.is_nan()) && late[4000..].iter().all(|v| !v.is_nan()));
    let piped = Table::read_from(Cursor::new(text.clone()), "-", &ReadOptions::default()).unwrap();
    assert_eq!(piped.columns[0], table.columns[0]);
    let dropped = ReadOptions { drop: vec!["late".into()], ..ReadOptions::default() };
    assert_eq!(read(&path, &dropped).unwrap().names, ["a"]);

    // A column that had no missing cell in training must be in some row; it may come as late as it likes.
    let csv = folder.put("train.csv", "a,late,label\n1,2,k0\n3,4,k1\n5,1,k0\n");
    let (strict, _) = Schema::fit(&read(&csv, &ReadOptions::default()).unwrap(), &[0, 1, 2]).unwrap();
    assert_eq!(predicted(&strict, &path, 1000).0.len(), 5000 * 2);
    let early: String = text.lines().take(100).map(|l| format!("{l}\n")).collect();
    let early = folder.put("early.jsonl", early);
    let e = strict.reader(&early, &ReadOptions::default()).err().unwrap();
    assert!(e.column() == Some("late") && e.hint_text().is_some(), "{e}");
    let (lenient, _) = Schema::fit(&table, &(0..5000).collect::<Vec<_>>()).unwrap();
    let (x, labels, notices) = predicted(&lenient, &early, 7);
    assert_eq!((x.len(), labels.len()), (100 * lenient.width(), 100));
    assert!(notices.iter().any(|n| n == "100 missing cells in 1 column imputed by the training mean"), "{notices:?}");

    // What a model does not know is left out and named.
    let extra = folder.put("extra.jsonl", format!("{text}{{\"new\":{{}},\"a\":1}}\n"));
    let (x, _, notices) = predicted(&lenient, &extra, 999);
    assert_eq!(x.len(), 5001 * lenient.width());
    assert!(notices.iter().any(|n| n.contains("new")), "{notices:?}");
    // A file that would unfold to more than it holds.
    let bomb: String = (0..9000).map(|i| format!("{{\"k{i}\":1}}\n")).collect();
    let e = read(&folder.put("bomb.jsonl", bomb), &label("none")).unwrap_err();
    assert!(e.hint_text().unwrap().contains("sparse"), "{e}");
}

fn record_batch() -> RecordBatch {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("count", Arc::new(Int64Array::from(vec![Some(1), None, Some(3), Some(4)]))),
        ("color", Arc::new(StringArray::from(vec!["red", "blue", "red", "red"]))),
        ("flag", Arc::new(BooleanArray::from(vec![true, false, true, true]))),
        ("label", Arc::new(StringArray::from(vec!["x", "y", "x", "y"]))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

#[test]
fn arrow_files_and_streams() {
    let folder = Folder::new();
    let batch = record_batch();
    let want = Table::from_record_batches(std::slice::from_ref(&batch), &ReadOptions::default()).unwrap();
    let (schema, _) = Schema::fit(&want, &[0, 1, 2, 3]).unwrap();
    let inputs = schema.transform(&want, None).unwrap();
    let all = [
        ("a.feather", arrow_file(&batch, None)),
        ("lz4.feather", arrow_file(&batch, Some(CompressionType::LZ4_FRAME))),
        ("zstd.feather", arrow_file(&batch, Some(CompressionType::ZSTD))),
        ("a.arrows", arrow_stream(&batch)),
        ("a.arrows.gz", gzip(&arrow_stream(&batch))),
    ];
    for (name, bytes) in all {
        let path = folder.put(name, &bytes);
        let table = read(&path, &ReadOptions::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(table.names, want.names);
        // NaN is not itself.
        assert_eq!(format!("{:?}", table.columns), format!("{:?}", want.columns));
        assert_eq!(labels(&table), ["x", "y", "x", "y"]);
        for block in [1, 3, 100] {
            assert_eq!(predicted(&schema, &path, block).0, inputs);
        }
        assert_eq!(Table::read_from(Cursor::new(bytes), "-", &ReadOptions::default()).unwrap().rows(), 4);
        let options = ReadOptions { drop: vec!["color".into()], ..ReadOptions::default() };
        assert_eq!(read(&path, &options).unwrap().names, ["count", "flag"]);
    }
    let infinite: Vec<(&str, ArrayRef)> = vec![("a", Arc::new(Float64Array::from(vec![1.0, f64::INFINITY])))];
    let path = folder.put("b.feather", arrow_file(&RecordBatch::try_from_iter(infinite).unwrap(), None));
    let e = read(&path, &label("none")).unwrap_err();
    assert!(e.to_string().contains("row 2, column a"), "{e}");
    let e = read(&folder.put("old.feather", b"FEA1\0\0\0\0"), &label("none")).unwrap_err();
    assert!(e.to_string().contains("version 1"), "{e}");
}

#[test]
fn arrow_lengths_are_checked_before_memory_is_made() {
    let folder = Folder::new();
    let values: Vec<(&str, ArrayRef)> = vec![("a", Arc::new(Float64Array::from(vec![0.25; 600])))];
    let batch = RecordBatch::try_from_iter(values).unwrap();
    let bytes = arrow_file(&batch, Some(CompressionType::LZ4_FRAME));
    // The length of the values before compression, 4800 bytes.
    let at = bytes.windows(8).position(|w| w == 4800u64.to_le_bytes()).unwrap();
    for length in [1u64 << 62, 1 << 40, u64::MAX - 5, 4801] {
        let mut forged = bytes.clone();
        forged[at..at + 8].copy_from_slice(&length.to_le_bytes());
        let e = read(&folder.put("a.feather", forged), &label("none")).unwrap_err();
        assert!(e.to_string().contains("Arrow data is damaged") && e.hint_text().is_some(), "{e}");
    }
    let mut forged = arrow_stream(&batch);
    forged[4..8].copy_from_slice(&u32::MAX.to_le_bytes()[..]);
    assert!(read(&folder.put("a.arrows", forged), &label("none")).is_err());
}

#[test]
fn tables_without_rows() {
    let folder = Folder::new();
    let train = folder.put("train.csv", "a,color,label\n1,red,x\n2,blue,y\n");
    let (schema, _) = Schema::fit(&read(&train, &ReadOptions::default()).unwrap(), &[0, 1]).unwrap();
    let none: Vec<(&str, ArrayRef)> = vec![
        ("a", Arc::new(Float64Array::from(Vec::<f64>::new()))),
        ("color", Arc::new(StringArray::from(Vec::<&str>::new()))),
    ];
    let none = RecordBatch::try_from_iter(none).unwrap();
    let parquet = folder.0.path().join("e.parquet");
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(std::fs::File::create(&parquet).unwrap(), none.schema(), None).unwrap();
    writer.write(&none).unwrap();
    writer.close().unwrap();
    let files: Vec<PathBuf> = vec![
        folder.put("e.csv", "a,color\n"),
        folder.put("f.csv", "color,a"),
        folder.put("e.jsonl", ""),
        folder.put("e.ndjson", "\n"),
        folder.put("e.xlsx", xlsx(&[("Data", "a,color")], true)),
        folder.put("e.feather", arrow_file(&none, None)),
        parquet,
    ];
    for path in files {
        let (x, _, notices) = predicted(&schema, &path, 10);
        assert!(x.is_empty());
        assert!(notices.contains(&format!("{} has no rows", path.display())), "{notices:?}");
        let e = read(&path, &label("none")).unwrap_err();
        assert!(e.hint_text().is_some(), "{e}");
    }
    // Without a header nothing is known of the columns.
    for name in ["e.csv", "e.txt", "-"] {
        let e = schema.reader_from_bytes(&b""[..], name, &ReadOptions::default()).err().unwrap();
        assert!(e.to_string().contains("empty") && e.hint_text().unwrap().contains("header"), "{e}");
    }
    assert!(schema.reader(&folder.put("g.csv", "a\n"), &ReadOptions::default()).is_err());
}

#[test]
fn utf32_is_called_by_its_name() {
    let folder = Folder::new();
    for big in [false, true] {
        let unit = |c: char| if big { (c as u32).to_be_bytes() } else { (c as u32).to_le_bytes() };
        let bytes: Vec<u8> = "\u{feff}a,label\n1,x\n2,y\n".chars().flat_map(unit).collect();
        let path = folder.put("a.csv", &bytes);
        let e = read(&path, &label("auto")).unwrap_err();
        assert!(e.to_string().contains("UTF-32") && !e.to_string().contains("UTF-16"), "{e}");
    }
}
