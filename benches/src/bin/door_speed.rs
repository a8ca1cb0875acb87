//! Seconds of training and scoring in Rust, for comparison with the same calls from Python (`benches/peers/python_speed.py`).
//!
//! ```text
//! door_speed TRAIN.csv ROWS.npy PRESET
//! ```
//! `TRAIN.csv` has the column `label`, `ROWS.npy` is a matrix of 64-bit numbers without it. Reading is not counted. Prints two numbers.

use std::path::PathBuf;
use std::time::Instant;

use mcdd::compute::pool::Pool;
use mcdd::data::{Column, Label, ReadOptions, Table};
use mcdd::model::Model;
use mcdd::train::{Preset, Settings};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [train, rows, preset] = &args[..] else { return Err("usage: door_speed TRAIN.csv ROWS.npy PRESET".into()) };
    let preset = Preset::ALL.into_iter().find(|p| p.name() == preset).ok_or("no such preset")?;
    let table = Table::read(&[PathBuf::from(train)], &ReadOptions::default())?;
    let options = ReadOptions { label: Label::None, ..ReadOptions::default() };
    let new = Table::read(&[PathBuf::from(rows)], &options)?;
    let mut x = vec![0.0; new.rows() * new.columns.len()];
    for (c, column) in new.columns.iter().enumerate() {
        let Column::Number(values) = column else { return Err("not a matrix of numbers".into()) };
        values.iter().enumerate().for_each(|(row, &v)| x[row * new.columns.len() + c] = v);
    }
    let start = Instant::now();
    let model = Model::fit(&table, &Settings::builder().preset(preset).build()?)?;
    let training = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let found = model.predict_matrix(&x, Pool::shared())?;
    let scoring = start.elapsed().as_secs_f64();
    println!("{training} {scoring} {}", found.confidence.iter().sum::<f64>());
    Ok(())
}
