//! Each reader on small files.
#![cfg(all(feature = "npz", feature = "parquet"))]

mod data_help;

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, DurationSecondArray, Float32Array, Int64Array, StringArray,
    types::Int32Type,
};
use data_help::*;
use mcdd::data::{Column, ReadOptions, Table};

#[test]
fn csv_with_everything() {
    let folder = Folder::new();
    let text = "\u{feff}id,\"a, b\",color,Class\r\n1,2.5,\"dark \"\"red\"\"\",x\r\n\r\n2,NA,blue,y\r\n3,,?,1.0";
    for (name, bytes) in
        [("a.csv", text.as_bytes().to_vec()), ("b.csv.gz", gzip(text.as_bytes())), ("c.data", text.as_bytes().to_vec())]
    {
        let table = read(&folder.put(name, bytes), &ReadOptions::default()).unwrap();
        assert!(table.named);
        assert_eq!(table.names, ["id", "a, b", "color"]);
        assert_eq!(table.rows(), 3);
        assert_eq!(numbers(&table, 0), [1.0, 2.0, 3.0]);
        assert_eq!(numbers(&table, 1)[0], 2.5);
        assert!(numbers(&table, 1)[1..].iter().all(|v| v.is_nan()));
        assert_eq!(
            table.columns[2],
            Column::Text { codes: vec![0, 1, u32::MAX], names: vec!["dark \"red\"".into(), "blue".into()] }
        );
        assert_eq!(labels(&table), ["x", "y", "1"]);
        assert_eq!(table.classes(), ["1", "x", "y"]);
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
    let dropped = ReadOptions { drop: vec!["2".into()], ..ReadOptions::default() };
    assert_eq!(read(&one, &dropped).unwrap().names, ["column 1", "column 3"]);

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
        assert!(e.file().is_some() && e.column().is_some() && e.hint_text().is_some(), "{e}");
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
    let wide: Vec<u8> = small.iter().flat_map(|&v| i64::from(v).to_be_bytes()).collect();
    check(npy(">i8", false, "(2, 3)", &wide), "f.npy");
    let halves: Vec<u8> = small.iter().flat_map(|&v| half::f16::from_f32(f32::from(v)).to_le_bytes()).collect();
    check(npy("<f2", false, "(2, 3)", &halves), "g.npy");
    let doubles: Vec<u8> = small.iter().flat_map(|&v| f64::from(v).to_be_bytes()).collect();
    check(npy(">f8", false, "(2, 3)", &doubles), "h.npy");

    // A cube in Fortran order: element (r, i, j) stands at r + 2i + 4j.
    let cube: Vec<f32> = (0..8).map(|v| v as f32).collect();
    let table = read(&folder.put("i.npy", npy("<f4", true, "(2, 2, 2)", &f32s(&cube))), &label("none")).unwrap();
    assert_eq!(numbers(&table, 1), [4.0, 5.0]);
    assert_eq!(numbers(&table, 2), [2.0, 3.0]);

    let x = folder.put("x.npy", npy("<f4", false, "(2, 3)", &data));
    let names: Vec<u8> = "ab\0cd\0".chars().flat_map(|c| (c as u32).to_le_bytes()).collect();
    let y = folder.put("y.npy", npy("<U3", false, "(2,)", &names));
    let table = read(&x, &label(y.to_str().unwrap())).unwrap();
    assert_eq!(labels(&table), ["ab", "cd"]);
    let y = folder.put("y.npy", npy("|S2", false, "(2,)", b"x\0yz"));
    assert_eq!(labels(&read(&x, &label(y.to_str().unwrap())).unwrap()), ["x", "yz"]);

    for (bytes, part) in [
        (npy("|O", false, "(2,)", b"xx"), "pickle"),
        (npy("<f4", false, "(3, 3)", &data), "ends before"),
        (npy("<f4", false, "(1, 3)", &data), "more data"),
        (npy("<f4", false, "(1000000000000, 3)", &data), "ends before"),
        (npy("<f4", false, "(2, 3)", &f32s(&[1.0, 2.0, 3.0, f32::INFINITY, 5.0, 6.0])), "infinite"),
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
    let x = npy("<f4", false, "(2, 3)", &f32s(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    let y = npy("<i8", false, "(2,)", &[7i64.to_le_bytes(), 9i64.to_le_bytes()].concat());
    for deflate in [false, true] {
        let path = folder.put("a.npz", npz(&[("x", x.clone()), ("y", y.clone())], deflate));
        let table = read(&path, &ReadOptions::default()).unwrap();
        assert_eq!((table.rows(), table.columns.len()), (2, 3));
        assert_eq!(numbers(&table, 2), [3.0, 6.0]);
        assert_eq!(labels(&table), ["7", "9"]);
        let path = folder.put("b.npz", npz(&[("arr_0", x.clone()), ("arr_1", y.clone())], deflate));
        assert_eq!(labels(&read(&path, &ReadOptions::default()).unwrap()), ["7", "9"]);
        let path = folder.put("c.npz", npz(&[("data", x.clone()), ("kind", y.clone())], deflate));
        assert_eq!(labels(&read(&path, &label("kind")).unwrap()), ["7", "9"]);
        let e = read(&path, &label("none there")).unwrap_err();
        assert!(e.to_string().contains("data, kind"), "{e}");
    }
    let a = npy("<f4", false, "(2,)", &f32s(&[1.0, 2.0]));
    let path = folder.put("d.npz", npz(&[("width", a), ("label", y.clone())], true));
    let table = read(&path, &ReadOptions::default()).unwrap();
    assert!(table.named);
    assert_eq!((table.names.as_slice(), labels(&table)), (&["width".to_owned()][..], vec!["7", "9"]));

    // A flipped bit in stored data shows in the checksum.
    let mut bytes = npz(&[("x", x.clone()), ("y", y.clone())], false);
    let at = bytes.windows(4).position(|w| w == 3.0f32.to_le_bytes()).unwrap();
    bytes[at] ^= 1;
    let e = read(&folder.put("e.npz", bytes), &ReadOptions::default()).unwrap_err();
    assert!(e.to_string().contains("damaged"), "{e}");

    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    writer.start_file("xl/workbook.xml", stored).unwrap();
    let excel = writer.finish().unwrap().into_inner();
    let e = read(&folder.put("f.xlsx", excel), &ReadOptions::default()).unwrap_err();
    assert!(e.to_string().contains("Excel") && e.hint_text().unwrap().contains("CSV"), "{e}");
}

#[test]
fn idx_files() {
    let folder = Folder::new();
    let images = idx(8, &[2, 2, 2], &[1, 2, 3, 4, 5, 6, 7, 255]);
    let path = folder.put("train-images-idx3-ubyte.gz", gzip(&images));
    let e = read(&path, &ReadOptions::default()).unwrap_err();
    assert!(e.hint_text().unwrap().contains("`label`"), "{e}");
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
        let table = read(&folder.put("a.idx", idx(kind, &[2, 1], &data)), &label("none")).unwrap();
        assert_eq!(numbers(&table, 0), [-1.0, 1.0], "{kind:#x}");
    }
    for bytes in [idx(8, &[3, 2], &[1, 2, 3]), idx(8, &[1, 2], &[1, 2, 3]), idx(8, &[0, 2], &[])] {
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
        ("count", Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]))),
        ("size", Arc::new(Float32Array::from(vec![0.5, f32::NAN, 1.5]))),
        ("flag", Arc::new(BooleanArray::from(vec![true, false, true]))),
        ("color", Arc::new(dictionary)),
        ("label", Arc::new(StringArray::from(vec!["x", "y", "x"]))),
    ];
    parquet_file(&path, columns.clone());
    let table = read(&path, &ReadOptions::default()).unwrap();
    assert_eq!(table.names, ["count", "size", "flag", "color"]);
    assert!(numbers(&table, 0)[1].is_nan() && numbers(&table, 1)[1].is_nan());
    let names = vec!["true".into(), "false".into()];
    assert_eq!(table.columns[2], Column::Text { codes: vec![0, 1, 0], names });
    assert!(matches!(&table.columns[3], Column::Text { codes, .. } if codes == &[0, 1, 0]));
    assert_eq!(labels(&table), ["x", "y", "x"]);

    let e = read(&path, &label("count")).unwrap_err();
    assert_eq!((e.row(), e.column()), (Some(2), Some("count")), "{e}");

    let mut dated = columns;
    dated.push(("day", Arc::new(DurationSecondArray::from(vec![1, 2, 3]))));
    parquet_file(&path, dated);
    let e = read(&path, &ReadOptions::default()).unwrap_err();
    assert_eq!(e.column(), Some("day"), "{e}");
    assert!(e.hint_text().unwrap().contains("`drop`"));
    let options = ReadOptions { drop: vec!["day".into()], categorical: vec!["count".into()], ..ReadOptions::default() };
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
fn the_same_table_in_many_dialects() {
    let folder = Folder::new();
    let rows = [["width", "color", "class"], ["1.5", "red", "x"], ["-2", "blue", "y"], ["3e2", "red", "x"]];
    let mut want: Option<Table> = None;
    for (separator, newline) in
        [(",", "\n"), (", ", "\n"), ("\t", "\r\n"), (";", "\n"), ("|", "\r"), ("  ", "\n"), (" \t ", "\r\n")]
    {
        for last in [newline, ""] {
            let text = rows.map(|row| row.join(separator)).join(newline) + last;
            let path = folder.put("a.txt", &text);
            let table = read(&path, &ReadOptions::default()).unwrap();
            assert_eq!(table.names, ["width", "color"], "{text:?}");
            assert_eq!(numbers(&table, 0), [1.5, -2.0, 300.0], "{text:?}");
            match &want {
                None => want = Some(table),
                Some(want) => assert_eq!(&table, want, "{text:?}"),
            }
        }
    }
}

#[test]
fn a_long_file_is_read_over_its_blocks() {
    let folder = Folder::new();
    let mut text = String::from("a,b,label\n");
    for row in 0..30_000 {
        let quote = if row % 997 == 0 { "\"" } else { "" };
        text += &format!("{quote}{row}{quote},{}.25,k{}\n", row * 7, row % 3);
    }
    let plain = folder.put("a.csv", &text);
    let packed = folder.put("a.csv.gz", gzip(text.as_bytes()));
    for path in [plain, packed] {
        let table = read(&path, &ReadOptions::default()).unwrap();
        assert_eq!(table.class_sizes(), [10_000; 3]);
        for (row, (a, b)) in numbers(&table, 0).iter().zip(numbers(&table, 1)).enumerate() {
            assert_eq!((*a, b), (row as f64, (row * 7) as f64 + 0.25));
        }
    }
}
