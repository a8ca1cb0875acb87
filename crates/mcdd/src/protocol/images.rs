//! Networks for images: trained on one set, shown its test images and those of other sets (the paper's Tables 3 and 4).

use std::fs;
use std::path::Path;
use std::time::Instant;

use sha2::{Digest, Sha256};

use super::grid::{Outcome, Spectator, clear, hash, network, networks_folder};
use super::results::{About, Cell, Results};
use super::{Method, Scenario};
use crate::compute::pool::Pool;
use crate::data::Images;
use crate::data::sets::{Part, Set, thousands};
use crate::error::{Error, Kind, Result};
use crate::head::HeadConfig;
use crate::metrics;
use crate::model::{Model, Predictions};
use crate::net::NetName;
use crate::train::{Callback, Epoch, Examples, IMAGE_NU, ImageRows, Run, Settings};

/// The images of a study.
pub struct ImageSets {
    /// What networks are trained on.
    pub train: Images,
    /// Test images of the same classes.
    pub test: Images,
    /// Other sets, with their names.
    pub ood: Vec<(String, Images)>,
}

/// Methods x seeds x sets.
pub struct ImageGrid {
    /// With their settings for images.
    pub methods: Vec<Method>,
    /// Seeds 0 to one less, 1 or more.
    pub seeds: u64,
    /// Whether cells that have failed are tried again.
    pub retry: bool,
}

/// What is compared without a wish, as in the paper.
const USUAL: [&str; 3] = ["softmax+msp", "softmax+mahalanobis", "deep-mcdd"];

/// Methods by their names, with a network for images; Deep-MCDD has a nu of 0.1 where its name has none.
///
/// # Errors
/// If there is no such method, or it is not for images.
pub fn methods(names: &[String], net: NetName) -> Result<Vec<Method>> {
    let usual = || USUAL.map(str::to_owned).to_vec();
    let names = if names.is_empty() { usual() } else { names.to_vec() };
    let mut all = Method::list(&names)?;
    for method in &mut all {
        if ["best", "fast"].contains(&method.name.as_str()) {
            return Err(Error::setting(format!("{} is a preset for tables, not for images", method.name))
                .hint(format!("give other methods, e.g. {}", USUAL.join(","))));
        }
        let images = Settings::for_images(net);
        let mut head = method.settings.head.clone();
        let named = method.name.split('+').next().is_some_and(|name| name.contains(":nu="));
        if let (HeadConfig::DeepMcdd { nu, .. }, false) = (&mut head, named) {
            *nu = IMAGE_NU;
        }
        let (detector, select) = (method.settings.detector.clone(), method.settings.select);
        method.settings = Settings { head, detector, select, ..images };
        method.settings.check()?;
    }
    Ok(all)
}

impl About {
    /// Describes sets of images.
    ///
    /// # Errors
    /// If a shape differs, or there is nothing to compare with.
    pub fn of_images(sets: &ImageSets, title: &str, set: Option<&'static Set>, net: NetName) -> Result<About> {
        let shape = sets.train.shape();
        let others = || sets.ood.iter().map(|(n, i)| (n.as_str(), i));
        if sets.ood.is_empty() {
            return Err(Error::setting("there is no set to compare with").hint("give --ood NAME,…"));
        }
        if let Some((name, _)) = others().chain([("test", &sets.test)]).find(|(_, i)| i.shape() != shape) {
            return Err(Error::data(format!("the images of {name} have another size than those in training"))
                .hint("give them by their path, so that they are made to fit"));
        }
        let mut hash = Sha256::new();
        for (name, images) in [("train", &sets.train), ("test", &sets.test)].into_iter().chain(others()) {
            hash.update([name.as_bytes(), b"\0"].concat());
            hash.update(&images.pixels);
            hash.update(
                (0..images.rows()).flat_map(|r| images.label(r).unwrap_or(0).to_le_bytes()).collect::<Vec<u8>>(),
            );
        }
        let told = |rows: usize, part: Part| {
            let all = set.map_or(rows, |set| set.published(Some(part)));
            let of = if all == rows { String::new() } else { format!(" of {}", thousands(all)) };
            format!("{}{of} images to {part} with", thousands(rows))
        };
        let (train, test) = (told(sets.train.rows(), Part::Train), told(sets.test.rows(), Part::Test));
        Ok(About {
            title: title.to_owned(),
            set: set.map(|set| set.name.to_owned()),
            coverage: format!("{title}: {train}, {test}; {net}"),
            classes: sets.ood.iter().map(|(name, images)| (name.clone(), images.rows())).collect(),
            sha256: crate::container::hex(&hash.finalize()),
            net: Some(net.to_string()),
        })
    }
}

impl ImageGrid {
    /// Does what is missing in `results`: a network at a time, on all threads. A network that is stopped goes on from its
    /// last epoch.
    ///
    /// # Errors
    /// If the results cannot be written, or are of other settings. A cell that fails is a result.
    pub fn run(
        &self,
        sets: &ImageSets,
        results: &mut Results,
        folder: &Path,
        threads: usize,
        spectator: &dyn Spectator,
    ) -> Result<Outcome> {
        if self.seeds == 0 || self.methods.is_empty() {
            return Err(Error::setting("there is nothing to do").hint("give methods, and one seed or more"));
        }
        self.methods.iter().try_for_each(|m| results.check(m))?;
        let total = self.methods.len() * self.seeds as usize * sets.ood.len();
        spectator.begin(self.outcome(sets, results, total)?.done, total, results);
        for seed in 0..self.seeds {
            let networks = networks_folder(folder, seed, 0, "images");
            for method in &self.methods {
                let mut missing = Vec::new();
                for (name, images) in &sets.ood {
                    match results.find(method, name, 0, seed)? {
                        Some(cell) if !self.retry || cell.error.is_none() => {}
                        _ => missing.push((name, images)),
                    }
                }
                if missing.is_empty() {
                    continue;
                }
                let settings = Settings { seed, ..method.settings.clone() };
                fs::create_dir_all(&networks).map_err(|e| Error::io(e, &networks))?;
                let checkpoint = Some(networks.join(format!("{:x}", hash(&network(method)))));
                let run = Run {
                    threads,
                    checkpoint,
                    resume: true,
                    callback: &Watcher { spectator, method },
                    ..Run::default()
                };
                let start = Instant::now();
                let fitted = Model::fit_images(&sets.train, &settings, &run);
                let trained = start.elapsed().as_secs_f64();
                let pool = Pool::new(threads);
                let model = match fitted {
                    // Its checkpoints stay, and the same command goes on from them.
                    Ok(fitted) if fitted.interrupted => return self.outcome(sets, results, total),
                    Ok(fitted) => Ok(fitted.model),
                    Err(e) if e.kind() == Kind::Io => return Err(e),
                    Err(e) => Err(e),
                };
                let known = model
                    .as_ref()
                    .map_err(ToString::to_string)
                    .and_then(|m| score(m, &sets.test, &pool).map_err(|e| e.to_string()));
                for (i, (name, images)) in missing.into_iter().enumerate() {
                    let start = Instant::now();
                    let measured = match (&model, &known) {
                        (Ok(model), Ok(known)) => compare(model, known, sets, images, &pool).map_err(|e| e.to_string()),
                        (Err(e), _) => Err(e.to_string()),
                        (_, Err(e)) => Err(e.clone()),
                    };
                    let seconds = [if i == 0 { trained } else { 0.0 }, start.elapsed().as_secs_f64()];
                    let (measured, error) = match measured {
                        Ok(measured) => (Some(measured), None),
                        Err(e) => (None, Some(e)),
                    };
                    let cell = Cell {
                        data: results.about().sha256.clone(),
                        method: method.name.clone(),
                        ood: name.clone(),
                        fold: 0,
                        folds: 1,
                        seed,
                        measured,
                        error,
                        seconds: seconds.map(|s| (s * 1e3).round() / 1e3),
                        settings: settings.clone(),
                        version: env!("CARGO_PKG_VERSION").to_owned(),
                    };
                    results.add(cell.clone())?;
                    spectator.done(&cell);
                }
            }
        }
        clear(folder);
        self.outcome(sets, results, total)
    }

    fn outcome(&self, sets: &ImageSets, results: &Results, total: usize) -> Result<Outcome> {
        let mut outcome = Outcome { total, ..Outcome::default() };
        for seed in 0..self.seeds {
            for (method, (name, _)) in self.methods.iter().flat_map(|m| sets.ood.iter().map(move |o| (m, o))) {
                if let Some(cell) = results.find(method, name, 0, seed)? {
                    outcome.done += 1;
                    outcome.failed += usize::from(cell.error.is_some());
                }
            }
        }
        Ok(outcome)
    }
}

/// Passes on what training says, and stops it when the whole is stopped.
struct Watcher<'a> {
    spectator: &'a dyn Spectator,
    method: &'a Method,
}

impl Callback for Watcher<'_> {
    fn notices(&self, notices: &[String]) {
        self.spectator.notices(notices);
    }

    fn epoch(&self, _member: usize, epoch: &Epoch) {
        self.spectator.epoch(&self.method.name, epoch, self.method.settings.epochs);
    }

    fn stop(&self) -> bool {
        self.spectator.stop()
    }
}

fn score(model: &Model, images: &Images, pool: &Pool) -> Result<Predictions> {
    let Some(spec) = &model.schema().image else { return Err(Error::data("the model reads no images")) };
    let (rows, y): (Vec<usize>, Vec<u32>) = ((0..images.rows()).collect(), vec![0; images.rows()]);
    model.predict_examples(Examples::Images(ImageRows { images, rows: &rows, spec, y: &y }), pool)
}

fn compare(model: &Model, known: &Predictions, sets: &ImageSets, other: &Images, pool: &Pool) -> Result<Scenario> {
    let name = |class: u32| model.classes().get(class as usize).map(String::as_str);
    let right: Vec<bool> = known.class.iter().enumerate().map(|(i, &c)| sets.test.label_name(i) == name(c)).collect();
    let accuracy = if model.classifies() { Some(metrics::accuracy(&right)?.accuracy) } else { None };
    let unknown = score(model, other, pool)?;
    Ok(Scenario { accuracy, detection: metrics::detection(&known.confidence, &unknown.confidence)? })
}
