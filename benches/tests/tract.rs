//! Exported models, run by tract: `cargo test --release -p mcdd-benches --features tract --test tract`.
//!
//! tract computes in f64 what the file has in f64, so scores agree to 1e-5. It is not among the tests of the library, as it takes
//! minutes to compile.
#![cfg(feature = "tract")]

use mcdd::compute::pool::Pool;
use mcdd::data::{Column, Table, digits};
use mcdd::detector::{Detect, DetectorConfig};
use mcdd::head::HeadConfig;
use mcdd::model::{Model, OnnxOptions, Refit};
use mcdd::train::{Preset, Settings};
use tract_onnx::prelude::*;

const CORE: OnnxOptions = OnnxOptions { core: true, tpr: None, fixed: true };

/// Some digits; those of every fifth row are far from all.
fn rows() -> Table {
    let all = digits();
    let mut table = Table::builder();
    for (name, column) in all.names.iter().zip(&all.columns) {
        let Column::Number(values) = column else { panic!("digits are numbers") };
        let value = |row: usize| if row % 5 == 0 { values[row * 7] * 3.0 } else { values[row * 7] };
        table = table.column(name, (0..200).map(value)).unwrap();
    }
    table.build().unwrap()
}

/// The outputs of a file by name.
fn run(bytes: &[u8], table: &Table) -> TractResult<Vec<(String, Tensor)>> {
    let model = tract_onnx::onnx().model_for_read(&mut &bytes[..])?;
    let names: Vec<String> = model.inputs.iter().map(|o| model.node(o.node).name.clone()).collect();
    let labels: Vec<String> =
        model.outputs.iter().map(|&o| model.outlet_label(o).unwrap_or(&model.node(o.node).name).to_owned()).collect();
    let model = model.into_optimized()?.into_runnable()?;
    let column = |name: &String| {
        let at = table.names.iter().position(|n| n == name).expect("an input is a column");
        let Column::Number(values) = &table.columns[at] else { panic!("digits are numbers") };
        Ok(Tensor::from_shape(&[values.len(), 1], values)?.into())
    };
    let inputs = names.iter().map(column).collect::<TractResult<TVec<TValue>>>()?;
    let found = model.run(inputs)?;
    Ok(labels.into_iter().zip(found.into_iter().map(|v| v.into_tensor())).collect())
}

/// Compares a file with `predict`; why it cannot be run, if tract does not.
fn compare(what: &str, model: &Model, table: &Table) -> Result<(), String> {
    let found = run(&model.to_onnx(&CORE).unwrap(), table).map_err(|e| format!("{e:?}"))?;
    let get = |name: &str| &found.iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("{what}: no {name}")).1;
    let want = model.predict(table).unwrap();
    let n = want.confidence.len() as f64;
    let mean = want.confidence.iter().sum::<f64>() / n;
    let spread = (want.confidence.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / n).sqrt();
    let score: Vec<f64> = get("score").to_plain_array_view::<f64>().unwrap().iter().copied().collect();
    let known: Vec<bool> = get("known").to_plain_array_view::<bool>().unwrap().iter().copied().collect();
    let threshold = model.threshold().unwrap();
    for (i, (&a, &b)) in score.iter().zip(&want.confidence).enumerate() {
        let unit = b.abs().max(spread);
        assert!((a - b).abs() <= 1e-4 * unit, "{what}, row {i}: {a} instead of {b}");
        let near = (b - threshold.confidence).abs() <= 1e-5 * unit;
        assert!(near || threshold.known(b) == known[i], "{what}, row {i}: {b} is known: {}", known[i]);
    }
    if found.iter().any(|(n, _)| n == "probabilities") {
        let own = get("probabilities").to_plain_array_view::<f64>().unwrap();
        for (a, b) in own.iter().zip(&want.posterior) {
            assert!((a - b).abs() < 1e-5, "{what}: {a} instead of {b}");
        }
    }
    Ok(())
}

/// All methods and detectors that can be exported. tract has what most of them need; the others are named.
#[test]
fn all_methods_and_detectors() {
    let (known, table, pool) = (digits(), rows(), Pool::new(2));
    let (mut same, mut failed) = (0, Vec::new());
    let mut check = |what: &str, model: &Model| match compare(what, model, &table) {
        Ok(()) => same += 1,
        Err(why) => failed.push(format!("{what}: {why}")),
    };
    let small = |preset: Preset, change: &dyn Fn(&mut Settings)| {
        let mut settings = preset.settings();
        change(&mut settings);
        settings
    };
    for head in HeadConfig::all() {
        let name = head.name();
        let hidden = if name == "gda" { vec![] } else { vec![24] };
        let settings = small(Preset::Paper, &|s| {
            (s.epochs, s.latent, s.hidden, s.head) = (2, 12, hidden.clone(), head.clone());
        });
        let model = Model::fit(&known, &settings).unwrap();
        check(name, &model);
        for detector in DetectorConfig::all() {
            let refit = Refit { detector: Some(Detect::parse(detector.name()).unwrap()), ..Refit::default() };
            let Ok(model) = model.refit_with(&known, &refit, &pool) else { continue };
            if model.to_onnx(&CORE).is_ok() {
                check(&format!("{name} with {}", detector.name()), &model);
            }
        }
    }
    let default = Model::fit(&known, &small(Preset::Best, &|s| s.epochs = 3)).unwrap();
    check("the default", &default);
    println!("{same} models give the same verdicts; tract does not run {}", failed.len());
    failed.iter().for_each(|why| println!("{why}"));
    assert!(same > 0);
}
