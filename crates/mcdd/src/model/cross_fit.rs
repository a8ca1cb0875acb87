//! Cross-fitting: which rows each member of an ensemble leaves out, and its predictions for them.
//!
//! Each member leaves out another fold of the rows and is trained on all others, so every row is trained on, and the rows
//! of all folds calibrate. A row is scored by the members that left it out. A new row is scored by all members, and the
//! mean of several scores varies less than one of them, so a threshold from the calibration scores keeps a little more
//! than it promises (`docs/calibration.md`). A single member leaves out one fold, as an ordinary split.

use super::class_scale::ClassScale;
use super::predict::{self, Ensemble, Fold};
use super::range_penalty::RangePenalty;
use super::rows::{AllRows, Part};
use super::score_scale::ScoreScale;
use super::{Model, ModelMember, Predictions, clip_limit};
use crate::compute::pool::Pool;
use crate::data::split::{self, Groups};
use crate::data::{Images, Labels, Table};
use crate::error::{Error, Result};
use crate::head::Loop;
use crate::train::{Examples, Settings};

/// The largest number of calibration rows: more would not make p-values much more precise.
const MAX_ROWS: usize = 100_000;

/// The rows of a training run, divided into folds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Folds {
    /// The rows of each fold that a member leaves out, in ascending order.
    left_out: Vec<Vec<usize>>,
    rows: usize,
}

impl Folds {
    /// For the rows of a table.
    pub(super) fn of_table(table: &Table, settings: &Settings) -> Result<Folds> {
        Folds::new(table.labels.as_ref(), &table.groups(), settings)
    }

    /// For images.
    pub(super) fn of_images(images: &Images, settings: &Settings) -> Result<Folds> {
        Folds::new(images.labels.as_ref(), &images.groups(), settings)
    }

    fn new(labels: Option<&Labels>, groups: &Groups, settings: &Settings) -> Result<Folds> {
        let (fraction, seed) = (settings.left_out(groups.len()), settings.seed);
        // Members for the class leave out the folds of others.
        let confident = settings.members - settings.class_members();
        let members = if settings.head.trained_by() == Loop::ClosedForm { 1 } else { confident };
        let divide = |labels| -> Result<Vec<Vec<usize>>> {
            let mut left_out = match members {
                1 => vec![split::split_rows(labels, groups, fraction, seed)?.1],
                _ => split::folds(labels, groups, ((1.0 / fraction).round() as usize).max(2), seed, "calibration"),
            };
            left_out.truncate(members);
            Ok(left_out)
        };
        let mut left_out = divide(labels)?;
        if !groups.named() && left_out.iter().any(Vec::is_empty) {
            // Classes of one row stay in training as a whole. Where no others are left, rows are divided without classes.
            left_out = divide(None)?;
        }
        if left_out.iter().any(Vec::is_empty) {
            return Err(Error::setting("there are no calibration rows: too few rows or groups for this fraction")
                .hint("raise `calibration_fraction`, e.g. to 0.3, or give more rows"));
        }
        Ok(Folds { left_out, rows: groups.len() })
    }

    /// The fold that a member leaves out.
    pub(super) fn of_member(&self, member: usize) -> usize {
        member % self.left_out.len()
    }

    /// The number of folds that a member leaves out.
    pub(super) fn len(&self) -> usize {
        self.left_out.len()
    }

    /// The rows that are left out in a fold.
    pub(super) fn left_out(&self, fold: usize) -> &[usize] {
        &self.left_out[fold]
    }

    /// The rows that are trained on in a fold.
    pub(super) fn trained_on(&self, fold: usize) -> Vec<usize> {
        let out = &self.left_out[fold];
        (0..self.rows).filter(|row| out.binary_search(row).is_err()).collect()
    }

    /// The rows of a fold that calibrate: all, or every second, every third, … of a large table.
    pub(super) fn calibration(&self, fold: usize) -> Vec<usize> {
        let all: usize = self.left_out.iter().map(Vec::len).sum();
        self.left_out[fold].iter().copied().step_by(all.div_ceil(MAX_ROWS).max(1)).collect()
    }

    /// The rows that preprocessing is fitted on: all rows that a member is trained on.
    pub(super) fn preprocessing(&self) -> Vec<usize> {
        match self.left_out.len() {
            1 => self.trained_on(0),
            _ => (0..self.rows).collect(),
        }
    }
}

impl Model {
    /// The calibration rows of the table that the model was trained on, and their predictions: each by the members that
    /// did not train on it. The confidences are those that set the threshold.
    ///
    /// # Errors
    /// If the table does not match the model.
    pub fn out_of_fold(&self, table: &Table, pool: &Pool) -> Result<(Vec<usize>, Predictions)> {
        let x = self.schema().transform(table, None)?;
        let folds = Folds::of_table(table, self.settings())?;
        let all = AllRows::Table { x: &x, width: self.schema().width() };
        Ok(self.predict_folds(&folds, all, pool))
    }

    /// As [`Model::out_of_fold`], for images.
    ///
    /// # Errors
    /// If the images do not match the model.
    pub fn out_of_fold_images(&self, images: &Images, pool: &Pool) -> Result<(Vec<usize>, Predictions)> {
        let spec = self.image_spec(images)?;
        let folds = Folds::of_images(images, self.settings())?;
        Ok(self.predict_folds(&folds, AllRows::Images { images, spec }, pool))
    }

    /// What the members see of all rows, if there is a backbone.
    pub(super) fn embedded(&self, all: AllRows, pool: &Pool) -> Option<Vec<f32>> {
        self.embedding.as_ref().map(|e| e.all(all, pool))
    }

    fn predict_folds(&self, folds: &Folds, all: AllRows, pool: &Pool) -> (Vec<usize>, Predictions) {
        let embedded = self.embedded(all, pool);
        let all = embedded.as_deref().map_or(all, |x| AllRows::Table { x, width: self.graph().input });
        let clip = clip_limit(self.graph(), self.settings());
        let (mut rows, mut out) = (Vec::new(), Predictions::default());
        for fold in (0..folds.len()).filter(|&fold| self.members.iter().any(|m| m.fold == fold)) {
            let part = Part { y: vec![0; folds.calibration(fold).len()], rows: folds.calibration(fold) };
            let range_penalty = all.range_penalty(&folds.trained_on(fold), clip);
            let fold = Some(Fold { index: fold, rows: part.rows.len() });
            let ensemble = Ensemble { fold, range_penalty: range_penalty.as_ref(), embedding: None, ..self.ensemble() };
            out.append(predict::scores(ensemble, part.examples(all), pool));
            rows.extend(part.rows);
        }
        self.p_values(&mut out);
        (rows, out)
    }
}

/// What is known of a fold's rows without the members that were trained on them.
pub(super) struct OutOfFold<'a> {
    pub rows: Examples<'a>,
    /// Of the rows outside of the fold.
    pub range_penalty: Option<RangePenalty>,
}

/// Fits the score scale of each member on the rows it left out, where it is needed.
///
/// # Errors
/// If confidences are not finite.
pub(super) fn fit_scales(members: &mut [ModelMember], folds: &[OutOfFold], pool: &Pool) -> Result<()> {
    let penalty = folds.iter().any(|f| f.range_penalty.is_some());
    if !ScoreScale::needed(members.len(), penalty) {
        return Ok(());
    }
    let own = |member: &ModelMember| {
        let members = std::slice::from_ref(member);
        let ensemble =
            Ensemble { members, fold: None, class_scales: &[], sharpness: 1.0, range_penalty: None, embedding: None };
        predict::scores(ensemble, folds[member.fold].rows, pool).confidence
    };
    let each: Vec<Vec<f64>> = members.iter().filter(|m| !m.role.for_class).map(own).collect();
    members
        .iter_mut()
        .filter(|m| !m.role.for_class)
        .zip(ScoreScale::fit(&each)?)
        .for_each(|(member, scale)| member.scale = scale);
    Ok(())
}

/// The predictions of each fold by the members that left it out; empty for a fold whose members were interrupted.
pub(super) fn predict(
    members: &[ModelMember],
    class_scales: &[ClassScale],
    folds: &[OutOfFold],
    pool: &Pool,
) -> Vec<Predictions> {
    let one = |(fold, out): (usize, &OutOfFold)| {
        if !members.iter().any(|m| m.fold == fold) {
            return Predictions::default();
        }
        let range_penalty = out.range_penalty.as_ref();
        let fold = Some(Fold { index: fold, rows: out.rows.len() });
        predict::scores(
            Ensemble { members, fold, class_scales, sharpness: 1.0, range_penalty, embedding: None },
            out.rows,
            pool,
        )
    };
    folds.iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::digits;
    use crate::train::{Preset, Run};

    fn quick(preset: Preset) -> Settings {
        Settings { hidden: vec![32], latent: 8, epochs: 15, steps: None, batch: 64, ..preset.settings() }
    }

    fn kept(model: &Model, table: &Table) -> f64 {
        let threshold = model.threshold().unwrap();
        let p = model.predict(table).unwrap();
        p.confidence.iter().filter(|&&c| threshold.known(c)).count() as f64 / p.rows() as f64
    }

    #[test]
    fn members_leave_out_different_rows() {
        let table = digits().select(&(0..1000).collect::<Vec<_>>());
        let folds = |members, calibration_fraction| {
            let settings = Settings { members, bins: None, calibration_fraction, ..Preset::Best.settings() };
            Folds::of_table(&table, &settings).unwrap()
        };
        let five = folds(5, None);
        assert_eq!((five.len(), five.left_out.iter().map(Vec::len).collect::<Vec<_>>()), (5, vec![100; 5]));
        let mut all = five.left_out.concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!((all.len(), five.preprocessing().len()), (500, 1000));
        assert!((0..5).all(|f| five.trained_on(f).iter().all(|row| !five.left_out(f).contains(row))));
        // Members for the class leave out rows that others leave out.
        let seven = Folds::of_table(&table, &Preset::Best.settings()).unwrap();
        assert_eq!((&seven, seven.of_member(5), seven.of_member(6)), (&five, 0, 1));
        // More members than folds leave some rows out together.
        let many = folds(7, Some(0.25));
        assert_eq!((many.len(), many.of_member(3), many.of_member(4)), (4, 3, 0));
        assert_eq!(many.left_out.concat().len(), 1000);
        // One member has an ordinary split, and its preprocessing does not see the calibration rows.
        let one = folds(1, None);
        assert_eq!(one.left_out(0), table.split_rows(0.1, 0).unwrap().1);
        assert_eq!(one.preprocessing(), one.trained_on(0));
    }

    /// Classes of one row are trained on, and other rows calibrate; where there are no others, rows of any class do.
    #[test]
    fn small_classes_can_be_trained_on() {
        let x: Vec<f64> = (0..40).map(|i| f64::from(i) * 0.37 % 5.0).collect();
        for (distinct, left_out) in [(3, 18), (20, 20)] {
            let labels: Vec<String> = (0..20).map(|i: usize| i.min(distinct - 1).to_string()).collect();
            let table = Table::from_rows(&x, 2, Some(&labels)).unwrap();
            assert!(Model::fit(&table, &quick(Preset::Best)).is_err());
            let run = Run { min_class_rows: 1, ..Run::default() };
            let model = Model::fit_with(&table, &quick(Preset::Best), &run).unwrap().model;
            assert_eq!(model.calibration().scores().len(), left_out);
            assert_eq!(model.predict(&table).unwrap(), model.predict_matrix(&x, Pool::shared()).unwrap());
        }
    }

    /// Sets of plausible classes contain the true one as often as was asked for.
    #[test]
    fn plausible_classes_cover_the_true_one() {
        let (train, test) = digits().split(0.3, 1).unwrap();
        let settings = quick(Preset::Best);
        let model = Model::fit(&train, &settings).unwrap();
        let predictions = model.predict(&test).unwrap();
        let k = predictions.classes;
        let mut before = 0;
        for coverage in [0.5, 0.8, 0.9, 0.99] {
            let sets = model.plausible_classes(&predictions, coverage).unwrap().unwrap();
            let hit = |row: usize| sets[row * k + test.label(row).unwrap() as usize];
            let covered = (0..test.rows()).filter(|&row| hit(row)).count() as f64 / test.rows() as f64;
            // Five standard errors of a fraction of some 540 rows.
            let error = 5.0 * (coverage * (1.0 - coverage) / test.rows() as f64).sqrt();
            assert!(covered > coverage - error, "{covered} of {coverage}");
            let size = sets.iter().filter(|&&inside| inside).count();
            assert!(size >= before);
            before = size;
        }
        // Not all classes are plausible.
        assert!(before < test.rows() * k / 2, "{before}");
        assert!(model.plausible_classes(&predictions, 1.0).is_err());
        let loaded = Model::from_bytes(&model.to_bytes().unwrap()).unwrap();
        assert_eq!(
            loaded.plausible_classes(&predictions, 0.9).unwrap(),
            model.plausible_classes(&predictions, 0.9).unwrap()
        );
        let svdd = Settings::builder().preset(Preset::Paper).method("deep-svdd").epochs(2).build().unwrap();
        let svdd = Model::fit(&train, &svdd).unwrap();
        assert!(svdd.plausible_classes(&svdd.predict(&test).unwrap(), 0.9).unwrap().is_none());
    }

    #[test]
    fn calibration_scores_are_out_of_fold_predictions() {
        let table = digits().select(&(0..600).collect::<Vec<_>>());
        for settings in [
            quick(Preset::Best),
            Settings { members: 3, calibration_fraction: Some(0.5), ..quick(Preset::Best) },
            Settings { per_class: true, ..quick(Preset::Best) },
            quick(Preset::Fast),
        ] {
            let model = Model::fit(&table, &settings).unwrap();
            let (rows, out) = model.out_of_fold(&table, Pool::shared()).unwrap();
            assert_eq!(rows.len(), out.rows());
            let mut scores = out.confidence.clone();
            scores.sort_by(f64::total_cmp);
            assert_eq!(scores, model.calibration().scores());
            // The class comes from the last two of seven, which left out the first two folds.
            let folds = Folds::of_table(&table, &settings).unwrap();
            let counts = |row: usize| settings.members < 7 || (0..2).any(|fold| folds.calibration(fold).contains(&row));
            let counted = rows.iter().zip(&out.class).filter(|(row, _)| counts(**row));
            let right = counted.clone().filter(|(row, class)| table.label(**row) == Some(**class)).count();
            assert_eq!(model.validation_accuracy(), Some(right as f64 / counted.count() as f64));
            let loaded = Model::from_bytes(&model.to_bytes().unwrap()).unwrap();
            assert_eq!(loaded.out_of_fold(&table, Pool::shared()).unwrap(), (rows, out));
        }
    }

    /// Copies of training rows among the calibration rows would have a distance of 0, and reject every new row.
    #[test]
    fn new_rows_are_kept_when_training_has_copies() {
        let (train, test) = digits().select(&(0..500).collect::<Vec<_>>()).split(0.3, 1).unwrap();
        let copies: Vec<usize> = (0..3).flat_map(|_| 0..train.rows()).collect();
        for preset in [Preset::Best, Preset::Fast] {
            let model = Model::fit(&train.select(&copies), &quick(preset)).unwrap();
            let kept = kept(&model, &test);
            assert!(kept > 0.85, "{kept} with {}", preset.name());
        }
    }

    /// 105 rows were 11 calibration rows, which cannot promise 95%.
    #[test]
    fn a_small_table_can_promise_what_is_asked_for() {
        let (train, test) = digits().select(&(0..500).collect::<Vec<_>>()).split(0.79, 2).unwrap();
        assert!((100..=110).contains(&train.rows()));
        let model = Model::fit(&train, &quick(Preset::Best)).unwrap();
        assert_eq!(model.calibration().scores().len(), train.rows());
        let threshold = model.threshold().unwrap();
        assert_eq!((threshold.tpr, model.calibration().warning(&threshold)), (0.95, None));
        let kept = kept(&model, &test);
        assert!(kept > 0.9, "{kept}");
        let model = Model::fit(&train, &quick(Preset::Fast)).unwrap();
        assert!((19..=22).contains(&model.calibration().scores().len()));
    }

    /// Calibration by class keeps the same fraction of a class with low confidences.
    #[test]
    fn a_rare_class_is_kept_with_calibration_by_class() {
        // The last class has 60 rows, spread widely; the others have 300, close to their centers.
        let mut random = crate::seed::Stream::new(3, "rare");
        let mut rows = |n: usize, center: f64, spread: f64| -> Vec<f64> {
            (0..n).map(|_| center + spread * random.normal()).collect()
        };
        let mut table = |parts: [usize; 3]| {
            let x = [rows(parts[0], 0.0, 0.3), rows(parts[1], 6.0, 0.3), rows(parts[2], 30.0, 6.0)].concat();
            let y = [rows(parts[0], 0.0, 0.3), rows(parts[1], -6.0, 0.3), rows(parts[2], 30.0, 6.0)].concat();
            let labels = ["a", "b", "rare"].iter().zip(parts).flat_map(|(c, n)| vec![*c; n]).collect::<Vec<_>>();
            let table = Table::builder().column("x", x).and_then(|t| t.column("y", y));
            table.and_then(|t| t.labels(labels)).and_then(|t| t.build()).unwrap()
        };
        let (train, test) = (table([300, 300, 60]), table([1, 1, 400]).with_classes(|c| c == 2));
        let plain = kept(&Model::fit(&train, &quick(Preset::Best)).unwrap(), &test);
        let settings = Settings { per_class: true, ..quick(Preset::Best) };
        let by_class = Model::fit(&train, &settings).unwrap();
        let mended = kept(&by_class, &test);
        assert!(plain < 0.85 && mended > 0.88 && mended > plain + 0.05 && mended < 1.0, "{plain} {mended}");
        // A method that does not classify has no classes to calibrate by.
        let settings = Settings::builder().method("deep-svdd").per_class(true).epochs(1).build().unwrap();
        assert!(Model::fit(&train, &settings).err().unwrap().to_string().contains("`per_class`"));
    }

    #[test]
    fn rows_of_a_group_are_never_divided() {
        let text: String = (0..240)
            .map(|i| format!("{:.3},{},p{},{}\n", ((i * i) as f64).sin(), i % 7, i / 6, ["a", "b"][i % 2]))
            .collect();
        let options = crate::data::ReadOptions { group: Some("patient".into()), ..Default::default() };
        let text = format!("x,z,patient,label\n{text}");
        let table = Table::from_bytes(text.into_bytes(), "t.csv", &options).unwrap();
        assert_eq!(table.names, ["x", "z"]);
        for settings in [quick(Preset::Best), quick(Preset::Fast)] {
            let folds = Folds::of_table(&table, &settings).unwrap();
            for fold in 0..folds.len() {
                let trained = folds.trained_on(fold);
                assert!(folds.left_out(fold).iter().all(|row| trained.iter().all(|other| other / 6 != row / 6)));
            }
        }
        let model = Model::fit(&table, &Settings { epochs: 1, ..quick(Preset::Fast) }).unwrap();
        assert!(model.schema().columns.iter().any(|c| c.name == "patient" && c.kind.width() == 0));
    }
}
