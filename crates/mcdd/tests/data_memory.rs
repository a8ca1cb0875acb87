//! Tables from memory, from streams and from Arrow are those that files give.
#![cfg(all(feature = "npz", feature = "parquet"))]

mod data_help;

use std::sync::Arc;

use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{
    ArrayRef, BooleanArray, Decimal128Array, Decimal256Array, DictionaryArray, Float16Array, Float32Array,
    Float64Array, Int8Array, Int64Array, LargeStringArray, NullArray, RecordBatch, StringArray, StringViewArray,
    UInt64Array,
};
use data_help::*;
use mcdd::data::{Batch, Cell, Column, Label, ReadOptions, Schema, Table};
use proptest::prelude::*;

/// A column of random values.
#[derive(Clone, Debug)]
enum Values {
    Floats(Vec<Option<f64>>),
    Integers(Vec<Option<i64>>),
    Bytes(Vec<Option<u8>>),
    Texts(Vec<Option<String>>),
}

impl Values {
    fn cells(&self) -> Vec<Cell<'_>> {
        match self {
            Values::Floats(v) => v.iter().map(Cell::from).collect(),
            Values::Integers(v) => v.iter().map(Cell::from).collect(),
            Values::Bytes(v) => v.iter().map(Cell::from).collect(),
            Values::Texts(v) => v.iter().map(Cell::from).collect(),
        }
    }

    fn array(&self) -> ArrayRef {
        match self {
            Values::Floats(v) => Arc::new(Float64Array::from(v.clone())),
            Values::Integers(v) => Arc::new(Int64Array::from(v.clone())),
            Values::Bytes(v) => Arc::new(v.iter().copied().collect::<arrow_array::UInt8Array>()),
            Values::Texts(v) => Arc::new(StringArray::from(v.clone())),
        }
    }

    fn text(&self, row: usize) -> String {
        let shown = match self {
            Values::Floats(v) => v[row].map(|v| v.to_string()),
            Values::Integers(v) => v[row].map(|v| v.to_string()),
            Values::Bytes(v) => v[row].map(|v| v.to_string()),
            Values::Texts(v) => v[row].clone(),
        };
        shown.unwrap_or_default()
    }
}

fn values(rows: usize) -> impl Strategy<Value = Values> {
    let floats = prop_oneof![-1e3..1e3, Just(0.1), Just(-0.0), Just(1e300), Just(5e-324)];
    let integers = prop_oneof![-3i64..3, any::<i64>(), Just(i64::MAX)];
    prop_oneof![
        prop::collection::vec(prop::option::weighted(0.8, floats), rows).prop_map(Values::Floats),
        prop::collection::vec(prop::option::weighted(0.9, integers), rows).prop_map(Values::Integers),
        prop::collection::vec(prop::option::weighted(0.9, any::<u8>()), rows).prop_map(Values::Bytes),
        prop::collection::vec(prop::option::weighted(0.9, "[abß]{1,2}"), rows).prop_map(Values::Texts),
    ]
}

/// Columns, whether each is forced to be categorical, and labels that are texts or integers.
type Case = (Vec<(Values, bool)>, Vec<String>);

fn case() -> impl Strategy<Value = Case> {
    (2usize..40).prop_flat_map(|rows| {
        let labels = prop_oneof![
            prop::collection::vec("[xyz]", rows),
            prop::collection::vec((-20i32..20).prop_map(|v| v.to_string()), rows),
        ];
        // Parquet gives very large and very small floats as categories with an exponent, text as they are written.
        let column = (values(rows), prop::bool::weighted(0.3)).prop_map(|(values, categorical)| {
            let plain = |v: &f64| *v == 0.0 || (1e-5..1e16).contains(&v.abs());
            let fits = !matches!(&values, Values::Floats(v) if !v.iter().flatten().all(plain));
            (values, categorical && fits)
        });
        (prop::collection::vec(column, 1..5), labels)
    })
}

fn same(a: &Table, b: &Table) {
    assert_eq!((&a.names, a.named, a.rows()), (&b.names, b.named, b.rows()));
    assert_eq!(a.labels, b.labels);
    for (a, b) in a.columns.iter().zip(&b.columns) {
        match (a, b) {
            (Column::Number(a), Column::Number(b)) => {
                // The bits, where it is a number.
                let bits = |v: &[f64]| v.iter().map(|v| if v.is_nan() { None } else { Some(v.to_bits()) }).collect();
                let (a, b): (Vec<_>, Vec<_>) = (bits(a), bits(b));
                assert_eq!(a, b);
            }
            (a, b) => assert_eq!(a, b),
        }
    }
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn memory_is_a_file((columns, labels) in case()) {
        let rows = labels.len();
        let name = |i: usize| format!("c{i}");
        let mut builder = Table::builder();
        for (i, (values, categorical)) in columns.iter().enumerate() {
            builder = match categorical {
                true => builder.categorical(name(i), values.cells()),
                false => builder.column(name(i), values.cells()),
            }.unwrap();
        }
        let memory = builder.named_labels("class", &labels).unwrap().build().unwrap();

        let categorical: Vec<String> = columns.iter().enumerate().filter(|(_, c)| c.1).map(|(i, _)| name(i)).collect();
        let options = ReadOptions { header: Some(true), separator: Some(b','), categorical, ..ReadOptions::default() };
        let mut csv = (0..columns.len()).map(name).collect::<Vec<_>>().join(",") + ",class\n";
        for (row, label) in labels.iter().enumerate() {
            for (values, _) in &columns {
                csv += &values.text(row);
                csv.push(',');
            }
            csv += label;
            csv.push('\n');
        }
        let stream = Table::read_from(std::io::Cursor::new(gzip(csv.as_bytes())), "stream", &options).unwrap();
        same(&memory, &stream);

        let mut arrays: Vec<(String, ArrayRef)> =
            columns.iter().enumerate().map(|(i, (values, _))| (name(i), values.array())).collect();
        arrays.push(("class".into(), Arc::new(StringArray::from(labels.clone()))));
        let batch = RecordBatch::try_from_iter(arrays).unwrap();
        let batches = [batch.slice(0, rows / 2), batch.slice(rows / 2, rows - rows / 2)];
        let arrow = Table::from_record_batches(&batches, &options).unwrap();
        same(&memory, &arrow);
        let mut parquet = Vec::new();
        let mut writer = parquet::arrow::ArrowWriter::try_new(&mut parquet, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let file = Table::from_bytes(parquet.clone(), "bytes", &options).unwrap();
        same(&memory, &file);

        // What they become in a network, whole, row by row and in blocks.
        let all: Vec<usize> = (0..rows).collect();
        let Ok((schema, notices)) = Schema::fit(&memory, &all) else {
            prop_assert!(Schema::fit(&stream, &all).is_err());
            return Ok(());
        };
        for table in [&stream, &arrow, &file] {
            prop_assert_eq!((&schema, &notices), (&Schema::fit(table, &all).unwrap().0, &Schema::fit(table, &all).unwrap().1));
        }
        let x = schema.transform(&memory, None).unwrap();
        prop_assert_eq!(bits(&x), bits(&schema.transform(&stream, None).unwrap()));
        let mut one = vec![f32::NAN; schema.width()];
        for row in 0..rows {
            let cells: Vec<Cell> = columns.iter().map(|(values, _)| values.cells()[row]).collect();
            schema.encode_row(&cells, &mut one).unwrap();
            prop_assert_eq!(bits(&one), bits(&x[row * schema.width()..][..schema.width()]));
        }
        let none = ReadOptions::default();
        for mut reader in [
            schema.reader_from(std::io::Cursor::new(csv.into_bytes()), "stream", &none).unwrap(),
            schema.reader_from_bytes(parquet, "bytes", &none).unwrap(),
            schema.reader_from_record_batches(&batches, &none).unwrap(),
        ] {
            let (mut batch, mut got) = (Batch::default(), Vec::new());
            while reader.next(7, &mut batch).unwrap() {
                prop_assert!(batch.labels.is_some());
                got.extend_from_slice(&batch.x);
            }
            prop_assert_eq!(bits(&got), bits(&x));
        }
    }
}

/// A table of one column, read as numbers or as categories.
fn column(array: ArrayRef, categorical: bool) -> Column {
    let batch = RecordBatch::try_from_iter([("a", array)]).unwrap();
    let categorical = if categorical { vec!["a".to_owned()] } else { Vec::new() };
    let options = ReadOptions { label: Label::None, categorical, ..ReadOptions::default() };
    Table::from_record_batches(&[batch], &options).unwrap().columns.remove(0)
}

#[test]
fn every_arrow_type() {
    let f16 = |v: f32| half::f16::from_f32(v);
    let big = 123_456_789_012_345_678_901_234_567_i128;
    let decimal256 = Decimal256Array::from(vec![Some(big.into()), None]).with_precision_and_scale(40, 5).unwrap();
    let keys = arrow_array::PrimitiveArray::<Int8Type>::from(vec![Some(1), None]);
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![None, Some(7)]));
    let cases: Vec<(ArrayRef, f64, &str)> = vec![
        (Arc::new(Int8Array::from(vec![Some(-5), None])), -5.0, "-5"),
        (Arc::new(Int64Array::from(vec![Some(i64::MAX), None])), i64::MAX as f64, "9223372036854775807"),
        (Arc::new(UInt64Array::from(vec![Some(u64::MAX), None])), u64::MAX as f64, "18446744073709551615"),
        (Arc::new(Float16Array::from(vec![Some(f16(0.1)), None])), f16(0.1).to_f64(), "0.099975586"),
        (Arc::new(Float32Array::from(vec![Some(0.1), None])), f64::from(0.1_f32), "0.1"),
        (Arc::new(Float32Array::from(vec![Some(1e-7), None])), f64::from(1e-7_f32), "1e-7"),
        (Arc::new(Float64Array::from(vec![Some(1e20), Some(f64::NAN)])), 1e20, "1e20"),
        (Arc::new(Float64Array::from(vec![Some(3.0), None])), 3.0, "3"),
        (
            Arc::new(Decimal128Array::from(vec![Some(-12_345), None]).with_precision_and_scale(10, 2).unwrap()),
            -123.45,
            "-123.45",
        ),
        (Arc::new(decimal256), big as f64 / 1e5, "1234567890123456789012.34567"),
        (Arc::new(DictionaryArray::new(keys, numbers)), 7.0, "7"),
        (Arc::new(StringArray::from(vec![Some(" 4.5 "), None])), 4.5, "4.5"),
    ];
    for (array, number, text) in cases {
        let kind = array.data_type().clone();
        match column(Arc::clone(&array), false) {
            Column::Number(values) => {
                assert_eq!((values[0].to_bits(), values[1].is_nan()), (number.to_bits(), true), "{kind}")
            }
            other => panic!("{kind}: {other:?}"),
        }
        let want = Column::Text { codes: vec![0, u32::MAX], names: vec![text.into()] };
        assert_eq!(column(array, true), want, "{kind}");
    }
    // Booleans are the words of a text file.
    let want = Column::Text { codes: vec![0, u32::MAX], names: vec!["true".into()] };
    for categorical in [false, true] {
        assert_eq!(column(Arc::new(BooleanArray::from(vec![Some(true), None])), categorical), want);
    }
    let texts = || [Some("red"), None, Some("blue"), Some("red")];
    let want = Column::Text { codes: vec![0, u32::MAX, 1, 0], names: vec!["red".into(), "blue".into()] };
    let dictionary: DictionaryArray<Int32Type> = texts().into_iter().collect();
    for array in [
        Arc::new(texts().into_iter().collect::<StringArray>()) as ArrayRef,
        Arc::new(texts().into_iter().collect::<LargeStringArray>()),
        Arc::new(texts().into_iter().collect::<StringViewArray>()),
        Arc::new(dictionary),
    ] {
        assert_eq!(column(array, false), want);
    }
    let Column::Number(values) = column(Arc::new(NullArray::new(3)), false) else { panic!() };
    assert!(values.len() == 3 && values.iter().all(|v| v.is_nan()));
    let empty: DictionaryArray<Int32Type> = [None::<&str>, None].into_iter().collect();
    let Column::Number(values) = column(Arc::new(empty), false) else { panic!() };
    assert!(values.len() == 2 && values.iter().all(|v| v.is_nan()));
}

#[test]
fn batches_that_cannot_be_used() {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let batch = |name: &str, array: &ArrayRef| RecordBatch::try_from_iter([(name, Arc::clone(array))]).unwrap();
    let none = label("none");
    let days: ArrayRef = Arc::new(arrow_array::DurationSecondArray::from(vec![1, 2]));
    let never: ArrayRef = Arc::new(arrow_array::Date32Array::from(vec![1, i32::MAX]));
    let infinite: ArrayRef = Arc::new(Float64Array::from(vec![1.0, f64::INFINITY]));
    for (batches, place) in [
        (vec![], (None, None)),
        (vec![batch("a", &numbers), batch("b", &numbers)], (None, None)),
        (vec![batch("a", &days)], (None, Some("a"))),
        (vec![batch("a", &never)], (Some(2), Some("a"))),
        (vec![batch("a", &infinite)], (Some(2), Some("a"))),
        (vec![batch("a", &infinite).slice(0, 1), batch("a", &infinite)], (Some(3), Some("a"))),
    ] {
        let e = Table::from_record_batches(&batches, &none).unwrap_err();
        assert_eq!((e.row(), e.column(), e.file()), (place.0, place.1, None), "{e}");
        assert!(e.hint_text().is_some() && !e.to_string().starts_with(','), "{e}");
    }
    let e = Table::from_record_batches(&[batch("a", &numbers)], &ReadOptions::default()).unwrap_err();
    assert!(e.hint_text().unwrap().contains("`label`"), "{e}");
}

#[test]
fn streams_and_bytes_of_every_format() {
    let numbers = f32s(&[1.0, 2.0, 3.0, 4.0]);
    let array = npy("<f4", false, "(2, 2)", &numbers);
    let archive = npz(&[("x", array.clone()), ("y", npy("|u1", false, "(2,)", &[3, 4]))], true);
    let text = b"1 1:1 2:2\n2 1:3 2:4\n".to_vec();
    let options = ReadOptions::default();
    let table = Table::from_bytes(archive.clone(), "x.npz", &options).unwrap();
    assert_eq!((self::numbers(&table, 1), labels(&table)), (vec![2.0, 4.0], vec!["3", "4"]));
    let table = Table::read_from(std::io::Cursor::new(text), "sparse", &options).unwrap();
    assert_eq!((self::numbers(&table, 1), labels(&table)), (vec![2.0, 4.0], vec!["1", "2"]));
    let table = Table::read_from(std::io::Cursor::new(array), "x.npy", &label("none")).unwrap();
    assert_eq!(self::numbers(&table, 0), [1.0, 3.0]);
    let e = Table::read_from(std::io::Cursor::new(archive), "x.npz", &options).unwrap_err();
    assert!(e.to_string().starts_with("x.npz: ") && e.hint_text().is_some(), "{e}");
    let e = Table::read_from(std::io::Cursor::new("a,label\n1,x\nz,y\n"), "table", &options).unwrap_err();
    assert_eq!((e.to_string().split(':').next(), e.row()), (Some("table, row 2 (line 3), column a"), Some(2)));
}

/// A model of a table with booleans reads a text file with these words, and the other way round.
#[test]
fn booleans_from_memory_and_from_text_are_the_same() {
    let paid = [true, false, false, true, false, true];
    let memory =
        Table::builder().column("paid", paid).unwrap().column("n", [1, 2, 3, 4, 5, 6]).unwrap().build().unwrap();
    let text: String =
        paid.iter().zip(1..).map(|(p, n)| format!("{},{n}\n", if *p { "True" } else { "False" })).collect();
    let options = ReadOptions { label: Label::None, ..ReadOptions::default() };
    let file = Table::from_bytes(format!("paid,n\n{text}").into_bytes(), "paid.csv", &options).unwrap();
    let rows: Vec<usize> = (0..6).collect();
    let (of_memory, of_file) = (Schema::fit(&memory, &rows).unwrap().0, Schema::fit(&file, &rows).unwrap().0);
    assert_eq!(of_memory.columns, of_file.columns);
    let expected = of_memory.transform(&memory, None).unwrap();
    for schema in [&of_memory, &of_file] {
        assert_eq!(schema.transform(&file, None).unwrap(), expected);
        assert_eq!(schema.transform(&memory, None).unwrap(), expected);
        let mut x = vec![0.0; schema.width()];
        schema.encode_row(&[Cell::Bool(true), Cell::Int(1)], &mut x).unwrap();
        assert_eq!(x, expected[..schema.width()]);
    }
}
