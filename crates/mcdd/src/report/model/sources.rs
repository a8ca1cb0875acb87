//! Rows for a report, from a model's calibration rows, from tables, and from batches of a stream.

use super::{About, Gather, Place, Report, Side};
use crate::compute::pool::Pool;
use crate::data::{Batch, Images, Table, Unseen};
use crate::error::Result;
use crate::evaluate::{Bootstrap, Evaluator};
use crate::model::{Model, Predictions};

/// What a report is made from.
#[derive(Clone, Copy, Debug)]
pub enum ReportData<'a> {
    /// A table.
    Table(&'a Table),
    /// Images.
    Images(&'a Images),
}

/// The network's inputs of some rows, and the categories among them that are not in the schema.
fn inputs(model: &Model, data: ReportData, rows: &[usize]) -> Result<(Vec<f32>, Vec<Unseen>)> {
    match data {
        ReportData::Table(table) => model.schema().transform_and_list(table, Some(rows)),
        ReportData::Images(images) => {
            let spec = model.image_spec(images)?;
            let mut x = vec![0.0; rows.len() * images.shape().values()];
            spec.transform_into(&images.select(rows).pixels, &mut x);
            Ok((x, Vec::new()))
        }
    }
}

impl Report {
    /// The report on the calibration rows of a model, each predicted by the members that were not trained on it. The
    /// threshold is set on these rows. `data` is what the model was trained on.
    ///
    /// # Errors
    /// If the data do not match the model.
    pub fn of_calibration_rows(model: &Model, data: ReportData, about: About, pool: &Pool) -> Result<Report> {
        let (rows, predictions) = match data {
            ReportData::Table(table) => model.out_of_fold(table, pool)?,
            ReportData::Images(images) => model.out_of_fold_images(images, pool)?,
        };
        let inputs = inputs(model, data, &rows)?;
        Self::of_predictions(
            model,
            data,
            &rows,
            (&inputs, &predictions),
            About { on_calibration_rows: true, ..about },
            pool,
        )
    }

    /// The report on some rows of the data, by their numbers there. Their classes must be those of the model.
    ///
    /// # Errors
    /// If the data do not match the model.
    pub fn of_rows(model: &Model, data: ReportData, rows: &[usize], about: About, pool: &Pool) -> Result<Report> {
        let inputs = inputs(model, data, rows)?;
        let mut predictions = Predictions::default();
        model.predict_rows(&inputs.0, &mut predictions, pool)?;
        Self::of_predictions(model, data, rows, (&inputs, &predictions), about, pool)
    }

    fn of_predictions(
        model: &Model,
        data: ReportData,
        rows: &[usize],
        ((x, unseen), predictions): (&(Vec<f32>, Vec<Unseen>), &Predictions),
        about: About,
        pool: &Pool,
    ) -> Result<Report> {
        let labels = match data {
            ReportData::Table(table) => table.labels.as_ref(),
            ReportData::Images(images) => images.labels.as_ref(),
        };
        let mut gather = Gather::new(model, model.settings().tpr, 0, model.settings().seed)?;
        let mut evaluator = Evaluator::new(model.classes(), model.threshold()?);
        for (i, (x, &row)) in x.chunks_exact(model.schema().width()).zip(rows).enumerate() {
            let class = labels.and_then(|l| Some(*l.codes.get(row)? as usize));
            let name = labels.and_then(|l| l.names.get(class?)).map(String::as_str);
            let file = match data {
                ReportData::Table(table) => table.files().nth(1).map(|_| table.row_name(row)),
                ReportData::Images(images) => Some(images.name(row)),
            };
            let row = match data {
                ReportData::Table(table) => table.row_number(row),
                ReportData::Images(_) => row as u64 + 1,
            };
            let at = Place { row: row.into(), file: file.as_deref(), unseen: Unseen::of_row(unseen, i) };
            gather.add(Side::Known(class), at, x, name, predictions, i);
            let label = class.filter(|&c| c < model.classes().len()).map(|c| c as u32);
            evaluator.add_row(predictions.confidence[i], predictions.class.get(i).copied(), label);
        }
        let found = evaluator.finish(Bootstrap::default())?;
        gather.finish(about, &found, pool)
    }

    /// The report on in-distribution rows, and on named sets of out-of-distribution rows. The seed selects the rows that are
    /// drawn, and the bootstrap replicates.
    ///
    /// # Errors
    /// If the data do not match the model.
    pub fn of_data(
        model: &Model,
        known: ReportData,
        ood: &[(&str, ReportData)],
        about: About,
        seed: u64,
        pool: &Pool,
    ) -> Result<Report> {
        let mut gather = Gather::new(model, model.settings().tpr, ood.len(), seed)?;
        let mut evaluator = Evaluator::new(model.classes(), model.threshold()?);
        let mut predictions = Predictions::default();
        let rows = batch(model, known)?;
        model.predict_rows(&rows.x, &mut predictions, pool)?;
        evaluator.add(&predictions, rows.labels.as_deref());
        gather.add_known(&rows, &predictions, &about.data);
        for &(name, data) in ood {
            let (set, scored) = (gather.set(name), evaluator.ood_set(name));
            let rows = batch(model, data)?;
            model.predict_rows(&rows.x, &mut predictions, pool)?;
            evaluator.add_ood(scored, &predictions.confidence);
            gather.add_unknown(set, &rows, &predictions);
        }
        let found = evaluator.finish(Bootstrap { seed, ..Bootstrap::default() })?;
        gather.finish(about, &found, pool)
    }
}

/// All rows as one batch.
fn batch(model: &Model, data: ReportData) -> Result<Batch> {
    let rows = match data {
        ReportData::Table(table) => table.rows(),
        ReportData::Images(images) => images.rows(),
    };
    let (x, unseen_cells) = inputs(model, data, &(0..rows).collect::<Vec<_>>())?;
    let label = |row| match data {
        ReportData::Table(table) => table.label_name(row).map(str::to_owned),
        ReportData::Images(images) => images.label_name(row).map(str::to_owned),
    };
    // A model without classes does not use labels.
    let labels = (!model.classes().is_empty()).then(|| (0..rows).map(label).collect());
    let (places, names) = match data {
        ReportData::Table(table) => ((0..rows).map(|row| table.row_number(row).into()).collect(), Vec::new()),
        ReportData::Images(images) => (Vec::new(), (0..rows).map(|row| images.name(row)).collect()),
    };
    Ok(Batch { rows, x, places, names, labels, unseen_cells, ..Batch::default() })
}

/// The place of a row of a batch; `count` is its number if the batch does not have it.
fn place(batch: &Batch, i: usize, count: u64) -> Place<'_> {
    let row = batch.places.get(i).copied().unwrap_or(count.into());
    Place { row, file: batch.names.get(i).map(String::as_str), unseen: Unseen::of_row(&batch.unseen_cells, i) }
}

impl Gather<'_> {
    /// Adds a batch of in-distribution rows, numbered on from the batch before. Rows with a label that is not a class of the
    /// model go to an unknown set of their own; `name` is what the set calls the source.
    pub fn add_known(&mut self, batch: &Batch, predictions: &Predictions, name: &str) {
        let model = self.model;
        for (i, x) in batch.x.chunks_exact(model.schema().width()).enumerate() {
            self.known_rows += 1;
            let label = batch.labels.as_ref().and_then(|l| l[i].as_deref());
            let side = match label.map(|l| model.classes().iter().position(|c| c == l)) {
                Some(None) => Side::Unknown(self.foreign_set(name)),
                class => Side::Known(class.flatten()),
            };
            let at = place(batch, i, self.known_rows);
            self.add(side, at, x, label, predictions, i);
        }
    }

    /// Adds a batch of rows to an unknown set, numbered on from the batch before.
    pub fn add_unknown(&mut self, set: usize, batch: &Batch, predictions: &Predictions) {
        for (i, x) in batch.x.chunks_exact(self.model.schema().width()).enumerate() {
            self.sets[set].rows += 1;
            let label = batch.labels.as_ref().and_then(|l| l[i].as_deref());
            let at = place(batch, i, self.sets[set].rows);
            self.add(Side::Unknown(set), at, x, label, predictions, i);
        }
    }

    fn foreign_set(&mut self, name: &str) -> usize {
        match self.foreign {
            Some(set) => set,
            None => {
                let set = self.set(&format!("{name}: labels that are not classes of the model"));
                *self.foreign.insert(set)
            }
        }
    }
}
