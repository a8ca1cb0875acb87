//! Exported models, run by rten. It computes in f32 what the file has in f64, so scores agree to some digits only;
//! `benches/peers/onnx_export.py` compares all rows of real tables in onnxruntime.

use std::collections::HashMap;

use mcdd::compute::pool::Pool;
use mcdd::data::{Table, digits};
use mcdd::detector::{Detect, DetectorConfig};
use mcdd::head::HeadConfig;
use mcdd::model::{Model, OnnxOptions, Predictions, Refit};
use mcdd::train::{Preset, Settings};
use rten::{Model as Runtime, Value};
use rten_tensor::prelude::*;
use rten_tensor::{NdTensor, Tensor};

const CORE: OnnxOptions = OnnxOptions { core: true, tpr: None, fixed: true };

fn load(model: &Model, options: &OnnxOptions) -> Runtime {
    Runtime::load(model.to_onnx(options).unwrap()).unwrap()
}

fn small(preset: Preset, change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = preset.settings();
    change(&mut settings);
    settings
}

/// The outputs by name.
fn run(runtime: &Runtime, inputs: Vec<(&str, Value)>) -> HashMap<String, Value> {
    let inputs = inputs.into_iter().map(|(name, value)| (runtime.node_id(name).unwrap(), value.into())).collect();
    let name = |&id: &rten::NodeId| runtime.node_info(id).and_then(|info| info.name().map(str::to_owned)).unwrap();
    let found = runtime.run(inputs, runtime.output_ids(), None).unwrap();
    runtime.output_ids().iter().map(name).zip(found).collect()
}

fn numbers(value: &Value) -> Vec<f64> {
    let tensor: Tensor<f32> = value.clone().try_into().unwrap();
    tensor.iter().map(|&v| f64::from(v)).collect()
}

fn integers(value: &Value) -> Vec<i64> {
    let tensor: Tensor<i32> = value.clone().try_into().unwrap();
    tensor.iter().map(|&v| i64::from(v)).collect()
}

/// The pixels of some digits, and the same as a table. Some rows are far from all digits.
fn rows() -> (Table, Vec<f32>) {
    let all = digits();
    let columns: Vec<Vec<f64>> = (0..64)
        .map(|c| {
            let mcdd::data::Column::Number(values) = &all.columns[c] else { panic!("digits are numbers") };
            (0..120).map(|row| if row % 5 == 0 { values[row * 7] * 3.0 } else { values[row * 7] }).collect()
        })
        .collect();
    let x = (0..120).flat_map(|row| columns.iter().map(move |c| c[row] as f32)).collect();
    let mut table = Table::builder();
    for (name, values) in all.names.iter().zip(&columns) {
        table = table.column(name, values.iter().copied()).unwrap();
    }
    (table.build().unwrap(), x)
}

/// By name or as one matrix, whatever the model takes.
fn inputs(runtime: &Runtime, table: &Table, x: &[f32]) -> Vec<(String, Value)> {
    let rows = table.rows();
    if runtime.find_node("x").is_some() {
        return vec![("x".into(), NdTensor::from_data([rows, 64], x.to_vec()).into())];
    }
    let column = |c: usize| (0..rows).map(|row| x[row * 64 + c]).collect::<Vec<f32>>();
    let named = table.names.iter().enumerate().filter(|(_, name)| runtime.find_node(name).is_some());
    named.map(|(c, name)| (name.clone(), NdTensor::from_data([rows, 1], column(c)).into())).collect()
}

fn compare(what: &str, model: &Model, table: &Table, x: &[f32]) {
    let runtime = load(model, &CORE);
    let given = inputs(&runtime, table, x);
    let given = given.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    same(what, model, &model.predict(table).unwrap(), &run(&runtime, given));
}

/// Compares what a runtime has found with predictions.
fn same(what: &str, model: &Model, want: &Predictions, found: &HashMap<String, Value>) {
    let score = numbers(&found["score"]);
    let n = want.confidence.len() as f64;
    let mean = want.confidence.iter().sum::<f64>() / n;
    let spread = (want.confidence.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / n).sqrt().max(1e-6);
    for (i, (a, b)) in score.iter().zip(&want.confidence).enumerate() {
        assert!((a - b).abs() <= 2e-3 * b.abs().max(spread), "{what}, row {i}: {a} instead of {b}");
    }
    let threshold = model.threshold().unwrap();
    let known = integers(&found["known"]);
    for (i, (known, &c)) in known.iter().zip(&want.confidence).enumerate() {
        let near = (c - threshold.confidence).abs() <= 4e-3 * c.abs().max(spread);
        assert!(near || threshold.known(c) == (*known != 0), "{what}, row {i}: {c} is known: {known}");
    }
    for (i, (p, &c)) in numbers(&found["p_value"]).iter().zip(&want.confidence).enumerate() {
        let [low, high] = [-2e-3, 2e-3].map(|by| model.calibration().p_value(c + by * c.abs().max(spread)));
        assert!(
            (low - 1e-6..=high + 1e-6).contains(p),
            "{what}, row {i}: the p-value is {p}, not from {low} to {high}"
        );
    }
    if let Some(probabilities) = found.get("probabilities") {
        for (a, b) in numbers(probabilities).iter().zip(&want.posterior) {
            assert!((a - b).abs() < 2e-3, "{what}: {a} instead of {b}");
        }
        let class = integers(&found["class"]);
        assert!(class.iter().zip(&want.class).filter(|(a, b)| **a != i64::from(**b)).count() <= 1, "{what}");
    }
}

/// Every method with every detector gives the scores of `predict`, or an error that says why it cannot.
#[test]
fn all_methods_and_detectors() {
    let known = digits();
    let (table, x) = rows();
    let pool = Pool::new(2);
    let more =
        ["odin:epsilon=0", "mahalanobis-ensemble:epsilon=0", "gen:top=3", "gda:covariance=full", "knn:on=inputs"];
    let more = more.into_iter().chain([
        "gda:covariance=diagonal",
        "knn:k=1:log=true:normalize=true",
        "knn:on=layers",
        "knn:k=1:log=true:reduce=8:relative=0.3:norm=0.2:on=last-two",
    ]);
    let all: Vec<String> =
        DetectorConfig::all().iter().map(|d| d.name().to_owned()).chain(more.map(str::to_owned)).collect();
    let (mut written, mut refused) = (0, 0);
    for head in HeadConfig::all() {
        let name = head.name();
        let hidden = if name == "gda" { vec![] } else { vec![24] };
        let settings = small(Preset::Paper, |s| (s.epochs, s.latent, s.hidden, s.head) = (2, 12, hidden, head));
        let Ok(model) = Model::fit(&known, &settings) else { panic!("{name} is not trained") };
        compare(name, &model, &table, &x);
        for detector in &all {
            let what = format!("{name} with {detector}");
            let refit = Refit { detector: Some(Detect::parse(detector).unwrap()), ..Refit::default() };
            let Ok(model) = model.refit_with(&known, &refit, &pool) else { continue };
            match model.to_onnx(&CORE) {
                Ok(_) => {
                    written += 1;
                    compare(&what, &model, &table, &x);
                }
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains("gradient") && error.hint_text().is_some(), "{what}: {error}");
                    assert!(["odin", "mahalanobis-ensemble"].contains(&detector.as_str()), "{what}: {error}");
                }
            }
        }
    }
    assert!(written > 100 && refused > 5, "{written} {refused}");
}

/// The default, an ensemble with clipped inputs, and calibration by class.
#[test]
fn ensembles_and_calibration_by_class() {
    let (table, x) = rows();
    let settings = small(Preset::Best, |s| (s.epochs, s.members) = (3, 2));
    let model = Model::fit(&digits(), &settings).unwrap();
    compare("ensemble", &model, &table, &x);
    let refit = Refit { per_class: Some(true), ..Refit::default() };
    compare("by class", &model.refit_with(&digits(), &refit, &Pool::new(2)).unwrap(), &table, &x);
}

/// Names of columns that are those of outputs or of values within the graph, or hard to print; categories by their codes,
/// missing cells, and dates.
#[test]
fn columns_with_hostile_names() {
    let names = ["score", "v3", "threshold", "tab\tand\nnewline", "\u{202e}\"quoted\\"];
    let rows = 300;
    let number = |row: usize, c: usize| match (row + c) % 11 {
        0 => f64::NAN,
        _ => ((row * (c + 3)) % 17) as f64 + (row % 3) as f64 * 20.0,
    };
    let color = |row: usize| ["red", "blue", "", "grün"][(row / 2 + row % 3) % 4];
    // In days since 1970-01-01, over some years with leap days.
    let day = |row: usize| (row % 13 != 5).then(|| 10_000 + (row * 31) % 2_200);
    let date = |row: usize| day(row).map_or(String::new(), |day| written(day as i64));
    let mut builder = Table::builder();
    for (c, name) in names.iter().enumerate() {
        builder = builder.column(*name, (0..rows).map(|row| number(row, c))).unwrap();
    }
    let texts: Vec<&str> = (0..rows).map(color).collect();
    let dates: Vec<String> = (0..rows).map(date).collect();
    let builder =
        builder.categorical("color", texts).unwrap().column("date", dates.iter().map(String::as_str)).unwrap();
    let labels = (0..rows).map(|row| ["a", "b\t", "unknown"][row % 3]);
    let table = builder.labels(labels).unwrap().build().unwrap();
    let settings = small(Preset::Fast, |s| s.epochs = 4);
    let model = Model::fit(&table, &settings).unwrap();

    let runtime = load(&model, &OnnxOptions { core: true, ..OnnxOptions::default() });
    let name = |&id: &rten::NodeId| runtime.node_info(id).unwrap().name().unwrap().to_owned();
    let found: Vec<String> = runtime.input_ids().iter().map(name).collect();
    let wanted = ["score (2)", "v3", "threshold (2)", names[3], names[4], "color", "date"];
    assert_eq!(found, wanted, "the threshold itself has a default");
    let column = |values: Vec<f32>| -> Value { NdTensor::from_data([rows, 1], values).into() };
    let mut given: Vec<(&str, Value)> = Vec::new();
    for (c, name) in wanted.iter().take(5).enumerate() {
        given.push((name, column((0..rows).map(|row| number(row, c) as f32).collect())));
    }
    let code = |row: usize| ["blue", "grün", "red"].iter().position(|c| *c == color(row)).map_or(-1, |c| c as i32);
    given.push(("color", NdTensor::from_data([rows, 1], (0..rows).map(code).collect::<Vec<i32>>()).into()));
    let seconds = |row: usize| day(row).map_or(f32::NAN, |day| day as f32 * 86_400.0);
    given.push(("date", column((0..rows).map(seconds).collect())));
    same("hostile names", &model, &model.predict(&table).unwrap(), &run(&runtime, given));
}

/// The date of a number of days since 1970-01-01, by counting.
fn written(mut days: i64) -> String {
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let mut year = 1970;
    while days >= 365 + i64::from(leap(year)) {
        days -= 365 + i64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + i64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}", month + 1, days + 1)
}

#[test]
fn the_threshold_is_fixed_on_request_and_must_be_a_fraction() {
    let settings = small(Preset::Paper, |s| (s.epochs, s.latent, s.hidden) = (2, 8, vec![16]));
    let model = Model::fit(&digits(), &settings).unwrap();
    let (table, x) = rows();
    let confidence = model.predict(&table).unwrap().confidence;
    for tpr in [0.5, 0.9] {
        let runtime = load(&model, &OnnxOptions { tpr: Some(tpr), ..CORE });
        let given = inputs(&runtime, &table, &x);
        let found = run(&runtime, given.iter().map(|(name, value)| (name.as_str(), value.clone())).collect());
        let threshold = model.threshold_at(Some(tpr)).unwrap();
        let known = integers(&found["known"]).into_iter().zip(&confidence);
        assert!(known.filter(|(known, c)| threshold.known(**c) != (*known != 0)).count() <= 1);
    }
    assert!(model.to_onnx(&OnnxOptions { tpr: Some(1.0), ..CORE }).is_err());
}

/// Convolutions, pooling, batch normalization and mirror images.
#[cfg(feature = "images")]
#[test]
fn networks_for_images() {
    use mcdd::data::{ImageShape, Images};
    use mcdd::net::NetName;
    use mcdd::train::Run;

    let (rows, shape) = (60, ImageShape { height: 14, width: 12, channels: 3 });
    let pixel = |i: usize| (i * 7919 % 251 / (1 + i / shape.values() % 2)) as u8;
    let pixels: Vec<u8> = (0..rows * shape.values()).map(pixel).collect();
    let labels: Vec<&str> = (0..rows).map(|row| ["one", "two"][row % 2]).collect();
    let images = Images::from_pixels(&pixels, shape, Some(&labels[..])).unwrap();
    for net in ["cnn8", "resnet20", "densenet40"] {
        let preset = if net == "cnn8" { Preset::Fast } else { Preset::Best };
        let mut settings = Settings::for_images(NetName::parse(net).unwrap(), preset).unwrap();
        settings.epochs = 1;
        let model = Model::fit_images(&images, &settings, &Run::default()).unwrap().model;
        let runtime = load(&model, &CORE);
        let sides = [rows, shape.height, shape.width, shape.channels];
        let found = run(&runtime, vec![("image", NdTensor::from_data(sides, pixels.clone()).into())]);
        same(net, &model, &model.predict_images(&images).unwrap(), &found);
    }
}
