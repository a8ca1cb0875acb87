//! What columns are built from cells, and the errors.

use std::path::Path;

use super::{Column, ColumnBuilder, MISSING, Want};

fn builder(want: Want) -> ColumnBuilder {
    ColumnBuilder::new("width", want, Path::new("a.csv").into())
}

#[test]
fn a_column_is_what_its_cells_are() {
    let mut b = builder(Want::Auto);
    for cell in ["", "NA", "1.5", "nan", "2"] {
        b.push(cell.as_bytes(), 1).unwrap();
    }
    match b.finish() {
        Some(Column::Number(v)) => {
            assert_eq!(v.len(), 5);
            assert!(v[0].is_nan() && v[1].is_nan() && v[3].is_nan());
            assert_eq!((v[2], v[4]), (1.5, 2.0));
        }
        other => panic!("{other:?}"),
    }

    let mut b = builder(Want::Auto);
    for cell in ["?", "red", " blue ", "red", "blue", ""] {
        b.push(cell.as_bytes(), 1).unwrap();
    }
    assert_eq!(
        b.finish(),
        Some(Column::Text { codes: vec![MISSING, 0, 1, 0, 1, MISSING], names: vec!["red".into(), "blue".into()] })
    );
}

#[test]
fn numbers_and_texts_do_not_mix() {
    let mut b = builder(Want::Auto);
    b.push(b"1", 2).unwrap();
    let e = b.push(b"abc", 3).unwrap_err();
    assert_eq!((e.row(), e.column()), (Some(3), Some("width")));
    assert!(e.hint_text().unwrap().contains("`categorical`"));

    let mut b = builder(Want::Auto);
    b.push(b"abc", 2).unwrap();
    let e = b.push(b"1", 3).unwrap_err();
    assert_eq!(e.row(), Some(2), "the text is the mistake: {e}");
    assert!(e.to_string().contains("\"abc\"") && e.to_string().contains("row 3"));

    let mut b = builder(Want::Text);
    for cell in ["1", "abc", "1.0"] {
        b.push(cell.as_bytes(), 2).unwrap();
    }
    assert_eq!(b.finish(), Some(Column::Text { codes: vec![0, 1, 0], names: vec!["1".into(), "abc".into()] }));
}

#[test]
fn bad_cells_are_named() {
    let mut b = builder(Want::Auto);
    let e = b.push(b"inf", 7).unwrap_err();
    assert_eq!((e.row(), e.column()), (Some(7), Some("width")));
    assert!(e.hint_text().is_some());
    let e = b.push(b"\xff", 8).unwrap_err();
    assert!(e.to_string().contains("UTF-8") && e.hint_text().is_some());
    let mut b = builder(Want::Number);
    let e = b.push(b"1,5", 8).unwrap_err();
    assert!(e.hint_text().unwrap().contains("decimal point"));
    assert!(b.push_number(f64::NEG_INFINITY, 9).is_err());
    let e = builder(Want::Label).push(b" NA", 4).unwrap_err();
    assert!(e.to_string().contains("label is missing") && e.row() == Some(4));
    builder(Want::OptionalLabel).push(b"", 4).unwrap();
}
