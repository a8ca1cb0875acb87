//! Trains a network on some classes of a set of images and tries every detector on it against the classes that were left out:
//! the study behind the default for images in `docs/default.md`. Nothing but the training images is used.
//!
//! ```text
//! image_detection RESULTS.jsonl NAME TRAIN... [-- seeds=3 leave-out=3 images=2000 net=cnn epochs=8 method=softmax latent=64 ...]
//! image_detection RESULTS.jsonl NAME TRAIN... -- model=M.mcdd test=FILE ood=FILE ood=FILE    a trained model
//! image_detection RESULTS.jsonl                                                              prints the means over seeds
//! ```
//!
//! Seed `s` leaves out other classes, and a fifth of the images of the others for testing. `images` limits the number of training
//! images of a class, and `training=cnn` trains another network as a `cnn` is trained. With `ood=FILE` other images are scored too. A line of the
//! file is a network; lines that are there are not computed again.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use mcdd::compute::pool::Pool;
use mcdd::data::{ImageOptions, Images, Label};
use mcdd::detector::{Detect, Features, Fitted, LastLayer, Training};
use mcdd::head::posterior;
use mcdd::metrics::detection;
use mcdd::model::Model;
use mcdd::net::NetName;
use mcdd::seed::Stream;
use mcdd::train::{DataKind, Run, Settings, SettingsBuilder};
use serde::{Deserialize, Serialize};

type Failure = Box<dyn std::error::Error>;

/// The detectors that are tried, as far as a method allows them.
const DETECTORS: [&str; 16] = [
    "distance",
    "msp",
    "max-logit",
    "energy",
    "entropy",
    "gen",
    "kl-matching",
    "mahalanobis",
    "mahalanobis++",
    "rmd",
    "knn",
    "knn:k=50:normalize=true",
    "vim",
    "react",
    "fdbd",
    "nnguide",
];

#[derive(Serialize, Deserialize)]
struct Line {
    name: String,
    seed: u64,
    accuracy: f64,
    seconds: f64,
    /// AUROC by detector and unknown images, in percent.
    auroc: BTreeMap<String, BTreeMap<String, f64>>,
}

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let cut = args.iter().position(|a| a == "--").unwrap_or(args.len());
    let Some((file, data)) = args[..cut].split_first() else { return Err("usage: see the top of the source".into()) };
    if let [name, train @ ..] = data {
        run(file, name, train, args.get(cut + 1..).unwrap_or_default())?;
    }
    print(&fs::read_to_string(file)?)
}

fn read(paths: &[String], label: Label) -> Result<Images, Failure> {
    let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
    Ok(Images::read(&paths, &ImageOptions { label, ..ImageOptions::default() })?.0)
}

fn run(file: &str, name: &str, train: &[String], options: &[String]) -> Result<(), Failure> {
    let (mut seeds, mut leave_out, mut limit, mut net) = (0..3u64, 3, usize::MAX, "cnn".to_owned());
    let (mut model, mut test, mut ood, mut training) = (None, None, Vec::new(), None);
    let mut settings = SettingsBuilder::default();
    for option in options {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        match key {
            "seeds" => seeds = 0..value.parse()?,
            "seed" => seeds = value.parse()?..value.parse::<u64>()? + 1,
            "leave-out" => leave_out = value.parse()?,
            "images" => limit = value.parse()?,
            "net" => net = value.to_owned(),
            "training" => training = Some(NetName::parse(value)?),
            "model" => model = Some(Model::load(value)?),
            "test" => test = Some(read(&[value.to_owned()], Label::Auto)?),
            "ood" => ood.push((value.to_owned(), read(&[value.to_owned()], Label::None)?)),
            "method" => settings = settings.method(value),
            "epochs" => settings = settings.epochs(value.parse()?),
            "latent" => settings = settings.latent(value.parse()?),
            "nu" => settings = settings.nu(value.parse()?),
            "lr" => settings = settings.lr(value.parse()?),
            "batch" => settings = settings.batch(value.parse()?),
            "weight-decay" => settings = settings.weight_decay(value.parse()?),
            _ => return Err(format!("unknown option {option}").into()),
        }
    }
    let images = read(train, Label::Auto)?;
    let write = |line: Line| -> Result<(), Failure> {
        let mut out = OpenOptions::new().create(true).append(true).open(file)?;
        Ok(writeln!(out, "{}", serde_json::to_string(&line)?)?)
    };
    if let Some(model) = model {
        let (rows, _) = images.split_rows(model.settings().left_out(images.rows()), model.settings().seed)?;
        let test = test.ok_or("give test=FILE")?;
        return write(evaluate(name, &model, &images.select(&rows), &test, &ood, 0.0)?);
    }
    for seed in seeds {
        let done = fs::read_to_string(file).unwrap_or_default();
        let there = |l: &str| serde_json::from_str::<Line>(l).is_ok_and(|l| l.name == name && l.seed == seed);
        if done.lines().any(there) {
            continue;
        }
        let mut order: Vec<usize> = (0..images.classes().len()).collect();
        Stream::new(seed, "leave out").shuffle(&mut order);
        let out = &order[..leave_out];
        let (known, unknown) = (images.with_classes(|c| !out.contains(&c)), images.with_classes(|c| out.contains(&c)));
        let (rows, tested) = known.split_rows(0.2, seed)?;
        let mut counts = vec![0; known.classes().len()];
        let few = rows.into_iter().filter(|&r| {
            let count = &mut counts[known.label(r).unwrap_or(0) as usize];
            *count += 1;
            *count <= limit
        });
        let (known, test) = (known.select(&few.collect::<Vec<_>>()), known.select(&tested));
        let net = NetName::parse(&net)?;
        let mut settings: Settings =
            settings.clone().seed(seed).build_for(DataKind::Images(Some(training.unwrap_or(net))))?;
        settings.image.iter_mut().for_each(|image| image.net = net);
        let start = std::time::Instant::now();
        let model = Model::fit_images(&known, &settings, &Run::default())?.model;
        let seconds = start.elapsed().as_secs_f64();
        let (rows, _) = known.split_rows(settings.left_out(known.rows()), seed)?;
        // As many of each as there are test images.
        let sample = |images: &Images| {
            let step = (images.rows() / test.rows()).max(1);
            images.select(&(0..images.rows()).step_by(step).collect::<Vec<_>>())
        };
        let others = ood.iter().map(|(name, images)| (name.clone(), sample(images)));
        let ood: Vec<_> = std::iter::once(("left out".to_owned(), sample(&unknown))).chain(others).collect();
        write(evaluate(name, &model, &known.select(&rows), &test, &ood, seconds)?)?;
        eprintln!("{name}, seed {seed}: {seconds:.0} s");
    }
    Ok(())
}

/// Latents and logits of images.
struct Seen {
    z: Vec<f32>,
    logits: Vec<f64>,
    rows: usize,
}

impl Seen {
    fn of(model: &Model, images: &Images) -> Result<Seen, Failure> {
        let spec = model.schema().image.as_ref().ok_or("the model is not for images")?;
        let head = model.head(0).ok_or("the model has no head")?;
        let width = spec.shape().values();
        let block = |rows: std::ops::Range<usize>| {
            let mut z = Vec::new();
            for first in rows.clone().step_by(128) {
                let count = 128.min(rows.end - first);
                let mut x = vec![0.0; count * width];
                x.chunks_exact_mut(width)
                    .enumerate()
                    .for_each(|(i, to)| spec.transform_into(images.image(first + i), to));
                z.extend(model.latents(0, &x).unwrap_or_default());
            }
            z
        };
        let half = images.rows() / 2;
        let z: Vec<f32> = std::thread::scope(|scope| {
            let first = scope.spawn(|| block(0..half));
            let second = block(half..images.rows());
            [first.join().unwrap_or_default(), second].concat()
        });
        let (rows, k) = (images.rows(), head.classes());
        let (mut logits, mut distances) = (vec![0.0; rows * k], vec![0.0; k]);
        let latent = z.len() / rows.max(1);
        for (z, logits) in z.chunks_exact(latent).zip(logits.chunks_exact_mut(k)) {
            head.score(z, logits, &mut distances);
        }
        Ok(Seen { z, logits, rows })
    }

    fn features(&self) -> Features<'_> {
        Features { count: self.rows, features: &self.z, logits: &self.logits }
    }
}

fn evaluate(
    name: &str,
    model: &Model,
    train: &Images,
    test: &Images,
    ood: &[(String, Images)],
    seconds: f64,
) -> Result<Line, Failure> {
    let head = model.head(0).ok_or("the model has no head")?;
    let pool = Pool::new(std::thread::available_parallelism().map_or(1, Into::into));
    let (trained, tested) = (Seen::of(model, train)?, Seen::of(model, test)?);
    let unknown = ood.iter().map(|(_, images)| Seen::of(model, images)).collect::<Result<Vec<_>, _>>()?;
    let labels: Vec<u32> = (0..train.rows()).map(|r| train.label(r).unwrap_or(0)).collect();
    let (classes, latent) = (head.classes(), trained.z.len() / trained.rows.max(1));
    let mut auroc: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    for spec in DETECTORS {
        let detect = Detect::parse(spec)?;
        if detect.check(&model.settings().head).is_err() {
            continue;
        }
        let own = |seen: &Seen| -> Vec<f64> {
            let (mut logits, mut distances) = (vec![0.0; classes], vec![0.0; classes]);
            seen.z.chunks_exact(latent).map(|z| head.score(z, &mut logits, &mut distances)).collect()
        };
        let needs = mcdd::detector::FitDetector::about(&detect.detector).needs;
        let pick = |seen: &Seen| -> Seen {
            let logits = if needs.logits { seen.logits.clone() } else { Vec::new() };
            Seen { z: if needs.features { seen.z.clone() } else { Vec::new() }, logits, rows: seen.rows }
        };
        let scores: Vec<Vec<f64>> = if detect.is_own() {
            std::iter::once(&tested).chain(&unknown).map(own).collect()
        } else {
            let picked = pick(&trained);
            let last_layer = head.last_layer().map(|(weight, bias)| LastLayer { weight, bias });
            let widths = [latent];
            let training = Training {
                rows: picked.features(),
                labels: Some(&labels),
                classes,
                parts: if needs.features { &widths } else { &[] },
                last_layer: last_layer.filter(|_| needs.linear),
                seed: 0,
            };
            let fitted = Fitted::new(&detect.detector, &training, &pool)?;
            let score = |seen: &Seen| fitted.score(&pick(seen).features(), &pool);
            std::iter::once(&tested).chain(&unknown).map(score).collect::<Result<_, _>>()?
        };
        for ((name, _), unknown) in ood.iter().zip(&scores[1..]) {
            let value = 100.0 * detection(&scores[0], unknown)?.auroc;
            auroc.entry(spec.into()).or_default().insert(name.clone(), value);
        }
    }
    let mut right = 0;
    for (row, logits) in tested.logits.chunks_exact(classes).enumerate() {
        let mut p = logits.to_vec();
        posterior(&mut p);
        let best = (0..classes).fold(0, |b, k| if p[k] > p[b] { k } else { b });
        right += usize::from(test.label_name(row) == model.classes().get(best).map(String::as_str));
    }
    let accuracy = 100.0 * right as f64 / tested.rows as f64;
    Ok(Line { name: name.into(), seed: model.settings().seed, accuracy, seconds, auroc })
}

/// The means over seeds, a line for each network and a column for each detector.
fn print(text: &str) -> Result<(), Failure> {
    let lines: Vec<Line> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let mut names: Vec<&str> = Vec::new();
    lines.iter().for_each(|l| {
        if !names.contains(&l.name.as_str()) {
            names.push(&l.name)
        }
    });
    for name in names {
        let of: Vec<&Line> = lines.iter().filter(|l| l.name == name).collect();
        let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let accuracy = mean(of.iter().map(|l| l.accuracy).collect());
        println!(
            "{name} ({} seeds): accuracy {accuracy:.2}, {:.0} s",
            of.len(),
            mean(of.iter().map(|l| l.seconds).collect())
        );
        for detector in DETECTORS.iter().filter(|d| of[0].auroc.contains_key(**d)) {
            let sets = of[0].auroc[*detector].keys();
            let cells = sets.map(|set| {
                let values: Vec<f64> = of.iter().filter_map(|l| l.auroc.get(*detector)?.get(set).copied()).collect();
                format!("{set} {:.2}", mean(values))
            });
            println!("  {detector:<26} {}", cells.collect::<Vec<_>>().join("  "));
        }
    }
    Ok(())
}
