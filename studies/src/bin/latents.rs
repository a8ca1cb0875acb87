//! Trains a preset without each class of a table and writes what its networks make of all rows: the first half of the
//! study of scores in `docs/default.md`, which `scripts/score_variants.py` goes on with.
//!
//! ```text
//! latents FOLDER LABEL FILE... [-- seeds=5 preset=best members=5 steps=10000 nu=1 latent=32 ...]
//! ```
//!
//! Seed `s` tests fold `s % 5` of 5. Each scenario has a folder `CLASS-SEED` with `meta.json` and arrays by rows: `x.f32`
//! (inputs), `z.f32` (latents, member by member), `p.f64` (posteriors), `d.f64` (distances to the classes, mean over members),
//! `y.u32`; the rows are those trained on, held out, tested and left out, in this order. A folder that is there is skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use mcdd::data::{ReadOptions, Table};
use mcdd::detector::Detect;
use mcdd::head::HeadConfig;
use mcdd::model::Model;
use mcdd::train::{Preset, Run, Settings};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let cut = args.iter().position(|a| a == "--").unwrap_or(args.len());
    let [folder, label, files @ ..] = &args[..cut] else {
        return Err("usage: latents FOLDER LABEL FILE... [-- NAME=VALUE...]".into());
    };
    let paths: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
    let table = Table::read(&paths, &ReadOptions { label: label.parse().unwrap_or_default(), ..Default::default() })?;
    let mut settings = Preset::Best.settings();
    let mut seeds = 0..5u64;
    for option in args.iter().skip(cut + 1) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name {
            "seeds" => seeds = 0..value.parse()?,
            "seed" => seeds = value.parse()?..value.parse::<u64>()? + 1,
            "preset" => {
                settings = Preset::ALL.into_iter().find(|p| p.name() == value).ok_or("no such preset")?.settings();
            }
            "method" => settings.head = HeadConfig::parse(value)?,
            "members" => settings.members = value.parse()?,
            "steps" => settings.steps = value.parse().ok(),
            "epochs" => settings.epochs = value.parse()?,
            "latent" => settings.latent = value.parse()?,
            "hidden" => settings.hidden = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "lr" => settings.lr = value.parse()?,
            "batch" => settings.batch = value.parse()?,
            "clip" => settings.clip = value.parse().ok(),
            "batch-norm" => settings.batch_norm = value == "on",
            "weight-decay" => settings.weight_decay = value.parse()?,
            _ => return Err(format!("unknown option {option}").into()),
        }
    }
    settings.detector = Detect::parse("distance")?;
    let jobs: Vec<(u64, &String)> = seeds.flat_map(|s| table.classes().iter().map(move |c| (s, c))).collect();
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, Into::into);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(&(seed, class)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut settings = settings.clone();
                    settings.seed = seed;
                    if let Err(e) = scenario(&table, class, &settings, Path::new(folder)) {
                        eprintln!("{class}, seed {seed}: {e}");
                    }
                }
            });
        }
    });
    Ok(())
}

fn scenario(table: &Table, class: &str, settings: &Settings, folder: &Path) -> Result<(), Failure> {
    let place = folder.join(format!("{class}-{}", settings.seed));
    if place.join("meta.json").exists() {
        return Ok(());
    }
    let (known, unknown) = table.leave_out(class)?;
    let test_rows = known.folds(5, settings.seed)[settings.seed as usize % 5].clone();
    let train_rows: Vec<usize> = (0..known.rows()).filter(|r| test_rows.binary_search(r).is_err()).collect();
    let (train, test) = (known.select(&train_rows), known.select(&test_rows));
    let start = std::time::Instant::now();
    let model = Model::fit_with(&train, settings, &Run { threads: 1, ..Run::default() })?.model;
    let seconds = start.elapsed().as_secs_f64();
    let (fit_rows, held_rows) = train.split_rows(settings.left_out(train.rows()), settings.seed)?;
    let parts = [train.select(&fit_rows), train.select(&held_rows), test, unknown];
    let (mut x, mut p, mut d, mut y) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (i, part) in parts.iter().enumerate() {
        x.extend(model.schema().transform(part, None)?);
        let predicted = model.predict(part)?;
        p.extend(predicted.posterior);
        d.extend(predicted.distance);
        y.extend((0..part.rows()).map(|r| if i < 3 { part.label(r).unwrap_or(u32::MAX) } else { u32::MAX }));
    }
    let z: Vec<f32> = (0..model.members()).flat_map(|m| model.latents(m, &x).unwrap_or_default()).collect();
    fs::create_dir_all(&place)?;
    let f32s = |v: &[f32]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let f64s = |v: &[f64]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    fs::write(place.join("x.f32"), f32s(&x))?;
    fs::write(place.join("z.f32"), f32s(&z))?;
    fs::write(place.join("p.f64"), f64s(&p))?;
    fs::write(place.join("d.f64"), f64s(&d))?;
    fs::write(place.join("y.u32"), y.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())?;
    let meta = serde_json::json!({
        "rows": parts.iter().map(Table::rows).collect::<Vec<_>>(), "classes": model.classes().len(),
        "width": model.schema().width(), "latent": settings.latent, "members": model.members(), "seconds": seconds,
    });
    fs::write(place.join("meta.json"), meta.to_string())?;
    Ok(())
}
