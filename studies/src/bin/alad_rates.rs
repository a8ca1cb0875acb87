//! How much of unseen rows ALAD loses between a row and its reconstruction, for several learning rates: the study behind
//! `docs/decisions/0004-alad.md`. The first class is left out, and fold 0 of 5 is reconstructed.
//!
//! ```text
//! alad_rates LABEL FILE...
//! ```

use std::path::PathBuf;

use mcdd::data::{ReadOptions, Table};
use mcdd::model::Model;
use mcdd::train::optim::Schedule;
use mcdd::train::{Preset, Settings};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [label, files @ ..] = args.as_slice() else {
        return Err("usage: alad_rates LABEL FILE...".into());
    };
    let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
    let table = Table::read(&files, &ReadOptions { label: label.parse().unwrap_or_default(), ..Default::default() })?;
    let (known, _) = table.leave_out(&table.classes()[0])?;
    let test = known.folds(5, 0).swap_remove(0);
    let train: Vec<usize> = (0..known.rows()).filter(|r| test.binary_search(r).is_err()).collect();
    println!("factor  share of the variance lost");
    for factor in [0.3, 1.0, 3.0, 10.0] {
        // The loop itself takes three times the settings' rate.
        let lr = 1e-3 * factor / 3.0;
        let settings = Settings::builder().preset(Preset::Paper).method("alad").lr(lr).schedule(Schedule::Cosine);
        let model = Model::fit(&known.select(&train), &settings.build()?)?;
        let x = model.schema().transform(&known.select(&test), None)?;
        let width = model.schema().width();
        let pairs = model.latents(0, &x).unwrap_or_default();
        let n = test.len() as f64;
        let (mut lost, mut all) = (0.0, 0.0);
        for column in 0..width {
            let value = |row: &[f32], at: usize| f64::from(row[at]);
            let rows = || pairs.chunks_exact(2 * width);
            let mean = rows().map(|r| value(r, column)).sum::<f64>() / n;
            all += rows().map(|r| (value(r, column) - mean).powi(2)).sum::<f64>();
            lost += rows().map(|r| (value(r, column) - value(r, width + column)).powi(2)).sum::<f64>();
        }
        println!("{factor:>6}  {:.3}", lost / all);
    }
    Ok(())
}
