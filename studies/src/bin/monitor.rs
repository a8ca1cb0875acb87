//! How often the monitor raises a false alarm, how soon it finds a change, and the false discovery rate of conformal
//! selection: the study behind `docs/monitoring.md`.
//!
//! ```text
//! monitor alarms [streams=10000 rows=1000]    false alarms, beside a product of bets that takes p-values for independent
//! monitor parts [streams=5000 rows=500]       classes and columns that are named although they did not change
//! monitor batches [batches=1000]              false discoveries and intervals
//! monitor delay LABEL FILE...                 rows until the alarm when a left-out class appears, on a table
//! ```

use std::path::PathBuf;

use mcdd::data::{ReadOptions, Schema, Table};
use mcdd::model::{Calibration, Model, Predictions};
use mcdd::monitor::{Monitor, PValues, Part};
use mcdd::seed::Stream;
use mcdd::train::{Preset, Settings};

type Anything = Box<dyn std::error::Error>;

fn main() -> Result<(), Anything> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |key: &str, otherwise: usize| {
        let given = args.iter().find_map(|a| a.strip_prefix(key)?.strip_prefix('='));
        given.map_or(Ok(otherwise), str::parse)
    };
    match args.first().map(String::as_str) {
        Some("alarms") => alarms(number("streams", 10_000)?, number("rows", 1000)?),
        Some("parts") => parts(number("streams", 5000)?, number("rows", 500)?),
        Some("batches") => batches(number("batches", 1000)?),
        Some("delay") if args.len() > 2 => delay(&args[1], &args[2..]),
        _ => Err("usage: monitor alarms | parts | batches | delay LABEL FILE...".into()),
    }
}

/// The bets of the naive product, `1 + e (1 - 2 p)`: each has mean 1 if p-values are uniform.
const BETS: [f64; 5] = [0.05, 0.1, 0.2, 0.4, 0.8];

fn alarms(streams: usize, rows: usize) -> Result<(), Anything> {
    println!("{streams} streams of {rows} rows like the calibration rows; alpha 0.05");
    println!("| calibration rows | ties | monitor | product of bets |\n|---|---|---|---|");
    for (n, ties) in [(20, false), (50, false), (200, false), (1000, false), (50, true)] {
        let mut random = Stream::new(1, &format!("alarms/{n}/{ties}"));
        let mut draw = || {
            let x = random.normal();
            if ties { (x * 2.0).round() } else { x }
        };
        let (mut ours, mut naive) = (0, 0);
        for _ in 0..streams {
            let calibration = Calibration::new((0..n).map(|_| draw()).collect())?;
            let mut monitor = Monitor::new(&calibration, 0.05)?;
            let (mut products, mut highest) = ([0.2f64; BETS.len()], 0.0f64);
            for _ in 0..rows {
                let x = draw();
                monitor.add(x);
                let p = calibration.p_value(x);
                products.iter_mut().zip(BETS).for_each(|(product, e)| *product *= 1.0 + e * (1.0 - 2.0 * p));
                highest = highest.max(products.iter().sum());
            }
            ours += usize::from(monitor.alarm().is_some());
            naive += usize::from(highest >= 20.0);
        }
        let percent = |k: usize| 100.0 * k as f64 / streams as f64;
        let ties = if ties { "many" } else { "none" };
        println!("| {n} | {ties} | {:.2}% | {:.2}% |", percent(ours), percent(naive));
    }
    Ok(())
}

/// Rows with columns that share a common part, a predicted class and a confidence.
struct Source {
    random: Stream,
    columns: usize,
    classes: usize,
}

impl Source {
    /// Rows; the first column is shifted.
    fn draw(&mut self, n: usize, shift: f64) -> Result<(Table, Predictions), Anything> {
        let mut x = Vec::with_capacity(n * self.columns);
        for _ in 0..n {
            let common = self.random.normal();
            for c in 0..self.columns {
                x.push(self.random.normal() + common + if c == 0 { shift } else { 0.0 });
            }
        }
        let class = (0..n).map(|_| self.random.below(self.classes) as u32).collect();
        let confidence = (0..n).map(|_| self.random.normal()).collect();
        let table = Table::from_rows::<f64, &str>(&x, self.columns, None)?;
        Ok((table, Predictions { classes: self.classes, class, confidence, ..Predictions::default() }))
    }
}

/// 20 columns with a correlation of one half, 5 classes: 26 parts. The change is a shift of the first column by a standard deviation.
fn parts(streams: usize, rows: usize) -> Result<(), Anything> {
    println!("{streams} streams of {rows} rows; 26 parts; alpha 0.05");
    println!(
        "| reference rows | change | one named that did not change | without correction | the changed one named, median row |"
    );
    println!("|---|---|---|---|---|");
    for (n, shift) in [(100, 0.0), (1000, 0.0), (100, 1.0), (1000, 1.0)] {
        let mut source = Source { random: Stream::new(4, &format!("parts/{n}/{shift}")), columns: 20, classes: 5 };
        let classes: Vec<String> = (0..5).map(|c| c.to_string()).collect();
        let (first, _) = source.draw(2000, 0.0)?;
        let (schema, _) = Schema::fit(&first, &(0..2000).collect::<Vec<_>>())?;
        let changed = (shift > 0.0).then(|| Part::Column(schema.columns[0].name.clone()));
        let (mut wrong, mut naive, mut found) = (0, 0, Vec::new());
        for _ in 0..streams {
            let calibration = Calibration::new((0..200).map(|_| source.random.normal()).collect())?;
            let mut monitor = Monitor::new(&calibration, 0.05)?;
            let (reference, predictions) = source.draw(n, 0.0)?;
            let x = schema.transform(&reference, None)?;
            monitor.watch_parts(&schema, &classes, &x, &predictions)?;
            let mut crossed = false;
            for _ in 0..rows / 20 {
                let (table, predictions) = source.draw(20, shift * std::f64::consts::SQRT_2)?;
                let x = schema.transform(&table, None)?;
                monitor.add_rows(&schema, &classes, &x, &predictions);
                crossed |= monitor.about().parts.iter().any(|p| Some(p.part) != changed.as_ref() && p.evidence >= 20.0);
            }
            let about = monitor.about();
            wrong += usize::from(about.parts.iter().any(|p| Some(p.part) != changed.as_ref() && p.changed.is_some()));
            naive += usize::from(crossed);
            found.extend(about.parts.iter().filter(|p| Some(p.part) == changed.as_ref()).filter_map(|p| p.changed));
        }
        found.sort_unstable();
        let percent = |k: usize| 100.0 * k as f64 / streams as f64;
        let power = match &changed {
            None => String::new(),
            Some(_) => format!("{:.1}%, {}", percent(found.len()), found.get(found.len() / 2).copied().unwrap_or(0)),
        };
        let change = if shift > 0.0 { "first column" } else { "none" };
        println!("| {n} | {change} | {:.2}% | {:.2}% | {power} |", percent(wrong), percent(naive));
    }
    Ok(())
}

fn batches(batches: usize) -> Result<(), Anything> {
    println!("{batches} batches of 500 rows, each with its own calibration rows; intervals at 95%");
    println!(
        "| calibration rows | unknown | rate asked | false discoveries | found | interval contains | mean width |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (n, unknown, fdr) in
        [(200, 25, 0.05), (200, 100, 0.05), (1000, 25, 0.05), (1000, 25, 0.1), (1000, 100, 0.2), (200, 0, 0.05)]
    {
        let mut random = Stream::new(2, &format!("batches/{n}/{unknown}/{fdr}"));
        let (mut false_ones, mut found, mut inside, mut width) = (0.0, 0.0, 0, 0.0);
        for _ in 0..batches {
            let calibration = Calibration::new((0..n).map(|_| random.normal()).collect())?;
            let scores: Vec<f64> = (0..500).map(|i| random.normal() - if i < unknown { 4.0 } else { 0.0 }).collect();
            let mut p = PValues::new(&calibration);
            p.add(&scores.iter().map(|&s| calibration.p_value(s)).collect::<Vec<_>>());
            let threshold = p.select(fdr)?.threshold(&calibration);
            let chosen: Vec<usize> = (0..500).filter(|&i| !threshold.known(scores[i])).collect();
            let right = chosen.iter().filter(|&&i| i < unknown).count();
            false_ones += (chosen.len() - right) as f64 / chosen.len().max(1) as f64;
            found += right as f64 / unknown.max(1) as f64;
            let (low, high) = p.unknown_rows(0.95)?;
            inside += usize::from((low..=high).contains(&(unknown as u64)));
            width += (high - low) as f64;
        }
        let n_batches = batches as f64;
        println!(
            "| {n} | {unknown} | {}% | {:.2}% | {:.1}% | {:.1}% | {:.0} rows |",
            fdr * 100.0,
            100.0 * false_ones / n_batches,
            100.0 * found / n_batches,
            100.0 * inside as f64 / n_batches,
            width / n_batches
        );
    }
    Ok(())
}

/// Trains without each class in turn, and mixes its rows into a stream of known test rows.
fn delay(label: &str, files: &[String]) -> Result<(), Anything> {
    let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
    let table = Table::read(&files, &ReadOptions { label: label.parse().unwrap_or_default(), ..Default::default() })?;
    let classes: Vec<String> = table.classes().iter().take(10).cloned().collect();
    println!("alpha 0.01; the class appears after 500 known rows; median over classes of the rows until the alarm");
    let fractions = [0.0, 0.01, 0.05, 0.2];
    let mut waits = vec![Vec::new(); fractions.len()];
    let mut early = 0;
    for class in &classes {
        let (known, unknown) = table.leave_out(class)?;
        let (train, test) = known.split(0.5, 1)?;
        let model = Model::fit(&train, &Settings::builder().preset(Preset::Best).build()?)?;
        let (id, ood) = (model.predict(&test)?.confidence, model.predict(&unknown)?.confidence);
        for (fraction, waits) in fractions.iter().zip(&mut waits) {
            let mut random = Stream::new(3, &format!("{class}/{fraction}"));
            let (mut id, mut ood) = (id.clone(), ood.clone());
            random.shuffle(&mut id);
            random.shuffle(&mut ood);
            let mut monitor = Monitor::new(model.calibration(), 0.01)?;
            let mut rows = 0;
            while monitor.alarm().is_none() {
                let changed = rows >= 500 && random.uniform() < *fraction;
                let next = if changed { ood.pop() } else { id.pop() };
                let Some(confidence) = next else { break };
                monitor.add(confidence);
                rows += 1;
            }
            match monitor.alarm() {
                Some(row) if row <= 500 || *fraction == 0.0 => early += 1,
                Some(row) => waits.push(row - 500),
                None => {}
            }
        }
    }
    println!("| fraction of unknown rows | classes found | median rows | median unknown rows |\n|---|---|---|---|");
    for (fraction, waits) in fractions.iter().zip(&mut waits).skip(1) {
        waits.sort_unstable();
        let middle = waits.get(waits.len() / 2).map_or("-".into(), u64::to_string);
        let unknown = waits.get(waits.len() / 2).map_or("-".into(), |w| format!("{:.0}", *w as f64 * fraction));
        println!("| {}% | {} of {} | {middle} | {unknown} |", fraction * 100.0, waits.len(), classes.len());
    }
    println!("false alarms: {early} of {}", classes.len() * fractions.len());
    Ok(())
}
