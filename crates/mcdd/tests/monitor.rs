//! A monitor over its whole life: reference rows, a stream, a kill, a change, a new start.

use mcdd::data::{Schema, Table};
use mcdd::model::{Calibration, Predictions};
use mcdd::monitor::{Monitor, Part};
use mcdd::seed::Stream;

/// A model's worth of rows: a numeric and a categorical column, two classes.
fn rows(random: &mut Stream, n: usize, shift: f64, low: f64) -> (Table, Predictions) {
    let table = Table::builder()
        .column("size", (0..n).map(|_| random.normal() + shift).collect::<Vec<f64>>())
        .unwrap()
        .column("color", (0..n).map(|_| Some(["red", "blue", "green"][random.below(3)])).collect::<Vec<_>>())
        .unwrap()
        .build()
        .unwrap();
    let class: Vec<u32> = (0..n).map(|_| random.below(2) as u32).collect();
    let confidence = class.iter().map(|&c| random.normal() - low * f64::from(c)).collect();
    (table, Predictions { classes: 2, class, confidence, ..Predictions::default() })
}

#[test]
fn parts_are_named_and_the_state_survives() {
    let mut random = Stream::new(5, "rows");
    let calibration = Calibration::new((0..400).map(|_| random.normal()).collect()).unwrap();
    let classes = ["a".to_owned(), "b".to_owned()];
    let (reference, predictions) = rows(&mut random, 400, 0.0, 0.0);
    let (schema, _) = Schema::fit(&reference, &(0..400).collect::<Vec<_>>()).unwrap();
    let mut monitor = Monitor::new(&calibration, 0.05).unwrap();
    let x = schema.transform(&reference, None).unwrap();
    monitor.watch_parts(&schema, &classes, &x, &predictions).unwrap();
    let feed = |monitor: &mut Monitor, (table, predictions): (Table, Predictions)| {
        let x = schema.transform(&table, None).unwrap();
        monitor.add_rows(&schema, &classes, &x, &predictions);
    };
    feed(&mut monitor, rows(&mut random, 1000, 0.0, 0.0));
    assert!(monitor.alarm().is_none() && monitor.about().parts.iter().all(|p| p.changed.is_none()));
    assert_eq!(monitor.about().parts.len(), 5);

    // Killed and read back: the same state, and the same from there on.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    monitor.save(&path).unwrap();
    let mut again = Monitor::load(&path, &calibration).unwrap();
    assert_eq!(again, monitor);
    let (table, predictions) = rows(&mut random, 300, 1.5, 1.5);
    feed(&mut again, (table.clone(), predictions.clone()));
    feed(&mut monitor, (table, predictions));
    assert_eq!(again, monitor);
    let about = monitor.about();
    let changed = |part: &Part| about.parts.iter().find(|p| p.part == part).unwrap().changed.is_some();
    assert!(monitor.alarm().is_some_and(|row| row > 1000));
    assert!(changed(&Part::Class("b".into())) && changed(&Part::Column("size".into())));
    assert!(!changed(&Part::Class("a".into())) && !changed(&Part::Column("color".into())));
    assert!(!changed(&Part::Labels));
    monitor.restart();
    assert!(monitor.alarm().is_none() && monitor.evidence() == 1.0 && monitor.about().restarts == 1);
}

/// Streams like the calibration rows, with few of those: the alarm is as rare as was asked for, and a product of bets that takes
/// p-values for independent is not.
#[test]
fn false_alarms_are_rare_with_few_calibration_rows() {
    let mut random = Stream::new(11, "streams");
    let (streams, alpha) = (1500, 0.1);
    let (mut ours, mut naive) = (0, 0);
    for _ in 0..streams {
        let calibration = Calibration::new((0..30).map(|_| random.normal()).collect()).unwrap();
        let mut monitor = Monitor::new(&calibration, alpha).unwrap();
        let (mut product, mut highest) = (1.0f64, 1.0f64);
        for _ in 0..400 {
            let x = random.normal();
            monitor.add(x);
            product *= 1.0 + 0.3 * (1.0 - 2.0 * calibration.p_value(x));
            highest = highest.max(product);
        }
        ours += usize::from(monitor.alarm().is_some());
        naive += usize::from(highest >= 1.0 / alpha);
    }
    let rate = |k: usize| k as f64 / streams as f64;
    // A standard error is 0.008.
    assert!(rate(ours) <= alpha + 0.016, "{}", rate(ours));
    assert!(rate(naive) > 1.5 * alpha, "{}", rate(naive));
}

/// Ten columns that depend on each other and four classes, watched against few reference rows: over all of them together, one that
/// did not change is named as rarely as was asked for.
#[test]
fn parts_that_did_not_change_are_seldom_named() {
    let mut random = Stream::new(12, "parts");
    let (streams, alpha, columns) = (400, 0.1, 10);
    let classes: Vec<String> = (0..4).map(|c| c.to_string()).collect();
    let calibration = Calibration::new((0..100).map(|_| random.normal()).collect()).unwrap();
    let mut draw = |n: usize, shift: f64| {
        let mut x = Vec::new();
        for _ in 0..n {
            let common = random.normal();
            x.extend((0..columns).map(|c| random.normal() + common + if c == 0 { shift } else { 0.0 }));
        }
        let class: Vec<u32> = (0..n).map(|_| random.below(4) as u32).collect();
        let confidence = (0..n).map(|_| random.normal()).collect();
        let table = Table::from_rows::<f64, &str>(&x, columns, None).unwrap();
        (table, Predictions { classes: 4, class, confidence, ..Predictions::default() })
    };
    let (first, _) = draw(1000, 0.0);
    let (schema, _) = Schema::fit(&first, &(0..1000).collect::<Vec<_>>()).unwrap();
    let (mut wrong, mut right) = (0, 0);
    for stream in 0..streams {
        // Every other stream has a change, of the first column.
        let shift = if stream % 2 == 0 { 0.0 } else { 1.5 };
        let mut monitor = Monitor::new(&calibration, alpha).unwrap();
        let (reference, predictions) = draw(80, 0.0);
        let x = schema.transform(&reference, None).unwrap();
        monitor.watch_parts(&schema, &classes, &x, &predictions).unwrap();
        let (table, predictions) = draw(300, shift);
        let x = schema.transform(&table, None).unwrap();
        monitor.add_rows(&schema, &classes, &x, &predictions);
        let about = monitor.about();
        let first = Part::Column(schema.columns[0].name.clone());
        let named = |other: bool| about.parts.iter().any(|p| p.changed.is_some() && (*p.part != first) == other);
        wrong += usize::from(named(true) || (shift == 0.0 && named(false)));
        right += usize::from(shift > 0.0 && named(false));
    }
    // A standard error of 400 streams is 0.015.
    assert!(wrong as f64 / streams as f64 <= alpha + 0.03, "{wrong} of {streams}");
    assert!(right * 10 > streams * 4, "{right} of {}", streams / 2);
}
