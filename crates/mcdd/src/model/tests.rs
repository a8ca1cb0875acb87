//! Models from end to end, on the embedded digits.

use super::*;
use crate::compute::pool::Pool;
use crate::data::{Table, digits};
use crate::detector::Detect;
use crate::head::{HeadConfig, Sigma, config};
use crate::metrics;
use crate::seed::Stream;
use crate::train::optim::Schedule;
use crate::train::{Callback, Epoch, Preset, Run, Select};
use std::sync::atomic::{AtomicUsize, Ordering};

fn quick() -> Settings {
    Settings {
        hidden: vec![32],
        latent: 16,
        epochs: 8,
        lr: 3e-3,
        batch: 64,
        seed: 7,
        schedule: Schedule::Cosine,
        ..Preset::Paper.settings()
    }
}

fn run(threads: usize) -> Run<'static> {
    Run { threads, ..Run::default() }
}

#[test]
fn learns_the_digits_and_detects_a_new_one() {
    let (known, unknown) = digits().leave_out("7").unwrap();
    let (train, test) = known.split(0.2, 1).unwrap();
    let model = Model::fit(&train, &Settings { epochs: 30, ..quick() }).unwrap();
    let id = model.predict(&test).unwrap();
    let right = (0..id.rows()).filter(|&i| test.label(i) == Some(id.class[i])).count();
    assert!(right as f64 > 0.93 * id.rows() as f64, "{right} of {}", id.rows());
    let ood = model.predict(&unknown).unwrap();
    let auroc = metrics::detection(&id.confidence, &ood.confidence).unwrap().auroc;
    assert!(auroc > 0.85, "{auroc}");
    let threshold = model.threshold().unwrap();
    let kept = id.confidence.iter().filter(|&&c| threshold.known(c)).count();
    assert!(kept as f64 > 0.88 * id.rows() as f64, "{kept} of {}", id.rows());
    for i in 0..id.rows() {
        assert!((id.posterior(i).iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let nearest = id.distance(i).unwrap().iter().fold(f64::INFINITY, |a, &b| a.min(b));
        assert_eq!(id.confidence[i], -nearest);
        assert_eq!(threshold.known(id.confidence[i]), id.p_value[i] > 0.05);
    }
}

#[test]
fn the_class_comes_from_the_members_for_it_and_distances_are_left_out_unless_wanted() {
    let (train, test) = digits().split(0.3, 1).unwrap();
    let settings = Settings { hidden: vec![16], latent: 4, epochs: 3, batch: 64, ..Preset::Best.settings() };
    let model = Model::fit(&train, &settings).unwrap();
    let all = model.predict(&test).unwrap();
    let x = model.schema().transform(&test, None).unwrap();
    let (classes, mut sum) = (all.classes, vec![0.0; all.posterior.len()]);
    for (member, weight) in model.members[5..].iter().zip([1.0 / 2.5, 1.5 / 2.5]) {
        assert!(member.role.for_class && member.role.binned == (weight > 0.5));
        let z = member.net.latents(&x, &mut Default::default()).to_vec();
        for (z, sum) in z.chunks(4).zip(sum.chunks_mut(classes)) {
            let (mut own, mut distances) = (vec![0.0; classes], vec![0.0; classes]);
            member.head.score(z, &mut own, &mut distances);
            crate::head::posterior(&mut own);
            sum.iter_mut().zip(own).for_each(|(sum, own)| *sum += weight * own);
        }
    }
    for row in sum.chunks_mut(classes) {
        sharpness::apply(model.sharpness, row);
    }
    assert!(sum.iter().zip(&all.posterior).all(|(a, b)| (a - b).abs() < 1e-12));
    let mut out = Predictions::default();
    model.predict_part(&x, false, &mut out, &Pool::new(2)).unwrap();
    assert!(out.distance.is_empty() && !all.distance.is_empty());
    assert_eq!(out, Predictions { distance: Vec::new(), ..all });
}

#[test]
fn one_seed_fixes_every_byte_for_any_number_of_threads() {
    let (known, _) = digits().leave_out("3").unwrap();
    for settings in [
        Settings { epochs: 3, ..quick() },
        Settings { epochs: 2, members: 3, select: Select::Best, ..quick() },
        Settings { epochs: 2, head: config::Softmax::default().into(), ..quick() },
    ] {
        let bytes = |threads, settings: &Settings| {
            Model::fit_with(&known, settings, &run(threads)).unwrap().model.to_bytes().unwrap()
        };
        let one = bytes(1, &settings);
        assert_eq!(one, bytes(2, &settings));
        assert_eq!(one, bytes(3, &settings));
        assert_eq!(one, bytes(1, &settings));
        assert_ne!(one, bytes(1, &Settings { seed: 8, ..settings.clone() }));
    }
}

#[test]
fn a_file_gives_back_the_same_model() {
    let table = digits();
    for settings in [
        Settings { epochs: 2, members: 2, ..quick() },
        Settings { epochs: 2, head: config::Softmax::default().into(), ..quick() },
        Settings { epochs: 2, head: config::DeepMcdd { nu: 0.5, sigma: Sigma::Learned }.into(), ..quick() },
    ] {
        let model = Model::fit(&table, &settings).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.mcdd");
        model.save(&path).unwrap();
        let loaded = Model::load(&path).unwrap();
        assert_eq!(loaded.to_bytes().unwrap(), model.to_bytes().unwrap());
        assert_eq!(loaded.predict(&table).unwrap(), model.predict(&table).unwrap());
    }
}

#[test]
fn a_prediction_is_independent_of_the_other_rows() {
    let table = digits();
    let model = Model::fit(&table, &Settings { epochs: 1, members: 2, ..quick() }).unwrap();
    let x = model.schema().transform(&table, None).unwrap();
    let all = model.predict(&table).unwrap();
    let (mut one, mut scratch) = (Predictions::default(), PredictBuffers::default());
    for i in [0, 1, 95, 96, 1000, 1796] {
        let width = model.graph().input;
        model.predict_one(&x[i * width..(i + 1) * width], &mut one, &mut scratch).unwrap();
        assert_eq!((one.class[0], one.confidence[0]), (all.class[i], all.confidence[i]));
        assert_eq!(one.posterior, all.posterior(i));
        assert_eq!(Some(&one.distance[..]), all.distance(i));
    }
    assert!(model.predict_one(&[f32::NAN; 3], &mut one, &mut scratch).is_err());
    let mut bad = x[..model.graph().input].to_vec();
    bad[0] = f32::INFINITY;
    assert!(model.predict_one(&bad, &mut one, &mut scratch).is_err());
}

#[test]
fn damaged_files_are_errors() {
    let settings = Settings { hidden: vec![4], latent: 2, epochs: 1, ..quick() };
    let bytes = Model::fit(&digits(), &settings).unwrap().to_bytes().unwrap();
    for n in (0..bytes.len()).step_by(37).chain(bytes.len() - 40..bytes.len()) {
        assert!(Model::from_bytes(&bytes[..n]).is_err(), "cut at {n}");
    }
    for i in (0..bytes.len()).step_by(11) {
        let mut damaged = bytes.clone();
        damaged[i] ^= 1 << (i % 8);
        assert!(Model::from_bytes(&damaged).is_err(), "byte {i}");
    }
}

/// Files with a valid checksum and invalid content.
#[test]
fn absurd_files_are_errors() {
    use crate::container::{Container, Values};
    let settings = Settings { hidden: vec![4], latent: 2, epochs: 1, ..quick() };
    let bytes = Model::fit(&digits(), &settings).unwrap().to_bytes().unwrap();
    let good = Container::from_bytes(&bytes, "mcdd model 1").unwrap();
    let text = |from: &str, to: &str| {
        let c = Container { text: good.text.replacen(from, to, 1), ..good.clone() };
        assert_ne!(c.text, good.text, "{from}");
        c
    };
    let mut missing = good.clone();
    missing.tensors.remove("members.0.fc1.weight");
    let mut shape = good.clone();
    shape.put("members.0.fc1.bias", &[2, 2], Values::F32(vec![0.0; 4]));
    let mut infinite = good.clone();
    infinite.put("members.0.fc1.bias", &[4], Values::F32(vec![f32::INFINITY; 4]));
    let mut extra = good.clone();
    extra.put("more", &[1], Values::F32(vec![0.0]));
    let mut empty = good.clone();
    empty.put("calibration.confidence", &[0], Values::F64(vec![]));
    let cases = [
        text("\"outputs\":4", "\"outputs\":4000000000000000000"),
        text("\"inputs\":4", "\"inputs\":5"),
        text("\"calibration_rows\":", "\"calibration_rows\":9"),
        text("\"members\":1", "\"members\":7"),
        text("\"latent\":2", "\"latent\":0"),
        text("\"nu\":1.0", "\"nu\":-1.0"),
        text("\"from\":[0]", "\"from\":[9]"),
        text("\"classes\":[\"0\",\"1\"", "\"classes\":[\"0\",\"0\""),
        text("\"classes\":[\"0\",", "\"classes\":["),
        text("\"op\":\"linear\"", "\"op\":\"cake\""),
        text("{", "["),
        text("\"epoch\":0", "\"epoch\":7"),
        missing,
        shape,
        infinite,
        extra,
        empty,
    ];
    for (i, case) in cases.into_iter().enumerate() {
        assert!(Model::from_bytes(&case.to_bytes("mcdd model 1")).is_err(), "case {i}");
    }
    let newer = good.to_bytes("mcdd model 2");
    assert!(Model::from_bytes(&newer).err().unwrap().to_string().contains("version 2"));
}

/// Stops after a number of steps.
struct StopAfter(AtomicUsize, usize);

impl Callback for StopAfter {
    fn stop(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) + 1 >= self.1
    }
}

#[test]
fn a_stopped_run_keeps_the_best_and_a_resumed_one_gives_the_same_bytes() {
    let table = digits();
    for settings in [
        Settings { epochs: 6, ..quick() },
        Settings { epochs: 5, members: 2, select: Select::Best, ..quick() },
        Settings {
            epochs: 30,
            patience: Some(2),
            lr: 0.03,
            optimizer: crate::train::optim::Optimizer::Sgd { momentum: 0.9 },
            ..quick()
        },
    ] {
        let whole = Model::fit_with(&table, &settings, &run(1)).unwrap().model.to_bytes().unwrap();
        let steps_per_epoch = 1617usize.div_ceil(64);
        for stop_at in [1, steps_per_epoch + 3, 3 * steps_per_epoch] {
            let dir = tempfile::tempdir().unwrap();
            let checkpoint = Some(dir.path().join("c"));
            let stop = StopAfter(AtomicUsize::new(0), stop_at);
            let stopped = Model::fit_with(
                &table,
                &settings,
                &Run { threads: 1, checkpoint: checkpoint.clone(), callback: &stop, ..Run::default() },
            )
            .unwrap();
            assert!(stopped.interrupted && stopped.model.findings().iter().any(|n| n.contains("stopped")));
            // Starting again without `resume` must not overwrite the checkpoint.
            if stop_at > steps_per_epoch {
                let again = Run { threads: 1, checkpoint: checkpoint.clone(), ..Run::default() };
                assert!(Model::fit_with(&table, &settings, &again).is_err());
            }
            let resumed = Run { threads: 2, checkpoint: checkpoint.clone(), resume: true, ..Run::default() };
            let model = Model::fit_with(&table, &settings, &resumed).unwrap().model;
            assert!(model.to_bytes().unwrap() == whole, "stopped at step {stop_at}");
            // Again from the end; and with other settings, which is an error.
            let model = Model::fit_with(&table, &settings, &resumed).unwrap().model;
            assert!(model.to_bytes().unwrap() == whole);
            let other = Settings { lr: 1e-4, ..settings.clone() };
            assert!(Model::fit_with(&table, &other, &resumed).err().unwrap().to_string().contains("another run"));
        }
    }
}

/// An ensemble that was stopped has no untrained members.
#[test]
fn a_stopped_ensemble_has_no_untrained_members() {
    let settings = Settings { epochs: 6, members: 3, ..quick() };
    let steps_per_epoch = 1617usize.div_ceil(64);
    for (threads, stop_at, members) in [(1, 2 * steps_per_epoch, 1), (1, 8 * steps_per_epoch, 2), (1, 3, 1)] {
        let stop = StopAfter(AtomicUsize::new(0), stop_at);
        let run = Run { threads, callback: &stop, ..Run::default() };
        let fitted = Model::fit_with(&digits(), &settings, &run).unwrap();
        assert_eq!(fitted.model.members(), members, "stopped at {stop_at}");
        let bytes = fitted.model.to_bytes().unwrap();
        assert_eq!(Model::from_bytes(&bytes).unwrap().members(), members);
    }
}

#[test]
fn a_network_that_is_too_large_is_an_error() {
    let e = Model::fit(&digits(), &Settings { hidden: vec![65_536, 65_536], ..quick() }).err().unwrap();
    assert!(e.to_string().contains("parameters") && e.hint_text().is_some());
}

#[test]
fn best_is_the_lowest_validation_loss_and_patience_stops() {
    let table = digits();
    let settings = Settings { epochs: 40, lr: 0.02, select: Select::Best, patience: Some(3), ..quick() };
    let model = Model::fit(&table, &settings).unwrap();
    let (history, kept) = model.history(0).unwrap();
    let lowest = |h: &[Epoch]| h.iter().min_by(|a, b| a.validation_loss.total_cmp(&b.validation_loss)).map(|e| e.epoch);
    assert_eq!(kept, lowest(history));
    assert!(history.len() < 40 && history.len() == kept.unwrap() + 4, "{} {kept:?}", history.len());
}

#[test]
fn diverging_is_an_error_with_a_hint() {
    let sgd = crate::train::optim::Optimizer::Sgd { momentum: 0.9 };
    let settings = Settings { lr: 1e6, optimizer: sgd, ..quick() };
    let e = Model::fit(&digits(), &settings).err().unwrap();
    assert_eq!((e.kind(), e.hint_text()), (crate::error::Kind::Diverged, Some("lower `lr`")));
}

#[test]
fn findings_about_the_model_are_reported() {
    let findings = |rows: usize, settings: &Settings| {
        let table = digits();
        let rows: Vec<usize> = (0..rows).collect();
        Model::fit(&table.select(&rows), settings).unwrap().findings().join("\n")
    };
    let few = findings(80, &quick());
    assert!(few.contains("too few for a threshold") && few.contains("fewer than 5 calibration rows"), "{few}");
    let learned = Settings { head: config::DeepMcdd { nu: 1.0, sigma: Sigma::Learned }.into(), epochs: 20, ..quick() };
    assert!(findings(1797, &learned).contains("lower limit"));
    let early = Settings { epochs: 1, lr: 1e-6, ..quick() };
    assert!(findings(1797, &early).contains("closer to each other"));
}

#[test]
fn test_rows_do_not_change_the_model() {
    // The preprocessing comes from the training rows alone.
    let table = digits();
    let (train, _) = table.split_rows(0.1, 7).unwrap();
    let (a, _) = Schema::fit(&table, &train).unwrap();
    let model = Model::fit(&table, &Settings { epochs: 1, ..quick() }).unwrap();
    assert_eq!(&a, model.schema());
}

/// A sphere around all rows shrinks to a point if the network can be constant; without biases it cannot.
#[test]
fn deep_svdd_does_not_collapse() {
    let table = digits();
    let mut seed = Stream::new(1, "noise");
    let mut noise = table.clone();
    for column in &mut noise.columns {
        if let crate::data::Column::Number(values) = column {
            values.iter_mut().for_each(|v| *v = seed.below(17) as f64);
        }
    }
    for method in ["deep-svdd", "deep-svdd:boundary=soft"] {
        let settings = Settings {
            head: HeadConfig::parse(method).unwrap(),
            epochs: 60,
            schedule: Schedule::Cosine,
            ..Preset::Paper.settings()
        };
        let model = Model::fit(&table, &settings).unwrap();
        assert!(model.graph().specs().iter().all(|s| s.name.ends_with("weight")), "{method} has a bias");
        assert!(!model.classifies());
        let own = model.predict(&table).unwrap();
        assert!(own.class.is_empty() && own.posterior.is_empty());
        // Confidences differ, and noise has lower ones than digits.
        let distinct: std::collections::HashSet<u64> = own.confidence.iter().map(|c| c.to_bits()).collect();
        assert!(distinct.len() > own.rows() * 9 / 10, "{method}: {} confidences", distinct.len());
        let noisy = model.predict(&noise).unwrap();
        let auroc = crate::metrics::detection(&own.confidence, &noisy.confidence).unwrap().auroc;
        assert!(auroc > 0.9, "{method}: {auroc}");
    }
}

#[test]
fn members_and_detectors_work_together() {
    let table = digits().select(&(0..400).collect::<Vec<_>>());
    let base = Settings {
        hidden: vec![16],
        latent: 8,
        epochs: 3,
        members: 2,
        schedule: Schedule::Cosine,
        ..Preset::Paper.settings()
    };
    for (method, detector) in [
        ("softmax", "energy"),
        ("softmax", "odin"),
        ("deep-mcdd", "knn"),
        ("deep-mcdd", "odin"),
        ("deep-mcdd", "mahalanobis-ensemble"),
        ("softmax", "vim"),
        ("deep-svdd", "mahalanobis"),
        ("gda", "knn:on=inputs"),
        ("alad", "lof:on=inputs"),
    ] {
        let settings = Settings {
            head: HeadConfig::parse(method).unwrap(),
            detector: Detect::parse(detector).unwrap(),
            ..base.clone()
        };
        let fit = |threads| {
            let run = Run { threads, ..Run::default() };
            Model::fit_with(&table, &settings, &run).unwrap().model.to_bytes().unwrap()
        };
        let bytes = fit(1);
        assert!(bytes == fit(3), "{method}+{detector} depends on threads");
        let model = Model::from_bytes(&bytes).unwrap();
        assert!(model.to_bytes().unwrap() == bytes);
        assert_eq!(model.members(), if method == "gda" { 1 } else { 2 });
        let p = model.predict(&table).unwrap();
        assert!(p.confidence.iter().chain(&p.posterior).all(|v| v.is_finite()), "{method}+{detector}");
        assert_eq!(p.class.len(), if model.classifies() { 400 } else { 0 });
        assert_eq!(model.classifies(), method != "alad", "{method}+{detector}");
    }
}

/// Input perturbation changes features and logits: ODIN is more than a temperature.
#[test]
fn input_perturbation_moves_the_confidence() {
    let table = digits().select(&(0..400).collect::<Vec<_>>());
    let confidence = |detector: &str| {
        let settings = Settings {
            head: config::Softmax::default().into(),
            detector: Detect::parse(detector).unwrap(),
            hidden: vec![16],
            latent: 8,
            epochs: 5,
            schedule: Schedule::Cosine,
            ..Preset::Paper.settings()
        };
        Model::fit(&table, &settings).unwrap().predict(&table).unwrap().confidence
    };
    for name in ["odin", "mahalanobis-ensemble"] {
        let still = confidence(&format!("{name}:epsilon=0"));
        let moved = confidence(&format!("{name}:epsilon=0.01"));
        // The input is moved towards a higher confidence.
        let higher = still.iter().zip(&moved).filter(|(s, m)| m > s).count();
        assert!(higher > 390, "{name}: {higher} of 400 rose");
    }
}

/// Three classes around different corners, 24 rows each; `f` changes the numbers, by row and column.
fn corners(width: usize, f: impl Fn(usize, usize, f32) -> f32) -> Table {
    let mut seed = Stream::new(4, "corners");
    let x: Vec<f32> = (0..72 * width)
        .map(|i| {
            let (row, column) = (i / width, i % width);
            let corner = if column % 3 == row % 3 { 4.0 } else { 0.0 };
            f(row, column, corner + 0.3 * seed.normal() as f32)
        })
        .collect();
    let labels: Vec<String> = (0..72).map(|row| format!("c{}", row % 3)).collect();
    Table::from_rows(&x, width, Some(&labels)).unwrap()
}

/// Every method, trained, saved and loaded on unusual tables; the detectors have a suite of their own.
#[test]
fn every_method_works_on_unusual_tables() {
    for head in HeadConfig::all() {
        let entry = head.about();
        let settings = Settings {
            head,
            hidden: vec![16],
            latent: 8,
            epochs: 20,
            schedule: Schedule::Cosine,
            ..Preset::Paper.settings()
        };
        let plain = |_: usize, _: usize, v: f32| v;
        let finite = |p: &Predictions, what: &str| {
            let all = p.confidence.iter().chain(&p.posterior).chain(&p.distance).chain(&p.p_value);
            assert!(all.clone().all(|v| v.is_finite()), "{} with {what}", entry.name);
        };
        let tables = [
            ("plain rows", corners(6, plain)),
            (
                "duplicated rows",
                corners(6, |row, column, _| if column % 3 == row % 3 { 4.0 } else { row as f32 % 2.0 }),
            ),
            ("a constant column", corners(6, |_, column, v| if column == 2 { 7.0 } else { v })),
            ("one feature", corners(1, |row, _, v| v + 9.0 * (row % 3) as f32)),
            ("1,000 features", corners(1000, plain)),
            ("a huge column", corners(6, |_, column, v| if column == 1 { 1e30 * v } else { v })),
        ];
        for (what, table) in &tables {
            let fit = |threads| Model::fit_with(table, &settings, &run(threads)).map(|f| f.model);
            let model = fit(1).unwrap_or_else(|e| panic!("{} with {what}: {e}", entry.name));
            let own = model.predict(table).unwrap();
            finite(&own, what);
            // Any number of threads gives the same bytes, and a file the same predictions.
            let bytes = model.to_bytes().unwrap();
            assert!(bytes == fit(3).unwrap().to_bytes().unwrap(), "{} with {what}", entry.name);
            let loaded = Model::from_bytes(&bytes).unwrap();
            assert_eq!(loaded.predict(table).unwrap(), own, "{} with {what}", entry.name);
        }
        let model = Model::fit(&tables[0].1, &settings).unwrap();
        let median = |p: &Predictions| {
            let mut sorted = p.confidence.clone();
            sorted.sort_by(f64::total_cmp);
            sorted[sorted.len() / 2]
        };
        let own = median(&model.predict(&tables[0].1).unwrap());
        for size in [100.0, 1e9, 1e30] {
            let far = corners(6, |_, column, v| v + if column % 2 == 0 { size } else { -size });
            let p = model.predict(&far).unwrap();
            finite(&p, "far-away rows");
            // The posterior of a linear layer stays high far away; all other methods measure the distance.
            assert!(median(&p) < own || entry.name == "softmax", "{} at {size}", entry.name);
        }
        for bad in [f32::NAN, f32::INFINITY] {
            assert!(model.predict_rows(&[bad; 6], &mut Predictions::default(), &Pool::new(1)).is_err());
        }
        // A single class is an error for methods that classify.
        let mut one = corners(6, plain).select(&(0..72).step_by(3).collect::<Vec<_>>());
        one.labels.as_mut().unwrap().names.truncate(1);
        assert_eq!(Model::fit(&one, &settings).is_err(), settings.head.classifies(), "{}", entry.name);
    }
}

#[test]
fn too_many_columns_or_classes_are_refused_before_training() {
    let (rows, columns) = (20, 20_000);
    let x: Vec<f32> = (0..rows * columns).map(|i| (i * 7919 % 1013) as f32).collect();
    let labels: Vec<String> = (0..rows).map(|i| (i % 2).to_string()).collect();
    let table = Table::from_rows(&x, columns, Some(&labels)).unwrap();
    let e = Model::fit(&table, &Settings { hidden: vec![4096], members: 2, ..quick() }).err().unwrap();
    let (message, hint) = (e.to_string(), e.hint_text().unwrap_or_default());
    assert!(message.contains("2 networks for 20000 inputs") && hint.contains("`members`"), "{message}; {hint}");
    let labels: Vec<String> = (0..90_000).map(|i| (i % 17_000).to_string()).collect();
    let x: Vec<f32> = (0..90_000).map(|i| (i % 977) as f32).collect();
    let e = Model::fit(&Table::from_rows(&x, 1, Some(&labels)).unwrap(), &quick()).err().unwrap();
    assert!(e.to_string().contains("17000 classes, and at most 16384") && e.hint_text().is_some(), "{e}");
}
