//! Reading a table for prediction: block by block, in bounded memory, straight to the network's inputs.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use super::batch::{Batch, Unseen};
use super::column::{Cells, ColumnBuilder, MISSING, Want};
use super::encode::{Encoder, Tally};
use super::form::Form;
use super::kept::{Kept, KeptField};
use super::options::{Label, ReadOptions};
use super::schema::{ColumnKind, Schema, no_names};
use super::source::{LabelAt, Side, Source};
use super::text::{Notices, count, list, quoted, shown};
use crate::compute::pool::{Pool, chunks};
use crate::error::{Error, Result, Row};

/// Rows that are encoded together, so that they stay in the cache.
const CHUNK: usize = 256;

/// A file bound to a model's columns.
pub struct TableReader {
    source: Source,
    schema: Schema,
    /// The file's columns.
    columns: Vec<ColumnBuilder>,
    /// For each of the schema's columns the file's.
    bound: Vec<Option<usize>>,
    label: Option<usize>,
    side: Option<Side>,
    side_column: Vec<ColumnBuilder>,
    tallies: Vec<Tally>,
    extra: Vec<String>,
    /// The columns that are passed through: positions in `columns`, and beyond them in `side_column`.
    kept: Vec<usize>,
    rows: u64,
    done: bool,
    /// Whether rows without a label are left out, and how many there were.
    skip_unlabeled: bool,
    unlabeled: usize,
}

impl TableReader {
    /// Binds the columns of what `open` opens, with the options that the schema asks for.
    pub(crate) fn open(
        schema: &Schema,
        options: &ReadOptions,
        open: impl FnOnce(&ReadOptions) -> Result<Source>,
    ) -> Result<TableReader> {
        let mut options = options.clone();
        if schema.named {
            if options.header == Some(false) {
                return Err(no_names());
            }
            options.header = Some(true);
        } else {
            let numeric =
                schema.columns.iter().any(|c| matches!(c.kind, ColumnKind::Numeric { .. } | ColumnKind::Time { .. }));
            // Without a numeric column nothing could tell a header from a row.
            if !numeric && options.header.is_none() {
                options.header = Some(false);
            }
        }
        let mut source = open(&options)?;
        let path = &Arc::clone(source.file());
        source.fix_width();
        if schema.named {
            let used = || schema.columns.iter().filter(|column| column.kind.width() > 0);
            source.look_for(Some(&used().map(|column| column.name.as_str()).collect::<Vec<_>>()))?;
            // A column that was missing in training rows may be missing in all rows here, and so may every column of none.
            let empty = source.names().is_empty();
            source.add_missing(used().filter(|c| empty || c.kind.has_indicator()).map(|c| c.name.as_str()));
        }
        let bind = if schema.named { bind_named } else { bind_positional };
        let bound = bind(schema, &source, &options.label).map_err(|e| source.with_sheets(e).at_file(path))?;
        let file = Arc::clone(source.file());
        let mut names = source.names().to_vec();
        if source.is_libsvm() {
            names.extend((1..=schema.columns.len()).map(super::libsvm::feature_name));
        }
        let mut wants = vec![Want::Skip; names.len()];
        let mut forms = vec![None; names.len()];
        for (column, at) in schema.columns.iter().zip(&bound.columns) {
            if let Some(at) = *at {
                wants[at] = match column.kind {
                    ColumnKind::Numeric { .. } | ColumnKind::Time { .. } => Want::Number,
                    ColumnKind::Categorical { .. } => Want::Text,
                    ColumnKind::Dropped { .. } => Want::Skip,
                };
                forms[at].clone_from(&column.form);
            }
        }
        let (mut label, mut side) = (None, None);
        match bound.label {
            LabelAt::Column(at) => {
                if wants[at] != Want::Skip {
                    return Err(Error::data("the label column is one of the model's features")
                        .at_file(path)
                        .at_column(shown(&names[at]))
                        .hint("give another column by `label`, or `label` none"));
                }
                wants[at] = Want::OptionalLabel;
                label = Some(at);
            }
            LabelAt::Side(found) => side = Some(found),
            LabelAt::None => {}
        }
        let build = |(name, (want, form)): (&String, (Want, Option<Form>))| match want {
            Want::Number => ColumnBuilder::in_form(name, form, Arc::clone(&file)),
            _ => ColumnBuilder::new(name, want, Arc::clone(&file)),
        };
        let mut columns: Vec<ColumnBuilder> = names.iter().zip(wants.into_iter().zip(forms)).map(build).collect();
        let mut side_column: Vec<ColumnBuilder> = side
            .iter()
            .map(|side| ColumnBuilder::new(&side.name, Want::OptionalLabel, Arc::clone(&side.file)))
            .collect();
        names.extend(side.iter().map(|side| side.name.clone()));
        let kept = options.pass_through.find(&names).map_err(|e| e.at_file(path))?;
        for &at in &kept {
            if let Some(column) = columns.iter_mut().chain(&mut side_column).nth(at) {
                column.kept = Some(Kept::default());
            }
        }
        let extra = bound.extra.into_iter().filter(|name| !kept.iter().any(|&at| names[at] == *name)).collect();
        Ok(TableReader {
            source,
            tallies: vec![Tally::default(); schema.columns.len()],
            schema: schema.clone(),
            columns,
            bound: bound.columns,
            label,
            side,
            side_column,
            extra,
            kept,
            rows: 0,
            done: false,
            skip_unlabeled: options.skip_unlabeled,
            unlabeled: 0,
        })
    }

    pub(crate) fn has_labels(&self) -> bool {
        self.label.is_some() || self.side.is_some()
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// The columns that are passed through.
    pub(crate) fn kept(&self) -> Vec<KeptField> {
        let field = |&at: &usize| match self.columns.get(at) {
            Some(column) => Some(KeptField { name: column.name().to_owned(), kind: self.source.kept_type(at) }),
            None => self.side.as_ref().map(|side| KeptField { name: side.name.clone(), kind: side.kept_type() }),
        };
        self.kept.iter().filter_map(field).collect()
    }

    pub(crate) fn next(&mut self, max_rows: usize, out: &mut Batch) -> Result<bool> {
        while self.block(max_rows, out)? {
            if self.skip_unlabeled {
                self.leave_out_unlabeled(out);
            }
            if out.rows > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes the rows without a label from a block.
    fn leave_out_unlabeled(&mut self, out: &mut Batch) {
        let Some(labels) = out.labels.as_mut().filter(|labels| labels.iter().any(Option::is_none)) else {
            return;
        };
        let width = self.schema.width();
        let mut kept = 0;
        // The place of each row among those that stay.
        let mut places = vec![None; labels.len()];
        for row in (0..labels.len()).filter(|&row| labels[row].is_some()) {
            out.x.copy_within(row * width..(row + 1) * width, kept * width);
            places[row] = Some(kept);
            kept += 1;
        }
        out.x.truncate(kept * width);
        labels.retain(Option::is_some);
        let mut stays = places.iter();
        out.places.retain(|_| stays.next().is_some_and(Option::is_some));
        out.unseen_cells.retain_mut(|cell| match places.get(cell.row) {
            Some(Some(place)) => {
                cell.row = *place;
                true
            }
            _ => false,
        });
        self.unlabeled += out.rows - kept;
        out.rows = kept;
    }

    fn block(&mut self, max_rows: usize, out: &mut Batch) -> Result<bool> {
        out.rows = 0;
        out.x.clear();
        out.missing = 0;
        out.unseen = 0;
        out.unseen_cells.clear();
        out.places.clear();
        out.labels = None;
        out.kept.iter_mut().for_each(Kept::clear);
        if self.done {
            return Ok(false);
        }
        for column in self.columns.iter_mut().chain(&mut self.side_column) {
            column.clear();
        }
        let max_rows = max_rows.max(1);
        let rows = self.source.fill(max_rows, &mut self.columns)?;
        if let Some(side) = &mut self.side {
            side.fill(rows, &[], &mut self.side_column)?;
        }
        self.done = rows < max_rows;
        if self.done
            && let Some(side) = &mut self.side
        {
            // Into a column of its own: the labels of this block are still needed.
            side.at_end(&mut vec![ColumnBuilder::new("", Want::Skip, Arc::clone(self.source.file()))])?;
        }
        if rows == 0 {
            return Ok(false);
        }
        let lines = self.source.lines();
        let place = |i: usize| Row {
            number: self.rows + i as u64 + 1,
            line: lines.get(i).and_then(|&line| NonZeroU64::new(line)),
        };
        out.places.extend((0..rows).map(place));
        self.rows += rows as u64;
        self.encode(rows, out);
        out.kept.resize_with(self.kept.len(), Kept::default);
        for (&at, to) in self.kept.iter().zip(&mut out.kept) {
            if let Some(kept) =
                self.columns.iter_mut().chain(&mut self.side_column).nth(at).and_then(|c| c.kept.as_mut())
            {
                std::mem::swap(kept, to);
            }
        }
        Ok(true)
    }

    fn encode(&mut self, rows: usize, out: &mut Batch) {
        let width = self.schema.width();
        out.rows = rows;
        out.x.resize(rows * width, 0.0);
        let mut encoders = Vec::with_capacity(self.schema.columns.len());
        let mut offset = 0;
        for (index, (column, at)) in self.schema.columns.iter().zip(&self.bound).enumerate() {
            if let Some(at) = *at {
                encoders.push((index, Encoder::new(&column.kind, offset, width), &self.columns[at].cells));
            }
            offset += column.kind.width();
        }
        // For each chunk of rows the counts of all columns.
        let mut tallies = vec![Tally::default(); rows.div_ceil(CHUNK) * encoders.len()];
        let parts = (chunks(&mut out.x, CHUNK * width), chunks(&mut tallies, encoders.len()));
        Pool::shared().split(parts, |chunk, (x, tallies)| {
            let range = chunk * CHUNK..rows.min((chunk + 1) * CHUNK);
            for ((_, encoder, cells), tally) in encoders.iter().zip(tallies) {
                match cells {
                    Cells::Number(values) => encoder.write_numbers(values, range.clone(), x, tally),
                    Cells::Text(texts) => {
                        encoder.write_texts(&texts.codes, &texts.names, range.clone(), x, tally);
                    }
                    Cells::Skip | Cells::Undecided(_) => {}
                }
            }
        });
        for (chunk, tallies) in tallies.chunks_mut(encoders.len().max(1)).enumerate() {
            for (&(column, ..), tally) in encoders.iter().zip(tallies) {
                out.missing += tally.missing;
                out.unseen += tally.unseen;
                let cells = tally.cells.drain(..).map(|(row, text)| Unseen { row: chunk * CHUNK + row, column, text });
                out.unseen_cells.extend(cells);
                self.tallies[column].add(tally);
            }
        }
        out.unseen_cells.sort_by_key(|cell| (cell.row, cell.column));
        let labels = match (self.label, self.side_column.first()) {
            (Some(at), _) => Some(&self.columns[at]),
            (None, side) => side,
        };
        if let Some(Cells::Text(texts)) = labels.map(|b| &b.cells) {
            let name = |&code: &u32| (code != MISSING).then(|| texts.names[code as usize].clone());
            out.labels = Some(texts.codes.iter().map(name).collect());
        }
    }

    pub(crate) fn notices(&self) -> Notices {
        let mut notices = self.source.notices();
        if self.done && self.rows == 0 {
            notices.push(format!("{} has no rows", self.source.shown()));
        }
        if self.unlabeled > 0 {
            notices.push(format!("{} without a label left out", count(self.unlabeled, "row")));
        }
        if !self.extra.is_empty() {
            notices.push(format!("{} ignored: {}", count(self.extra.len(), "extra column"), list(&self.extra)));
        }
        if self.source.left_out() > 0 {
            notices.push(format!(
                "{} beyond the model's {} ignored",
                count(self.source.left_out(), "feature"),
                self.schema.columns.len()
            ));
        }
        for (numeric, what) in [(true, "imputed by the training mean"), (false, "of categories taken as no category")] {
            let missing: Vec<usize> = self
                .schema
                .columns
                .iter()
                .zip(&self.tallies)
                .filter(|(column, _)| matches!(column.kind, ColumnKind::Categorical { .. }) != numeric)
                .map(|(_, tally)| tally.missing)
                .filter(|&missing| missing > 0)
                .collect();
            if !missing.is_empty() {
                notices.push(format!(
                    "{} in {} {what}",
                    count(missing.iter().sum(), "missing cell"),
                    count(missing.len(), "column")
                ));
            }
        }
        let unseen: usize = self.tallies.iter().map(|t| t.unseen).sum();
        if unseen > 0 {
            let places: Vec<String> = self
                .schema
                .columns
                .iter()
                .zip(&self.tallies)
                .filter(|(_, t)| t.unseen > 0)
                .map(|(column, t)| {
                    let more = if t.unseen > t.examples.len() { ", …" } else { "" };
                    let examples: Vec<String> = t.examples.iter().map(|e| quoted(e)).collect();
                    format!("column {}: {}{more}", shown(&column.name), examples.join(", "))
                })
                .collect();
            notices.push(format!(
                "{} a category not seen in training ({})",
                if unseen == 1 { "1 cell holds".into() } else { format!("{unseen} cells hold") },
                places.join("; ")
            ));
        }
        notices
    }
}

/// Which columns of a file are the model's.
struct Bound {
    columns: Vec<Option<usize>>,
    label: LabelAt,
    extra: Vec<String>,
}

fn bind_named(schema: &Schema, source: &Source, label: &Label) -> Result<Bound> {
    if !source.named() {
        return Err(no_names());
    }
    let names = source.names();
    let found: HashMap<&str, usize> = names.iter().enumerate().map(|(i, n)| (n.as_str(), i)).collect();
    let columns = schema.bind_names(&found, names)?;
    let label = match (label, &schema.label) {
        (Label::Auto, Some(label)) => match found.get(label.name.as_str()) {
            Some(&at) if label.position.is_some() => LabelAt::Column(at),
            _ => LabelAt::None,
        },
        (Label::Auto, None) => LabelAt::None,
        (label, _) => source.find_label(label)?.unwrap_or(LabelAt::None),
    };
    let known: std::collections::HashSet<&str> = schema.columns.iter().map(|c| c.name.as_str()).collect();
    let extra = names
        .iter()
        .enumerate()
        .filter(|(at, name)| !known.contains(name.as_str()) && !matches!(label, LabelAt::Column(l) if l == *at))
        .map(|(_, name)| name.clone())
        .collect();
    Ok(Bound { columns, label, extra })
}

fn bind_positional(schema: &Schema, source: &Source, label: &Label) -> Result<Bound> {
    let needed = schema.columns.len();
    if source.is_libsvm() {
        let label = match label {
            Label::None => LabelAt::None,
            label => source.find_label(label)?.unwrap_or(LabelAt::None),
        };
        return Ok(Bound { columns: (1..=needed).map(Some).collect(), label, extra: Vec::new() });
    }
    let width = source.names().len();
    let label = match label {
        Label::Auto => match source.find_label(&Label::Auto)? {
            Some(LabelAt::Side(side)) => LabelAt::Side(side),
            Some(LabelAt::Column(at)) if width == needed + 1 => LabelAt::Column(at),
            _ if width == needed + 1 => match schema.label.as_ref().and_then(|l| l.position) {
                Some(at) => LabelAt::Column(at.min(needed)),
                None => {
                    return Err(schema
                        .wrong_count(width, "columns")
                        .hint("give `label`, the position of the label: last, first or a number"));
                }
            },
            _ => LabelAt::None,
        },
        label => source.find_label(label)?.unwrap_or(LabelAt::None),
    };
    let at_column = match label {
        LabelAt::Column(at) => Some(at),
        _ => None,
    };
    let columns: Vec<Option<usize>> = (0..width).filter(|at| Some(*at) != at_column).map(Some).collect();
    if columns.len() != needed {
        return Err(schema.wrong_count(columns.len(), "feature columns"));
    }
    Ok(Bound { columns, label, extra: Vec::new() })
}
