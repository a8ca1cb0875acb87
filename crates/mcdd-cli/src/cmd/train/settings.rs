//! From options to settings.

use mcdd::detector::Detect;
use mcdd::head::{self, HeadConfig, Loop};
use mcdd::train::optim::{Optimizer, Schedule};
use mcdd::train::{self, IMAGE_NU, Preset, Settings};

use super::{Args, OptimizerName, PresetName, ScheduleName, SelectName, Sigma, Switch};

impl Args {
    pub(super) fn settings(&self) -> mcdd::Result<Settings> {
        let preset = match self.preset {
            None | Some(PresetName::Best) => Preset::Best,
            Some(PresetName::Fast) => Preset::Fast,
            Some(PresetName::Paper) => Preset::Paper,
        };
        let mut settings = self.images.settings()?.unwrap_or_else(|| preset.settings());
        if settings.image.is_some() {
            let given = [
                ("hidden", self.hidden.is_some()),
                ("batch-norm", self.batch_norm.is_some()),
                ("clip", self.clip.is_some()),
                ("preset", self.preset.is_some()),
                ("drop", !self.columns.drop.is_empty()),
                ("categorical", !self.columns.categorical.is_empty()),
                ("header", self.reading.header.is_some()),
                ("separator", self.reading.separator.is_some()),
            ];
            if let Some((name, _)) = given.iter().find(|(_, given)| *given) {
                return Err(mcdd::Error::setting(format!("--{name} is for tables")).hint("leave it out, or --net"));
            }
        }
        if let Some(method) = &self.method {
            settings.head = HeadConfig::parse(method).map_err(|e| match Detect::parse(method) {
                Ok(_) => mcdd::Error::setting(format!("{method} is a detector and no method"))
                    .hint(format!("give --detector {method}, beside a --method")),
                Err(_) => e,
            })?;
            if let (HeadConfig::DeepMcdd(c), true) = (&mut settings.head, settings.image.is_some()) {
                c.nu = if method.contains(":nu=") { c.nu } else { IMAGE_NU };
            }
            // Who chooses a method wants its own score.
            settings.detector = Detect::default();
            if !settings.head.allows_batch_norm() {
                // The higher rate needs it.
                (settings.batch_norm, settings.lr) = (false, Preset::Paper.settings().lr);
            }
            if settings.head.trained_by() != Loop::Gradients {
                settings.clip = None;
            }
        }
        if let Some(detector) = &self.detector {
            settings.detector = Detect::parse(detector).map_err(|e| match HeadConfig::parse(detector) {
                Ok(_) => mcdd::Error::setting(format!("{detector} is a method and no detector"))
                    .hint(format!("give --method {detector}")),
                Err(_) => e,
            })?;
        }
        if self.batch_norm == Some(Switch::On) && !settings.head.allows_batch_norm() {
            return Err(mcdd::Error::setting(format!("{} cannot have batch normalization", settings.head.name()))
                .hint("leave --batch-norm out, or take another --method"));
        }
        self.method_settings(&mut settings.head)?;
        self.training_settings(&mut settings)?;
        settings.check()?;
        Ok(settings)
    }

    /// What belongs to some methods only.
    fn method_settings(&self, head: &mut HeadConfig) -> mcdd::Result<()> {
        let name = head.name();
        let absent = |what: &str| {
            Err(mcdd::Error::setting(format!("{name} has no {what}"))
                .hint(format!("leave --{what} out, or take another --method")))
        };
        match (&mut *head, self.nu) {
            (_, None) => {}
            (HeadConfig::DeepMcdd(c), Some(given)) => c.nu = given,
            (HeadConfig::DeepSvdd(c), Some(given)) => c.nu = given,
            (HeadConfig::SoftMcdd(c), Some(given)) => c.nu = Some(given),
            _ => return absent("nu"),
        }
        match (&mut *head, self.sigma) {
            (_, None) => {}
            (HeadConfig::DeepMcdd(c), Some(Sigma::Learned)) => c.sigma = head::Sigma::Learned,
            (HeadConfig::DeepMcdd(c), Some(Sigma::One)) => c.sigma = head::Sigma::One,
            _ => return absent("sigma"),
        }
        Ok(())
    }

    /// Everything else that was given takes the place of the preset's.
    fn training_settings(&self, s: &mut Settings) -> mcdd::Result<()> {
        fn put<T: Clone>(place: &mut T, given: &Option<T>) {
            place.clone_from(given.as_ref().unwrap_or(&place.clone()));
        }
        put(&mut s.hidden, &self.hidden);
        match &mut s.image {
            Some(image) => image.latent = self.latent.or(image.latent),
            None => put(&mut s.latent, &self.latent),
        }
        put(&mut s.batch_norm, &self.batch_norm.map(|switch| switch == Switch::On));
        put(&mut s.clip, &self.clip.map(Into::into));
        put(&mut s.members, &self.members);
        put(&mut s.epochs, &self.epochs);
        // Who says how many epochs wants all of them.
        put(&mut s.steps, &self.steps.map(Into::into).or(self.epochs.map(|_| None)));
        put(&mut s.batch, &self.batch);
        put(&mut s.lr, &self.lr);
        put(&mut s.weight_decay, &self.weight_decay);
        put(&mut s.calibration_fraction, &self.calibration_fraction);
        put(&mut s.tpr, &self.tpr);
        s.patience = self.patience;
        s.seed = self.seed;
        s.optimizer = match self.optimizer {
            Some(OptimizerName::Sgd) => Optimizer::Sgd { momentum: self.momentum.unwrap_or(0.9) },
            None if s.image.is_some() => Optimizer::Sgd { momentum: self.momentum.unwrap_or(0.9) },
            _ if self.momentum.is_some() => {
                return Err(mcdd::Error::setting("Adam has no momentum to set")
                    .hint("leave --momentum out, or give --optimizer sgd"));
            }
            Some(OptimizerName::Adam) | None => Optimizer::default(),
        };
        match self.schedule {
            Some(ScheduleName::Cosine) => s.schedule = Schedule::Cosine,
            Some(ScheduleName::Constant) => s.schedule = Schedule::Constant,
            Some(ScheduleName::Steps) => s.schedule = Schedule::Steps { at: vec![0.5, 0.75], factor: 0.1 },
            None => {}
        }
        match &mut s.schedule {
            Schedule::Steps { at, factor } => {
                put(at, &self.step_at);
                put(factor, &self.step_factor);
            }
            _ if self.step_at.is_some() || self.step_factor.is_some() => {
                return Err(mcdd::Error::setting("the learning rate does not go in steps")
                    .hint("add --schedule steps, or leave --step-at and --step-factor out"));
            }
            _ => {}
        }
        match self.select {
            Some(SelectName::Last) => s.select = train::Select::Last,
            Some(SelectName::Best) => s.select = train::Select::Best,
            None => {}
        }
        Ok(())
    }
}
