//! Each reader on small files, and every kind of bad input.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, DictionaryArray, Float32Array, Int64Array, RecordBatch,
    StringArray, types::Int32Type,
};
use mcdd::Error;
use mcdd::data::{Batch, Column, ReadOptions, Schema, Table};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    fn put(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

fn label(text: &str) -> ReadOptions {
    ReadOptions {
        label: text.parse().unwrap(),
        ..ReadOptions::default()
    }
}

fn read(path: &Path, options: &ReadOptions) -> Result<Table, Error> {
    Table::read(&[path.to_owned()], options)
}

fn numbers(table: &Table, column: usize) -> Vec<f64> {
    match &table.columns[column] {
        Column::Number(values) => values.clone(),
        other => panic!("{other:?}"),
    }
}

fn labels(table: &Table) -> Vec<&str> {
    (0..table.rows())
        .map(|row| table.label_name(row).unwrap())
        .collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(bytes).unwrap();
    gz.finish().unwrap()
}

fn npy(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    out.extend(data);
    out
}

fn npz(members: &[(&str, Vec<u8>)], deflate: bool) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let method = if deflate {
        zip::CompressionMethod::Deflated
    } else {
        zip::CompressionMethod::Stored
    };
    let options = zip::write::SimpleFileOptions::default().compression_method(method);
    for (name, data) in members {
        writer.start_file(format!("{name}.npy"), options).unwrap();
        writer.write_all(data).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn parquet_file(path: &Path, columns: Vec<(&str, ArrayRef)>) {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let file = File::create(path).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[test]
fn csv_with_everything() {
    let folder = Folder::new();
    let text = "\u{feff}id,\"a, b\",colour,Class\r\n1,2.5,\"dark \"\"red\"\"\",x\r\n\r\n2,NA,blue,y\r\n3,,?,1.0";
    for (name, bytes) in [
        ("a.csv", text.as_bytes().to_vec()),
        ("b.csv.gz", gzip(text.as_bytes())),
        ("c.data", text.as_bytes().to_vec()),
    ] {
        let table = read(&folder.put(name, bytes), &ReadOptions::default()).unwrap();
        assert!(table.named);
        assert_eq!(table.names, ["id", "a, b", "colour"]);
        assert_eq!(table.rows(), 3);
        assert_eq!(numbers(&table, 0), [1.0, 2.0, 3.0]);
        assert_eq!(numbers(&table, 1)[0], 2.5);
        assert!(numbers(&table, 1)[1..].iter().all(|v| v.is_nan()));
        assert_eq!(
            table.columns[2],
            Column::Text {
                codes: vec![0, 1, u32::MAX],
                names: vec!["dark \"red\"".into(), "blue".into()]
            }
        );
        assert_eq!(labels(&table), ["x", "y", "1"]);
        assert_eq!(table.classes(), ["1", "x", "y"]);
    }
}

#[test]
fn labels_where_they_are_said_to_be() {
    let folder = Folder::new();
    let plain = folder.put("a.txt", " 1 2 10\n3 4   9 \n5 6 10.0\n");
    let table = read(&plain, &label("last")).unwrap();
    assert_eq!(
        (table.rows(), table.columns.len(), table.named),
        (3, 2, false)
    );
    assert_eq!(table.classes(), ["9", "10"], "numeric order");
    assert_eq!(labels(&table), ["10", "9", "10"]);
    assert_eq!(read(&plain, &label("first")).unwrap().classes().len(), 3);
    assert_eq!(
        read(&plain, &label("2")).unwrap().classes(),
        ["2", "4", "6"]
    );
    let none = read(&plain, &label("none")).unwrap();
    assert!(none.labels.is_none() && none.columns.len() == 3);

    let named = folder.put("b.csv", "2,b,c\n1,x,3\n4,y,6\n");
    let options = ReadOptions {
        header: Some(true),
        ..label("2")
    };
    let table = read(&named, &options).unwrap();
    assert_eq!(
        table.names,
        ["b", "c"],
        "a name that is the number goes first"
    );
    let table = read(&named, &label("b")).unwrap();
    assert_eq!(table.classes(), ["x", "y"]);

    let e = read(&plain, &ReadOptions::default()).unwrap_err();
    assert!(e.hint_text().unwrap().contains("--label last"), "{e}");
    let options = ReadOptions {
        header: Some(true),
        ..label("species")
    };
    let e = read(&named, &options).unwrap_err();
    assert!(e.to_string().contains("2, b, c"), "{e}");
    let e = read(&plain, &label("4")).unwrap_err();
    assert!(e.to_string().contains("has 3"), "{e}");
    let e = read(&plain, &label("0")).unwrap_err();
    assert!(e.hint_text().is_some());

    let file = folder.put("y.txt", "cat\ndog\ncat\n");
    let table = read(&plain, &label(file.to_str().unwrap())).unwrap();
    assert_eq!(labels(&table), ["cat", "dog", "cat"]);
    assert_eq!(table.columns.len(), 3);
    for (content, part) in [("a\nb\n", "fewer labels"), ("a\nb\nc\nd\n", "more labels")] {
        let file = folder.put("z.txt", content);
        let e = read(&plain, &label(file.to_str().unwrap())).unwrap_err();
        assert!(e.to_string().contains(part), "{e}");
    }
}

#[test]
fn the_index_value_form() {
    let folder = Folder::new();
    let one = folder.put("a.dat", "1 1:2.5 3:-1e2 \n2 3:4\n\n1 2:7 1:8 # note\n");
    let table = read(&one, &ReadOptions::default()).unwrap();
    assert_eq!((table.rows(), table.columns.len()), (3, 3));
    assert_eq!(numbers(&table, 0), [2.5, 0.0, 8.0]);
    assert_eq!(numbers(&table, 1), [0.0, 0.0, 7.0]);
    assert_eq!(numbers(&table, 2), [-100.0, 4.0, 0.0]);
    assert_eq!(labels(&table), ["1", "2", "1"]);

    let two = folder.put("b.dat", "3;10.000000 1:1 5:5\n");
    let table = Table::read(&[one.clone(), two.clone()], &ReadOptions::default()).unwrap();
    assert_eq!((table.rows(), table.columns.len()), (4, 5));
    assert_eq!(numbers(&table, 4), [0.0, 0.0, 0.0, 5.0]);
    assert_eq!(table.classes(), ["1", "2", "3"]);
    let table = Table::read(&[two, one.clone()], &ReadOptions::default()).unwrap();
    assert_eq!(numbers(&table, 4), [5.0, 0.0, 0.0, 0.0]);
    let table = read(&one, &label("none")).unwrap();
    assert_eq!((table.columns.len(), table.rows()), (3, 3));
    assert_eq!(numbers(&table, 1), [0.0, 0.0, 7.0]);
    let dropped = ReadOptions {
        drop: vec!["2".into()],
        ..ReadOptions::default()
    };
    assert_eq!(
        read(&one, &dropped).unwrap().names,
        ["column 1", "column 3"]
    );

    for (text, row, part) in [
        ("1 1:2\n2 1:2 1:3\n", 2, "twice"),
        ("1 1:2\n2 0:2\n", 2, "not in 1"),
        ("1 1:2\n2 100001:2\n", 2, "not in 1"),
        ("1 1:2\n2 x\n", 2, "index:value"),
        ("1 1:2\n2 1:abc\n", 2, "not a number"),
        ("1 1:2\n2 1:inf\n", 2, "infinite"),
        ("1 1:2\nNA 1:2\n", 2, "missing"),
    ] {
        let e = read(&folder.put("bad.dat", text), &ReadOptions::default()).unwrap_err();
        assert!(e.to_string().contains(part), "{e}");
        assert_eq!(e.row(), Some(row), "{e}");
        assert!(
            e.file().is_some() && e.column().is_some() && e.hint_text().is_some(),
            "{e}"
        );
    }
    let bomb: String = (0..500).map(|_| "1 100000:1\n").collect();
    let e = read(&folder.put("bomb.dat", bomb), &ReadOptions::default()).unwrap_err();
    assert!(e.to_string().contains("unfold"), "{e}");
}

#[test]
fn numpy_arrays() {
    let folder = Folder::new();
    let data: Vec<u8> = f32s(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let rows = [vec![1.0, 4.0], vec![2.0, 5.0], vec![3.0, 6.0]];
    let check = |bytes: Vec<u8>, name: &str| {
        let table = read(&folder.put(name, bytes), &label("none")).unwrap();
        for (column, want) in rows.iter().enumerate() {
            assert_eq!(numbers(&table, column), *want, "{name}");
        }
    };
    check(npy("<f4", false, "(2, 3)", &data), "a.npy");
    check(gzip(&npy("<f4", false, "(2, 3)", &data)), "a.npy.gz");
    check(npy("<f4", false, "(2, 3, 1)", &data), "b.npy");
    let fortran = f32s(&[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    check(npy("<f4", true, "(2, 3)", &fortran), "c.npy");
    let small: Vec<u8> = vec![1, 2, 3, 4, 5, 6];
    check(npy("|u1", false, "(2, 3)", &small), "d.npy");
    check(npy("|i1", false, "(2, 3)", &small), "e.npy");
    let wide: Vec<u8> = small
        .iter()
        .flat_map(|&v| i64::from(v).to_be_bytes())
        .collect();
    check(npy(">i8", false, "(2, 3)", &wide), "f.npy");
    let halves: Vec<u8> = small
        .iter()
        .flat_map(|&v| half::f16::from_f32(f32::from(v)).to_le_bytes())
        .collect();
    check(npy("<f2", false, "(2, 3)", &halves), "g.npy");
    let doubles: Vec<u8> = small
        .iter()
        .flat_map(|&v| f64::from(v).to_be_bytes())
        .collect();
    check(npy(">f8", false, "(2, 3)", &doubles), "h.npy");

    // A cube in Fortran order: element (r, i, j) stands at r + 2i + 4j.
    let cube: Vec<f32> = (0..8).map(|v| v as f32).collect();
    let table = read(
        &folder.put("i.npy", npy("<f4", true, "(2, 2, 2)", &f32s(&cube))),
        &label("none"),
    )
    .unwrap();
    assert_eq!(numbers(&table, 1), [4.0, 5.0]);
    assert_eq!(numbers(&table, 2), [2.0, 3.0]);

    let x = folder.put("x.npy", npy("<f4", false, "(2, 3)", &data));
    let names: Vec<u8> = "ab\0cd\0"
        .chars()
        .flat_map(|c| (c as u32).to_le_bytes())
        .collect();
    let y = folder.put("y.npy", npy("<U3", false, "(2,)", &names));
    let table = read(&x, &label(y.to_str().unwrap())).unwrap();
    assert_eq!(labels(&table), ["ab", "cd"]);
    let y = folder.put("y.npy", npy("|S2", false, "(2,)", b"x\0yz"));
    assert_eq!(
        labels(&read(&x, &label(y.to_str().unwrap())).unwrap()),
        ["x", "yz"]
    );

    for (bytes, part) in [
        (npy("|O", false, "(2,)", b"xx"), "pickle"),
        (npy("<f4", false, "(3, 3)", &data), "ends before"),
        (npy("<f4", false, "(1, 3)", &data), "more data"),
        (
            npy("<f4", false, "(1000000000000, 3)", &data),
            "ends before",
        ),
        (
            npy(
                "<f4",
                false,
                "(2, 3)",
                &f32s(&[1.0, 2.0, 3.0, f32::INFINITY, 5.0, 6.0]),
            ),
            "infinite",
        ),
    ] {
        let e = read(&folder.put("bad.npy", bytes), &label("none")).unwrap_err();
        assert!(e.to_string().contains(part), "{e}");
        assert!(e.file().is_some() && e.hint_text().is_some(), "{e}");
        if part == "infinite" {
            assert_eq!((e.row(), e.column()), (Some(2), Some("1")));
        }
    }
}

#[test]
fn numpy_archives() {
    let folder = Folder::new();
    let x = npy(
        "<f4",
        false,
        "(2, 3)",
        &f32s(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    );
    let y = npy(
        "<i8",
        false,
        "(2,)",
        &[7i64.to_le_bytes(), 9i64.to_le_bytes()].concat(),
    );
    for deflate in [false, true] {
        let path = folder.put("a.npz", npz(&[("x", x.clone()), ("y", y.clone())], deflate));
        let table = read(&path, &ReadOptions::default()).unwrap();
        assert_eq!((table.rows(), table.columns.len()), (2, 3));
        assert_eq!(numbers(&table, 2), [3.0, 6.0]);
        assert_eq!(labels(&table), ["7", "9"]);
        let path = folder.put(
            "b.npz",
            npz(&[("arr_0", x.clone()), ("arr_1", y.clone())], deflate),
        );
        assert_eq!(
            labels(&read(&path, &ReadOptions::default()).unwrap()),
            ["7", "9"]
        );
        let path = folder.put(
            "c.npz",
            npz(&[("data", x.clone()), ("kind", y.clone())], deflate),
        );
        assert_eq!(labels(&read(&path, &label("kind")).unwrap()), ["7", "9"]);
        let e = read(&path, &label("none there")).unwrap_err();
        assert!(e.to_string().contains("data, kind"), "{e}");
    }
    let a = npy("<f4", false, "(2,)", &f32s(&[1.0, 2.0]));
    let path = folder.put("d.npz", npz(&[("width", a), ("label", y.clone())], true));
    let table = read(&path, &ReadOptions::default()).unwrap();
    assert!(table.named);
    assert_eq!(
        (table.names.as_slice(), labels(&table)),
        (&["width".to_owned()][..], vec!["7", "9"])
    );

    // A flipped bit in stored data shows in the checksum.
    let mut bytes = npz(&[("x", x.clone()), ("y", y.clone())], false);
    let at = bytes
        .windows(4)
        .position(|w| w == 3.0f32.to_le_bytes())
        .unwrap();
    bytes[at] ^= 1;
    let e = read(&folder.put("e.npz", bytes), &ReadOptions::default()).unwrap_err();
    assert!(e.to_string().contains("damaged"), "{e}");

    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let stored =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    writer.start_file("xl/workbook.xml", stored).unwrap();
    let excel = writer.finish().unwrap().into_inner();
    let e = read(&folder.put("f.xlsx", excel), &ReadOptions::default()).unwrap_err();
    assert!(
        e.to_string().contains("Excel") && e.hint_text().unwrap().contains("CSV"),
        "{e}"
    );
}

fn idx(kind: u8, dims: &[u32], data: &[u8]) -> Vec<u8> {
    let mut out = vec![0, 0, kind, dims.len() as u8];
    for dim in dims {
        out.extend(dim.to_be_bytes());
    }
    out.extend(data);
    out
}

#[test]
fn idx_files() {
    let folder = Folder::new();
    let images = idx(8, &[2, 2, 2], &[1, 2, 3, 4, 5, 6, 7, 255]);
    let path = folder.put("train-images-idx3-ubyte.gz", gzip(&images));
    let e = read(&path, &ReadOptions::default()).unwrap_err();
    assert!(e.hint_text().unwrap().contains("--label"), "{e}");
    folder.put("train-labels-idx1-ubyte.gz", gzip(&idx(8, &[2], &[3, 0])));
    let table = read(&path, &ReadOptions::default()).unwrap();
    assert_eq!((table.rows(), table.columns.len()), (2, 4));
    assert_eq!(numbers(&table, 3), [4.0, 255.0]);
    assert_eq!(labels(&table), ["3", "0"]);

    for (kind, data) in [
        (9u8, vec![255u8, 1]),
        (0x0b, [(-1i16).to_be_bytes(), 1i16.to_be_bytes()].concat()),
        (0x0c, [(-1i32).to_be_bytes(), 1i32.to_be_bytes()].concat()),
        (0x0d, [(-1f32).to_be_bytes(), 1f32.to_be_bytes()].concat()),
        (0x0e, [(-1f64).to_be_bytes(), 1f64.to_be_bytes()].concat()),
    ] {
        let table = read(
            &folder.put("a.idx", idx(kind, &[2, 1], &data)),
            &label("none"),
        )
        .unwrap();
        assert_eq!(numbers(&table, 0), [-1.0, 1.0], "{kind:#x}");
    }
    for bytes in [
        idx(8, &[3, 2], &[1, 2, 3]),
        idx(8, &[1, 2], &[1, 2, 3]),
        idx(8, &[0, 2], &[]),
    ] {
        for (name, bytes) in [("a.idx", bytes.clone()), ("a.idx.gz", gzip(&bytes))] {
            let e = read(&folder.put(name, bytes), &label("none")).unwrap_err();
            assert!(e.file().is_some() && e.hint_text().is_some(), "{e}");
        }
    }
}

#[test]
fn parquet_files() {
    let folder = Folder::new();
    let path = folder.0.path().join("a.parquet");
    let dictionary: DictionaryArray<Int32Type> = vec!["red", "blue", "red"].into_iter().collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "count",
            Arc::new(Int64Array::from(vec![Some(1), None, Some(3)])),
        ),
        (
            "size",
            Arc::new(Float32Array::from(vec![0.5, f32::NAN, 1.5])),
        ),
        (
            "flag",
            Arc::new(BooleanArray::from(vec![true, false, true])),
        ),
        ("colour", Arc::new(dictionary)),
        ("label", Arc::new(StringArray::from(vec!["x", "y", "x"]))),
    ];
    parquet_file(&path, columns.clone());
    let table = read(&path, &ReadOptions::default()).unwrap();
    assert_eq!(table.names, ["count", "size", "flag", "colour"]);
    assert!(numbers(&table, 0)[1].is_nan() && numbers(&table, 1)[1].is_nan());
    assert_eq!(numbers(&table, 2), [1.0, 0.0, 1.0]);
    assert!(matches!(&table.columns[3], Column::Text { codes, .. } if codes == &[0, 1, 0]));
    assert_eq!(labels(&table), ["x", "y", "x"]);

    let e = read(&path, &label("count")).unwrap_err();
    assert_eq!((e.row(), e.column()), (Some(2), Some("count")), "{e}");

    let mut dated = columns;
    dated.push(("day", Arc::new(Date32Array::from(vec![1, 2, 3]))));
    parquet_file(&path, dated);
    let e = read(&path, &ReadOptions::default()).unwrap_err();
    assert_eq!(e.column(), Some("day"), "{e}");
    assert!(e.hint_text().unwrap().contains("--drop"));
    let options = ReadOptions {
        drop: vec!["day".into()],
        categorical: vec!["count".into()],
        ..ReadOptions::default()
    };
    let table = read(&path, &options).unwrap();
    assert_eq!(table.names.len(), 4);
    assert!(matches!(&table.columns[0], Column::Text { names, .. } if names == &["1", "3"]));

    let infinite: Vec<(&str, ArrayRef)> = vec![
        ("a", Arc::new(Float32Array::from(vec![1.0, f32::INFINITY]))),
        ("y", Arc::new(Int64Array::from(vec![1, 2]))),
    ];
    parquet_file(&path, infinite);
    let e = read(&path, &ReadOptions::default()).unwrap_err();
    assert_eq!((e.row(), e.column()), (Some(2), Some("a")), "{e}");
}

#[test]
fn files_are_put_together() {
    let folder = Folder::new();
    let a = folder.put("a.csv", "w,h,label\n1,2,x\n");
    let b = folder.put("b.csv", "label,h,w\ny,4,3\n");
    let table = Table::read(&[a.clone(), b.clone(), a.clone()], &ReadOptions::default()).unwrap();
    assert_eq!(table.names, ["w", "h"]);
    assert_eq!(numbers(&table, 0), [1.0, 3.0, 1.0]);
    assert_eq!(numbers(&table, 1), [2.0, 4.0, 2.0]);
    assert_eq!(labels(&table), ["x", "y", "x"]);

    for (text, part) in [
        ("w,label\n1,x\n", "lacks"),
        ("w,h,d,label\n1,2,3,x\n", "has not: d"),
        ("1,2,3\n", "no column names"),
    ] {
        let c = folder.put("c.csv", text);
        let options = if part == "no column names" {
            label("none")
        } else {
            ReadOptions::default()
        };
        let e = Table::read(&[a.clone(), c.clone()], &options).unwrap_err();
        assert!(e.to_string().contains(part), "{e}");
        assert!(e.file() == Some(&c) && e.hint_text().is_some());
    }
    // A text cell in the first file and a number in the second do not go together.
    let c = folder.put("c.csv", "w,h,label\nabc,2,x\n");
    let e = Table::read(&[c.clone(), a.clone()], &ReadOptions::default()).unwrap_err();
    assert_eq!(
        (e.file(), e.row(), e.column()),
        (Some(c.as_path()), Some(2), Some("w"))
    );
    let one = folder.put("one.txt", "1 2 3\n");
    let two = folder.put("two.txt", "1 2\n");
    let e = Table::read(&[one, two], &label("last")).unwrap_err();
    assert!(e.to_string().contains("2 columns"), "{e}");
    assert!(Table::read(&[], &ReadOptions::default()).is_err());
}

#[test]
fn bad_input_is_named() {
    let folder = Folder::new();
    let binary: Vec<u8> = (0..=255u8).cycle().take(3000).collect();
    let cases: &[(&str, &[u8], Option<u64>, Option<&str>, &str)] = &[
        (
            "ragged.csv",
            b"a,b,y\n1,2,x\n1,2\n",
            Some(3),
            Some("3"),
            "2 cells",
        ),
        (
            "ragged.csv",
            b"a,b,y\n1,2,x\n1,2,x,4\n",
            Some(3),
            Some("4"),
            "4 cells",
        ),
        (
            "ragged.csv",
            b"a,b,y\n1,2,x\n1,2,\"x\",4\n",
            Some(3),
            Some("4"),
            "4 cells",
        ),
        (
            "ragged.csv",
            b"a,b,y\n1,2,x\n1,q\n",
            Some(3),
            Some("3"),
            "2 cells",
        ),
        (
            "ragged.csv",
            b"a,b,y\n1,2,x\n1,2,\n",
            Some(3),
            Some("y"),
            "label is missing",
        ),
        (
            "text.csv",
            b"a,b,y\n1,2,x\n1,q,x\n",
            Some(3),
            Some("b"),
            "\"q\" is not a number",
        ),
        (
            "text.csv",
            b"a,b,y\n1,q,x\n1,2,x\n",
            Some(2),
            Some("b"),
            "\"q\" is not a number",
        ),
        (
            "inf.csv",
            b"a,b,y\n1,2,x\n1,-inf,x\n",
            Some(3),
            Some("b"),
            "infinite",
        ),
        (
            "inf.csv",
            b"a,b,y\n1,2,x\n1,1e999,x\n",
            Some(3),
            Some("b"),
            "infinite",
        ),
        (
            "inf.csv",
            b"a,b,y\n1,Infinity,x\n",
            Some(2),
            Some("b"),
            "infinite",
        ),
        ("empty.csv", b"", None, None, "empty"),
        ("blank.csv", b"\n \n\n", None, None, "empty"),
        ("header.csv", b"a,b,y\n", Some(1), None, "no rows"),
        ("binary.csv", &binary, None, None, "binary"),
        (
            "utf8.csv",
            b"a,b,y\n1,na\xefve,x\n",
            Some(2),
            Some("b"),
            "UTF-8",
        ),
        (
            "utf8.csv",
            b"a,b,y\n1,1,x\n2,\xff,x\n",
            Some(3),
            Some("b"),
            "UTF-8",
        ),
        (
            "utf8.csv",
            b"a,b,y\n1,1,\xe9\n",
            Some(2),
            Some("y"),
            "UTF-8",
        ),
        (
            "utf8.csv",
            b"a,\xe9,y\n1,1,x\n",
            Some(1),
            Some("2"),
            "UTF-8",
        ),
        (
            "quote.csv",
            b"a,b,y\n1,\"2,x\n",
            Some(2),
            None,
            "never closed",
        ),
        (
            "twice.csv",
            b"a,a,y\n1,2,x\n",
            Some(1),
            Some("2"),
            "the name \"a\"",
        ),
        ("only.csv", b"y\nx\nz\n", None, None, "no column beside"),
        (
            "label.csv",
            b"a,y\n1,x\n2,\n",
            Some(3),
            Some("y"),
            "label is missing",
        ),
        (
            "spaces.txt",
            b"a b y\n1 2 x\n1 x\n",
            Some(3),
            Some("3"),
            "2 cells",
        ),
    ];
    for (name, content, row, column, part) in cases {
        let path = folder.put(name, content);
        let e = read(&path, &ReadOptions::default()).unwrap_err();
        assert!(e.to_string().contains(part), "{e}");
        assert_eq!(e.file(), Some(path.as_path()), "{e}");
        assert_eq!((e.row(), e.column()), (*row, *column), "{e}");
        assert!(e.hint_text().is_some(), "{e}");
    }
    let e = read(&folder.0.path().join("none.csv"), &ReadOptions::default()).unwrap_err();
    assert!(e.file().is_some() && e.hint_text().is_some(), "{e}");

    let path = folder.put("one.csv", "a,y\n1,x\n2,x\n");
    let e = read(&path, &ReadOptions::default())
        .unwrap()
        .check_classes(1)
        .unwrap_err();
    assert!(
        e.to_string().contains("one class only") && e.hint_text().is_some(),
        "{e}"
    );
    assert_eq!((e.file(), e.column()), (Some(path.as_path()), Some("y")));
    let path = folder.put("few.csv", "a,y\n1,x\n2,x\n3,z\n");
    let e = read(&path, &ReadOptions::default())
        .unwrap()
        .check_classes(2)
        .unwrap_err();
    assert!(
        e.to_string().contains("z (1)") && e.hint_text().is_some(),
        "{e}"
    );
    for bad in ["categorical", "drop"] {
        let mut options = ReadOptions::default();
        let list = if bad == "drop" {
            &mut options.drop
        } else {
            &mut options.categorical
        };
        list.push("colour".into());
        let e = read(&path, &options).unwrap_err();
        assert!(
            e.to_string().contains("a, y") && e.hint_text().is_some(),
            "{e}"
        );
    }
}

/// Reads a file as prediction does, in blocks of `size`.
fn stream(
    schema: &Schema,
    path: &Path,
    options: &ReadOptions,
    size: usize,
) -> Result<(Vec<f32>, Vec<Option<String>>, Vec<String>), Error> {
    let mut reader = schema.reader(path, options)?;
    let (mut batch, mut x, mut y) = (Batch::default(), Vec::new(), Vec::new());
    while reader.next(size, &mut batch)? {
        assert_eq!(batch.x.len(), batch.rows * schema.width());
        x.extend_from_slice(&batch.x);
        y.extend(batch.labels.take().unwrap_or_default());
    }
    assert_eq!(reader.rows() as usize * schema.width(), x.len());
    Ok((x, y, reader.notices()))
}

fn fit(table: &Table) -> (Schema, Vec<String>) {
    let rows: Vec<usize> = (0..table.rows()).collect();
    let (schema, notices) = Schema::fit(table, &rows).unwrap();
    schema.validate().unwrap();
    let text = serde_json::to_string(&schema).unwrap();
    assert_eq!(serde_json::from_str::<Schema>(&text).unwrap(), schema);
    (schema, notices)
}

#[test]
fn prediction_matches_columns_by_name() {
    let folder = Folder::new();
    let train = folder.put(
        "train.csv",
        "w,colour,same,age,empty,species\n1,red,7,10,,x\n2,blue,7,NA,,y\n3,red,7,30,,x\n",
    );
    let table = read(&train, &label("species")).unwrap();
    let (schema, notices) = fit(&table);
    assert_eq!(
        notices,
        [
            "1 constant column dropped: same",
            "1 column without any value dropped: empty",
            "1 missing cell in 1 column imputed by the training mean",
        ]
    );
    assert_eq!(
        schema.input_names(),
        ["w", "colour=blue", "colour=red", "age", "age missing"]
    );
    let whole = schema.transform(&table, None).unwrap();
    let z = 1.5f32.sqrt();
    assert_eq!(&whole[..5], [-z, 0.0, 1.0, -1.0, 0.0]);
    assert_eq!(&whole[5..10], [0.0, 1.0, 0.0, 0.0, 1.0]);
    for size in [1, 2, 3, 100] {
        let (x, y, notices) = stream(&schema, &train, &ReadOptions::default(), size).unwrap();
        assert_eq!(x, whole);
        assert_eq!(y, [Some("x".into()), Some("y".into()), Some("x".into())]);
        assert_eq!(
            notices,
            ["1 missing cell in 1 column imputed by the training mean"]
        );
    }
    assert_eq!(
        schema.transform(&table, Some(&[2, 0])).unwrap()[5..],
        whole[..5]
    );

    let other = folder.put(
        "other.csv",
        "id,age,note,colour,w\nr1,10,a,teal,1\nr2,20,b,,2\n",
    );
    let (x, y, notices) = stream(&schema, &other, &ReadOptions::default(), 10).unwrap();
    assert_eq!(x, [-z, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    assert!(y.is_empty());
    assert_eq!(
        notices,
        [
            "2 extra columns ignored: id, note",
            "1 missing cell in 1 column imputed by the training mean",
            "1 cell holds a category not seen in training (column colour: \"teal\")",
        ]
    );
    for (text, part) in [
        ("age,w\n1,2\n", "missing: colour; the file has: age, w"),
        ("1,2,3\n", "missing"),
        ("w,colour,age\nabc,red,1\n", "not a number"),
        ("w,colour,age\n", "no rows"),
        ("w,colour,age\n1,red\n", "cells"),
    ] {
        let path = folder.put("bad.csv", text);
        let e = stream(&schema, &path, &ReadOptions::default(), 10).unwrap_err();
        assert!(e.to_string().contains(part), "{e}");
        assert!(e.file().is_some() && e.hint_text().is_some(), "{e}");
    }
    let unnamed = folder.put(
        "a.npy",
        npy("<f4", false, "(1, 3)", &f32s(&[1.0, 2.0, 3.0])),
    );
    let e = stream(&schema, &unnamed, &ReadOptions::default(), 10).unwrap_err();
    assert!(e.to_string().contains("no column names"), "{e}");
    // A label that is missing is no error here.
    let path = folder.put("l.csv", "w,colour,age,species\n1,red,1,\n");
    let (_, y, _) = stream(&schema, &path, &ReadOptions::default(), 10).unwrap();
    assert_eq!(y, [None]);
    let (_, y, _) = stream(&schema, &path, &label("none"), 10).unwrap();
    assert!(y.is_empty());
    let e = stream(&schema, &path, &label("w"), 10).unwrap_err();
    assert!(e.to_string().contains("one of the model's features"), "{e}");
}

#[test]
fn prediction_matches_columns_by_position() {
    let folder = Folder::new();
    let train = folder.put("train.txt", "x 1 5 10\ny 2 6 11\nx 3 8 12\n");
    let options = ReadOptions {
        drop: vec!["3".into()],
        ..label("first")
    };
    let table = read(&train, &options).unwrap();
    assert_eq!(table.names, ["column 2", "column 4"]);
    let (schema, _) = fit(&table);
    assert_eq!((schema.width(), schema.columns.len()), (2, 3));
    let whole = schema.transform(&table, None).unwrap();
    let (x, y, _) = stream(&schema, &train, &ReadOptions::default(), 2).unwrap();
    assert_eq!((x, y.len()), (whole.clone(), 3));
    let bare = folder.put("bare.csv", "1,5,10\n2,6,11\n3,8,12\n");
    let (x, y, _) = stream(&schema, &bare, &ReadOptions::default(), 2).unwrap();
    assert_eq!((x, y.len()), (whole.clone(), 0));
    let headed = folder.put("headed.csv", "a,b,c\n1,5,10\n2,6,11\n3,8,12\n");
    let (x, _, _) = stream(&schema, &headed, &ReadOptions::default(), 2).unwrap();
    assert_eq!(x, whole);
    let last = folder.put("last.csv", "1,5,10,x\n2,6,11,y\n3,8,12,x\n");
    let (x, y, _) = stream(&schema, &last, &label("last"), 2).unwrap();
    assert_eq!((x, y.len()), (whole.clone(), 3));
    let array = folder.put(
        "a.npy",
        npy("<f4", false, "(1, 3)", &f32s(&[1.0, 5.0, 10.0])),
    );
    let (x, _, _) = stream(&schema, &array, &ReadOptions::default(), 2).unwrap();
    assert_eq!(x, whole[..2]);
    for text in ["1,2\n", "1,2,3,4,5\n"] {
        let e = stream(
            &schema,
            &folder.put("bad.csv", text),
            &ReadOptions::default(),
            2,
        )
        .unwrap_err();
        assert!(
            e.to_string().contains("needs 3") && e.hint_text().is_some(),
            "{e}"
        );
    }
    let sparse = folder.put("a.dat", "x 1:1 2:5 3:10 9:4\n");
    let (x, y, notices) = stream(&schema, &sparse, &ReadOptions::default(), 2).unwrap();
    assert_eq!((x, y), (whole[..2].to_vec(), vec![Some("x".into())]));
    assert_eq!(notices, ["6 features beyond the model's 3 ignored"]);
}

#[test]
fn arrays_of_the_caller() {
    let table = Table::from_rows(&[1.0, 2.0, 3.0, f32::NAN], 2, Some(&["b", "a"])).unwrap();
    assert_eq!(
        (table.rows(), table.classes()),
        (2, &["a".to_owned(), "b".to_owned()][..])
    );
    assert!(numbers(&table, 1)[1].is_nan());
    let e = Table::from_rows(&[1.0, 2.0, 3.0, f32::INFINITY], 2, None::<&[&str]>).unwrap_err();
    assert_eq!((e.row(), e.column()), (Some(2), Some("2")));
    assert!(Table::from_rows(&[1.0, 2.0, 3.0], 2, None::<&[&str]>).is_err());
    assert!(Table::from_rows(&[], 2, None::<&[&str]>).is_err());
    assert!(Table::from_rows(&[1.0], 0, None::<&[&str]>).is_err());
    assert!(Table::from_rows(&[1.0, 2.0], 1, Some(&["a"])).is_err());
    assert!(Table::from_rows(&[1.0, 2.0], 1, Some(&["a", ""])).is_err());
}

#[test]
fn a_written_table_comes_back() {
    let folder = Folder::new();
    let digits = mcdd::data::digits();
    let path = folder.0.path().join("digits.csv");
    digits.write_csv(File::create(&path).unwrap()).unwrap();
    let back = read(&path, &ReadOptions::default()).unwrap();
    assert_eq!(
        (back.names, back.columns, back.labels),
        (digits.names, digits.columns, digits.labels)
    );
    let mixed = folder.put("m.csv", "a,\"b \"\"c\",y\n1,\"x, y\",k\n,?,k\n0.1,z,l\n");
    let table = read(&mixed, &ReadOptions::default()).unwrap();
    let mut out = Vec::new();
    table.write_csv(&mut out).unwrap();
    let back = read(&folder.put("n.csv", &out), &ReadOptions::default()).unwrap();
    assert_eq!((&back.names, &back.labels), (&table.names, &table.labels));
    assert_eq!(back.columns[1], table.columns[1]);
}
