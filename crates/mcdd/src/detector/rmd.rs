//! Relative Mahalanobis distance: how much nearer the nearest class is than the data as a whole.
//!
//! `confidence = -min_k (M_k(x) - M_0(x))`. `M_k` is the distance of `mahalanobis`; `M_0` is that of one Gaussian with the
//! mean and the covariance of all rows, whatever their class. Directions that do not tell classes apart weigh the same in
//! both and drop out. With a single class both would be the same, so it takes two at least.
//!
//! It classifies as `mahalanobis` does: `M_0` is the same for all classes.

use serde::{Deserialize, Serialize};

use super::mahalanobis::{labeled, logits, put, score, take};
use super::{About, Detector, DetectorBuffers, Features, Method, Needs, Store, Training};
use crate::compute::pool::Pool;
use crate::error::{Error, Result};
use crate::stats::gaussians::{Covariance, Gaussians};

/// It has no settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {}

impl Method for Config {
    const ABOUT: About = About {
        name: "rmd",
        summary: "relative Mahalanobis distance: to the nearest class, less that to all the data",
        reference: "Ren et al.: A Simple Fix to Mahalanobis Distance for \
                    Improving Near-OOD Detection, ICML UDL Workshop 2021",
        needs: Needs { features: true, labels: true, ..Needs::NONE },
    };

    fn fit(&self, training: &Training, pool: &Pool) -> Result<Box<dyn Detector>> {
        let labels = training.labels.unwrap_or_default();
        if labels.iter().all(|y| Some(y) == labels.first()) {
            return Err(Error::data("all rows are of one class, so nothing is relative to it")
                .hint("rmd takes two classes at least; mahalanobis takes one"));
        }
        let (classes, all) = Gaussians::with_background(&labeled(training), pool);
        Ok(Box::new(Relative { classes, all }))
    }

    fn load(&self, store: &mut Store) -> Result<Box<dyn Detector>> {
        let classes = take(store, "", Covariance::Tied, store.width())?;
        let all = take(store, "all-", Covariance::Tied, store.width())?;
        if all.classes() != 1 || all.width() != classes.width() {
            return Err(store.wrong("its Gaussians do not fit together"));
        }
        Ok(Box::new(Relative { classes, all }))
    }
}

struct Relative {
    classes: Gaussians,
    all: Gaussians,
}

impl Detector for Relative {
    fn score(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        score(&self.classes, rows.features, out, scratch);
        scratch.wide.resize(out.len(), 0.0);
        self.all.distances(rows.features, &mut scratch.wide, &mut scratch.floats);
        out.iter_mut().zip(&scratch.wide).for_each(|(o, all)| *o += all);
    }

    fn save(&self, store: &mut Store) {
        put(store, "", &self.classes);
        put(store, "all-", &self.all);
    }

    fn classes(&self) -> usize {
        self.classes.classes()
    }

    fn logits(&self, rows: &Features, out: &mut [f64], scratch: &mut DetectorBuffers) {
        logits(&self.classes, rows.features, out, scratch);
    }
}

#[cfg(test)]
mod tests {
    use super::super::mahalanobis::tests::{blobs, close, naive, training};
    use super::*;
    use crate::detector::Fitted;
    use crate::stats::gaussians::nearest;

    #[test]
    fn by_definition() {
        let (x, labels) = blobs(500, 12);
        let training = training(&x, &labels);
        let pool = Pool::new(2);
        let fitted = Fitted::new(&Config {}.into(), &training, &pool).unwrap();
        let (classes, all) = naive(&x, &labels);
        for ((got, classes), all) in fitted.score(&training.rows, &pool).unwrap().into_iter().zip(classes).zip(all) {
            close(got, -(nearest(&classes) - all));
        }
    }
}
