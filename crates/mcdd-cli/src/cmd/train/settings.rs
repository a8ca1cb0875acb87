//! From options to settings.

use mcdd::train::optim::{Optimizer, Schedule};
use mcdd::train::{DataKind, Preset, Select, Settings, SettingsBuilder as B};

use super::{Args, OptimizerName, PresetName, ScheduleName, SelectName, Sigma, Switch};

impl Args {
    /// The settings that these options give.
    pub(super) fn settings(&self, of_images: bool) -> mcdd::Result<Settings> {
        let kind = match self.backbone.backbone {
            Some(_) => DataKind::Table,
            None => DataKind::from_net(self.images.net.as_deref(), of_images)?,
        };
        self.builder().build_for(kind)
    }

    fn builder(&self) -> B {
        Settings::builder()
            .maybe(self.preset, |b, p| b.preset(p.into()))
            .maybe(self.method.as_deref(), B::method)
            .maybe(self.detector.as_deref(), B::detector)
            .maybe(self.nu, B::nu)
            .maybe(self.sigma, |b, s| b.sigma(s.into()))
            .maybe(self.hidden.clone(), B::hidden)
            .maybe(self.latent, B::latent)
            .maybe(self.batch_norm, |b, switch| b.batch_norm(switch == Switch::On))
            .maybe(self.clip, B::clip)
            .maybe(self.bins, B::bins)
            .maybe(self.members, B::members)
            .maybe(self.epochs, B::epochs)
            .maybe(self.steps, B::steps)
            .maybe(self.batch, B::batch)
            .maybe(self.lr, B::lr)
            .maybe(self.optimizer, |b, o| b.optimizer(o.into()))
            .maybe(self.momentum, B::momentum)
            .maybe(self.weight_decay, B::weight_decay)
            .maybe(self.schedule, |b, s| b.schedule(s.into()))
            .maybe(self.step_at.clone(), B::step_at)
            .maybe(self.step_factor, B::step_factor)
            .maybe(self.select, |b, s| b.select(s.into()))
            .maybe(self.patience, B::patience)
            .maybe(self.calibration_fraction, B::calibration_fraction)
            .maybe(self.per_class.then_some(true), B::per_class)
            .maybe(self.tpr, B::tpr)
            .maybe(self.images.augment(), B::augment)
            .maybe(self.images.test_flips, |b, switch| b.test_flips(switch == Switch::On))
            .maybe(self.images.warmup, B::warmup)
            .maybe(self.images.freeze.then_some(true), B::freeze)
            .seed(self.seed)
    }
}

impl From<PresetName> for Preset {
    fn from(name: PresetName) -> Preset {
        match name {
            PresetName::Best => Preset::Best,
            PresetName::Fast => Preset::Fast,
            PresetName::Paper => Preset::Paper,
        }
    }
}

impl From<Sigma> for mcdd::head::Sigma {
    fn from(sigma: Sigma) -> Self {
        match sigma {
            Sigma::One => mcdd::head::Sigma::One,
            Sigma::Learned => mcdd::head::Sigma::Learned,
        }
    }
}

impl From<OptimizerName> for Optimizer {
    fn from(name: OptimizerName) -> Optimizer {
        match name {
            OptimizerName::Adam => Optimizer::default(),
            OptimizerName::Sgd => Optimizer::sgd(),
        }
    }
}

impl From<ScheduleName> for Schedule {
    fn from(name: ScheduleName) -> Schedule {
        match name {
            ScheduleName::Cosine => Schedule::Cosine,
            ScheduleName::Constant => Schedule::Constant,
            ScheduleName::Steps => Schedule::steps(),
        }
    }
}

impl From<SelectName> for Select {
    fn from(name: SelectName) -> Select {
        match name {
            SelectName::Last => Select::Last,
            SelectName::Best => Select::Best,
        }
    }
}
