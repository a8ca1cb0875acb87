//! Times the fit and the scores of a detector; `benches/peers/detectors.py` runs it.
//!
//! ```text
//! detector_speed --detector knn:k=5 --data DIRECTORY --threads 2 [--scores FILE]
//! ```
//!
//! The directory holds `train.npy` and `test.npy` (f32, by rows) and `labels.npy` (u32, one for each training row). It
//! prints the seconds of one fit and of scoring all test rows as JSON; the scores go to FILE as f64, as they lie in
//! memory.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use mcdd::compute::pool::Pool;
use mcdd::detector::{DetectorConfig, Features, Fitted, Training};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let value = |name: &str| args.iter().position(|a| a == name).and_then(|i| args.get(i + 1));
    let directory = Path::new(value("--data").ok_or("--data is missing")?);
    let config = DetectorConfig::parse(value("--detector").ok_or("--detector is missing")?)?;
    let pool = Pool::new(value("--threads").map_or(Ok(2), |v| v.parse())?);

    let (train, width) = numbers(&directory.join("train.npy"), "<f4", f32::from_le_bytes)?;
    let (test, _) = numbers(&directory.join("test.npy"), "<f4", f32::from_le_bytes)?;
    let (labels, _) = numbers(&directory.join("labels.npy"), "<u4", u32::from_le_bytes)?;
    let training = Training {
        rows: Features { count: train.len() / width, features: &train, logits: &[] },
        labels: Some(&labels),
        classes: labels.iter().max().map_or(0, |&y| y as usize + 1),
        ..Training::default()
    };

    let start = Instant::now();
    let fitted = Fitted::new(&config, &training, &pool)?;
    let fit = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let scores = fitted.score(&Features { count: test.len() / width, features: &test, logits: &[] }, &pool)?;
    let score = start.elapsed().as_secs_f64();
    println!("{{\"fit\": {fit:.6}, \"score\": {score:.6}}}");
    if let Some(file) = value("--scores") {
        std::fs::write(file, scores.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())?;
    }
    Ok(())
}

/// The numbers of a .npy file of one or two dimensions, and the length of its rows.
fn numbers<T>(file: &Path, kind: &str, read: fn([u8; 4]) -> T) -> Result<(Vec<T>, usize), Box<dyn Error>> {
    let bytes = std::fs::read(file)?;
    let length = bytes.get(8..10).map_or(0, |b| usize::from(b[0]) + 256 * usize::from(b[1]));
    let (header, data) = bytes.split_at_checked(10 + length).ok_or("a .npy file is cut off")?;
    let header = String::from_utf8_lossy(&header[10..]);
    if !header.contains(kind) || header.contains("'fortran_order': True") {
        return Err(format!("{} is not {kind} by rows", file.display()).into());
    }
    let shape = header.split(['(', ')']).nth(1).unwrap_or_default();
    let width = shape.split(',').nth(1).and_then(|v| v.trim().parse().ok()).unwrap_or(1);
    Ok((data.as_chunks::<4>().0.iter().map(|&b| read(b)).collect(), width))
}
