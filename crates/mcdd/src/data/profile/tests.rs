//! Identifiers are found, measurements are not; leaks, copies and contradictions are counted.

use proptest::prelude::*;

use super::*;
use crate::data::{ReadOptions, Table};
use crate::seed::Stream;

/// A measurement that is different in each row, and labels of two classes in turn.
fn table(name: &str, values: &[f64]) -> Table {
    let other: Vec<f64> = (0..values.len()).map(|i| ((i * 7919 + 13) % 1009) as f64 / 7.0).collect();
    let labels = (0..values.len()).map(|i| if i % 2 == 0 { "a" } else { "b" });
    let builder = Table::builder().column(name, values.iter().copied()).unwrap();
    builder.column("measured", other).unwrap().labels(labels).unwrap().build().unwrap()
}

fn left_out(name: &str, values: &[f64]) -> bool {
    Profile::of(&table(name, values)).left_out() == [name]
}

fn counted(n: usize) -> Vec<f64> {
    (0..n).map(|i| i as f64).collect()
}

fn shuffled(n: usize, seed: u64) -> Vec<f64> {
    let mut values = counted(n);
    Stream::new(seed, "test").shuffle(&mut values);
    values
}

#[test]
fn counters_and_identifiers_are_left_out() {
    for (name, values) in [
        ("Unnamed: 0", counted(30)),
        ("x", counted(30)),
        ("x", counted(30).iter().map(|v| v + 1.0).collect()),
        ("x", counted(30).iter().map(|v| 100.0 - v).collect()),
        ("time", counted(30).iter().map(|v| 0.1 * v).collect()),
        ("id", counted(6)),
        ("customer_id", (0..50).map(|i| f64::from(10_000 + i * i * 37 % 90_001)).collect()),
        ("index", shuffled(40, 1)),
        // The index of two tables, one after the other.
        ("Unnamed: 0", [counted(25), counted(25)].concat()),
        // By the values alone: in another order, or with gaps.
        ("nr", shuffled(60, 2)),
        ("nr", shuffled(500, 3)[..300].to_vec()),
        ("nr", (0..400).map(|i| f64::from(3 * i + i % 2)).collect()),
    ] {
        assert!(left_out(name, &values), "{name}: {:?}", &values[..6]);
    }
    // Codes of nine digits that have nothing to do with anything.
    let mut stream = Stream::new(4, "test");
    let codes: Vec<f64> = (0..200).map(|_| (1e8 + 9e8 * stream.uniform()).floor()).collect();
    assert!(left_out("account", &codes));
}

#[test]
fn measurements_stay() {
    let mut stream = Stream::new(5, "test");
    let measured: Vec<f64> = (0..500).map(|_| stream.normal()).collect();
    let mut sorted = measured.clone();
    sorted.sort_by(f64::total_cmp);
    let walk: Vec<f64> = measured
        .iter()
        .scan(0.0, |sum, v| {
            *sum += v;
            Some(*sum)
        })
        .collect();
    for (name, values) in [
        ("width", measured.clone()),
        ("id", measured.clone()),
        ("sensor", sorted.clone()),
        ("temperature", walk.clone()),
        ("level", walk.iter().map(|v| (v * 1000.0).floor()).collect()),
        // Whole numbers that happen to be different: a range of millions, sorted or not.
        ("salary", measured.iter().map(|v| (5e6 + 1e6 * v).floor()).collect()),
        ("salary", sorted.iter().map(|v| (5e6 + 1e6 * v).floor()).collect()),
        ("seconds", (0..500).map(|i| f64::from(1_700_000_000 + i * 61 + i * i % 59)).collect()),
        ("age", (0..500).map(|i| f64::from(18 + i * i % 70)).collect()),
        ("store_id", (0..500).map(|i| f64::from(i % 12)).collect()),
        ("step", (0..500).map(|i| f64::from(i % 100)).collect()),
        ("count", (0..19).map(f64::from).collect()),
    ] {
        let profile = Profile::of(&table(name, &values));
        assert!(profile.left_out().is_empty(), "{name}: {:?} {:?}", &values[..6], profile.findings);
    }
}

#[test]
fn without_names_only_a_plain_counter_is_left_out() {
    let make = |f: &dyn Fn(usize) -> f32| {
        let x: Vec<f32> = (0..200).flat_map(|i| [f(i), ((i * 31 % 97) as f32).sqrt()]).collect();
        Profile::of(&Table::from_rows(&x, 2, None::<&[&str]>).unwrap()).left_out().join(",")
    };
    assert_eq!(make(&|i| i as f32), "column 1");
    assert_eq!(make(&|i| i as f32 * 0.5), "");
    assert_eq!(make(&|i| ((i * 7) % 200) as f32), "");
}

#[test]
fn a_header_without_a_name_is_an_index() {
    let rows: String = (0..10).map(|i| format!("{},{},{}\n", i * 3 % 10, i * i % 7, i % 2)).collect();
    let read =
        |header: &str| Table::from_bytes(format!("{header}\n{rows}").into_bytes(), "a.csv", &ReadOptions::default());
    assert_eq!(Profile::of(&read(",size,label").unwrap()).left_out(), ["column 1"]);
    assert_eq!(Profile::of(&read("a,size,label").unwrap()).left_out(), [""; 0]);
    // Names that are positions are none.
    assert_eq!(Profile::of(&read("column 1,column 2,label").unwrap()).left_out(), [""; 0]);
}

#[test]
fn a_column_is_kept_if_it_is_asked_for_or_nothing_else_is_there() {
    let mut kept = table("id", &counted(40));
    kept.keep(&["i*".into()]).unwrap();
    assert!(Profile::of(&kept).left_out().is_empty());
    assert!(kept.keep(&["nothing".into()]).is_err());
    let options = ReadOptions { keep: vec!["id".into()], ..ReadOptions::default() };
    let rows: String = (0..40).map(|i| format!("{i},{},{}\n", i * i % 7, i % 2)).collect();
    let text = format!("id,size,label\n{rows}");
    let read = |options: &ReadOptions| Table::from_bytes(text.clone().into_bytes(), "a.csv", options).unwrap();
    assert!(Profile::of(&read(&options)).left_out().is_empty());
    assert_eq!(Profile::of(&read(&ReadOptions::default())).left_out(), ["id"]);
    let only = Table::builder().column("id", counted(40)).unwrap().build().unwrap();
    assert!(Profile::of(&only).left_out().is_empty() && Profile::of(&only).warnings().len() == 1);
    let with_constant = Table::builder().column("id", counted(40)).unwrap().column("one", [1; 40]).unwrap();
    assert!(Profile::of(&with_constant.build().unwrap()).left_out().is_empty());
}

fn problems(table: &Table) -> Vec<Problem> {
    Profile::of(table).findings.iter().map(|f| f.problem).collect()
}

/// Noise with labels of four classes, and a column.
fn with(name: &str, column: impl Fn(usize) -> f64) -> Table {
    let mut stream = Stream::new(7, "test");
    let noise: Vec<f64> = (0..400).map(|_| stream.uniform()).collect();
    let more: Vec<f64> = (0..400).map(|_| stream.uniform()).collect();
    let builder = Table::builder().column("noise", noise).unwrap().column("more", more).unwrap();
    let labels = (0..400).map(|i| ["a", "b", "c", "d"][i % 4]);
    builder.column(name, (0..400).map(column)).unwrap().labels(labels).unwrap().build().unwrap()
}

#[test]
fn a_column_that_gives_the_label_away_is_named() {
    let leak = Profile::of(&with("code", |i| (i % 4) as f64 * 10.0 + ((i * 31 % 11) as f64) / 11.0));
    assert_eq!(leak.findings[0].problem, Problem::Leak);
    assert_eq!(leak.findings[0].columns, ["code"]);
    assert!(leak.warnings()[0].contains("`drop` \"code\""), "{:?}", leak.warnings());
    // Half of the classes, or noise, is no leak.
    assert_eq!(problems(&with("half", |i| (i % 2) as f64 + (i * 31 % 97) as f64 / 98.0)), []);
    assert_eq!(problems(&with("noise2", |i| ((i * 7919 + 3) % 1009) as f64 / 3.0)), []);
    // Where several columns tell the classes apart, the table is easy.
    let easy = Table::builder().column("a", (0..400).map(|i| f64::from(i % 4) + f64::from(i % 7) / 10.0)).unwrap();
    let easy = easy.column("b", (0..400).map(|i| f64::from((i + 1) % 4) * 3.0 + f64::from(i % 13) / 14.0)).unwrap();
    let easy = easy.labels((0..400).map(|i| i % 4)).unwrap().build().unwrap();
    assert!(!problems(&easy).contains(&Problem::Leak));
}

#[test]
fn copies_contradictions_and_sizes_are_found() {
    let constant = with("one", |i| if i == 17 { 1.0 } else { 0.0 });
    assert_eq!(problems(&constant), [Problem::NearlyConstant]);
    assert_eq!(problems(&with("same", |_| 2.0)), [Problem::Constant]);
    let missing = Profile::of(&with("gaps", |i| if i % 10 == 0 { f64::NAN } else { (i as f64 * 0.37).sin() }));
    assert_eq!((missing.findings[0].problem, missing.findings[0].count), (Problem::MissingCells, Some(40)));

    let all = with("w", |i| (i as f64 * 0.7).sin());
    let mut copied = all.clone();
    copied.names.push("noise again".into());
    copied.columns.push(all.columns[0].clone());
    let copied = Profile::of(&copied);
    assert_eq!(copied.findings[0].problem, Problem::RepeatedColumns);
    assert!(copied.findings[0].what.contains("noise again of noise"));

    let rows: Vec<usize> = (0..400).chain(0..40).collect();
    let repeated = Profile::of(&all.select(&rows));
    assert_eq!((repeated.findings[0].problem, repeated.findings[0].count), (Problem::RepeatedRows, Some(40)));
    let mut wrong = all.select(&rows);
    if let Some(labels) = &mut wrong.labels {
        labels.codes[400..410].iter_mut().for_each(|code| *code = (*code + 1) % 4);
    }
    let wrong = Profile::of(&wrong);
    assert_eq!(wrong.findings[0].count, Some(30));
    assert_eq!((wrong.findings[1].problem, wrong.findings[1].count), (Problem::Contradictions, Some(20)));

    let few: Vec<usize> = (0..400).filter(|i| i % 4 != 3 || *i == 3).collect();
    let few = Profile::of(&all.select(&few));
    assert!(few.findings[0].problem == Problem::Imbalance && few.findings[0].what.contains("d (1)"), "{few:?}");

    let texts = (0..60).map(|i| format!("a name {} of {}", i * i % 61, i)).collect::<Vec<_>>();
    let texts = Table::builder().categorical("name", texts.iter().map(String::as_str)).unwrap();
    let texts = texts.column("x", (0..60).map(|i| f64::from(i % 7))).unwrap().build().unwrap();
    assert_eq!(problems(&texts), [Problem::ManyTexts]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_index_is_found(start in -5i32..1000, step in 1i32..5, n in 20usize..200, seed in 0u64..1000) {
        let values: Vec<f64> = (0..n as i32).map(|i| f64::from(start + step * i)).collect();
        prop_assert!(left_out("x", &values));
        let mut other = values.clone();
        Stream::new(seed, "test").shuffle(&mut other);
        prop_assert!(left_out("row_id", &other));
    }

    #[test]
    fn no_measurement_is_left_out(seed in 0u64..10_000, n in 20usize..400, places in 0u32..7, sorted: bool) {
        let mut stream = Stream::new(seed, "test");
        let scale = 10f64.powi(places as i32);
        // Bell-shaped, rounded to some decimals.
        let mut values: Vec<f64> =
            (0..n).map(|_| (stream.normal() * scale).round() / if seed % 2 == 0 { scale } else { 1.0 }).collect();
        if sorted {
            values.sort_by(f64::total_cmp);
        }
        prop_assert!(!left_out("width", &values), "{:?}", values);
    }

    #[test]
    fn any_table_has_a_profile(cells in proptest::collection::vec(proptest::num::f64::ANY, 1..120), width in 1usize..5) {
        let cells: Vec<f32> = cells.iter().map(|&v| if v.is_infinite() { 0.0 } else { (v % 1e30) as f32 }).collect();
        let rows = cells.len() / width;
        prop_assume!(rows > 0);
        let labels: Vec<String> = (0..rows).map(|i| (i % 3).to_string()).collect();
        let table = Table::from_rows(&cells[..rows * width], width, Some(&labels)).unwrap();
        let profile = Profile::of(&table);
        prop_assert!(profile.left_out().len() < width);
        prop_assert_eq!(profile.clone(), Profile::of(&table));
    }
}

/// Columns of percentages and dates are numbers, whatever their texts are; free text is no column of the model.
#[test]
fn columns_are_looked_at_as_they_are_read() {
    let row = |i: usize| {
        let text = format!("the {} th remark", i * 7919 % 10_007);
        let id = if i < 1000 { i.to_string() } else { format!("\"1,{:03}\"", i - 1000) };
        format!(
            "{id},{}.{}%,{:02}.{:02}.2024,{text},{}\n",
            i * 37 % 90,
            i % 7,
            1 + i % 28,
            1 + i % 12,
            ["a", "b"][i * 7919 % 1009 % 2]
        )
    };
    let text: String = (0..1200).map(row).collect();
    let text = format!("nr,rate,day,note,class\n{text}");
    let table = Table::from_bytes(text.into_bytes(), "a.csv", &ReadOptions::default()).unwrap();
    let profile = Profile::of(&table);
    let found: Vec<(Problem, &str)> = profile.findings.iter().map(|f| (f.problem, f.columns[0].as_str())).collect();
    assert_eq!(found, [(Problem::Identifier, "nr")], "{:?}", profile.findings);
    assert_eq!(used_columns(&table), [false, true, true, false]);
}

/// Rows that differ only in a remark, which is not trained on, are copies.
#[test]
fn remarks_do_not_make_rows_different() {
    let row = |i: usize| {
        format!("{},{},remark {} of {i} here,{}\n", i / 3 * 37 % 101, i / 3 % 5, i * 31 % 97, ["a", "b"][i / 3 % 2])
    };
    let text: String = (0..300).map(row).collect();
    let table =
        Table::from_bytes(format!("x,z,note,class\n{text}").into_bytes(), "a.csv", &ReadOptions::default()).unwrap();
    let profile = Profile::of(&table);
    let copies = profile.findings.iter().find(|f| f.problem == Problem::RepeatedRows).unwrap();
    assert_eq!(copies.count, Some(200), "{:?}", profile.findings);
    let (_, test) = table.split_rows(0.3, 1).unwrap();
    assert!(!test.is_empty() && test.iter().all(|row| (row / 3 * 3..row / 3 * 3 + 3).all(|r| test.contains(&r))));
}
