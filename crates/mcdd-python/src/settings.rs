//! Settings from keyword arguments.

use mcdd::head::Sigma;
use mcdd::train::optim::{Optimizer, Schedule};
use mcdd::train::{Augmentation, DataKind, OrOff, Preset, Select, Settings, SettingsBuilder};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};

use crate::error::{SettingError, raise};

/// The one of `choices` with the name that is given.
fn choose<T: Clone>(setting: &str, value: &Bound<'_, PyAny>, choices: &[(&str, T)]) -> PyResult<T> {
    let given: String = value.extract().map_err(|_| wrong(setting, value, "a string"))?;
    match choices.iter().find(|(name, _)| *name == given) {
        Some((_, choice)) => Ok(choice.clone()),
        None => {
            let names: Vec<String> = choices.iter().map(|(name, _)| format!("\"{name}\"")).collect();
            Err(SettingError::new_err(format!("{setting}= is \"{given}\" (give one of {})", names.join(", "))))
        }
    }
}

fn wrong(setting: &str, value: &Bound<'_, PyAny>, expected: &str) -> PyErr {
    let given = value.repr().map_or_else(|_| "?".into(), |text| text.to_string());
    SettingError::new_err(format!("{setting}= is {given} (give {expected})"))
}

/// A whole number; booleans are not numbers.
fn whole<'py, T: FromPyObject<'py, 'py>>(setting: &str, value: &'py Bound<'py, PyAny>) -> PyResult<T> {
    let failed = || wrong(setting, value, "a whole number that is not negative");
    if value.is_instance_of::<PyBool>() {
        return Err(failed());
    }
    value.extract().map_err(|_| failed())
}

fn number(setting: &str, value: &Bound<'_, PyAny>) -> PyResult<f64> {
    value.extract().map_err(|_| wrong(setting, value, "a number"))
}

fn off(value: &Bound<'_, PyAny>) -> bool {
    value.extract::<String>().is_ok_and(|text| text == "off")
}

/// The settings that keyword arguments give; None stands for the default.
pub(crate) fn settings(given: &Bound<'_, PyDict>, images: bool) -> PyResult<Settings> {
    let mut builder = Settings::builder();
    let mut net: Option<String> = None;
    for (name, value) in given.iter().filter(|(_, value)| !value.is_none()) {
        let name: String = name.extract()?;
        if name == "net" {
            net = Some(value.extract().map_err(|_| wrong("net", &value, "the name of a network"))?);
        } else {
            builder = set(builder, &name, &value)?;
        }
    }
    DataKind::from_net(net.as_deref(), images).and_then(|kind| builder.build_for(kind)).map_err(raise)
}

/// Whether training with these settings needs labels.
#[pyfunction]
pub(crate) fn needs_labels(settings_: &Bound<'_, PyDict>) -> PyResult<bool> {
    Ok(settings(settings_, false)?.needs_labels())
}

fn set(b: SettingsBuilder, name: &str, value: &Bound<'_, PyAny>) -> PyResult<SettingsBuilder> {
    let text = || value.extract::<String>().map_err(|_| wrong(name, value, "a string"));
    let flag = || value.extract::<bool>().map_err(|_| wrong(name, value, "True or False"));
    Ok(match name {
        "preset" => b.preset(choose(name, value, &Preset::ALL.map(|preset| (preset.name(), preset)))?),
        "method" => b.method(text()?),
        "detector" => b.detector(text()?),
        "nu" => b.nu(number(name, value)?),
        "sigma" => b.sigma(choose(name, value, &[("one", Sigma::One), ("learned", Sigma::Learned)])?),
        "hidden" => b.hidden(value.extract::<Vec<usize>>().map_err(|_| wrong(name, value, "a list of whole numbers"))?),
        "latent" => b.latent(whole(name, value)?),
        "batch_norm" => b.batch_norm(flag()?),
        "clip" if off(value) => b.clip(OrOff::Off),
        "clip" => b.clip(number(name, value)?),
        "bins" if off(value) => b.bins(OrOff::Off),
        "bins" => b.bins(whole::<usize>(name, value)?),
        "members" => b.members(whole(name, value)?),
        "epochs" => b.epochs(whole(name, value)?),
        "steps" if off(value) => b.steps(OrOff::Off),
        "steps" => b.steps(whole::<usize>(name, value)?),
        "batch" => b.batch(whole(name, value)?),
        "lr" => b.lr(number(name, value)?),
        "optimizer" => b.optimizer(choose(name, value, &[("adam", Optimizer::default()), ("sgd", Optimizer::sgd())])?),
        "momentum" => b.momentum(number(name, value)?),
        "weight_decay" => b.weight_decay(number(name, value)?),
        "schedule" => b.schedule(choose(
            name,
            value,
            &[("cosine", Schedule::Cosine), ("constant", Schedule::Constant), ("steps", Schedule::steps())],
        )?),
        "select" => b.select(choose(name, value, &[("last", Select::Last), ("best", Select::Best)])?),
        "patience" => b.patience(whole(name, value)?),
        "calibration_fraction" => b.calibration_fraction(number(name, value)?),
        "per_class" => b.per_class(flag()?),
        "tpr" => b.tpr(number(name, value)?),
        "seed" => b.seed(whole("random_state", value)?),
        "augment" => {
            let all = [("on", Augmentation::On), ("move", Augmentation::Move), ("off", Augmentation::Off)];
            match value.extract::<bool>() {
                Ok(on) => b.augment(if on { Augmentation::On } else { Augmentation::Off }),
                Err(_) => b.augment(choose(name, value, &all)?),
            }
        }
        "test_flips" => b.test_flips(flag()?),
        other => return Err(SettingError::new_err(format!("there is no setting {other}"))),
    })
}
