//! Labels, files put together, and every kind of bad input.
#![cfg(all(feature = "npz", feature = "parquet"))]

mod data_help;

use data_help::*;
use mcdd::data::{ReadOptions, Table};

/// File name, content, and what the error must tell: row, column and a part of its message.
type Case<'a> = (&'a str, &'a [u8], Option<u64>, Option<&'a str>, &'a str);

#[test]
fn labels_where_the_options_put_them() {
    let folder = Folder::new();
    let plain = folder.put("a.txt", " 1 2 10\n3 4   9 \n5 6 10.0\n");
    let table = read(&plain, &label("last")).unwrap();
    assert_eq!((table.rows(), table.columns.len(), table.named), (3, 2, false));
    assert_eq!(table.classes(), ["9", "10"], "numeric order");
    assert_eq!(labels(&table), ["10", "9", "10"]);
    assert_eq!(read(&plain, &label("first")).unwrap().classes().len(), 3);
    assert_eq!(read(&plain, &label("2")).unwrap().classes(), ["2", "4", "6"]);
    let none = read(&plain, &label("none")).unwrap();
    assert!(none.labels.is_none() && none.columns.len() == 3);

    let named = folder.put("b.csv", "2,b,c\n1,x,3\n4,y,6\n");
    let options = ReadOptions { header: Some(true), ..label("2") };
    let table = read(&named, &options).unwrap();
    assert_eq!(table.names, ["b", "c"], "a name that is the number goes first");
    let table = read(&named, &label("b")).unwrap();
    assert_eq!(table.classes(), ["x", "y"]);

    let e = read(&plain, &ReadOptions::default()).unwrap_err();
    assert!(e.hint_text().unwrap().contains("`label` last"), "{e}");
    let options = ReadOptions { header: Some(true), ..label("species") };
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
fn files_are_put_together() {
    let folder = Folder::new();
    let a = folder.put("a.csv", "w,h,label\n1,2,x\n");
    let b = folder.put("b.csv", "label,h,w\ny,4,3\n");
    let table = Table::read(&[a.clone(), b.clone(), a.clone()], &ReadOptions::default()).unwrap();
    assert_eq!(table.names, ["w", "h"]);
    assert_eq!(numbers(&table, 0), [1.0, 3.0, 1.0]);
    assert_eq!(numbers(&table, 1), [2.0, 4.0, 2.0]);
    assert_eq!(labels(&table), ["x", "y", "x"]);

    for (text, part) in
        [("w,label\n1,x\n", "lacks"), ("w,h,d,label\n1,2,3,x\n", "has not: d"), ("1,2,3\n", "no column names")]
    {
        let c = folder.put("c.csv", text);
        let options = if part == "no column names" { label("none") } else { ReadOptions::default() };
        let e = Table::read(&[a.clone(), c.clone()], &options).unwrap_err();
        assert!(e.to_string().contains(part), "{e}");
        assert!(e.file() == Some(&c) && e.hint_text().is_some());
    }
    // A text cell in the first file and a number in the second do not go together.
    let c = folder.put("c.csv", "w,h,label\nabc,2,x\n");
    let e = Table::read(&[c.clone(), a.clone()], &ReadOptions::default()).unwrap_err();
    assert_eq!((e.file(), e.row(), e.column()), (Some(c.as_path()), Some(1), Some("w")));
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
    let cases: &[Case] = &[
        ("ragged.csv", b"a,b,y\n1,2,x\n1,2\n", Some(2), Some("3"), "2 cells"),
        ("ragged.csv", b"a,b,y\n1,2,x\n1,2,x,4\n", Some(2), Some("4"), "4 cells"),
        ("ragged.csv", b"a,b,y\n1,2,x\n1,2,\"x\",4\n", Some(2), Some("4"), "4 cells"),
        ("ragged.csv", b"a,b,y\n1,2,x\n1,q\n", Some(2), Some("3"), "2 cells"),
        ("ragged.csv", b"a,b,y\n1,2,x\n1,2,\n", Some(2), Some("y"), "label is missing"),
        ("text.csv", b"a,b,y\n1,2,x\n1,q,x\n", Some(2), Some("b"), "\"q\" is not a number"),
        ("text.csv", b"a,b,y\n1,q,x\n1,2,x\n", Some(1), Some("b"), "\"q\" is not a number"),
        ("inf.csv", b"a,b,y\n1,2,x\n1,-inf,x\n", Some(2), Some("b"), "infinite"),
        ("inf.csv", b"a,b,y\n1,2,x\n1,1e999,x\n", Some(2), Some("b"), "infinite"),
        ("inf.csv", b"a,b,y\n1,Infinity,x\n", Some(1), Some("b"), "infinite"),
        ("empty.csv", b"", None, None, "empty"),
        ("blank.csv", b"\n \n\n", None, None, "empty"),
        ("header.csv", b"a,b,y\n", None, None, "no rows"),
        ("binary.csv", &binary, None, None, "binary"),
        ("utf8.csv", b"a,b,y\n1,na\xc3\xafve\xef,x\n", Some(1), Some("b"), "UTF-8"),
        ("utf8.csv", b"a,b,y\n1,1,\xc3\xa9\n2,\xff,x\n", Some(2), Some("b"), "UTF-8"),
        ("utf8.csv", b"a,\xc3\xa9,y\n1,1,\xe9\n", Some(1), Some("y"), "UTF-8"),
        ("utf8.csv", b"\xc3\xa9,\xe9,y\n1,1,x\n", None, Some("2"), "UTF-8"),
        ("quote.csv", b"a,b,y\n1,\"2,x\n", Some(1), None, "never closed"),
        ("twice.csv", b"a,a,y\n1,2,x\n", None, Some("2"), "the name \"a\""),
        ("only.csv", b"y\nx\nz\n", None, None, "no column beside"),
        ("label.csv", b"a,y\n1,x\n2,\n", Some(2), Some("y"), "label is missing"),
        ("spaces.txt", b"a b y\n1 2 x\n1 x\n", Some(2), Some("3"), "2 cells"),
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
    let e = read(&path, &ReadOptions::default()).unwrap().check_classes(1).unwrap_err();
    assert!(e.to_string().contains("one class only") && e.hint_text().is_some(), "{e}");
    assert_eq!((e.file(), e.column()), (Some(path.as_path()), Some("y")));
    let path = folder.put("few.csv", "a,y\n1,x\n2,x\n3,z\n");
    let e = read(&path, &ReadOptions::default()).unwrap().check_classes(2).unwrap_err();
    assert!(e.to_string().contains("z (1)") && e.hint_text().is_some(), "{e}");
    for bad in ["categorical", "drop"] {
        let mut options = ReadOptions::default();
        let list = if bad == "drop" { &mut options.drop } else { &mut options.categorical };
        list.push("color".into());
        let e = read(&path, &options).unwrap_err();
        assert!(e.to_string().contains("a, y") && e.hint_text().is_some(), "{e}");
    }
}
