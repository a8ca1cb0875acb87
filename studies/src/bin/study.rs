//! Methods and detectors on one table, each class left out in turn: the studies behind `docs/default.md`.
//!
//! ```text
//! study default|best|networks|scores|rows|steps FOLDER LABEL FILE... [-- seeds=5]
//! study default gas-study first batch*.dat
//! ```
//!
//! `default` compares the presets with the usual scores, `networks` other networks and ways of training than the default's, `scores` other detectors on the default's networks,
//! `rows` fewer rows for its neighbors, `steps` budgets of steps. Seed `s` tests fold `s % 5` of 5. Results are appended to `FOLDER/cells.tsv` as they come, and a
//! run that was stopped goes on where it was. The table is printed as Markdown at the end, with the mean paired difference in AUROC to the first row and its standard error over
//! scenarios.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use mcdd::data::{ReadOptions, Table};
use mcdd::detector::Detect;
use mcdd::protocol::scenario;
use mcdd::train::optim::Schedule;
use mcdd::train::{OrOff, Preset, Run, Select, Settings};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What is compared: a name, and the settings.
type Contender = (String, Settings);

/// A method's network as the paper has it, with a detector.
fn plain(method: &str, detector: &str) -> Result<Contender, Failure> {
    let settings = Settings::builder().preset(Preset::Paper).method(method).detector(detector).select(Select::Last);
    Ok((format!("{method} | {detector}"), settings.schedule(Schedule::Cosine).build()?))
}

/// The presets, and the scores that everybody knows.
fn presets() -> Result<Vec<Contender>, Failure> {
    // Every network with its last epoch.
    let named = |p: Preset| {
        let mut settings = p.settings();
        settings.select = Select::Last;
        (format!("{} |", p.name()), settings)
    };
    let mut all: Vec<Contender> = [Preset::Best, Preset::Fast, Preset::Paper].map(named).into();
    for detector in ["distance", "mahalanobis", "rmd"] {
        all.push(plain("softmax", detector)?);
    }
    // On the inputs themselves no network is needed; gda is the method that has none.
    all.push(plain("gda", "knn:k=1:on=inputs")?);
    Ok(all)
}

/// Budgets of steps for one network of the default.
fn budgets() -> Vec<Contender> {
    let with = |steps: Option<usize>| {
        let mut settings = Preset::Fast.settings();
        settings.steps = steps;
        settings
    };
    let name = |steps: Option<usize>| format!("fast | {}", steps.map_or("no budget".into(), |s| format!("{s} steps")));
    [Some(1_000), Some(2_500), Some(5_000), Some(10_000), None].map(|s| (name(s), with(s))).into()
}

/// One network of the default, with one thing changed.
fn networks() -> Result<Vec<Contender>, Failure> {
    let fast = || Settings::builder().preset(Preset::Fast);
    // Epochs within the preset's maximum of steps, and a method with the preset's detector.
    let (steps, knn) = (10_000, "knn:k=1:log=true:rows=50000");
    let all = [
        ("as it is", fast()),
        ("nu 0.3", fast().nu(0.3)),
        ("nu 3", fast().nu(3.0)),
        ("latent 16", fast().latent(16)),
        ("latent 64", fast().latent(64)),
        ("hidden 64,64", fast().hidden([64, 64])),
        ("hidden 256,256", fast().hidden([256, 256])),
        ("hidden 128", fast().hidden([128])),
        ("hidden 128,128,128", fast().hidden([128, 128, 128])),
        ("50 epochs", fast().epochs(50).steps(steps)),
        ("200 epochs", fast().epochs(200).steps(steps)),
        ("lr 0.001", fast().lr(1e-3)),
        ("lr 0.01", fast().lr(1e-2)),
        ("batch 100", fast().batch(100)),
        ("batch 400", fast().batch(400)),
        ("weight decay 1e-4", fast().weight_decay(1e-4)),
        ("clip 3", fast().clip(3.0)),
        ("clip off", fast().clip(OrOff::Off)),
        ("batch norm off", fast().batch_norm(false)),
        ("softmax", fast().method("softmax").detector(knn)),
    ];
    all.into_iter().map(|(name, given)| Ok((format!("fast | {name}"), given.build()?))).collect()
}

/// Other detectors on the networks of the default.
fn scores() -> Result<Vec<Contender>, Failure> {
    let mut all = vec![("best | as it is".to_owned(), Preset::Best.settings())];
    for detector in [
        "distance",
        "knn:k=1",
        "knn:k=5:log=true",
        "knn:k=10:log=true",
        "knn:k=1:log=true:on=layers",
        "mahalanobis",
        "rmd",
        "gmm",
        "lof",
    ] {
        all.push((format!("best | {detector}"), Settings::builder().detector(detector).build()?));
    }
    Ok(all)
}

/// Fewer training rows kept for the neighbors of the default.
fn rows() -> Result<Vec<Contender>, Failure> {
    let mut all = vec![("best | as it is".to_owned(), Preset::Best.settings())];
    for rows in [20_000, 10_000, 5_000, 1_000] {
        let detector = format!("knn:k=1:log=true:rows={rows}");
        all.push((format!("best | {rows} rows"), Settings::builder().detector(detector).build()?));
    }
    for rows in [4_000, 2_000, 1_000, 500] {
        let detector = format!("knn:k=1:log=true:rows={rows}:spread=true");
        all.push((format!("best | {rows} rows, spread"), Settings::builder().detector(detector).build()?));
    }
    Ok(all)
}

/// A line of `cells.tsv`: name, class and seed, then what was measured.
type Key = (String, String, u64);

/// Names of what was measured, in the order of the file; seconds follow.
const MEASURED: [&str; 6] = ["accuracy", "TNR85", "TNR95", "AUROC", "AUPR", "det. acc."];
const AUROC: usize = 3;

fn read(path: &Path) -> BTreeMap<Key, Vec<f64>> {
    let mut cells = BTreeMap::new();
    for line in fs::read_to_string(path).unwrap_or_default().lines() {
        let parts: Vec<&str> = line.split('\t').collect();
        if let [name, class, seed, numbers @ ..] = parts.as_slice() {
            let numbers: Vec<f64> = numbers.iter().filter_map(|n| n.parse().ok()).collect();
            if let (Ok(seed), 7) = (seed.parse(), numbers.len()) {
                cells.insert((name.to_string(), class.to_string(), seed), numbers);
            }
        }
    }
    cells
}

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let cut = args.iter().position(|a| a == "--").unwrap_or(args.len());
    let usage = "usage: study default|best|networks|scores|rows|steps FOLDER LABEL FILE... [-- seeds=N]";
    let [list, folder, label, files @ ..] = &args[..cut] else { return Err(usage.into()) };
    let contenders = match list.as_str() {
        "default" => presets()?,
        "best" => vec![("best |".to_owned(), Preset::Best.settings())],
        "networks" => networks()?,
        "scores" => scores()?,
        "rows" => rows()?,
        "steps" => budgets(),
        _ => return Err(usage.into()),
    };
    let seeds = match args.get(cut + 1).map(|o| o.split_once('=')) {
        None => 1,
        Some(Some(("seeds", n))) => n.parse()?,
        Some(_) => return Err(usage.into()),
    };
    let folder = PathBuf::from(folder);
    fs::create_dir_all(&folder)?;
    let paths: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
    let table = Table::read(&paths, &ReadOptions { label: label.parse().unwrap_or_default(), ..Default::default() })?;
    let results = folder.join("cells.tsv");
    let done = read(&results);
    let out = Mutex::new(OpenOptions::new().create(true).append(true).open(&results)?);
    // A scenario at a time for each thread; its networks are trained once and kept for all detectors.
    let scenarios: Vec<(u64, &String)> = (0..seeds).flat_map(|s| table.classes().iter().map(move |c| (s, c))).collect();
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, Into::into);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((seed, class)) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let networks = folder.join(format!("networks-{}-{seed}", simple(class)));
                    for (name, settings) in &contenders {
                        let key = (name.clone(), class.to_string(), *seed);
                        if !done.contains_key(&key)
                            && let Err(e) = cell(&table, &key, settings, &networks, &out)
                        {
                            eprintln!("{name} without {class}, seed {seed}: {e}");
                        }
                    }
                    let _ = fs::remove_dir_all(&networks);
                }
            });
        }
    });
    print(&table, &contenders, seeds, &read(&results));
    Ok(())
}

/// A name that any file system takes.
fn simple(name: &str) -> String {
    name.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect()
}

fn cell(table: &Table, key: &Key, settings: &Settings, networks: &Path, out: &Mutex<fs::File>) -> Result<(), Failure> {
    let (name, class, seed) = key;
    let mut settings = settings.clone();
    settings.seed = *seed;
    // Members that are the same but for their number, and detectors, share networks.
    let mut network = settings.clone();
    (network.detector, network.preset, network.members) = (Detect::default(), Preset::Best, network.members.min(2));
    fs::create_dir_all(networks)?;
    let mut hash = DefaultHasher::new();
    serde_json::to_string(&network)?.hash(&mut hash);
    let checkpoint = Some(networks.join(format!("{:x}", hash.finish())));
    let run = Run { threads: 1, checkpoint, resume: true, ..Run::default() };
    let start = std::time::Instant::now();
    let s = scenario(table, class, *seed as usize % 5, 5, &settings, &run)?;
    let d = &s.detection;
    let measured = [s.accuracy.unwrap_or(f64::NAN), d.tnr85, d.tnr95, d.auroc, d.aupr_id, d.detection_accuracy];
    let numbers = measured.map(|v| format!("{v:.6}")).join("\t");
    let line = format!("{name}\t{class}\t{seed}\t{numbers}\t{:.2}\n", start.elapsed().as_secs_f64());
    if let Ok(mut out) = out.lock() {
        out.write_all(line.as_bytes())?;
    }
    Ok(())
}

/// Means over all scenarios, and the worst AUROC: of one scenario, and of a class on average over seeds.
fn print(table: &Table, contenders: &[Contender], seeds: u64, cells: &BTreeMap<Key, Vec<f64>>) {
    println!("| method | detector | {} | worst AUROC | worst class | difference |", MEASURED.join(" | "));
    println!("|{}", "---|".repeat(MEASURED.len() + 5));
    for (name, _) in contenders {
        let of = |class: &String| -> Vec<&Vec<f64>> {
            (0..seeds).filter_map(|s| cells.get(&(name.clone(), class.clone(), s))).collect()
        };
        let classes: Vec<Vec<&Vec<f64>>> = table.classes().iter().map(of).filter(|c| !c.is_empty()).collect();
        let all: Vec<&Vec<f64>> = classes.iter().flatten().copied().collect();
        let wanted = table.classes().len() * seeds as usize;
        if all.is_empty() {
            continue;
        }
        let mean = |cells: &[&Vec<f64>], i: usize| cells.iter().map(|n| n[i]).sum::<f64>() * 100.0 / cells.len() as f64;
        let shown = |v: f64| if v.is_nan() { "n/a".into() } else { format!("{v:.2}") };
        let means: Vec<String> = (0..MEASURED.len()).map(|i| shown(mean(&all, i))).collect();
        let worst = all.iter().map(|n| n[AUROC]).fold(1.0, f64::min) * 100.0;
        let class = classes.iter().map(|c| mean(c, AUROC)).fold(100.0, f64::min);
        let note = if all.len() < wanted { format!(" ({} of {wanted} scenarios)", all.len()) } else { String::new() };
        let first = &contenders[0].0;
        let difference = |(key, cell): (&Key, &Vec<f64>)| {
            Some(100.0 * (cell[AUROC] - cells.get(&(first.clone(), key.1.clone(), key.2))?[AUROC]))
        };
        let differences: Vec<f64> = cells.iter().filter(|(key, _)| key.0 == *name).filter_map(difference).collect();
        let name = if name.ends_with('|') { format!("{name} ") } else { name.clone() };
        let difference = mean_and_error(&differences);
        println!("| {name}{note} | {} | {worst:.2} | {class:.2} | {difference} |", means.join(" | "));
    }
}

/// A mean with its standard error.
fn mean_and_error(values: &[f64]) -> String {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    format!("{mean:+.2} ± {:.2}", (variance / n).sqrt())
}
