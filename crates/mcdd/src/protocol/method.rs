//! The methods of a benchmark, as users type them.

use crate::detector::{Detect, DetectorConfig};
use crate::error::{Error, Result};
use crate::head::{HeadConfig, Loop};
use crate::spec;
use crate::train::{Preset, Select, Settings, SettingsBuilder};

/// The methods that the paper compares, its own last.
const PAPER: [&str; 8] =
    ["softmax+msp", "softmax+mahalanobis", "deep-svdd", "alad", "protonet", "deep-ncm", "soft-mcdd", "deep-mcdd"];

/// Methods that are trained without classes, for data of which one class is left: a network's score, nearest neighbors and
/// an isolation forest on the inputs.
const ONE_CLASS: [&str; 3] = ["deep-svdd", "deep-svdd+knn:on=inputs", "deep-svdd+isolation-forest:on=inputs"];

/// The default methods: the two best-known ones, the paper's, and the default of training.
const DEFAULT: [&str; 4] = ["softmax+msp", "softmax+mahalanobis", "deep-mcdd", "best"];

/// The values of nu, the weight of the distance in the paper's loss, in the paper's figure.
const NU: [&str; 7] = ["0.001", "0.01", "0.1", "1", "10", "100", "1000"];

/// A way to train and to score, by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Method {
    /// As it was typed: a preset (`best`, `fast`), a method (`deep-mcdd:nu=0.1`), or both a method and a detector
    /// (`softmax+knn:k=10`). Besides its own settings a method may have `select=best`: the epoch with the lowest
    /// validation loss instead of the last.
    pub name: String,
    /// Its settings: except for the presets, the network and the training of [`Preset::Paper`], with the last epoch.
    pub settings: Settings,
}

impl Method {
    /// One method.
    ///
    /// # Errors
    /// If there is no such name, or the detector cannot be used with the method.
    pub fn parse(name: &str) -> Result<Method> {
        let settings = match (name, name.split_once('+')) {
            ("best", _) => Preset::Best.settings(),
            ("fast", _) => Preset::Fast.settings(),
            (_, parts) => {
                let (method, detector) = parts.map_or((name, None), |(m, d)| (m, Some(d)));
                let (method, select) = chosen_epoch(method)?;
                let method = method.as_str();
                let head = HeadConfig::parse(method).map_err(|e| match Detect::parse(method) {
                    Ok(_) => Error::setting(format!("{method} is a detector, not a method"))
                        .hint(format!("combine it with a method, e.g. softmax+{method}")),
                    Err(_) => e,
                })?;
                let detector = detector.map_or(Ok(Detect::default()), Detect::parse)?;
                if select != Select::Last && head.trained_by() != Loop::Gradients {
                    return Err(Error::setting(format!("{} has no epochs to choose from", head.name()))
                        .hint("leave `select` out"));
                }
                Settings { head, detector, select, ..Preset::Paper.settings() }
            }
        };
        settings.check()?;
        Ok(Method { name: name.to_owned(), settings })
    }

    /// The settings that a name gives, without what depends on the kind of data; not for presets.
    ///
    /// # Errors
    /// If the name is not of the form `method+detector`.
    pub(super) fn builder(name: &str) -> Result<SettingsBuilder> {
        let (method, detector) = name.split_once('+').map_or((name, None), |(m, d)| (m, Some(d)));
        let (method, select) = chosen_epoch(method)?;
        Ok(Settings::builder().method(method).maybe(detector, SettingsBuilder::detector).select(select))
    }

    /// Whether it is trained on two classes or more.
    pub fn needs_classes(&self) -> bool {
        self.settings.needs_labels()
    }

    /// The group of methods that is the default for a number of classes, one of which is left out.
    pub fn default_group(classes: usize) -> &'static str {
        if classes > 2 { "default" } else { "one-class" }
    }

    /// Several methods. Groups: `default`, `one-class` for those without classes, `paper` for the paper's eight, `nu` for
    /// Deep-MCDD with several values of nu, `all` for every method and every valid pair of a method and a detector.
    /// Duplicates are removed.
    ///
    /// # Errors
    /// As for [`Method::parse`], or if there are none.
    pub fn list(names: &[String]) -> Result<Vec<Method>> {
        let mut all: Vec<String> = Vec::new();
        for name in names.iter().map(|n| n.trim()).filter(|n| !n.is_empty()) {
            match name {
                "paper" => all.extend(PAPER.map(str::to_owned)),
                "default" => all.extend(DEFAULT.map(str::to_owned)),
                "one-class" => all.extend(ONE_CLASS.map(str::to_owned)),
                "nu" => all.extend(NU.map(|nu| format!("deep-mcdd:nu={nu}"))),
                "all" => all.extend(everything()),
                one => all.push(one.to_owned()),
            }
        }
        let mut methods: Vec<Method> = Vec::new();
        for name in all {
            if !methods.iter().any(|m| m.name == name) {
                methods.push(Method::parse(&name)?);
            }
        }
        if methods.is_empty() {
            return Err(
                Error::setting("no methods are given").hint("give `methods`: paper, all, or names separated by commas")
            );
        }
        Ok(methods)
    }

    /// The names in a list that are asked for one by one or in a small group, not by `all`.
    pub fn asked_for(names: &[String]) -> Vec<String> {
        let few: Vec<String> = names.iter().filter(|n| n.trim() != "all").cloned().collect();
        Method::list(&few).unwrap_or_default().into_iter().map(|m| m.name).collect()
    }

    /// Its position in tables: the order of the paper first, then other methods by name, then the presets.
    pub fn rank(name: &str) -> (usize, String) {
        let first = PAPER.iter().position(|p| *p == name);
        let last = ["paper", "fast", "best"].iter().position(|p| *p == name).map(|i| PAPER.len() + 1 + i);
        (first.or(last).unwrap_or(PAPER.len()), name.to_owned())
    }
}

/// A method without its `select`, and the value of that.
fn chosen_epoch(method: &str) -> Result<(String, Select)> {
    let (name, settings) = spec::split(method)?;
    let mut select = Select::Last;
    let mut rest = name.to_owned();
    for (key, value) in settings {
        match (key, value) {
            ("select", "last") => select = Select::Last,
            ("select", "best") => select = Select::Best,
            ("select", _) => {
                return Err(Error::setting(format!("select={value} is not a setting of {name}"))
                    .hint("give select=last, or select=best for the lowest validation loss"));
            }
            _ => rest.push_str(&format!(":{key}={value}")),
        }
    }
    Ok((rest, select))
}

/// Every method with its own score; every detector on softmax, and where possible on deep-mcdd and on the inputs.
fn everything() -> Vec<String> {
    let mut all: Vec<String> = PAPER.map(str::to_owned).into();
    all.extend(HeadConfig::all().iter().map(|c| c.name().to_owned()).filter(|n| n != "softmax"));
    all.extend(["deep-svdd:boundary=soft", "gda:covariance=full", "gda:covariance=diagonal"].map(str::to_owned));
    let detectors: Vec<DetectorConfig> = DetectorConfig::all().into_iter().filter(|c| !c.about().needs.head).collect();
    for d in &detectors {
        let (name, needs) = (d.name(), d.about().needs);
        all.push(format!("softmax+{name}"));
        if needs.features && !needs.linear {
            all.push(format!("deep-mcdd+{name}"));
        }
        // gda has no network: a detector on it scores the inputs.
        if !needs.logits && !matches!(d, DetectorConfig::MahalanobisEnsemble(_)) {
            all.push(format!("gda+{name}"));
        }
    }
    all.extend(["fast", "best"].map(str::to_owned));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_settings() {
        let paper = Preset::Paper.settings();
        assert_eq!(Method::parse("deep-mcdd:select=best").unwrap().settings, paper);
        assert_eq!(Method::parse("deep-mcdd").unwrap().settings, Settings { select: Select::Last, ..paper });
        assert_eq!(Method::parse("best").unwrap().settings, Settings::default());
        let nu = Method::parse("deep-mcdd:nu=0.1+knn:k=3").unwrap().settings;
        assert_eq!(nu.head, HeadConfig::parse("deep-mcdd:nu=0.1").unwrap());
        assert_eq!(nu.detector, Detect::parse("knn:k=3").unwrap());
        let chosen = Method::parse("softmax:select=best+msp").unwrap().settings;
        assert_eq!(chosen, Settings { select: Select::Best, ..Method::parse("softmax+msp").unwrap().settings });
        let both = Method::parse("deep-mcdd:select=best:nu=0.1").unwrap().settings;
        assert_eq!((both.head, both.select), (nu.head, Select::Best));
        for wrong in ["softmax:select=first", "gda:select=best", "alad:select=best"] {
            assert!(Method::parse(wrong).is_err(), "{wrong}");
        }
        for wrong in ["msp", "softmx", "softmax+", "softmax+knn:k=0", "deep-mcdd+vim", "alad+msp", "", "softmax++msp"] {
            assert!(Method::parse(wrong).is_err(), "{wrong}");
        }
        assert!(Method::parse("knn").unwrap_err().hint_text().unwrap().contains("softmax+knn"));
    }

    #[test]
    fn lists_are_expanded_once() {
        let list = |text: &str| {
            let names: Vec<String> = text.split(',').map(str::to_owned).collect();
            Method::list(&names).map(|all| all.into_iter().map(|m| m.name).collect::<Vec<_>>())
        };
        assert_eq!(list("paper").unwrap(), PAPER);
        assert_eq!(list("one-class").unwrap(), ONE_CLASS);
        assert!(Method::list(&["one-class".into()]).unwrap().iter().all(|m| !m.needs_classes()));
        assert!(Method::list(&["default".into()]).unwrap().iter().all(Method::needs_classes));
        assert_eq!(list("deep-mcdd, paper,best").unwrap().len(), 9);
        assert!(list("").is_err() && list("paper,no").is_err());
        assert_eq!(Method::asked_for(&["all".into(), " gda".into(), "best".into()]), ["gda", "best"]);
        assert!(Method::asked_for(&["all".into()]).is_empty());
        let all = list("all").unwrap();
        for name in ["softmax+vim", "deep-mcdd+knn", "gda+lof", "gda", "protonet", "best"] {
            assert!(all.iter().any(|n| n == name), "{name} in {all:?}");
        }
        let mut sorted =
            list("best,zeta-free,deep-mcdd,softmax+msp".replace("zeta-free", "softmax+knn").as_str()).unwrap();
        sorted.sort_by_key(|n| Method::rank(n));
        assert_eq!(sorted, ["softmax+msp", "deep-mcdd", "softmax+knn", "best"]);
    }
}
