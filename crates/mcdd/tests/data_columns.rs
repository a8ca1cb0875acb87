//! Columns as they come: what is recognized in the cells, and that training and prediction read every cell alike.
#![cfg(all(feature = "npz", feature = "parquet"))]

mod data_help;

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Date32Array, StringArray, Time32SecondArray, TimestampMicrosecondArray};
use data_help::*;
use mcdd::Error;
use mcdd::data::{Batch, Cell, Column, ColumnKind, Form, ReadOptions, Schema, SchemaColumn, Table};
use proptest::prelude::*;

fn fit(table: &Table) -> (Schema, Vec<String>) {
    let rows: Vec<usize> = (0..table.rows()).collect();
    let (schema, notices) = Schema::fit(table, &rows).unwrap();
    let text = serde_json::to_string(&schema).unwrap();
    let back: Schema = serde_json::from_str(&text).unwrap();
    back.validate().unwrap();
    assert_eq!(back, schema);
    (schema, notices)
}

fn stream(schema: &Schema, path: &Path) -> Result<(Vec<f32>, Vec<String>), Error> {
    let mut reader = schema.reader(path, &ReadOptions::default())?;
    let (mut batch, mut x) = (Batch::default(), Vec::new());
    while reader.next(3, &mut batch)? {
        x.extend_from_slice(&batch.x);
    }
    Ok((x, reader.notices()))
}

const MESSY: &str = "\
discount,price,width,paid,ordered,at,note,label
29.7%,\"$1,200.50\",\"1,234\",yes,31/12/2024 10:00,9:30,first note,a
3%,$900,\"2,500.5\",No,01/01/2025 11:30,10:00,another,b
12.25 %,($30),7,YES,15/02/2025 00:00,23:59,a third,a
0%,$0.99,-8,no,28/02/2025 09:15,,one more,b
";

#[test]
fn a_messy_table() {
    let folder = Folder::new();
    let path = folder.put("train.csv", MESSY);
    let table = read(&path, &ReadOptions::default()).unwrap();
    let (schema, notices) = fit(&table);
    assert_eq!(
        notices,
        [
            "discount: percent; read as numbers",
            "price: currency $; read as numbers",
            "width: thousands separators; read as numbers",
            "paid: yes/no; read as 1 and 0",
            "ordered: dates with times, day first; read as a number, time of day, day of week; a date outside the training period may look unknown, `drop` leaves the column out",
            "at: times; read as a number, time of day",
            "1 missing cell in 1 column imputed by the training mean",
        ]
    );
    let names = schema.input_names();
    assert_eq!(names[..4], ["discount", "price", "width", "paid"]);
    assert_eq!(names[4..7], ["ordered", "ordered time of day sine", "ordered time of day cosine"]);
    assert_eq!(names[9..13], ["at", "at time of day sine", "at time of day cosine", "at missing"]);
    let mean = |c: &SchemaColumn| match c.kind {
        ColumnKind::Numeric { mean, .. } => Some(mean),
        _ => None,
    };
    let means: Vec<f64> = schema.columns.iter().filter_map(mean).collect();
    assert_eq!(means, [44.95 / 4.0, (1200.5 + 900.0 - 30.0 + 0.99) / 4.0, (1234.0 + 2500.5 + 7.0 - 8.0) / 4.0, 0.5]);

    let whole = schema.transform(&table, None).unwrap();
    assert_eq!(stream(&schema, &path).unwrap().0, whole);
    // A cell at a time.
    let rows = [
        "29.7%,$1200.50,1234,Yes,2024-12-31 10:00,09:30:00,first note",
        "3%,900,\"2500.5\",f,1.1.2025 11:30,10:00,another",
    ];
    let mut x = vec![0.0; schema.width()];
    for (i, row) in rows.iter().enumerate() {
        let cells: Vec<Cell> = row.split(',').map(|cell| Cell::Text(cell.trim_matches('"'))).collect();
        schema.encode_row(&cells, &mut x).unwrap();
        assert_eq!(x, whole[i * schema.width()..(i + 1) * schema.width()], "{row}");
    }
    // Numbers that are stored as numbers.
    let cells = [
        Cell::Text("3%"),
        Cell::Int(900),
        Cell::F64(2500.5),
        Cell::Bool(false),
        Cell::Text("1/1/2025 11:30"),
        Cell::Text("10:00"),
        Cell::Text("another"),
    ];
    schema.encode_row(&cells, &mut x).unwrap();
    assert_eq!(x, whole[schema.width()..2 * schema.width()]);
    for (at, cell, expected) in [
        (0, Cell::F64(3.0), "a percentage such as 12.5%"),
        (0, Cell::Text("3"), "a percentage such as 12.5%"),
        (1, Cell::Text("€5"), "an amount such as $ 1,234.5"),
        (2, Cell::Text("1,5"), "a number such as 1,234.5"),
        (3, Cell::Text("maybe"), "yes or no"),
        (3, Cell::Int(2), "yes or no"),
        (4, Cell::Text("12/31/2024"), "a date such as 31.12.2025 13:45"),
        (4, Cell::Text("2024-12-31T10:00Z"), "a date such as 31.12.2025 13:45"),
        (4, Cell::Int(5), "a date such as 31.12.2025 13:45"),
        (5, Cell::Text("25:00"), "a time such as 13:45"),
    ] {
        let mut wrong = cells;
        wrong[at] = cell;
        let e = schema.encode_row(&wrong, &mut x).unwrap_err();
        assert!(e.to_string().contains(&format!("is not {expected}")), "{e}");
        assert!(e.column() == Some(table.names[at].as_str()) && e.hint_text().is_some(), "{e}");
    }
    // In a file the row is named as well, and a table gives the same error.
    let bad = folder.put("bad.csv", MESSY.replace("12.25 %", "12.25"));
    let e = stream(&schema, &bad).unwrap_err();
    assert_eq!((e.row(), e.column(), e.file()), (Some(3), Some("discount"), Some(bad.as_path())), "{e}");
    let e =
        schema.transform(&read(&folder.put("b.csv", MESSY.replace('%', "")), &ReadOptions::default()).unwrap(), None);
    assert!(e.unwrap_err().to_string().contains("29.7 is not a percentage"));
}

#[test]
fn a_table_with_decimal_commas() {
    let folder = Folder::new();
    let text =
        "w;h;n;d;label\n1,5;1.234;1.500;03/04/2025;a\n2;5.678;950;05/06/2025;b\n1.250,25;9.100;12.000;07/09/2025;a\n";
    let path = folder.put("a.csv", text);
    let table = read(&path, &ReadOptions::default()).unwrap();
    let (schema, notices) = fit(&table);
    assert_eq!(
        notices,
        [
            "w: decimal comma; read as numbers",
            "d: dates, day first; read as a number, day of week; a date outside the training period may look unknown, `drop` leaves the column out",
            "h: \"1.234\" is taken as 1234, with a thousands separator, as other columns show",
            "n: \"1.500\" is taken as 1500, with a thousands separator, as other columns show",
            "d: \"03/04/2025\" is taken as 2025-04-03, with the day first",
        ]
    );
    let mean = |i: usize| match schema.columns[i].kind {
        ColumnKind::Numeric { mean, .. } => mean,
        _ => panic!(),
    };
    assert_eq!([mean(0), mean(2)], [1253.75 / 3.0, (1500.0 + 950.0 + 12_000.0) / 3.0]);
    let whole = schema.transform(&table, None).unwrap();
    assert_eq!(stream(&schema, &path).unwrap().0, whole);
    assert_eq!(schema.transform(&table.select(&[2, 0]), None).unwrap()[..schema.width()], whole[2 * schema.width()..]);
    // The model knows how its files are written: rows that would be read in another way alone.
    let one = folder.put("one.csv", "w;h;n;d\n7;1.000;2.000;01/02/2025\n");
    let (x, _) = stream(&schema, &one).unwrap();
    let alone = read(&one, &label("none")).unwrap();
    assert_eq!(alone.columns[1], Column::Number(vec![1.0]));
    assert_eq!(schema.transform(&alone, None).unwrap(), x);
    let mut row = vec![0.0; schema.width()];
    let cells = ["7", "1.000", "2.000", "01/02/2025"].map(Cell::Text);
    schema.encode_row(&cells, &mut row).unwrap();
    assert_eq!(row, x);
    let point = folder.put("point.csv", "w;h;n;d\n7;1.5;2;01/02/2025\n");
    let e = stream(&schema, &point).unwrap_err();
    assert_eq!((e.row(), e.column()), (Some(1), Some("h")), "{e}");
    assert!(schema.transform(&read(&point, &label("none")).unwrap(), None).is_err());
    // Without a decimal comma anywhere a point is a decimal point.
    let plain = read(&folder.put("p.csv", "h;label\n1.234;a\n5.678;b\n"), &ReadOptions::default()).unwrap();
    let (schema, notices) = fit(&plain);
    assert!(schema.columns[0].form.is_none() && notices.is_empty());
}

/// `5.0` is not a number with a decimal comma: whichever cell comes first, and however the rows are read.
#[test]
fn a_decimal_point_among_decimal_commas() {
    let folder = Folder::new();
    for text in
        ["w;label\n3,5;a\n5.0;b\n4,5;a\n", "w;label\n5.0;a\n3,5;b\n4,5;a\n", "w;label\n7;a\n5.0;a\n3,5;b\n4,5;a\n"]
    {
        let e = read(&folder.put("a.csv", text), &ReadOptions::default()).unwrap_err();
        assert!(e.to_string().contains("\"5.0\" is not a number") && e.column() == Some("w"), "{e}");
    }
    let (schema, _) =
        fit(&read(&folder.put("a.csv", "w;label\n3,5;a\n4;b\n4,5;a\n"), &ReadOptions::default()).unwrap());
    for text in ["w;k\n7;1\n5.0;1\n", "w;k\n7;1\n5.;1\n", "w;k\n3,5;1\n5.0;1\n"] {
        let path = folder.put("b.csv", text);
        let e = stream(&schema, &path).unwrap_err();
        assert_eq!((e.row(), e.column()), (Some(2), Some("w")), "{e}");
        if let Ok(table) = read(&path, &label("none")) {
            let e = schema.transform(&table, None).unwrap_err();
            assert!(e.to_string().contains("5.0 is not"), "{e}");
        }
    }
    let mut row = vec![0.0; schema.width()];
    assert!(schema.encode_row(&[Cell::Text("5.0")], &mut row).is_err());
    schema.encode_row(&[Cell::F64(5.0)], &mut row).unwrap();
    // A column of its own has a decimal point.
    let path = folder.put("c.csv", "w;h;label\n3,5;5.0;a\n4,5;6.0;b\n");
    let table = read(&path, &ReadOptions::default()).unwrap();
    let (schema, _) = fit(&table);
    assert!(schema.columns[0].form.is_some() && schema.columns[1].form.is_none());
    assert_eq!(stream(&schema, &path).unwrap().0, schema.transform(&table, None).unwrap());
}

#[test]
fn numbers_that_are_plain_at_first() {
    let folder = Folder::new();
    let texts = |text: &str| {
        let table = read(&folder.put("a.csv", text), &label("none")).unwrap();
        let (schema, _) = fit(&table);
        let Some(Form::Number(_)) = schema.columns[0].form else { panic!("{schema:?}") };
        let x = schema.transform(&table, None).unwrap();
        assert_eq!(stream(&schema, &folder.put("a.csv", text)).unwrap().0, x);
        let ColumnKind::Numeric { mean, .. } = schema.columns[0].kind else { panic!() };
        mean * table.rows() as f64
    };
    assert_eq!(texts("a\n5\n1.5\n\"1,234\"\n"), 1240.5);
    // The zeros of a point between thousands are not lost.
    assert_eq!(texts("a;b\n2.000;1\n5;2\n1.500;3\n1,5;4\n"), 2000.0 + 5.0 + 1500.0 + 1.5);
    // One form for all, or an error that names the cell.
    for (text, row, part) in [
        ("a\n1.5\n2\n\"1,5\"\n", 3, "\"1,5\" is not a number such as 1234.5, as 2 of 3 cells"),
        ("a\n5\n6\n7%\n", 3, "\"7%\" is not a number such as 1234.5"),
        ("a\n7%\n8%\n9\n", 3, "\"9\" is not a percentage such as 12.5%"),
        ("a\n$5\n6\n€7\n", 3, "\"€7\" is not an amount"),
        ("a\n\"1,5\"\nabc\n2\n", 2, "\"abc\" is not a number, but other cells of the column are (row 3 (line 4): 2)"),
        ("a\n\"1,5\"\n2\nabc\n", 3, "\"abc\" is not a number, but other cells of the column are"),
    ] {
        let e = read(&folder.put("b.csv", text), &label("none")).unwrap_err();
        assert!(e.to_string().contains(part), "{e}");
        assert_eq!((e.row(), e.column()), (Some(row), Some("a")), "{e}");
        assert!(e.hint_text().unwrap().contains("`categorical`"));
        let options = ReadOptions { categorical: vec!["a".into()], ..label("none") };
        let (schema, _) = fit(&read(&folder.put("b.csv", text), &options).unwrap());
        assert!(matches!(&schema.columns[0].kind, ColumnKind::Categorical { categories, .. } if categories.len() == 3));
    }
}

#[test]
fn a_few_bad_cells_among_many() {
    let folder = Folder::new();
    let text = |bad: &str, other: usize| {
        let cell = |i: usize| if i == 17 { bad.to_owned() } else { format!("{}.5%", i % other) };
        (0..60).fold("a\n".to_owned(), |text, i| text + &cell(i) + "\n")
    };
    let e = read(&folder.put("a.csv", text("n.a.", 40)), &label("none")).unwrap_err();
    assert!(e.to_string().contains("\"n.a.\" is not a percentage such as 12.5%, as 59 of 60 cells"), "{e}");
    assert_eq!((e.row(), e.column()), (Some(18), Some("a")));
    assert!(read(&folder.put("a.csv", text("", 40)), &label("none")).is_ok());
    // A few texts are categories, whatever they look like.
    let (schema, _) = fit(&read(&folder.put("a.csv", text("none", 5)), &label("none")).unwrap());
    assert!(matches!(&schema.columns[0].kind, ColumnKind::Categorical { categories, .. } if categories.len() == 6));
}

#[test]
fn categories_can_be_forced() {
    let table = Table::builder()
        .categorical("a", ["5%", "7%", "5%"])
        .and_then(|b| b.categorical("b", ["yes", "no", "no"]))
        .and_then(|b| b.categorical("c", ["2025-01-01", "2025-01-02", "2025-01-01"]))
        .and_then(|b| b.build())
        .unwrap();
    let (schema, notices) = fit(&table);
    assert_eq!(schema.input_names(), ["a=5%", "a=7%", "b=no", "b=yes", "c=2025-01-01", "c=2025-01-02"]);
    assert!(notices.is_empty());
}

/// Arrow's types give what the same texts give.
#[test]
fn arrow_dates_and_times() {
    let folder = Folder::new();
    let (noon, day) = (1_735_689_600_000_000_i64 + 43_200_000_000, 86_400_000_000_i64);
    let stamps = vec![Some(noon), Some(noon + 9 * day + 1_500_000), None, Some(noon + 20 * day)];
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("day", Arc::new(Date32Array::from(vec![Some(20_089), Some(20_100), Some(20_120), None]))),
        ("stamp", Arc::new(TimestampMicrosecondArray::from(stamps.clone()))),
        ("utc", Arc::new(TimestampMicrosecondArray::from(stamps).with_timezone("UTC"))),
        ("at", Arc::new(Time32SecondArray::from(vec![0, 3600, 7200, 86_399]))),
        ("label", Arc::new(StringArray::from(vec!["x", "y", "x", "y"]))),
    ];
    let path = folder.0.path().join("a.parquet");
    parquet_file(&path, columns);
    let table = read(&path, &ReadOptions::default()).unwrap();
    let text = "day,stamp,utc,at,label\n\
        2025-01-01,2025-01-01T12:00:00,2025-01-01T12:00:00Z,00:00,x\n\
        2025-01-12,2025-01-10 12:00:01.5,2025-01-10T13:00:01.5+01:00,01:00,y\n\
        2025-02-01,,,02:00,x\n\
        ,2025-01-21T12:00,2025-01-21T12:00Z,23:59:59,y\n";
    let csv = folder.put("a.csv", text);
    let (schema, notices) = fit(&table);
    assert_eq!(schema, fit(&read(&csv, &ReadOptions::default()).unwrap()).0);
    assert_eq!(
        notices[..3],
        [
            "day: dates; read as a number, day of week; a date outside the training period may look unknown, `drop` leaves the column out",
            "stamp: dates with times; read as a number, time of day, day of week; a date outside the training period may look unknown, `drop` leaves the column out",
            "utc: dates with times, in UTC; read as a number, time of day, day of week; a date outside the training period may look unknown, `drop` leaves the column out",
        ]
    );
    let x = schema.transform(&table, None).unwrap();
    assert_eq!(stream(&schema, &path).unwrap().0, x);
    assert_eq!(stream(&schema, &csv).unwrap().0, x);
    // A later date is further out than all of training.
    let later = folder.put("b.csv", text.replace("2025-01-12", "2027-01-12"));
    assert!(stream(&schema, &later).unwrap().0[schema.width()] > 20.0);
}

#[test]
fn unseen_categories_are_listed() {
    let folder = Folder::new();
    let train = folder.put("a.csv", "tier,n,label\ngold,1,x\nsilver,2,y\ngold,3,x\n");
    let (schema, _) = fit(&read(&train, &ReadOptions::default()).unwrap());
    let new = folder.put("b.csv", "n,tier\n1,gold\n2,platinum\n3,\n4,tin\n");
    let mut reader = schema.reader(&new, &ReadOptions::default()).unwrap();
    let mut batch = Batch::default();
    assert!(reader.next(10, &mut batch).unwrap());
    let found: Vec<_> = batch.unseen_cells.iter().map(|u| (u.row, u.column, u.text.as_str())).collect();
    assert_eq!(found, [(1, 0, "platinum"), (3, 0, "tin")]);
    let (_, listed) = schema.transform_and_list(&read(&new, &label("none")).unwrap(), None).unwrap();
    assert_eq!(listed, batch.unseen_cells);
    assert_eq!(schema.columns[0].not_among("tin"), "\"tin\" is not in training's categories: gold, silver");
}

/// A class that is left out may hold what the others do not: it is scored, not refused.
#[test]
fn the_form_is_that_of_the_whole_table() {
    let folder = Folder::new();
    let path = folder.put("a.csv", "a,b,label\nyes,\"1,234\",x\nno,\"2,345\",y\nyes,\"5,678\",x\nmaybe,\"1,5\",z\n");
    let table = read(&path, &ReadOptions::default()).unwrap();
    let (known, unknown) = table.leave_out("z").unwrap();
    let (schema, _) = fit(&known);
    assert!(matches!(schema.columns[0].kind, ColumnKind::Categorical { .. }));
    let ColumnKind::Numeric { mean, .. } = schema.columns[1].kind else { panic!() };
    assert!(mean < 4.0, "one cell shows that the commas are decimal");
    schema.transform(&unknown, None).unwrap();
}

/// Plain numbers and plain categories are stored as they always were.
#[test]
fn clean_tables_do_not_change() {
    let folder = Folder::new();
    let text = "w,color,same,age,label\n1,red,7,10,x\n2.500,blue,7,NA,y\n4,red,7,30,x\n";
    let table = read(&folder.put("a.csv", text), &ReadOptions::default()).unwrap();
    let (schema, notices) = fit(&table);
    assert_eq!(
        serde_json::to_string(&schema).unwrap(),
        "{\"named\":true,\"columns\":[\
         {\"name\":\"w\",\"kind\":\"numeric\",\"mean\":2.5,\"std\":1.224744871391589,\"indicator\":false},\
         {\"name\":\"color\",\"kind\":\"categorical\",\"categories\":[\"blue\",\"red\"],\"indicator\":false},\
         {\"name\":\"same\",\"kind\":\"dropped\",\"why\":\"constant\"},\
         {\"name\":\"age\",\"kind\":\"numeric\",\"mean\":20.0,\"std\":10.0,\"indicator\":true}],\
         \"label\":{\"name\":\"label\",\"position\":4}}"
    );
    assert_eq!(notices, ["1 constant column dropped: same", "1 missing cell in 1 column imputed by the training mean"]);
    let z = (1.5 / 1.224744871391589) as f32;
    assert_eq!(
        schema.transform(&table, None).unwrap(),
        [-z, 0.0, 1.0, -1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, z, 0.0, 1.0, 1.0, 0.0]
    );
}

/// Cells of one column: a form and a value for each.
fn cells() -> impl Strategy<Value = Vec<String>> {
    let number = (0usize..8, -999_999i64..999_999).prop_map(|(form, cents)| {
        let (whole, rest) = (cents / 100, cents.abs() % 100);
        let (thousands, units) = (whole / 1000, whole.abs() % 1000);
        match form {
            0 => format!("{whole}.{rest:02}%"),
            1 => format!("{whole},{rest:02}"),
            2 if thousands != 0 => format!("{thousands},{units:03}"),
            3 if thousands != 0 => format!("{thousands}.{units:03},{rest:02}"),
            4 => format!("${}.{rest:02}", whole.abs()),
            5 if thousands != 0 => format!("{thousands}.{units:03}"),
            6 => format!("({}.5)", whole.abs()),
            _ => whole.to_string(),
        }
    });
    let date = (1u32..29, 1u32..13, 1990u32..2040, 0usize..4).prop_map(|(d, m, y, form)| match form {
        0 => format!("{y}-{m:02}-{d:02}"),
        1 => format!("{d}.{m}.{y}"),
        2 => format!("{m}/{d}/{y}"),
        _ => format!("{y}-{m:02}-{d:02} {d:02}:{m:02}"),
    });
    let word = prop::sample::select(vec!["yes", "no", "true", "F", "", "NA", "red", "1.500", "2.000"]);
    let one = prop_oneof![number, date, word.prop_map(str::to_owned)];
    // Mostly of one kind, so that columns are recognized.
    (prop::collection::vec(one, 1..4), 2usize..12)
        .prop_flat_map(|(some, rows)| prop::collection::vec(prop::sample::select(some), rows))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn training_and_prediction_agree_on_every_cell(cells in cells(), separator in prop::sample::select(vec![',', ';', '\t'])) {
        let mut text = format!("a{separator}b\n");
        for (i, cell) in cells.iter().enumerate() {
            text += &format!("\"{cell}\"{separator}{i}\n");
        }
        let options = ReadOptions { separator: Some(separator as u8), header: Some(true), ..label("none") };
        let Ok(table) = Table::from_bytes(text.clone().into_bytes(), "a.csv", &options) else { return Ok(()) };
        let (schema, _) = fit(&table);
        let x = schema.transform(&table, None).unwrap();
        let mut reader = schema.reader_from(std::io::Cursor::new(text.into_bytes()), "a.csv", &options).unwrap();
        let (mut batch, mut streamed) = (Batch::default(), Vec::new());
        while reader.next(3, &mut batch).unwrap() {
            streamed.extend_from_slice(&batch.x);
        }
        prop_assert_eq!(&streamed, &x);
        let mut row = vec![0.0; schema.width()];
        for (i, cell) in cells.iter().enumerate() {
            schema.encode_row(&[Cell::Text(cell), Cell::Int(i as i64)], &mut row).unwrap();
            prop_assert_eq!(&row[..], &x[i * schema.width()..][..schema.width()]);
        }
        // All cells of a column are read in its form, or none is.
        if let (Some(_), ColumnKind::Numeric { indicator, .. }) = (&schema.columns[0].form, &schema.columns[0].kind) {
            let missing = cells.iter().any(|c| c.is_empty() || c == "NA");
            prop_assert_eq!(*indicator, missing);
        }
    }

    /// A schema of any text is refused or works.
    #[test]
    fn hostile_schemas_do_not_panic(
        form in "(null|\\{\"number\":\\{\"decimal\":\"(comma|point)\",\"group\":(null|\"point\"|\"comma\"|\"space\"),\"unit\":(null|\"%\"|\"x\")\\}\\}|\\{\"boolean\":\"(yes_no|t_f)\"\\}|\\{\"time\":\\{\"order\":\"(clock|day_first)\",\"times\":(true|false),\"zone\":(true|false)\\}\\})",
        kind in "\"kind\":(\"numeric\"|\"time\",\"cycles\":\\[(\"day_of_week\"|\"time_of_day\",\"day_of_year\")?\\]),\"mean\":[0-9]{1,3}e[0-9]{1,2},\"std\":[0-9]e-?[0-9]{1,2},\"indicator\":(true|false)",
        cell in "[0-9.,%:/ -]{0,12}",
    ) {
        let text = format!("{{\"named\":true,\"columns\":[{{\"name\":\"a\",\"form\":{form},{kind}}}]}}");
        let Ok(schema) = serde_json::from_str::<Schema>(&text) else { return Ok(()) };
        if schema.validate().is_err() {
            return Ok(());
        }
        let mut x = vec![0.0; schema.width()];
        let _ = schema.encode_row(&[Cell::Text(&cell)], &mut x);
        prop_assert!(x.iter().all(|v| v.is_finite()));
        let _ = (schema.columns[0].cell(&x), schema.columns[0].usual(&x), schema.input_names());
        if let Ok(mut reader) = schema.reader_from(std::io::Cursor::new(format!("a\n{cell}\n1\n")), "a.csv", &ReadOptions::default()) {
            let _ = reader.next(9, &mut Batch::default());
        }
    }
}
