//! The protocol for images: networks are trained on one set and tested on its test images and on other sets (the paper's
//! Tables 3 and 4).

use sha2::{Digest, Sha256};

use super::Method;
use super::caching::CachingEngine;
use super::grid::{Experiment, Group, Trial};
use super::results::About;
use crate::compute::pool::Pool;
use crate::data::Images;
use crate::data::sets::{Part, Set, thousands};
use crate::error::{Error, Result};
use crate::model::{FitResult, Model, Predictions};
use crate::net::NetName;
use crate::train::{DataKind, Examples, ImageRows, Preset, Run, Settings};

/// The images of a benchmark.
pub struct ImageSets {
    /// Training images.
    pub train: Images,
    /// Test images of the same classes.
    pub test: Images,
    /// Out-of-distribution sets with their names.
    pub ood: Vec<(String, Images)>,
    /// Computes the latents of an image once for all detectors of a network.
    engine: CachingEngine,
}

impl ImageSets {
    /// Images to train with, to test with, and out-of-distribution sets with their names.
    pub fn new(train: Images, test: Images, ood: Vec<(String, Images)>) -> ImageSets {
        ImageSets { train, test, ood, engine: CachingEngine::default() }
    }
}

impl Experiment for ImageSets {
    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn folds(&self) -> usize {
        1
    }

    fn groups(&self) -> Vec<Group> {
        vec![Group { fold: 0, name: "images".into(), ood: self.ood.iter().map(|(name, _)| name.clone()).collect() }]
    }

    fn trial(&self, _group: &Group, _seed: u64) -> Result<Box<dyn Trial + '_>> {
        Ok(Box::new(self))
    }

    fn long_running(&self) -> bool {
        true
    }
}

impl Trial for &ImageSets {
    fn fit(&self, settings: &Settings, run: &Run) -> Result<FitResult> {
        let run = Run { checkpoint: run.checkpoint.clone(), engine: &self.engine, ..*run };
        Model::fit_images(&self.train, settings, &run)
    }

    fn known(&self, model: &Model, pool: &Pool) -> Result<(Predictions, Vec<bool>)> {
        let known = predict(model, &self.test, pool)?;
        let name = |class: u32| model.classes().get(class as usize).map(String::as_str);
        let correct = known.class.iter().enumerate().map(|(i, &c)| self.test.label_name(i) == name(c)).collect();
        Ok((known, correct))
    }

    fn unknown(&self, model: &Model, ood: &str, pool: &Pool) -> Result<Predictions> {
        match self.ood.iter().find(|(name, _)| name == ood) {
            Some((_, images)) => predict(model, images, pool),
            None => Err(Error::data(format!("there is no set {ood:?}"))),
        }
    }
}

fn predict(model: &Model, images: &Images, pool: &Pool) -> Result<Predictions> {
    let Some(spec) = &model.schema().image else { return Err(Error::data("the model is not for images")) };
    let (rows, y): (Vec<usize>, Vec<u32>) = ((0..images.rows()).collect(), vec![0; images.rows()]);
    model.predict_examples(Examples::Images(ImageRows { images, rows: &rows, spec, y: &y }), pool)
}

/// The default methods, as in the paper. With a network that has presets, the best of these comes first.
const DEFAULT: [&str; 4] = ["best", "softmax+msp", "softmax+mahalanobis", "deep-mcdd"];

/// Methods by their names, with a network for images; other settings are as in training on images.
///
/// # Errors
/// If there is no such method, or it is not for images.
pub fn methods(names: &[String], net: NetName) -> Result<Vec<Method>> {
    let presets = matches!(net, NetName::Cnn { .. });
    let default = || DEFAULT[usize::from(!presets)..].iter().map(|n| (*n).to_owned()).collect();
    let names = if names.is_empty() { default() } else { names.to_vec() };
    let mut all = Method::list(&names)?;
    for method in &mut all {
        let preset = [Preset::Best, Preset::Fast].into_iter().find(|p| p.name() == method.name);
        if preset.is_some() && !presets {
            return Err(Error::setting(format!("{} is a preset for tables and for the network cnn", method.name))
                .hint(format!("give cnn as `net`, or other methods, e.g. {}", DEFAULT[1..].join(","))));
        }
        let builder = match preset {
            Some(preset) => Settings::builder().preset(preset),
            None => Method::builder(&method.name)?,
        };
        method.settings = builder.build_for(DataKind::Images(Some(net)))?;
    }
    Ok(all)
}

impl About {
    /// Describes sets of images.
    ///
    /// # Errors
    /// If a shape differs, or there is no OOD set.
    pub fn of_images(sets: &ImageSets, title: &str, set: Option<&'static Set>, net: NetName) -> Result<About> {
        let shape = sets.train.shape();
        let others = || sets.ood.iter().map(|(n, i)| (n.as_str(), i));
        if sets.ood.is_empty() {
            return Err(
                Error::setting("there is no set to compare with").hint("give names or folders of image sets as `ood`")
            );
        }
        if let Some((name, _)) = others().chain([("test", &sets.test)]).find(|(_, i)| i.shape() != shape) {
            return Err(Error::data(format!("the images of {name} have another size than the training images"))
                .hint("give them by their path, so that they are resized"));
        }
        let mut hash = Sha256::new();
        for (name, images) in [("train", &sets.train), ("test", &sets.test)].into_iter().chain(others()) {
            hash.update([name.as_bytes(), b"\0"].concat());
            hash.update(&images.pixels);
            hash.update(
                (0..images.rows()).flat_map(|r| images.label(r).unwrap_or(0).to_le_bytes()).collect::<Vec<u8>>(),
            );
        }
        let described = |rows: usize, part: Part| {
            let all = set.map_or(rows, |set| set.published(Some(part)));
            let of = if all == rows { String::new() } else { format!(" of {}", thousands(all)) };
            format!("{}{of} images to {part} with", thousands(rows))
        };
        let (train, test) = (described(sets.train.rows(), Part::Train), described(sets.test.rows(), Part::Test));
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
