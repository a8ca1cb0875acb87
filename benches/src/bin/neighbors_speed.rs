//! How much faster the nearest row is found by boxes than by brute force, among the latents of a network.
//!
//! ```text
//! neighbors_speed shuttle.trn shuttle.tst [--label last] [--epochs 20] [--threads 1]
//! ```
//!
//! Trains one network with 32 latent features on the first file, and asks for neighbors of the latents of the second and
//! of normal noise through the same network. `knn:k=11` looks at all rows, as `knn:k=1` would without boxes.

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use mcdd::compute::pool::Pool;
use mcdd::data::{ReadOptions, Table};
use mcdd::detector::{DetectorConfig, Features, Fitted, Training};
use mcdd::model::Model;
use mcdd::seed::Stream;
use mcdd::train::Settings;

const LATENT: usize = 32;
const ROUNDS: usize = 7;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let value = |name: &str| args.iter().position(|a| a == name).and_then(|i| args.get(i + 1));
    let label = value("--label").map_or(Ok(Default::default()), |v| v.parse())?;
    let options = ReadOptions { label, ..ReadOptions::default() };
    let read = |i: usize| Table::read(&[PathBuf::from(args.get(i).map_or("", |v| v))], &options);
    let (train, test) = (read(1)?, read(2)?);
    let epochs = value("--epochs").map_or(Ok(20), |v| v.parse())?;
    let pool = Pool::new(value("--threads").map_or(Ok(1), |v| v.parse())?);
    let settings = Settings::builder().latent(LATENT).lr(0.003).epochs(epochs).steps(10_000).build()?;
    let model = Model::fit(&train, &settings)?;
    let latents = |x: &[f32]| model.latents(0, x).unwrap_or_default();

    let stored = latents(&model.schema().transform(&train, None)?);
    let mut s = Stream::new(0, "noise");
    let noise: Vec<f32> = (0..5000 * model.schema().width()).map(|_| s.normal() as f32).collect();
    let queries = [("test", latents(&model.schema().transform(&test, None)?)), ("noise", latents(&noise))];
    let rows = |x| Features { count: <[f32]>::len(x) / LATENT, features: x, logits: &[] };
    let fit = |config: &str| {
        let start = Instant::now();
        let training = Training { rows: rows(&stored), ..Training::default() };
        let fitted = Fitted::new(&DetectorConfig::parse(config)?, &training, &pool)?;
        Ok::<_, mcdd::Error>((fitted, start.elapsed().as_secs_f64()))
    };
    let (boxes, seconds) = fit("knn:k=1")?;
    let (brute, _) = fit("knn:k=11")?;
    println!("{} rows stored, fit {seconds:.3} s", stored.len() / LATENT);
    for (name, x) in &queries {
        let time = |fitted: &Fitted| {
            let start = Instant::now();
            fitted.score(&rows(x), &pool)?;
            Ok::<_, mcdd::Error>(start.elapsed().as_secs_f64() * 1e6 / (x.len() / LATENT) as f64)
        };
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let (near, all) = (time(&boxes)?, time(&brute)?);
            rounds.push((all / near, near, all));
        }
        rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (ratio, near, all) = rounds[ROUNDS / 2];
        let (least, most) = (rounds[0].0, rounds[ROUNDS - 1].0);
        println!("{name}: {near:.2} µs a query, all rows {all:.2} µs, ratio {ratio:.1} ({least:.1}-{most:.1})");
    }
    Ok(())
}
