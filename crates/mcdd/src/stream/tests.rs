//! Sources, writers and destinations.

use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::compute::pool::Pool;
use crate::data::{BadImage, Batch, PassThrough, ReadOptions, Table, digits};
use crate::detector::DetectorConfig;
use crate::error::{Error, Result};
use crate::model::{Calibration, Model, Predictions, ScorerSettings, Threshold};
use crate::train::{Preset, Settings};

fn model(table: &Table) -> Model {
    Model::fit(table, &Settings { epochs: 1, hidden: vec![8], latent: 4, ..Preset::Paper.settings() }).unwrap()
}

/// Batches of `rows` rows.
fn batches<'a>(x: &'a [f32], width: usize, rows: usize) -> impl Iterator<Item = Result<Batch>> + Send + 'a {
    x.chunks(rows * width).map(move |x| Ok(Batch { rows: x.len() / width, x: x.to_vec(), ..Batch::default() }))
}

fn to_memory(model: &Model, source: impl Blocks, format: Format, columns: Columns) -> Result<(Vec<u8>, Summary)> {
    let mut bytes = Vec::new();
    let output = Output { format, columns, to: Destination::Writer(&mut bytes, "memory") };
    let summary = predict(model, [Ok(source)], model.threshold()?, output, Pool::shared())?;
    Ok((bytes, summary))
}

#[test]
fn blocks_come_in_order_and_reading_stays_close() {
    let produced = AtomicUsize::new(0);
    let source = (0..100).map(|i| {
        produced.fetch_add(1, Ordering::SeqCst);
        Ok(Batch { rows: i, ..Batch::default() })
    });
    let mut seen = Vec::new();
    for_each::<Error>(source, |batch| {
        seen.push(batch.rows);
        // One is processed, two are waiting, one is being handed over.
        assert!(produced.load(Ordering::SeqCst) <= seen.len() + 3);
        Ok(())
    })
    .unwrap();
    assert_eq!(seen, (0..100).collect::<Vec<_>>());
}

#[test]
fn errors_end_the_stream() {
    let count = Cell::new(0);
    let endless = || std::iter::repeat_with(|| Ok(Batch { rows: 1, ..Batch::default() }));
    let failed = for_each(endless(), |_| {
        count.set(count.get() + 1);
        if count.get() == 3 { Err(Error::data("enough")) } else { Ok(()) }
    });
    assert_eq!((failed.unwrap_err().to_string().as_str(), count.get()), ("enough", 3));
    let broken = endless().take(2).chain([Err(Error::data("unreadable"))]).chain(endless());
    count.set(0);
    let failed = for_each::<Error>(broken, |_| {
        count.set(count.get() + 1);
        Ok(())
    });
    assert_eq!((failed.unwrap_err().to_string().as_str(), count.get()), ("unreadable", 2));
}

/// Blocks are scored on several threads, in parts, and handed out whole and in order.
#[test]
fn predictions_come_in_order_and_reading_stays_close() {
    let table = digits();
    let model = model(&table);
    let (x, width) = (model.schema().transform(&table, None).unwrap(), model.schema().width());
    let all = model.predict(&table).unwrap();
    for threads in [1, 2, 5] {
        let pool = Pool::new(threads);
        for rows in [3, 70, 5000] {
            let (produced, mut seen, mut blocks) = (AtomicUsize::new(0), 0, 0);
            let source = batches(&x, width, rows).inspect(|_| {
                produced.fetch_add(1, Ordering::SeqCst);
            });
            predict_each::<Error>(&model, source, &pool, |batch, predictions| {
                assert_eq!(predictions.rows(), batch.rows);
                assert!(produced.load(Ordering::SeqCst) <= blocks + 4);
                assert_eq!(predictions.confidence, all.confidence[seen..seen + batch.rows]);
                assert_eq!(predictions.posterior, all.posterior[seen * all.classes..(seen + batch.rows) * all.classes]);
                seen += batch.rows;
                blocks += 1;
                Ok(())
            })
            .unwrap();
            assert_eq!(seen, table.rows());
        }
    }
}

#[test]
fn errors_and_panics_end_predictions() {
    let table = digits();
    let model = model(&table);
    let width = model.schema().width();
    let good = || Batch { rows: 3, x: vec![0.5; 3 * width], ..Batch::default() };
    let endless = || std::iter::repeat_with(|| Ok(good()));
    let count = Cell::new(0);
    let run = |source: Box<dyn Iterator<Item = Result<Batch>> + Send + '_>, last: usize| {
        count.set(0);
        predict_each(&model, source, &Pool::new(2), |_, _| {
            count.set(count.get() + 1);
            if count.get() == last { Err(Error::data("enough")) } else { Ok(()) }
        })
    };
    assert!(run(Box::new(endless()), 3).unwrap_err().to_string().contains("enough"));
    assert_eq!(count.get(), 3);
    // What comes before an error is handed out.
    let broken = endless().take(2).chain([Err(Error::data("unreadable"))]).chain(endless());
    assert!(run(Box::new(broken), 9).unwrap_err().to_string().contains("unreadable"));
    assert_eq!(count.get(), 2);
    let uneven =
        endless().take(2).chain([Ok(Batch { rows: 1, x: vec![0.5; width + 1], ..Batch::default() })]).chain(endless());
    assert!(run(Box::new(uneven), 9).unwrap_err().to_string().contains("finite numbers"));
    assert_eq!(count.get(), 2);
    let panicking = endless().take(2).chain(std::iter::once_with(|| panic!("by the source")));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(Box::new(panicking), 9))).is_err());
    let panic = std::panic::AssertUnwindSafe(|| {
        predict_each::<Error>(&model, endless(), &Pool::new(2), |_, _| panic!("by the one who is called"))
    });
    assert!(std::panic::catch_unwind(panic).is_err());
    // No rows are no error.
    let none = run(Box::new([Ok(Batch::default())].into_iter()), 9);
    assert!(none.is_ok() && count.get() == 1);
}

#[test]
fn any_block_size_gives_the_same_bytes() {
    let table = digits();
    let model = model(&table);
    let (x, width) = (model.schema().transform(&table, None).unwrap(), model.schema().width());
    let columns = Columns { probs: true, distances: true, ..Columns::default() };
    for format in [Format::Csv, Format::JsonLines] {
        let (all, summary) = to_memory(&model, batches(&x, width, 5000), format, columns).unwrap();
        let threshold = model.threshold().unwrap();
        let predictions = model.predict(&table).unwrap();
        let unknown = predictions.confidence.iter().filter(|&&c| !threshold.known(c)).count();
        assert_eq!((summary.rows, summary.unknown), (1797, unknown as u64));
        for rows in [1, 100, 1797] {
            assert!(to_memory(&model, batches(&x, width, rows), format, columns).unwrap().0 == all);
        }
    }
}

fn threshold() -> Threshold {
    Calibration::new((1..=19).map(f64::from).collect()).unwrap().threshold(0.95).unwrap()
}

fn written(format: Format, columns: Columns, classes: &[String], p: &Predictions, names: &[String]) -> Vec<u8> {
    written_with(format, columns, classes, p, names, &[])
}

fn written_with(
    format: Format,
    columns: Columns,
    classes: &[String],
    p: &Predictions,
    names: &[String],
    bad: &[BadImage],
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let layout =
        Layout { kept: Vec::new(), classes, threshold: threshold(), columns, destination: Path::new("memory") };
    let mut writer = format.writer(layout, &mut bytes).unwrap();
    writer.write(Block { predictions: p, names, bad, kept: &[] }).unwrap();
    writer.finish().unwrap();
    drop(writer);
    bytes
}

fn example() -> (Predictions, Vec<String>) {
    let p = Predictions {
        classes: 2,
        class: vec![1, 0],
        confidence: vec![1.5, -0.25],
        p_value: vec![0.5, 0.05],
        posterior: vec![0.25, 0.75, 1.0, 0.0],
        distance: vec![3.0, 2.0, 1.0, 8.0],
    };
    (p, vec!["plain".into(), "a, \"b\"".into()])
}

#[test]
fn formats_by_hand() {
    let (p, classes) = example();
    let columns = Columns { probs: true, distances: true, names: true, errors: false };
    let names = ["one.png".to_owned(), "two, three.png".to_owned()];
    let csv = String::from_utf8(written(Format::Csv, columns, &classes, &p, &names)).unwrap();
    let expected = "\
image,label,verdict,confidence,p_value,prob:plain,\"prob:a, \"\"b\"\"\",distance:plain,\"distance:a, \"\"b\"\"\"
one.png,\"a, \"\"b\"\"\",known,1.5,0.5,0.25,0.75,3,2
\"two, three.png\",plain,unknown,-0.25,0.05,1,0,1,8
";
    assert_eq!(csv, expected);
    let json = String::from_utf8(written(Format::JsonLines, columns, &classes, &p, &names)).unwrap();
    let rows: Vec<serde_json::Value> = json.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let second = serde_json::json!({
        "image": "two, three.png", "label": "plain", "verdict": "unknown", "confidence": -0.25, "p_value": 0.05,
        "probs": { "plain": 1.0, "a, \"b\"": 0.0 }, "distances": { "plain": 1.0, "a, \"b\"": 8.0 },
    });
    assert_eq!((rows.len(), &rows[1]), (2, &second));
    // Without classes.
    let alone = Predictions { confidence: vec![2.0], p_value: vec![1.0], ..Predictions::default() };
    let csv = written(Format::Csv, Columns::default(), &[], &alone, &[]);
    assert_eq!(String::from_utf8(csv).unwrap(), "label,verdict,confidence,p_value\n,known,2,1\n");
}

fn bad_images() -> [BadImage; 3] {
    [(0, "no,1.png"), (1, "no 2.png"), (2, "no3.png")].map(|(before, name)| {
        let reason = format!("it is {}, or damaged", name.len());
        BadImage { before, name: name.into(), reason }
    })
}

#[test]
fn an_image_that_could_not_be_read_has_a_line_in_its_place() {
    let (p, classes) = example();
    let names = ["one.png".to_owned(), "two.png".to_owned()];
    let columns = Columns { probs: true, names: true, errors: true, ..Columns::default() };
    let csv = written_with(Format::Csv, columns, &classes, &p, &names, &bad_images());
    let csv = String::from_utf8(csv).unwrap();
    let mut reader = ::csv::Reader::from_reader(csv.as_bytes());
    assert_eq!(reader.headers().unwrap().iter().next_back(), Some("error"));
    let rows: Vec<::csv::StringRecord> = reader.records().map(|r| r.unwrap()).collect();
    let column = |at: usize| rows.iter().map(|r| r[at].to_owned()).collect::<Vec<_>>();
    assert_eq!(column(0), ["no,1.png", "one.png", "no 2.png", "two.png", "no3.png"]);
    assert_eq!(column(2), ["error", "known", "error", "unknown", "error"]);
    assert!([1, 3, 4, 5, 6].iter().all(|&at| rows[0][at].is_empty() && !rows[1][at].is_empty()), "{csv}");
    assert_eq!((&rows[0][7], &rows[1][7], &rows[4][7]), ("it is 8, or damaged", "", "it is 7, or damaged"));

    let json = written_with(Format::JsonLines, columns, &classes, &p, &names, &bad_images());
    let rows: Vec<serde_json::Value> =
        String::from_utf8(json).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let first = serde_json::json!({
        "image": "no,1.png", "label": null, "verdict": "error", "confidence": null, "p_value": null,
        "error": "it is 8, or damaged",
    });
    assert_eq!((rows.len(), &rows[0]), (5, &first));
    assert!(rows[1]["error"].is_null() && rows[1]["confidence"] == 1.5);

    // They are left out where they are not asked for.
    let columns = Columns { names: true, ..Columns::default() };
    let csv = written_with(Format::Csv, columns, &classes, &p, &names, &bad_images());
    assert_eq!(String::from_utf8(csv).unwrap().lines().count(), 3);
}

#[cfg(feature = "parquet")]
#[test]
fn an_image_that_could_not_be_read_is_null_in_parquet() {
    let (p, classes) = example();
    let names = ["one.png".to_owned(), "two.png".to_owned()];
    let columns = Columns { probs: true, names: true, errors: true, ..Columns::default() };
    let bytes = written_with(Format::Parquet, columns, &classes, &p, &names, &bad_images());
    let options = ReadOptions { label: crate::data::Label::None, ..ReadOptions::default() };
    let table = Table::from_bytes(bytes, "p.parquet", &options).unwrap();
    assert_eq!(table.rows(), 5);
    let numbers = |at: usize| match &table.columns[at] {
        crate::data::Column::Number(values) => values.iter().map(|v| (!v.is_nan()).then_some(*v)).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(numbers(3), [None, Some(1.5), None, Some(-0.25), None]);
    let crate::data::Column::Text { codes, names } = &table.columns[7] else { panic!() };
    assert_eq!((codes.as_slice(), names.len()), (&[0, u32::MAX, 0, u32::MAX, 1][..], 2));
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_is_readable() {
    let (p, classes) = example();
    let columns = Columns { probs: true, ..Columns::default() };
    let bytes = written(Format::Parquet, columns, &classes, &p, &[]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.parquet");
    std::fs::write(&path, bytes).unwrap();
    let table = Table::read(&[path], &ReadOptions::default()).unwrap();
    assert_eq!(table.names, ["verdict", "confidence", "p_value", "prob:plain", "prob:a, \"b\""]);
    assert_eq!((table.label_name(0), table.label_name(1)), (Some("a, \"b\""), Some("plain")));
    assert_eq!(table.columns[1], crate::data::Column::Number(vec![1.5, -0.25]));
    assert_eq!(table.columns[4], crate::data::Column::Number(vec![0.75, 0.0]));
}

#[test]
fn a_source_that_fails_leaves_no_output() {
    let table = digits();
    let model = model(&table);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.csv");
    let missing = || model.schema().reader(Path::new("missing.csv"), &ReadOptions::default());
    fn output(to: Destination<'_>) -> Output<'_> {
        Output { format: Format::Csv, columns: Columns::default(), to }
    }
    let threshold = model.threshold().unwrap();
    let failed = predict(&model, [missing()], threshold, output(Destination::File(&path)), Pool::shared());
    assert!(failed.unwrap_err().file() == Some(Path::new("missing.csv")) && !path.exists());
    let mut bytes = Vec::new();
    let to = Destination::Writer(&mut bytes, "memory");
    assert!(predict(&model, [missing()], threshold, output(to), Pool::shared()).is_err());
    assert!(bytes.is_empty());
    // Several sources are one output; no source is a header.
    let (x, width) = (model.schema().transform(&table, None).unwrap(), model.schema().width());
    let twice = || [Ok(batches(&x, width, 700)), Ok(batches(&x, width, 900))];
    let done = predict(&model, twice(), threshold, output(Destination::File(&path)), Pool::shared()).unwrap();
    assert_eq!((done.rows, std::fs::read_to_string(&path).unwrap().lines().count()), (2 * 1797, 1 + 2 * 1797));
    // A writer that fails is named.
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let to = Destination::Writer(&mut Full, "standard output");
    let failed = predict(&model, twice(), threshold, output(to), Pool::shared()).unwrap_err();
    assert_eq!(failed.to_string(), "standard output: no space left on the disk");
}

#[test]
fn features_from_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let row = |i: usize| format!("{},{}\n", (i * 37 % 101) as f64 / 50.0, (i * 11 % 97) as f64 / 50.0);
    let train = file("train.csv", (0..200).map(row).collect());
    let new = file("new.csv", (0..9000).map(row).chain(["900,-900\n".into()]).collect());
    let short = file("short.csv", (0..10).map(row).collect());
    let narrow = file("narrow.csv", "1\n2\n".into());
    let (options, pool) = (ReadOptions { header: Some(false), ..ReadOptions::default() }, Pool::shared());
    let settings = ScorerSettings::new(DetectorConfig::parse("knn").unwrap());
    let files = TrainingFiles { features: std::slice::from_ref(&train), ..TrainingFiles::default() };
    let scorer = fit_scorer(&files, &options, &settings, pool).unwrap();
    let calibration = scorer.calibration().scores().len();
    assert!(scorer.training_rows() + calibration == 200 && (18..=20).contains(&calibration), "{calibration}");
    let run = |features: &[std::path::PathBuf], columns| {
        let mut bytes = Vec::new();
        let output = Output { format: Format::Csv, columns, to: Destination::Writer(&mut bytes, "memory") };
        let files = FeatureFiles::open(features, None, &options)?;
        let summary = score(&scorer, files, scorer.threshold()?, output, pool)?;
        Ok::<_, Error>((String::from_utf8(bytes).unwrap(), summary))
    };
    let (text, summary) = run(std::slice::from_ref(&new), Columns::default()).unwrap();
    assert_eq!((summary.rows, text.lines().count()), (9001, 9002));
    assert!(summary.unknown >= 1 && text.lines().last().unwrap().starts_with(",unknown,"), "{summary:?}");
    let probs = Columns { probs: true, ..Columns::default() };
    assert!(run(std::slice::from_ref(&new), probs).unwrap_err().hint_text().unwrap().contains("`probs`"));
    assert!(run(&[new.clone(), short], Columns::default()).unwrap_err().to_string().contains("one file"));
    assert!(run(&[narrow], Columns::default()).unwrap_err().to_string().contains("1 feature in a row, and 2"));
    let labels = ScorerSettings::new(DetectorConfig::parse("mahalanobis").unwrap());
    let failed = fit_scorer(&files, &options, &labels, pool).err().unwrap();
    assert_eq!(failed.hint_text(), Some("give `train_labels`"));
}

/// A model of the columns `a` and `b`.
fn two_columns() -> Model {
    let values = |k: usize| (0..80).map(move |i| (i % 2 * 5 + i * k % 7) as f64).collect::<Vec<_>>();
    let labels: Vec<&str> = (0..80).map(|i| ["x", "y"][i % 2]).collect();
    let builder = Table::builder().column("a", values(3)).unwrap().column("b", values(5)).unwrap();
    model(&builder.labels(labels).unwrap().build().unwrap())
}

fn keep(columns: &[&str]) -> ReadOptions {
    let columns: Vec<String> = columns.iter().map(|&c| c.to_owned()).collect();
    ReadOptions { pass_through: PassThrough::from_list(&columns), ..ReadOptions::default() }
}

#[test]
fn columns_pass_through_from_every_text_format() {
    let model = two_columns();
    let sources: [(&str, &[&str], &str); 4] = [
        ("id,a,b\n007,1,2\n8,,3\n", &["id", "b"], "id,b,"),
        ("b;id;a\n+2;x y;1e1\n", &["id,b"], "id,b,"),
        ("id\ta\tb\n\" 1\"\t1\t\"2\"\n", &["all"], "id,a,b,"),
        ("a b verdict\n1 2 q\n", &["verdict"], "verdict_input,"),
    ];
    let rows = ["007,2,|8,3,", "x y,+2,", "\" 1\",1,2,", "q,"];
    for ((text, columns, header), rows) in sources.into_iter().zip(rows) {
        let reader = model.schema().reader_from(std::io::Cursor::new(text), "t", &keep(columns)).unwrap();
        let (csv, _) = to_memory(&model, reader, Format::Csv, Columns::default()).unwrap();
        let csv = String::from_utf8(csv).unwrap();
        assert!(csv.starts_with(&format!("{header}label,verdict,")), "{csv}");
        assert!(rows.split('|').zip(csv.lines().skip(1)).all(|(row, line)| line.starts_with(row)), "{csv}");
    }
    // A text in another encoding passes as UTF-8, also in a column that the model does not use.
    let foreign = b"id,a,b\n1,1,2\n\xff,1,2\n".to_vec();
    let reader = model.schema().reader_from(std::io::Cursor::new(foreign), "t", &keep(&["id"])).unwrap();
    let (csv, _) = to_memory(&model, reader, Format::Csv, Columns::default()).unwrap();
    assert!(String::from_utf8(csv).unwrap().lines().any(|line| line.starts_with("\u{ff},")));
}

#[test]
fn sources_have_the_same_columns_in_any_order() {
    let model = two_columns();
    let open = |text: &'static str| model.schema().reader_from(std::io::Cursor::new(text), "t", &keep(&["all"]));
    let run = |texts: [&'static str; 2]| {
        let mut bytes = Vec::new();
        let to = Destination::Writer(&mut bytes, "memory");
        let output = Output { format: Format::Csv, columns: Columns::default(), to };
        predict(&model, texts.map(open), model.threshold()?, output, Pool::shared())?;
        Ok::<_, Error>(String::from_utf8(bytes).unwrap())
    };
    let csv = run(["id,a,b\n1,2,3\n", "b,id,a\n6,4,5\n"]).unwrap();
    assert!(csv.starts_with("id,a,b,label,") && csv.contains("\n1,2,3,") && csv.contains("\n4,5,6,"), "{csv}");
    for other in ["a,b\n1,2\n", "a,b,id,more\n1,2,3,4\n"] {
        let e = run(["id,a,b\n1,2,3\n", other]).unwrap_err();
        assert!(e.column().is_some() && e.hint_text().unwrap().contains("`keep`"), "{e}");
    }
}

#[cfg(feature = "parquet")]
#[test]
fn arrow_columns_keep_their_types() {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int32Type;
    use arrow_array::{
        ArrayRef, BinaryArray, Date32Array, Decimal128Array, DictionaryArray, Float32Array, Float64Array, Int64Array,
        RecordBatch, TimestampMillisecondArray,
    };
    use std::sync::Arc;
    let model = two_columns();
    let batch = |from: i64| {
        let numbers =
            |k: i64| Arc::new(Float64Array::from_iter((0..3).map(|i| Some((from + i * k) as f64)))) as ArrayRef;
        let kind: DictionaryArray<Int32Type> = ["u", "v", "u"].into_iter().collect();
        let when = TimestampMillisecondArray::from(vec![Some(1_500), None, Some(from)]).with_timezone("UTC");
        let price = Decimal128Array::from(vec![125, -5, 0]).with_precision_and_scale(9, 2).unwrap();
        let columns: [(&str, ArrayRef); 9] = [
            ("id", Arc::new(Int64Array::from(vec![Some(i64::MAX - from), None, Some(from)]))),
            ("a", numbers(1)),
            ("b", numbers(2)),
            ("kind", Arc::new(kind)),
            ("when", Arc::new(when)),
            ("day", Arc::new(Date32Array::from(vec![0, 1, -1]))),
            ("price", Arc::new(price)),
            ("small", Arc::new(Float32Array::from(vec![0.1, f32::NAN, 1e-30]))),
            ("raw", Arc::new(BinaryArray::from(vec![&b"\xff"[..], b"", b"x"]))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    // A block of three batches.
    let batches = [batch(0), batch(10), batch(20)];
    let read = |columns: &[&str]| model.schema().reader_from_record_batches(&batches, &keep(columns)).unwrap();
    let (bytes, _) = to_memory(&model, read(&["all"]), Format::Parquet, Columns::default()).unwrap();
    let reader = ::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes));
    let back: Vec<RecordBatch> = reader.unwrap().build().unwrap().map(|b| b.unwrap()).collect();
    assert_eq!((back.len(), back[0].num_rows()), (1, 9));
    for (i, batch) in batches.iter().enumerate() {
        for (column, name) in batch.columns().iter().zip(batch.schema().fields()) {
            let found = back[0].column_by_name(name.name()).unwrap().slice(3 * i, 3);
            assert_eq!(found.data_type(), column.data_type(), "{name}");
            match name.name().as_str() {
                // The same values, perhaps with other keys.
                "kind" => assert_eq!(found.as_any_dictionary().len(), 3),
                "small" => assert_eq!(format!("{found:?}"), format!("{column:?}")),
                _ => assert_eq!(&found, column, "{name}"),
            }
        }
    }
    let texts = ["id", "kind", "when", "day", "price", "small"];
    let (csv, _) = to_memory(&model, read(&texts), Format::Csv, Columns::default()).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    let lines: Vec<&str> = csv.lines().skip(1).collect();
    assert!(lines[0].starts_with("9223372036854775807,u,1970-01-01T00:00:01.500Z,1970-01-01,1.25,0.1,"), "{csv}");
    assert!(lines[1].starts_with(",v,,1970-01-02,-0.05,NaN,"), "{csv}");
    assert!(lines[8].starts_with("20,u,1970-01-01T00:00:00.020Z,1969-12-31,0.00,1e-30,"), "{csv}");
    let (json, _) = to_memory(&model, read(&texts), Format::JsonLines, Columns::default()).unwrap();
    let json = String::from_utf8(json).unwrap();
    assert!(json.starts_with("{\"id\":9223372036854775807,\"kind\":\"u\",\"when\":\"1970-"), "{json}");
    assert!(json.lines().nth(1).unwrap().contains("\"price\":-0.05,\"small\":null,"), "{json}");
    // What has no text is an error in text, before anything is written.
    let e = to_memory(&model, read(&["raw"]), Format::Csv, Columns::default()).unwrap_err();
    assert!(e.column() == Some("raw") && e.hint_text().unwrap().contains("parquet"), "{e}");
}

#[test]
fn extensions_name_formats() {
    let of = |name: &str| Format::of_path(Path::new(name));
    for (name, format) in [
        ("a.csv", Format::Csv),
        ("a.TSV", Format::Tsv),
        ("a.b.jsonl", Format::JsonLines),
        ("a.ndjson", Format::JsonLines),
        ("a.json", Format::Json),
        ("a.txt", Format::Csv),
        ("/dev/null", Format::Csv),
        ("v1.2", Format::Csv),
    ] {
        assert_eq!(of(name).unwrap(), format, "{name}");
    }
    #[cfg(feature = "parquet")]
    assert_eq!(of("a.parquet").unwrap(), Format::Parquet);
    assert!(of("a.csv.gz").is_err() && of("a.xlsx").unwrap_err().hint_text().is_some());
    // An array without rows is an array.
    let (p, classes) = example();
    let none = written(Format::Json, Columns::default(), &classes, &Predictions::default(), &[]);
    assert_eq!(none, b"[]\n");
    let json = written(Format::Json, Columns::default(), &classes, &p, &[]);
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&json).unwrap().as_array().unwrap().len(), 2);
}
