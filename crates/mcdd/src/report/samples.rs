//! The rows of a table, or the images, with the highest and the lowest confidence of each class.

use super::figure::{Cell, ClassSamples, MOST_CELLS, Sample, SampleKind};
use crate::compute::pool::Pool;
use crate::data::{Column, ColumnKind, Images, Labels, Schema, Table};
use crate::error::{Error, Result};
use crate::model::{Model, Predictions, Threshold};
use crate::train::{Examples, ImageRows};

/// The rows to show.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    /// What the values of a row represent.
    pub kind: SampleKind,
    /// The rows of each class that has any.
    pub classes: Vec<ClassSamples>,
    /// The number of rows whose label is not a class of the model; they are left out.
    pub foreign: usize,
    /// Whether rows are grouped by their labels; else by the predicted class.
    pub by_label: bool,
}

/// The `each` rows with the highest and the lowest confidence of each class; no row is shown twice. With `picture`, a row
/// is an image of this width and height, with one feature per pixel.
///
/// # Errors
/// If the table does not fit the model, or the number of features is not the number of pixels.
pub fn choose_samples(model: &Model, table: &Table, each: usize, picture: Option<[usize; 2]>) -> Result<Chosen> {
    if let Some(size) = picture {
        check_picture(table, size)?;
    }
    let predictions = model.predict(table)?;
    let name = |row: usize| table.row_name(row);
    choose(model, table.labels.as_ref(), &predictions, each, &name, |all| match picture {
        Some([width, height]) => Ok((SampleKind::Picture { width, height, channels: 1 }, pixels(table, all))),
        None => features(model.schema(), table, all),
    })
}

/// The same for images.
///
/// # Errors
/// If the model is not for images of this shape, or no image has a class of the model.
pub fn choose_images(model: &Model, images: &Images, each: usize, pool: &Pool) -> Result<Chosen> {
    let Some(spec) = &model.schema().image else {
        return Err(Error::data("the model is for tables, and these are images").hint("give a table"));
    };
    let (rows, y): (Vec<usize>, Vec<u32>) = ((0..images.rows()).collect(), vec![0; images.rows()]);
    let predictions = model.predict_examples(Examples::Images(ImageRows { images, rows: &rows, spec, y: &y }), pool)?;
    let name = |row: usize| format!("image {}", row + 1);
    choose(model, images.labels.as_ref(), &predictions, each, &name, |all| {
        let kind = SampleKind::Picture { width: images.width, height: images.height, channels: images.channels };
        let brightness = |row: &usize| images.image(*row).iter().map(|&b| f64::from(b) / 255.0).collect();
        let contents: Vec<Content> = all.iter().map(|row| (brightness(row), Vec::new())).collect();
        Ok((kind, Box::new(contents.into_iter())))
    })
}

/// The kind of all rows, and the values of each.
type Shown = (SampleKind, Box<dyn Iterator<Item = Content>>);

fn choose(
    model: &Model,
    labels: Option<&Labels>,
    predictions: &Predictions,
    each: usize,
    name: &dyn Fn(usize) -> String,
    show: impl FnOnce(&[usize]) -> Result<Shown>,
) -> Result<Chosen> {
    let by_label = labels.is_some();
    let (groups, foreign) = groups(model, labels, predictions);
    let chosen: Vec<(String, [Vec<usize>; 2])> = groups
        .into_iter()
        .filter(|(_, rows)| !rows.is_empty())
        .map(|(name, rows)| (name, ends(rows, &predictions.confidence, each)))
        .collect();
    let all: Vec<usize> = chosen.iter().flat_map(|(_, ends)| ends.iter().flatten().copied()).collect();
    if all.is_empty() {
        return Err(Error::data("no row has a class of this model").hint("check the data and `label`"));
    }
    let (kind, mut contents) = show(&all)?;
    let threshold = model.threshold()?;
    let mut sample = |row: usize| {
        let (values, cells) = contents.next().unwrap_or_default();
        let confidence = predictions.confidence[row].clamp(-1e100, 1e100);
        let note = note(model, labels, predictions, threshold, row);
        Sample { name: name(row), confidence, note, values, cells }
    };
    let mut classes = Vec::new();
    for (name, [highest, lowest]) in chosen {
        let mut samples = |rows: Vec<usize>| rows.into_iter().map(&mut sample).collect();
        classes.push(ClassSamples { name, highest: samples(highest), lowest: samples(lowest) });
    }
    Ok(Chosen { kind, classes, foreign, by_label })
}

type Content = (Vec<f64>, Vec<Cell>);

fn check_picture(table: &Table, [width, height]: [usize; 2]) -> Result<()> {
    let columns = table.columns.len();
    if width.checked_mul(height) != Some(columns) {
        return Err(Error::setting(format!("{width}x{height} pixels are not {columns} features"))
            .hint("give `image` as WIDTHxHEIGHT with as many pixels as there are features, or leave it out"));
    }
    match table.columns.iter().position(|c| matches!(c, Column::Text { .. })) {
        None => Ok(()),
        Some(at) => Err(Error::data("pixels must be numbers, and this column is text")
            .at_column(&table.names[at])
            .hint("leave `image` out")),
    }
}

/// The classes with their rows, and the number of rows without a class.
fn groups(model: &Model, labels: Option<&Labels>, predictions: &Predictions) -> (Vec<(String, Vec<usize>)>, usize) {
    let classes = model.classes();
    let names = if classes.is_empty() { labels.map_or(&[][..], |l| &l.names) } else { classes };
    let mut groups: Vec<(String, Vec<usize>)> = names.iter().map(|c| (c.clone(), Vec::new())).collect();
    let mut foreign = 0;
    if labels.is_none() && predictions.class.is_empty() {
        return (vec![("all rows".into(), (0..predictions.rows()).collect())], 0);
    }
    for row in 0..predictions.rows() {
        let class = match name_of(labels, row) {
            Some(label) => names.iter().position(|c| c == label),
            None => predictions.class.get(row).map(|&c| c as usize),
        };
        match class.and_then(|c| groups.get_mut(c)) {
            Some((_, rows)) => rows.push(row),
            None => foreign += 1,
        }
    }
    (groups, foreign)
}

/// The rows with the highest and the lowest confidence; rows of equal confidence in their order.
fn ends(mut rows: Vec<usize>, confidence: &[f64], each: usize) -> [Vec<usize>; 2] {
    rows.sort_by(|&a, &b| confidence[b].total_cmp(&confidence[a]).then(a.cmp(&b)));
    let high = each.min(rows.len().div_ceil(2));
    let low = each.min(rows.len() / 2);
    [rows[..high].to_vec(), rows.iter().rev().take(low).copied().collect()]
}

/// The label of a row, if it has one.
fn name_of(labels: Option<&Labels>, row: usize) -> Option<&str> {
    let labels = labels?;
    labels.names.get(*labels.codes.get(row)? as usize).map(String::as_str)
}

/// A note on a row that is misclassified or rejected.
fn note(model: &Model, labels: Option<&Labels>, predictions: &Predictions, threshold: Threshold, row: usize) -> String {
    let predicted = predictions.class.get(row).and_then(|&c| model.classes().get(c as usize));
    let wrong = predicted.filter(|&s| name_of(labels, row).is_some_and(|label| label != s));
    let unknown = !threshold.known(predictions.confidence[row]);
    match (wrong, unknown) {
        (Some(class), _) => format!("{}→ {class}", if unknown { "unknown " } else { "" }),
        (None, true) => "unknown".into(),
        (None, false) => String::new(),
    }
}

/// The pixels of some rows, scaled from their minimum to their maximum.
fn pixels(table: &Table, rows: &[usize]) -> Box<dyn Iterator<Item = Content>> {
    let value = |c: &Column, row: usize| match c {
        Column::Number(values) if values[row].is_finite() => values[row],
        _ => 0.0,
    };
    let rows: Vec<Vec<f64>> = rows.iter().map(|&r| table.columns.iter().map(|c| value(c, r)).collect()).collect();
    let all = || rows.iter().flatten().copied();
    let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
    let span = if high > low { high / 2.0 - low / 2.0 } else { 1.0 };
    let scaled = move |v: f64| (v / 2.0 - low / 2.0) / span;
    Box::new(rows.into_iter().map(move |r| (r.into_iter().map(scaled).collect(), Vec::new())))
}

/// The standardized inputs of some rows, and if they are few their values in the data.
fn features(schema: &Schema, table: &Table, rows: &[usize]) -> Result<Shown> {
    let x = schema.transform(table, Some(rows))?;
    let width = schema.width();
    // Numbers are shown as the table has them.
    let cells = |x: &[f32]| -> Vec<Cell> {
        let mut cells = Vec::with_capacity(width);
        for (column, at) in schema.inputs() {
            let x = &x[at];
            let (first, rest) = match &column.kind {
                ColumnKind::Numeric { mean, std, .. } => {
                    let value = without_noise(mean + f64::from(x[0]) * std, *std);
                    (vec![Cell::Number(value)], &x[1..])
                }
                ColumnKind::Time { cycles, .. } => {
                    let (cyclic, rest) = x[1..].split_at(2 * cycles.len());
                    let numbers = cyclic.iter().map(|&v| Cell::Number(without_noise(f64::from(v), 1.0)));
                    (std::iter::once(Cell::Word(column.cell(x))).chain(numbers).collect(), rest)
                }
                ColumnKind::Categorical { .. } | ColumnKind::Dropped { .. } => (Vec::new(), x),
            };
            cells.extend(first);
            cells.extend(rest.iter().map(|&z| Cell::Word(if z > 0.5 { "yes" } else { "no" }.into())));
        }
        cells
    };
    let rows: Vec<Content> = x
        .chunks_exact(width.max(1))
        .map(|x| {
            let z: Vec<f64> = x.iter().map(|&v| f64::from(v)).collect();
            let few = width <= MOST_CELLS;
            let cells = if few { cells(x) } else { Vec::new() };
            (z, cells)
        })
        .collect();
    Ok((SampleKind::Features(schema.input_names()), Box::new(rows.into_iter())))
}

/// A number that was rounded to single precision, with rounding errors around 0 removed.
fn without_noise(value: f64, deviation: f64) -> f64 {
    let unit = deviation * 1e-6;
    if !(value.is_finite() && unit > 0.0) {
        return 0.0;
    }
    if value.abs() < 2.0 * unit { 0.0 } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::digits;
    use crate::report::figure;
    use crate::train::{Preset, Settings};

    #[test]
    fn ends_do_not_share_a_row() {
        let confidence = [0.5, 2.0, -1.0, 0.5, 1.0];
        assert_eq!(ends(vec![0, 1, 2, 3, 4], &confidence, 2), [vec![1, 4], vec![2, 3]]);
        assert_eq!(ends(vec![0, 1, 2], &confidence, 5), [vec![1, 0], vec![2]]);
        assert_eq!(ends(vec![3], &confidence, 5), [vec![3], vec![]]);
    }

    #[test]
    fn rows_of_a_model_are_chosen_and_drawn() {
        let table = digits().select(&(0..400).collect::<Vec<_>>());
        let settings = Settings { hidden: vec![16], latent: 4, epochs: 3, ..Preset::Paper.settings() };
        let (known, _) = table.leave_out("3").unwrap();
        let model = Model::fit(&known, &settings).unwrap();
        for picture in [Some([8, 8]), None] {
            let chosen = choose_samples(&model, &table, 3, picture).unwrap();
            assert_eq!(chosen.classes.len(), 9);
            assert_eq!(chosen.foreign, table.rows() - known.rows());
            for class in &chosen.classes {
                let lowest = class.highest.iter().map(|s| s.confidence).fold(f64::INFINITY, f64::min);
                assert!(class.lowest.iter().all(|s| s.confidence <= lowest));
            }
            let drawn = figure::samples("Samples", "", &chosen.kind, &chosen.classes).unwrap();
            assert!(drawn.svg().contains("Highest confidence"));
        }
        assert_eq!((without_noise(1e-9, 1.0), without_noise(-0.5, 1.0), without_noise(1.0, 0.0)), (0.0, -0.5, 0.0));
        assert!(choose_samples(&model, &table, 3, Some([8, 7])).is_err());
        // Without labels the predicted classes are used.
        let mut bare = table;
        bare.labels = None;
        let chosen = choose_samples(&model, &bare, 2, None).unwrap();
        assert!(!chosen.by_label && chosen.foreign == 0);
    }
}
