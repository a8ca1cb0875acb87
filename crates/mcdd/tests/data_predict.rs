//! Preprocessing and prediction: what streaming gives is what the table gives.
#![cfg(all(feature = "npz", feature = "parquet"))]

mod data_help;

use std::fs::File;
use std::path::Path;

use data_help::*;
use mcdd::Error;
use mcdd::data::{Batch, ReadOptions, Schema, Table};

/// Inputs, labels and notices.
type Streamed = (Vec<f32>, Vec<Option<String>>, Vec<String>);

/// Reads a file as prediction does, in blocks of `size`.
fn stream(schema: &Schema, path: &Path, options: &ReadOptions, size: usize) -> Result<Streamed, Error> {
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
    let train =
        folder.put("train.csv", "w,color,same,age,empty,species\n1,red,7,10,,x\n2,blue,7,NA,,y\n3,red,7,30,,x\n");
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
    assert_eq!(schema.input_names(), ["w", "color=blue", "color=red", "age", "age missing"]);
    let whole = schema.transform(&table, None).unwrap();
    let z = 1.5f32.sqrt();
    assert_eq!(&whole[..5], [-z, 0.0, 1.0, -1.0, 0.0]);
    assert_eq!(&whole[5..10], [0.0, 1.0, 0.0, 0.0, 1.0]);
    for size in [1, 2, 3, 100] {
        let (x, y, notices) = stream(&schema, &train, &ReadOptions::default(), size).unwrap();
        assert_eq!(x, whole);
        assert_eq!(y, [Some("x".into()), Some("y".into()), Some("x".into())]);
        assert_eq!(notices, ["1 missing cell in 1 column imputed by the training mean"]);
    }
    assert_eq!(schema.transform(&table, Some(&[2, 0])).unwrap()[5..], whole[..5]);

    let other = folder.put("other.csv", "id,age,note,color,w\nr1,10,a,teal,1\nr2,20,b,,2\n");
    let (x, y, notices) = stream(&schema, &other, &ReadOptions::default(), 10).unwrap();
    assert_eq!(x, [-z, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    assert!(y.is_empty());
    assert_eq!(
        notices,
        [
            "2 extra columns ignored: id, note",
            "1 missing cell in 1 column of categories taken as no category",
            "1 cell holds a category not seen in training (column color: \"teal\")",
        ]
    );
    for (text, part) in [
        ("age,w\n1,2\n", "missing: color; the file has: age, w"),
        ("1,2,3\n", "missing"),
        ("w,color,age\nabc,red,1\n", "not a number"),
        ("w,color,age\n1,red\n", "cells"),
    ] {
        let path = folder.put("bad.csv", text);
        let e = stream(&schema, &path, &ReadOptions::default(), 10).unwrap_err();
        assert!(e.to_string().contains(part), "{e}");
        assert!(e.file().is_some() && e.hint_text().is_some(), "{e}");
    }
    let unnamed = folder.put("a.npy", npy("<f4", false, "(1, 3)", &f32s(&[1.0, 2.0, 3.0])));
    let e = stream(&schema, &unnamed, &ReadOptions::default(), 10).unwrap_err();
    assert!(e.to_string().contains("no column names"), "{e}");
    // A missing label is not an error here.
    let path = folder.put("l.csv", "w,color,age,species\n1,red,1,\n");
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
    let options = ReadOptions { drop: vec!["3".into()], ..label("first") };
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
    let array = folder.put("a.npy", npy("<f4", false, "(1, 3)", &f32s(&[1.0, 5.0, 10.0])));
    let (x, _, _) = stream(&schema, &array, &ReadOptions::default(), 2).unwrap();
    assert_eq!(x, whole[..2]);
    for text in ["1,2\n", "1,2,3,4,5\n"] {
        let e = stream(&schema, &folder.put("bad.csv", text), &ReadOptions::default(), 2).unwrap_err();
        assert!(e.to_string().contains("needs 3") && e.hint_text().is_some(), "{e}");
    }
    let sparse = folder.put("a.dat", "x 1:1 2:5 3:10 9:4\n");
    let (x, y, notices) = stream(&schema, &sparse, &ReadOptions::default(), 2).unwrap();
    assert_eq!((x, y), (whole[..2].to_vec(), vec![Some("x".into())]));
    assert_eq!(notices, ["6 features beyond the model's 3 ignored"]);
}

#[test]
fn arrays_of_the_caller() {
    let table = Table::from_rows(&[1.0, 2.0, 3.0, f32::NAN], 2, Some(&["b", "a"])).unwrap();
    assert_eq!((table.rows(), table.classes()), (2, &["a".to_owned(), "b".to_owned()][..]));
    assert!(numbers(&table, 1)[1].is_nan());
    let e = Table::from_rows(&[1.0, 2.0, 3.0, f32::INFINITY], 2, None::<&[&str]>).unwrap_err();
    assert_eq!((e.row(), e.column()), (Some(2), Some("2")));
    assert!(Table::from_rows(&[1.0, 2.0, 3.0], 2, None::<&[&str]>).is_err());
    assert!(Table::from_rows(&[0.0; 0], 2, None::<&[&str]>).is_err());
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
    assert_eq!((back.names, back.columns, back.labels), (digits.names, digits.columns, digits.labels));
    let mixed = folder.put("m.csv", "a,\"b \"\"c\",y\n1,\"x, y\",k\n,?,k\n0.1,z,l\n");
    let table = read(&mixed, &ReadOptions::default()).unwrap();
    let mut out = Vec::new();
    table.write_csv(&mut out).unwrap();
    let back = read(&folder.put("n.csv", &out), &ReadOptions::default()).unwrap();
    assert_eq!((&back.names, &back.labels), (&table.names, &table.labels));
    assert_eq!(back.columns[1], table.columns[1]);
}

#[test]
fn a_table_of_categories_without_names() {
    let folder = Folder::new();
    let train = folder.put("a.csv", "red,small,x\nblue,big,y\nred,big,x\n");
    let options = ReadOptions { header: Some(false), ..label("last") };
    let table = read(&train, &options).unwrap();
    let (schema, _) = fit(&table);
    let whole = schema.transform(&table, None).unwrap();
    // A header cannot be distinguished from a row here, so there is none unless it is given.
    let (x, y, _) = stream(&schema, &train, &ReadOptions::default(), 2).unwrap();
    assert_eq!((x, y.len()), (whole.clone(), 3));
    let headed = folder.put("b.csv", "c,s,y\nred,small,x\nblue,big,y\nred,big,x\n");
    let options = ReadOptions { header: Some(true), ..ReadOptions::default() };
    let (x, y, _) = stream(&schema, &headed, &options, 2).unwrap();
    assert_eq!((x, y.len()), (whole, 3));
}

/// Rows keep their numbers and lines, and unseen categories their rows, where rows without a label are left out.
#[test]
fn rows_keep_their_places() {
    let folder = Folder::new();
    let train = folder.put("train.csv", "x,color,class\n1,red,a\n2,blue,b\n3,red,a\n");
    let table = read(&train, &ReadOptions::default()).unwrap();
    let (schema, _) = Schema::fit(&table, &[0, 1, 2]).unwrap();
    let new = folder.put("new.csv", "x,color,class\n1,red,\n\n2,green,a\n3,\"re\nd\",\n4,blue,b\n5,pink,a\n");
    let options = ReadOptions { skip_unlabeled: true, ..ReadOptions::default() };
    let mut reader = schema.reader(&new, &options).unwrap();
    let mut batch = Batch::default();
    assert!(reader.next(100, &mut batch).unwrap());
    let places: Vec<String> = batch.places.iter().map(ToString::to_string).collect();
    assert_eq!(places, ["2 (line 4)", "4 (line 7)", "5 (line 8)"]);
    let unseen: Vec<(usize, &str)> = batch.unseen_cells.iter().map(|cell| (cell.row, cell.text.as_str())).collect();
    assert_eq!(unseen, [(0, "green"), (2, "pink")]);
    // Blocks go on counting.
    let mut reader = schema.reader(&new, &ReadOptions::default()).unwrap();
    assert!(reader.next(3, &mut batch).unwrap() && reader.next(3, &mut batch).unwrap());
    assert_eq!(batch.places[0].to_string(), "4 (line 7)");

    let table = read(&new, &options).unwrap();
    assert_eq!((table.row_number(0), table.row_name(2)), (2, "row 5".to_owned()));
    assert_eq!(table.select(&[1]).row_number(0), 4);
}
