//! Another detector, threshold or calibration set for networks that are already trained.

use super::class_scale::ClassScale;
use super::cross_fit::Folds;
use super::fit::{FitData, needs_labels, table_findings};
use super::predict::{self, Ensemble};
use super::score_scale::{self, ScoreScale};
use super::{Calibration, Model, ModelMember};
use crate::compute::pool::Pool;
use crate::data::profile::Profile;
use crate::data::{Images, Labels, Table};
use crate::detector::Detect;
use crate::error::{Error, Result};
use crate::seed::Stream;
use crate::train::{Examples, ImageRows, LabeledRows, Settings};

/// What [`Model::refit`] changes; what is `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Refit {
    /// The detector that gives the confidence.
    pub detector: Option<Detect>,
    /// The fraction of known rows that the threshold keeps.
    pub tpr: Option<f64>,
    /// Whether each predicted class is calibrated by its own rows.
    pub per_class: Option<bool>,
}

impl Refit {
    fn settings(&self, old: &Settings) -> Result<Settings> {
        let mut settings = old.clone();
        settings.detector = self.detector.clone().unwrap_or(settings.detector);
        settings.tpr = self.tpr.unwrap_or(settings.tpr);
        settings.per_class = self.per_class.unwrap_or(settings.per_class);
        settings.check()?;
        Ok(settings)
    }
}

impl Model {
    /// A model with the same networks and another detector or calibration. `table` is the table that the model was trained
    /// on: the detector is fitted on the rows that each network was trained on, and the rows that it left out calibrate, as if the
    /// model had been trained with these settings.
    ///
    /// ```
    /// use mcdd::{data::digits, detector::Detect, model::{Model, Refit}, train::{Preset, Settings}};
    ///
    /// let table = digits();
    /// let model = Model::fit(&table, &Settings::builder().preset(Preset::Fast).epochs(5).build()?)?;
    /// let changes = Refit { detector: Some(Detect::parse("mahalanobis")?), ..Refit::default() };
    /// let other = model.refit(&table, &changes)?;
    /// assert_eq!(other.settings().detector, Detect::parse("mahalanobis")?);
    /// # Ok::<(), mcdd::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the settings do not fit the model, or the table is another one.
    pub fn refit(&self, table: &Table, changes: &Refit) -> Result<Model> {
        self.refit_with(table, changes, Pool::shared())
    }

    /// Like [`Model::refit`], with the threads of `pool`.
    ///
    /// # Errors
    /// As for [`Model::refit`].
    pub fn refit_with(&self, table: &Table, changes: &Refit, pool: &Pool) -> Result<Model> {
        let settings = changes.settings(&self.settings)?;
        let labeled = needs_labels(&settings, table.labels.is_some())?;
        let x = self.schema.transform(table, None).map_err(other_data)?;
        let folds = Folds::of_table(table, &settings)?;
        let mut model =
            self.assembled(FitData::of_table(table, &x, self.schema.clone(), folds, labeled), &settings, pool)?;
        model.findings.extend(table_findings(&x, &self.schema, &Profile::of(table)));
        Ok(model)
    }

    /// As [`Model::refit`], for the images that the model was trained on.
    ///
    /// # Errors
    /// As for [`Model::refit`].
    pub fn refit_images(&self, images: &Images, changes: &Refit, pool: &Pool) -> Result<Model> {
        let settings = changes.settings(&self.settings)?;
        let labeled = needs_labels(&settings, images.labels.is_some())?;
        let spec = self.image_spec(images)?;
        let folds = Folds::of_images(images, &settings)?;
        self.assembled(FitData::of_images(images, spec, folds, labeled), &settings, pool)
    }

    fn assembled(&self, data: FitData, settings: &Settings, pool: &Pool) -> Result<Model> {
        let folds = data.folds.len();
        if self.members.iter().any(|m| m.fold >= folds) || data.sha256()? != self.sha256 {
            return Err(other_data(Error::data(
                "these are not the rows that the model was trained on, in their order",
            )));
        }
        let embedded = self.embedded(data.raw, pool);
        let data = match (&self.embedding, &embedded) {
            (Some(embedding), Some(x)) => data.embedded(embedding.clone(), x),
            _ => data,
        };
        let model = Self::assemble(data, self.graphs.clone(), self.networks()?, settings, pool)?;
        Ok(Model { version: self.version.clone(), ..model })
    }

    /// The members without detectors.
    fn networks(&self) -> Result<Vec<ModelMember>> {
        let latent = self.graph().latent()?;
        let member = |m: &ModelMember| {
            let mut head = self.settings.head.build(m.head.classes(), latent, &mut Stream::new(0, "copy"));
            head.params_mut().data.clone_from(&m.head.params().data);
            let (net, history) = (m.net.clone(), m.history.clone());
            let scale = ScoreScale::default();
            ModelMember { net, head, history, epoch: m.epoch, fold: m.fold, role: m.role, probe: None, scale }
        };
        Ok(self.members.iter().map(member).collect())
    }

    /// Calibrates on other known rows: their confidences set the threshold and give the p-values. They must be rows that the
    /// model was not trained on. With labels, the validation accuracy and sets of plausible classes are theirs too.
    ///
    /// # Errors
    /// If the rows do not match the model, or there are none.
    pub fn calibrate(&mut self, table: &Table, pool: &Pool) -> Result<()> {
        let x = self.schema.transform(table, None)?;
        let y = vec![0; table.rows()];
        let labels = known_labels(table.labels.as_ref(), &self.classes)?;
        self.calibrate_on(Examples::Rows(LabeledRows { x: &x, y: &y }), labels.as_deref(), pool)
    }

    /// As [`Model::calibrate`], on images.
    ///
    /// # Errors
    /// As for [`Model::calibrate`].
    pub fn calibrate_images(&mut self, images: &Images, pool: &Pool) -> Result<()> {
        let spec = self.image_spec(images)?.clone();
        let (rows, y): (Vec<usize>, Vec<u32>) = ((0..images.rows()).collect(), vec![0; images.rows()]);
        let labels = known_labels(images.labels.as_ref(), &self.classes)?;
        let rows = ImageRows { images, rows: &rows, spec: &spec, y: &y };
        self.calibrate_on(Examples::Images(rows), labels.as_deref(), pool)
    }

    fn calibrate_on(&mut self, rows: Examples, labels: Option<&[u32]>, pool: &Pool) -> Result<()> {
        if rows.is_empty() {
            return Err(Error::data("there are no rows to calibrate on"));
        }
        let ensemble = Ensemble { class_scales: &[], ..self.ensemble() };
        let predicted = predict::scores(ensemble, rows, pool);
        let mut confidences = predicted.confidence.clone();
        if self.settings.per_class {
            self.class_scales = ClassScale::fit(&confidences, &predicted.class, self.classes.len());
            let scales = &self.class_scales;
            confidences.iter_mut().zip(&predicted.class).for_each(|(c, &k)| *c = scales[k as usize].map(*c));
        }
        self.calibration = Calibration::new(confidences).map_err(|_| score_scale::not_finite())?;
        if let Some(labels) = labels.filter(|_| !predicted.class.is_empty()) {
            let right = labels.iter().zip(&predicted.class).filter(|(a, b)| a == b).count();
            self.accuracy = Some(right as f64 / labels.len() as f64);
            let own = labels.iter().enumerate().map(|(i, &k)| predicted.posterior(i)[k as usize]).collect();
            self.class_calibration = Some(Calibration::new(own).map_err(|_| score_scale::not_finite())?);
        }
        Ok(())
    }
}

fn other_data(error: Error) -> Error {
    error.hint("give the training data, read in the same way; for other known rows there is `calibrate`")
}

/// The labels of rows as numbers of the model's classes, if there are any.
fn known_labels(labels: Option<&Labels>, classes: &[String]) -> Result<Option<Vec<u32>>> {
    let Some(labels) = labels else { return Ok(None) };
    let number = |(row, &code): (usize, &u32)| {
        let name = &labels.names[code as usize];
        classes.iter().position(|c| c == name).map(|k| k as u32).ok_or_else(|| {
            Error::data(format!("the model does not know the class {name:?}"))
                .at_row(row as u64 + 1)
                .hint("calibrate on rows of the model's classes only")
        })
    };
    labels.codes.iter().enumerate().map(number).collect::<Result<Vec<_>>>().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::digits;
    use crate::train::Preset;

    fn quick(preset: Preset) -> Settings {
        Settings { hidden: vec![32], latent: 8, epochs: 8, steps: None, batch: 64, ..preset.settings() }
    }

    /// Another detector gives the bytes of a model that was trained with it.
    #[test]
    fn a_refitted_model_is_the_one_that_was_trained_so() {
        let table = digits().select(&(0..600).collect::<Vec<_>>());
        for preset in [Preset::Best, Preset::Fast, Preset::Paper] {
            let model = Model::fit(&table, &quick(preset)).unwrap();
            for spec in ["distance", "mahalanobis", "knn:k=3:on=inputs", "msp"] {
                let detector = Detect::parse(spec).unwrap();
                let wanted = Settings { detector: detector.clone(), tpr: 0.9, ..quick(preset) };
                let changes = Refit { detector: Some(detector), tpr: Some(0.9), per_class: None };
                let refitted = model.refit(&table, &changes).unwrap();
                let trained = Model::fit(&table, &wanted).unwrap();
                let text = |m: &Model| m.container().unwrap().text.clone();
                assert_eq!(text(&refitted), text(&trained));
                assert!(refitted.to_bytes().unwrap() == trained.to_bytes().unwrap(), "{spec}");
            }
            let same = model.refit(&table, &Refit::default()).unwrap();
            assert!(same.to_bytes().unwrap() == model.to_bytes().unwrap());
            let loaded = Model::from_bytes(&model.to_bytes().unwrap()).unwrap();
            assert!(loaded.refit(&table, &Refit::default()).unwrap().to_bytes().unwrap() == model.to_bytes().unwrap());
        }
    }

    #[test]
    fn other_data_and_other_settings_are_errors() {
        let all = digits();
        let (table, other) = (all.select(&(0..300).collect::<Vec<_>>()), all.select(&(1..301).collect::<Vec<_>>()));
        let model = Model::fit(&table, &quick(Preset::Fast)).unwrap();
        let e = model.refit(&other, &Refit::default()).err().unwrap();
        assert!(e.to_string().contains("trained on") && e.hint_text().unwrap().contains("`calibrate`"), "{e}");
        let wrong = |changes: Refit| model.refit(&table, &changes).is_err();
        assert!(wrong(Refit { tpr: Some(1.5), ..Refit::default() }));
        assert!(wrong(Refit { detector: Some(Detect::parse("vim").unwrap()), ..Refit::default() }));
    }

    /// After calibration on other rows the threshold keeps what was asked for of rows like them.
    #[test]
    fn calibration_on_other_rows_keeps_their_like() {
        // Three classes; the new rows are more spread out than those of the training.
        let mut random = Stream::new(5, "drift");
        let mut rows = |n: usize, spread: f64| {
            let x: Vec<f64> =
                (0..4 * n).map(|i| (i / 4 % 3 * (i % 4)) as f64 * 3.0 + spread * random.normal()).collect();
            let labels: Vec<&str> = (0..n).map(|i| ["a", "b", "c"][i % 3]).collect();
            Table::from_rows(&x, 4, Some(&labels)).unwrap()
        };
        let (train, new, test) = (rows(900, 1.0), rows(900, 1.5), rows(900, 1.5));
        for (preset, per_class) in [(Preset::Best, false), (Preset::Fast, true)] {
            let mut model = Model::fit(&train, &Settings { per_class, ..quick(preset) }).unwrap();
            let kept = |model: &Model| {
                let (threshold, p) = (model.threshold().unwrap(), model.predict(&test).unwrap());
                p.confidence.iter().filter(|&&c| threshold.known(c)).count() as f64 / p.rows() as f64
            };
            let before = kept(&model);
            model.calibrate(&new, Pool::shared()).unwrap();
            let after = kept(&model);
            assert!(before < 0.85 && (0.92..0.98).contains(&after), "{before} {after}");
            assert_eq!(model.calibration().scores().len(), new.rows());
            let loaded = Model::from_bytes(&model.to_bytes().unwrap()).unwrap();
            assert_eq!(loaded.predict(&test).unwrap(), model.predict(&test).unwrap());
        }
        let mut model = Model::fit(&train.leave_out("b").unwrap().0, &quick(Preset::Fast)).unwrap();
        let e = model.calibrate(&new, Pool::shared()).unwrap_err();
        assert!(e.to_string().contains("\"b\""), "{e}");
        assert!(model.calibrate(&new.select(&[]), Pool::shared()).is_err());
    }
}
