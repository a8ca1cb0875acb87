//! From sources through a model or a scorer to an output.

use serde::Serialize;

use super::blocks::Blocks;
use super::features::FeatureFiles;
use super::output::Output;
use super::pipeline::predict_blocks;
use super::writer::Block;
use crate::compute::pool::Pool;
use crate::data::{Batch, Label, Notices, ReadOptions};
use crate::error::{Error, Result};
use crate::model::{Model, Predictions, Scorer, Threshold};

/// What a stream of predictions had in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The number of rows.
    pub rows: u64,
    /// The number of rows that are unknown.
    pub unknown: u64,
    /// The number of images that could not be read, where these are skipped.
    pub bad: u64,
    /// Notices about the sources.
    pub notices: Notices,
}

/// Calls `each` with each block of a source and its predictions without distances, in order, and returns the notices of the source. As many threads
/// score as `pool` has, while another one reads and the calling thread runs `each`.
///
/// # Errors
/// If the source cannot be read or does not match the model, and the errors of `each`.
pub fn predict_each<E: From<Error>>(
    model: &Model,
    source: impl Blocks,
    pool: &Pool,
    each: impl FnMut(&Batch, &Predictions) -> Result<(), E>,
) -> Result<Notices, E> {
    predict_blocks(model, source, false, pool.threads(), each)
}

/// Predicts the rows of all sources, one source after the other, and writes the predictions.
///
/// # Errors
/// If a source cannot be read or does not match the model, if the model does not have the columns, or if writing fails.
pub fn predict<S: Blocks>(
    model: &Model,
    sources: impl IntoIterator<Item = Result<S>>,
    threshold: Threshold,
    output: Output,
    pool: &Pool,
) -> Result<Summary> {
    if output.columns.distances && !model.has_distances() {
        return Err(Error::setting("the method of this model has no distances").hint("leave `distances` out"));
    }
    if output.columns.probs && !model.classifies() {
        return Err(Error::setting("the method of this model does not classify").hint("leave `probs` out"));
    }
    let classes = if model.classifies() { model.classes() } else { &[] };
    let distances = output.columns.distances;
    output.write(classes, threshold, |writer| {
        let mut summary = Summary::default();
        for source in sources {
            let source = source?;
            summary.notices.extend(writer.source(source.kept())?);
            let notices = predict_blocks(model, source, distances, pool.threads(), |batch, predictions| {
                summary.rows += predictions.rows() as u64;
                summary.bad += batch.bad.len() as u64;
                let block = Block { predictions, names: &batch.names, bad: &batch.bad, kept: &[] };
                summary.unknown += writer.write(block, &batch.kept)?;
                Ok::<(), Error>(())
            })?;
            summary.notices.extend(notices);
        }
        Ok(summary)
    })
}

/// Scores the rows of files of features and logits, and writes the predictions.
///
/// # Errors
/// If the files cannot be read or do not match the scorer, if the scorer does not have the columns, or if writing fails.
pub fn score(
    scorer: &Scorer,
    mut files: FeatureFiles,
    threshold: Threshold,
    output: Output,
    pool: &Pool,
) -> Result<Summary> {
    for (name, missing) in
        [("distances", output.columns.distances), ("probs", output.columns.probs && !scorer.classifies())]
    {
        if missing {
            let detector = scorer.settings().detector.name();
            return Err(Error::setting(format!("{detector} has no {name}")).hint(format!("leave `{name}` out")));
        }
    }
    files.check(scorer)?;
    let classes = if scorer.classifies() { scorer.classes() } else { &[] };
    output.write(classes, threshold, |writer| {
        let mut predictions = Predictions::default();
        let notices = writer.source(files.kept())?;
        let mut summary = Summary { notices, ..Summary::default() };
        while let Some(block) = files.next_block()? {
            scorer.predict(&block.rows(), &mut predictions, pool)?;
            summary.rows += predictions.rows() as u64;
            let out = Block { predictions: &predictions, names: &[], bad: &[], kept: &[] };
            summary.unknown += writer.write(out, &block.kept)?;
        }
        summary.notices = files.notices();
        Ok(summary)
    })
}

/// Read options for rows whose labels are not used: the folders of images need not be classes then.
pub fn without_labels(model: &Model, options: ReadOptions) -> ReadOptions {
    match (&model.schema().image, &options.label) {
        (Some(_), Label::Auto) => ReadOptions { label: Label::None, ..options },
        _ => options,
    }
}
