//! From the values that a user gives to [`Settings`]: the one place that decides defaults.

use std::str::FromStr;

use serde::Serialize;

use super::{CNN_NU, IMAGE_NU, Preset, Select, Settings};
use crate::detector::Detect;
use crate::error::{Error, Result};
use crate::head::{HeadConfig, Loop, Sigma};
use crate::net::NetName;
use crate::spec;
use crate::train::optim::{Optimizer, Schedule};

/// The kind of data that a model is trained on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataKind {
    /// A table.
    #[default]
    Table,
    /// Images, with the network that reads them; `None` takes the preset's.
    Images(Option<NetName>),
}

impl DataKind {
    /// The kind of data for a network's name: tables for `mlp`, images for all others. Without a name it is that of the data:
    /// `images` says whether they are images.
    ///
    /// # Errors
    /// If there is no such network.
    pub fn from_net(name: Option<&str>, images: bool) -> Result<DataKind> {
        match name {
            Some("mlp") => Ok(DataKind::Table),
            None => Ok(if images { DataKind::Images(None) } else { DataKind::Table }),
            Some(name) => NetName::parse(name).map(|net| DataKind::Images(Some(net))),
        }
    }
}

/// How much of a network's random augmentation is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Augmentation {
    /// All of it.
    On,
    /// Images are moved, but not flipped: for digits and text.
    Move,
    /// None.
    Off,
}

/// A value, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrOff<T> {
    /// On, with this value.
    Value(T),
    /// Off.
    Off,
}

impl<T> From<T> for OrOff<T> {
    fn from(value: T) -> Self {
        OrOff::Value(value)
    }
}

impl<T> From<OrOff<T>> for Option<T> {
    fn from(value: OrOff<T>) -> Self {
        match value {
            OrOff::Value(value) => Some(value),
            OrOff::Off => None,
        }
    }
}

impl<T: FromStr> FromStr for OrOff<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        if text == "off" { Ok(OrOff::Off) } else { text.parse().map(OrOff::Value) }
    }
}

impl Optimizer {
    /// SGD with Nesterov momentum 0.9.
    pub const fn sgd() -> Optimizer {
        Optimizer::Sgd { momentum: 0.9 }
    }
}

impl Schedule {
    /// A tenth of the learning rate after half of the run, and a hundredth after three quarters.
    pub fn steps() -> Schedule {
        Schedule::Steps { at: vec![0.5, 0.75], factor: 0.1 }
    }
}

/// Settings as far as they are given; [`build`](Self::build) fills in the others and checks every range.
///
/// Values resolve in this order: the preset, the kind of data, the method, then each value that was given. A method
/// given by name brings its own score unless a detector is given too, and `epochs` lifts the maximum number of steps
/// unless `steps` is given too.
///
/// ```
/// use mcdd::train::{OrOff, Preset, Settings};
///
/// # fn main() -> mcdd::Result<()> {
/// let settings = Settings::builder().preset(Preset::Fast).epochs(20).clip(OrOff::Off).build()?;
/// assert_eq!((settings.members, settings.steps, settings.clip), (1, None, None));
///
/// let error = Settings::builder().lr(0.0).build().unwrap_err();
/// assert_eq!(error.to_string(), "`lr` is 0");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct SettingsBuilder {
    preset: Option<Preset>,
    method: Option<String>,
    detector: Option<String>,
    nu: Option<f64>,
    sigma: Option<Sigma>,
    hidden: Option<Vec<usize>>,
    latent: Option<usize>,
    batch_norm: Option<bool>,
    clip: Option<OrOff<f64>>,
    bins: Option<OrOff<usize>>,
    members: Option<usize>,
    epochs: Option<usize>,
    steps: Option<OrOff<usize>>,
    batch: Option<usize>,
    lr: Option<f64>,
    optimizer: Option<Optimizer>,
    momentum: Option<f64>,
    weight_decay: Option<f64>,
    schedule: Option<Schedule>,
    step_at: Option<Vec<f64>>,
    step_factor: Option<f64>,
    select: Option<Select>,
    patience: Option<usize>,
    calibration_fraction: Option<f64>,
    per_class: Option<bool>,
    tpr: Option<f64>,
    seed: Option<u64>,
    augment: Option<Augmentation>,
    test_flips: Option<bool>,
    warmup: Option<f64>,
    freeze: Option<bool>,
}

/// Setters that store their argument.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)*) => {
        $($(#[$doc])* pub fn $name(mut self, $name: $type) -> Self {
            self.$name = Some($name.into());
            self
        })*
    };
}

impl SettingsBuilder {
    setters! {
        /// Base configuration; the others override it [default: best].
        preset: Preset;
        /// Method by name, with settings as `:key=value`, e.g. `deep-mcdd:nu=0.1` [default: deep-mcdd].
        method: impl Into<String>;
        /// Detector by name, with settings as `:key=value`, e.g. `knn:k=10:on=inputs` [default: the preset's, or the
        /// method's own score if a method is given].
        detector: impl Into<String>;
        /// `nu` of the method [default: 1 for Deep-MCDD on tables, 0.03 with the network `cnn`, 0.1 with other
        /// networks for images].
        nu: f64;
        /// Deep-MCDD's deviations, fixed or learned [default: fixed at one].
        sigma: Sigma;
        /// [`Settings::hidden`], for tables.
        hidden: impl Into<Vec<usize>>;
        /// [`Settings::latent`] for tables, [`ImageSettings::latent`](super::ImageSettings::latent) for images.
        latent: usize;
        /// [`Settings::batch_norm`], for tables.
        batch_norm: bool;
        /// [`Settings::clip`], for tables.
        clip: impl Into<OrOff<f64>>;
        /// [`Settings::bins`], for tables.
        bins: impl Into<OrOff<usize>>;
        /// [`Settings::members`].
        members: usize;
        /// [`Settings::epochs`].
        epochs: usize;
        /// [`Settings::steps`] [default: off if `epochs` is given].
        steps: impl Into<OrOff<usize>>;
        /// [`Settings::batch`].
        batch: usize;
        /// [`Settings::lr`].
        lr: f64;
        /// [`Settings::optimizer`].
        optimizer: Optimizer;
        /// Nesterov momentum of SGD.
        momentum: f64;
        /// [`Settings::weight_decay`].
        weight_decay: f64;
        /// [`Settings::schedule`].
        schedule: Schedule;
        /// Fractions of the run at which [`Schedule::Steps`] multiplies the learning rate.
        step_at: impl Into<Vec<f64>>;
        /// Factor of [`Schedule::Steps`].
        step_factor: f64;
        /// [`Settings::select`].
        select: Select;
        /// [`Settings::patience`].
        patience: usize;
        /// [`Settings::calibration_fraction`].
        calibration_fraction: f64;
        /// [`Settings::per_class`].
        per_class: bool;
        /// [`Settings::tpr`].
        tpr: f64;
        /// [`Settings::seed`].
        seed: u64;
        /// [`ImageSettings::augment`](super::ImageSettings::augment), for images [default: on].
        augment: Augmentation;
        /// [`ImageSettings::test_flips`](super::ImageSettings::test_flips), for images [default: on for `cnn`, if images are
        /// flipped in training].
        test_flips: bool;
        /// [`ImageSettings::warmup`](super::ImageSettings::warmup), for images.
        warmup: f64;
        /// [`ImageSettings::frozen`](super::ImageSettings::frozen), for images.
        freeze: bool;
    }

    /// Calls a setter if there is a value: for front ends whose options may be absent.
    pub fn maybe<T>(self, value: Option<T>, set: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => set(self, value),
            None => self,
        }
    }

    /// The settings for a table.
    ///
    /// # Errors
    /// If a value is out of range, or does not fit the others.
    pub fn build(&self) -> Result<Settings> {
        self.build_for(DataKind::Table)
    }

    /// The settings for this kind of data.
    ///
    /// # Errors
    /// If a value is out of range, does not fit the others, or is for the other kind of data.
    pub fn build_for(&self, kind: DataKind) -> Result<Settings> {
        let mut settings = match kind {
            DataKind::Table => self.for_table()?,
            DataKind::Images(net) => self.for_images(net)?,
        };
        self.choose_method(&mut settings)?;
        self.adapt_head(&mut settings.head)?;
        self.override_values(&mut settings);
        settings.optimizer = self.choose_optimizer(settings.optimizer)?;
        settings.schedule = self.choose_schedule(settings.schedule)?;
        settings.check()?;
        Ok(settings)
    }

    fn for_table(&self) -> Result<Settings> {
        let given = [
            ("augment", self.augment.is_some()),
            ("test_flips", self.test_flips.is_some()),
            ("warmup", self.warmup.is_some()),
            ("freeze", self.freeze.is_some()),
        ];
        if let Some((name, _)) = given.iter().find(|(_, given)| *given) {
            return Err(Error::setting(format!("`{name}` is for images"))
                .hint(format!("leave out `{name}`, or give a `net` for images, e.g. cnn")));
        }
        Ok(self.preset.unwrap_or_default().settings())
    }

    fn for_images(&self, net: Option<NetName>) -> Result<Settings> {
        let given = [
            ("hidden", self.hidden.is_some()),
            ("batch_norm", self.batch_norm.is_some()),
            ("clip", self.clip.is_some()),
            ("bins", self.bins.is_some()),
        ];
        if let Some((name, _)) = given.iter().find(|(_, given)| *given) {
            return Err(Error::setting(format!("`{name}` is for tables")).hint(format!("leave out `{name}`")));
        }
        let preset = self.preset.unwrap_or_default();
        let own = if preset == Preset::Paper { "resnet34" } else { "cnn" };
        let mut settings = Settings::for_images(net.map_or_else(|| NetName::parse(own), Ok)?, preset)?;
        if let Some(image) = &mut settings.image {
            match self.augment {
                None | Some(Augmentation::On) => {}
                Some(Augmentation::Move) => image.augment.iter_mut().for_each(|a| a.flip = false),
                Some(Augmentation::Off) => image.augment = None,
            }
            let flips = image.augment.is_some_and(|a| a.flip);
            image.test_flips = self.test_flips.unwrap_or(image.test_flips && flips);
            image.warmup = self.warmup.unwrap_or(image.warmup);
            image.frozen = self.freeze.unwrap_or(image.frozen);
        }
        Ok(settings)
    }

    /// The method, what follows from it, and the detector.
    fn choose_method(&self, settings: &mut Settings) -> Result<()> {
        if let Some(method) = &self.method {
            let for_class = settings.class_members();
            settings.head = HeadConfig::parse(method).map_err(|e| match Detect::parse(method) {
                Ok(_) => Error::setting(format!("{method} is a detector, not a method"))
                    .hint(format!("give `detector={method}`, and a `method` to train")),
                Err(_) => e,
            })?;
            let named = spec::split(method)?.1.iter().any(|(key, _)| *key == "nu");
            let image = settings.image.as_ref().filter(|_| settings.head.name() == "deep-mcdd" && !named);
            if let Some(image) = image {
                let nu = if matches!(image.net, NetName::Cnn { .. }) { CNN_NU } else { IMAGE_NU };
                settings.head = changed(&settings.head, "nu", nu)?;
            }
            if !matches!(settings.head, HeadConfig::DeepMcdd(_)) {
                // Only Deep-MCDD has networks for the class.
                (settings.members, settings.bins) = (settings.members - for_class, None);
            }
            // Choosing a method means its own score.
            settings.detector = Detect::default();
            if !settings.head.allows_batch_norm() {
                // The higher learning rate needs batch normalization.
                (settings.batch_norm, settings.lr) = (false, Preset::Paper.settings().lr);
            }
            if settings.head.trained_by() != Loop::Gradients {
                // No inputs to clip for their own networks, and no epochs to choose from.
                (settings.clip, settings.select) = (None, Select::Last);
            }
        }
        if let Some(detector) = &self.detector {
            settings.detector = Detect::parse(detector).map_err(|e| match HeadConfig::parse(detector) {
                Ok(_) => Error::setting(format!("{detector} is a method, not a detector"))
                    .hint(format!("give `method={detector}`")),
                Err(_) => e,
            })?;
        }
        if self.batch_norm == Some(true) && !settings.head.allows_batch_norm() {
            return Err(Error::setting(format!("{} cannot have batch normalization", settings.head.name()))
                .hint("leave out `batch_norm`, or give another `method`"));
        }
        Ok(())
    }

    /// Settings of some methods only.
    fn adapt_head(&self, head: &mut HeadConfig) -> Result<()> {
        if let Some(nu) = self.nu {
            // JSON has no such numbers.
            if !nu.is_finite() {
                return Err(Error::setting(format!("`nu` is {nu}")).hint("`nu` must be a finite number"));
            }
            *head = changed(head, "nu", nu)?;
        }
        if let Some(sigma) = self.sigma {
            *head = changed(head, "sigma", sigma)?;
        }
        Ok(())
    }

    /// Values that replace those of the preset as they are.
    fn override_values(&self, s: &mut Settings) {
        fn put<T: Clone>(place: &mut T, given: &Option<T>) {
            if let Some(given) = given {
                place.clone_from(given);
            }
        }
        put(&mut s.hidden, &self.hidden);
        match &mut s.image {
            Some(image) => image.latent = self.latent.or(image.latent),
            None => put(&mut s.latent, &self.latent),
        }
        put(&mut s.batch_norm, &self.batch_norm);
        put(&mut s.clip, &self.clip.map(Into::into));
        put(&mut s.bins, &self.bins.map(Into::into));
        put(&mut s.members, &self.members);
        put(&mut s.epochs, &self.epochs);
        // A given number of epochs means all of them.
        put(&mut s.steps, &self.steps.map(Into::into).or(self.epochs.map(|_| None)));
        put(&mut s.batch, &self.batch);
        put(&mut s.lr, &self.lr);
        put(&mut s.weight_decay, &self.weight_decay);
        put(&mut s.select, &self.select);
        s.calibration_fraction = self.calibration_fraction.or(s.calibration_fraction);
        put(&mut s.per_class, &self.per_class);
        put(&mut s.tpr, &self.tpr);
        put(&mut s.seed, &self.seed);
        s.patience = self.patience.or(s.patience);
    }

    fn choose_optimizer(&self, default: Optimizer) -> Result<Optimizer> {
        match (self.optimizer.unwrap_or(default), self.momentum) {
            (optimizer, None) => Ok(optimizer),
            (Optimizer::Sgd { .. }, Some(momentum)) => Ok(Optimizer::Sgd { momentum }),
            (Optimizer::Adam { .. }, Some(_)) => {
                Err(Error::setting("Adam has no `momentum`").hint("leave out `momentum`, or give `optimizer=sgd`"))
            }
        }
    }

    fn choose_schedule(&self, default: Schedule) -> Result<Schedule> {
        match self.schedule.clone().unwrap_or(default) {
            Schedule::Steps { at, factor } => Ok(Schedule::Steps {
                at: self.step_at.clone().unwrap_or(at),
                factor: self.step_factor.unwrap_or(factor),
            }),
            _ if self.step_at.is_some() || self.step_factor.is_some() => {
                Err(Error::setting("the learning rate schedule has no steps")
                    .hint("give `schedule=steps`, or leave out `step_at` and `step_factor`"))
            }
            other => Ok(other),
        }
    }
}

/// A method with one of its settings changed.
fn changed(head: &HeadConfig, setting: &str, value: impl Serialize) -> Result<HeadConfig> {
    spec::set(head, setting, value)?.ok_or_else(|| {
        Error::setting(format!("{} has no `{setting}`", head.name()))
            .hint(format!("leave out `{setting}`, or give another `method`"))
    })
}

#[cfg(test)]
mod tests;
