//! Computes the report from the gathered rows.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use serde_json::Value;

use super::best::Lowest;
use super::gather::{Gather, MOST_CLASSES, Row};
use super::picture::Thumbnails;
use super::plane::{Projection, distance};
use super::{About, Class, Group, Map, Percentage, Plane, Point, Report, Trained, Worth, curves, percent};
use crate::compute::pool::Pool;
use crate::data::sets::thousands;
use crate::error::{Error, Result, plural};
use crate::evaluate::Evaluation;
use crate::head::Loop;
use crate::model::{Model, Occlusion};
use crate::report::figure::{self, Sphere, View};
use crate::report::html::name;

/// Columns that explain a row.
const COLUMNS: usize = 5;
/// The largest number of predictions for all explanations.
const PREDICTIONS: usize = 20_000;
/// The largest number of images with a map.
const MAPS: usize = 80;
/// The largest number of least confident rows, if there are many classes.
const LEAST: usize = 30;
/// Unknown sets whose most confident rows are shown.
const SETS: usize = 10;
/// Epochs and networks that are drawn.
const EPOCHS: usize = 200;
const NETWORKS: usize = 10;

/// A position within the range that can be drawn.
fn near(at: [f64; 2]) -> [f64; 2] {
    at.map(|v| short(v.clamp(-1e60, 1e60), 5))
}

/// A number with `digits` significant digits.
fn short(value: f64, digits: usize) -> f64 {
    format!("{value:.*e}", digits - 1).parse().unwrap_or(value)
}

/// Findings and notices with long names of classes and columns are truncated.
fn shortened(text: &str) -> String {
    const MOST: usize = 400;
    let short: String = text.chars().take(MOST).collect();
    if short.len() < text.len() { short + "…" } else { short }
}

/// Rows that are shown, each once.
#[derive(Default)]
struct Shown {
    rows: Vec<Row>,
    /// Whether a row belongs to the random sample; statistics use only these.
    sampled: Vec<bool>,
    at: BTreeMap<(usize, u64), usize>,
}

impl Shown {
    fn add(&mut self, row: Row) -> usize {
        let next = self.rows.len();
        let at = *self.at.entry((row.set, row.row.number)).or_insert(next);
        if at == next {
            self.rows.push(row);
            self.sampled.push(false);
        }
        at
    }

    /// The class of a known row of the random sample.
    fn class(&self, at: usize) -> Option<usize> {
        group(&self.rows[at]).filter(|_| self.sampled[at])
    }
}

impl Gather<'_> {
    /// Makes the report. `found` is the evaluation of the same rows and sets, in the same order.
    ///
    /// # Errors
    /// If no known row was added, or the evaluation is of other rows.
    pub fn finish(self, mut about: About, found: &Evaluation, pool: &Pool) -> Result<Report> {
        let model = self.model;
        self.check(found)?;
        (about.title, about.data) = (name(&about.title), name(&about.data));
        about.notices.iter_mut().for_each(|n| *n = shortened(n));
        let sets: Vec<_> = self.sets.iter().map(|s| (s.name.clone(), s.levels.clone())).collect();
        let labeled = !self.right.is_empty();
        let positions = self.thresholds.positions(&self.levels, &sets, labeled, about.on_calibration_rows);
        let unknown: Vec<&[f64]> = self.sets.iter().map(|s| &s.confidence[..]).collect();
        let histogram = curves::histogram(&self.confidence, &unknown, positions[self.thresholds.used].threshold);
        let sets = self.sets.iter().zip(&found.ood);
        let measured = sets.map(|(s, found)| curves::set(&s.name, &self.confidence, &s.confidence, found));
        let measured = measured.collect::<Result<Vec<_>>>()?;
        let risk = curves::risk(&self.confidence[..self.right.len()], &self.right);
        let reliability = curves::reliability(&self.probability, &self.right);
        let right = self.right.iter().filter(|r| **r).count();
        let accuracy = found.accuracy.map(|a| Percentage::new(a.value, a.interval95));
        let mut classes = classes(model, found);
        for ([kind, predicted, _], n) in &self.counts {
            let Some(class) = classes.get_mut(*kind) else { continue };
            class.rows += n;
            class.right += if kind == predicted && model.classifies() { *n } else { 0 };
        }
        if classes.len() == MOST_CLASSES && model.classes().len() > MOST_CLASSES {
            // The classes that are merged here were separate when correct rows were counted.
            let others = right - classes[..MOST_CLASSES - 1].iter().map(|c| c.right).sum::<usize>();
            let last = &mut classes[MOST_CLASSES - 1];
            last.right = others;
            last.recall = (last.rows > 0 && labeled).then(|| percent(others as f64 / last.rows as f64));
        }
        let (used, rows, calibration_rows) =
            (self.thresholds.used, self.confidence.len(), model.calibration().scores().len());
        let counts = self.counts.iter().map(|(&[kind, predicted, level], &n)| {
            [if kind == usize::MAX { classes.len() + self.sets.len() } else { kind }, predicted, level, n]
        });
        let counts = counts.collect();
        let shortfall = self.thresholds.shortfall(calibration_rows);
        let (mut shown, groups, pictures) = self.into_rows();
        let (plane, places) = plane(model, &shown, &mut classes);
        let drawn = pictures.as_ref().map(|p| p.draw(&shown.rows.iter().map(|r| &r.x[..]).collect::<Vec<_>>()));
        let groups = explained(model, &shown, groups, pool)?;
        let mut drawn = drawn.into_iter().flatten();
        let point = |(row, at): (Row, [f64; 2])| point(model, row, at, drawn.next());
        let points = shown.rows.drain(..).zip(places).map(point).collect();
        let mut findings = model.findings().to_vec();
        let reported = |text: &String| model.findings().iter().any(|f| f.starts_with(text.as_str()));
        findings.extend(shortfall.filter(|s| !reported(s)));
        Ok(Report {
            about,
            rows,
            accuracy,
            replicates: found.bootstrap.replicates,
            classifies: model.classifies(),
            classes,
            sets: measured,
            positions,
            used,
            calibration_rows,
            counts,
            histogram,
            risk,
            reliability,
            training: training(model),
            plane,
            points,
            picture: pictures.map(|p| p.shape()),
            images: model.schema().image.is_some(),
            groups,
            findings: findings.iter().map(|f| shortened(f)).collect(),
            settings: settings(model),
        })
    }

    /// Checks that an evaluation is of the rows that were added.
    fn check(&self, found: &Evaluation) -> Result<()> {
        let same = found.rows == self.confidence.len()
            && found.ood.len() == self.sets.len()
            && found.ood.iter().zip(&self.sets).all(|(f, s)| f.rows == s.confidence.len());
        if same { Ok(()) } else { Err(Error::data("the evaluation is not of the rows of the report")) }
    }

    /// The rows to show, and the groups of notable ones.
    fn into_rows(self) -> (Shown, Vec<Chosen>, Option<Thumbnails>) {
        let mut shown = Shown::default();
        let mut groups = Vec::new();
        let item = if self.model.schema().image.is_some() { "image" } else { "row" };
        let count = |n: usize, item: &str| format!("{} {}", thousands(n), plural(n, item));
        let mut samples: Vec<Row> = self.sample.into_iter().flat_map(Lowest::into_items).collect();
        for (i, set) in self.sets.into_iter().enumerate() {
            samples.extend(set.sample.into_items());
            if i >= SETS {
                continue;
            }
            let taken = set.levels.up_to(self.thresholds.used).0;
            let all = count(set.levels.rows, item);
            let few = format!("{} {}", thousands(taken), if taken == 1 { "is" } else { "are" });
            let rows: Vec<usize> = set.nearest.into_items().map(|r| shown.add(r)).collect();
            groups.push(Chosen {
                title: format!("Unknown {item}s that look most known: {}", set.name),
                note: format!("The most confident of {all}; {few} accepted as known at the threshold of this report."),
                rows,
            });
        }
        if !self.right.is_empty() {
            let wrong = self.right.iter().filter(|r| !**r).count();
            groups.push(Chosen {
                title: "Most confident mistakes".into(),
                note: format!("Misclassified: {} of {}.", thousands(wrong), count(self.right.len(), item)),
                rows: self.mistakes.into_items().map(|r| shown.add(r)).collect(),
            });
        }
        let of_classes = self.least.len() > 1;
        let mut least: Vec<Row> = self.least.into_iter().flat_map(Lowest::into_items).collect();
        if least.len() > LEAST {
            least.sort_by(|a, b| a.confidence.total_cmp(&b.confidence));
            least.truncate(LEAST);
        }
        groups.push(Chosen {
            title: format!("Least confident {item}s{}", if of_classes { " of each class" } else { "" }),
            note: format!("The known {item}s with the lowest confidence."),
            rows: least.into_iter().map(|r| shown.add(r)).collect(),
        });
        // In the order of their files.
        samples.sort_by_key(|r| (r.set, r.row.number));
        for row in samples {
            let at = shown.add(row);
            shown.sampled[at] = true;
        }
        (shown, groups, self.pictures)
    }
}

/// Notable rows, by their index among those that are shown.
struct Chosen {
    title: String,
    note: String,
    rows: Vec<usize>,
}

/// The classes of a model; the last one stands for all classes beyond the limit.
fn classes(model: &Model, found: &Evaluation) -> Vec<Class> {
    let all = model.classes();
    let mut classes: Vec<Class> =
        all.iter().take(MOST_CLASSES).map(|c| Class { name: name(c), ..Class::default() }).collect();
    for (class, found) in classes.iter_mut().zip(&found.classes) {
        (class.recall, class.precision) = (found.recall.map(percent), found.precision.map(percent));
    }
    let log_sigma = model.head(0).and_then(|head| head.log_sigma()).unwrap_or_default();
    classes.iter_mut().zip(log_sigma).for_each(|(c, &s)| c.sigma = Some(libm::exp(f64::from(s))));
    if all.len() > MOST_CLASSES {
        let last = Class { name: format!("{} other classes", all.len() - MOST_CLASSES + 1), ..Class::default() };
        classes[MOST_CLASSES - 1] = last;
    }
    classes
}

/// The latent means of the classes: those of the head if it has any, else those of the rows.
fn means(model: &Model, classes: usize, latents: &[&[f32]], latent: usize, shown: &Shown) -> Vec<Option<Vec<f32>>> {
    let own = model.head(0).and_then(|head| head.means());
    if let Some(own) = own.filter(|m| m.len() == model.classes().len() * latent) {
        return own.chunks_exact(latent).take(classes).map(|m| Some(m.to_vec())).collect();
    }
    let mut sums = vec![(vec![0.0f64; latent], 0usize); classes];
    for (i, z) in latents.iter().enumerate() {
        if let Some((sum, n)) = shown.class(i).and_then(|c| sums.get_mut(c)) {
            *n += 1;
            sum.iter_mut().zip(*z).for_each(|(s, &v)| *s += f64::from(v));
        }
    }
    let mean = |(sum, n): (Vec<f64>, usize)| (n > 0).then(|| sum.iter().map(|s| (s / n as f64) as f32).collect());
    sums.into_iter().map(mean).collect()
}

/// The class of a known row, by its label or by the model.
fn group(row: &Row) -> Option<usize> {
    (row.set == 0).then(|| row.truth.or(row.predicted)).flatten()
}

/// The positions of rows and class means in a plane; sets the means and radii of the classes.
fn plane(model: &Model, shown: &Shown, classes: &mut [Class]) -> (Plane, Vec<[f64; 2]>) {
    let x: Vec<f32> = shown.rows.iter().flat_map(|r| r.x.iter().copied()).collect();
    let z = model.latents(0, &x).unwrap_or_default();
    let latent = z.len().checked_div(shown.rows.len()).unwrap_or(0).max(1);
    let latents: Vec<&[f32]> = z.chunks_exact(latent).collect();
    let known = (0..latents.len()).filter(|&i| shown.rows[i].set == 0 && shown.sampled[i]);
    let known: Vec<f32> = known.flat_map(|i| latents[i].iter().copied()).collect();
    let projection = Projection::of(&known, latent);
    // The last of very many classes stands for several.
    let real = if model.classes().len() > MOST_CLASSES { MOST_CLASSES - 1 } else { classes.len() };
    for (k, mean) in means(model, real, &latents, latent, shown).into_iter().enumerate() {
        let Some(mean) = mean else { continue };
        let center = projection.place(&mean);
        let of = || latents.iter().enumerate().filter(|(i, _)| shown.class(*i) == Some(k));
        let away = of().map(|(_, z)| distance(z, &mean)).collect();
        let seen = of().map(|(_, z)| projection.place(z)).map(|[x, y]| libm::hypot(x - center[0], y - center[1]));
        classes[k].radius = within(away);
        classes[k].circle = within(seen.collect());
        classes[k].mean = Some(near(center));
    }
    let places: Vec<[f64; 2]> = latents.iter().map(|z| near(projection.place(z))).collect();
    let points: Vec<figure::Point> =
        places.iter().zip(&shown.rows).map(|(&at, r)| figure::Point { at, class: (r.set == 0).then_some(0) }).collect();
    let spheres: Vec<Sphere> =
        classes.iter().filter_map(|c| Some(Sphere { center: c.mean?, radius: c.circle })).collect();
    let circles = match spheres.is_empty() {
        true => "",
        false => {
            ". A bold + is a class mean, and a circle contains 95% of the class's drawn rows in this plane; the \
             verdict depends on the confidence, not on the circles"
        }
    };
    let caption = format!("{}{circles}.", projection.caption());
    // Without a network the latent space is the input space.
    let caption = match model.settings().head.trained_by() {
        Loop::ClosedForm => caption.replacen("The latent space of the first network", "The inputs", 1),
        _ => caption,
    };
    let view = View::around(&points, &spheres);
    (Plane { axes: projection.names(), caption, view }, places)
}

/// The 95% quantile of distances.
fn within(mut distances: Vec<f64>) -> Option<f64> {
    distances.sort_by(f64::total_cmp);
    let last = libm::ceil(distances.len() as f64 * 0.95) as usize;
    last.checked_sub(1).map(|i| short(distances[i].min(1e60), 5))
}

fn shares(map: &Occlusion, width: usize) -> Map {
    let most = map.gains.iter().fold(0.0f64, |m, &g| m.max(g));
    let share = |g: &f64| if most > 0.0 { short((g / most).max(0.0), 2) } else { 0.0 };
    let shares = map.gains.iter().map(share).collect();
    Map { cell: map.cell as f64 / width as f64, columns: map.columns, shares, most: short(most, 4) }
}

/// The groups with explanations, up to the limit of predictions.
fn explained(model: &Model, shown: &Shown, groups: Vec<Chosen>, pool: &Pool) -> Result<Vec<Group>> {
    let image = model.schema().image.as_ref();
    let mut left = if image.is_some() { MAPS } else { PREDICTIONS / (model.explained_columns() + 1) };
    let mut out = Vec::new();
    for Chosen { title, note, rows } in groups {
        let mut explained = Vec::new();
        for point in rows {
            let (mut class, mut columns, mut map) = (None, Vec::new(), None);
            if let Some(spec) = image.filter(|_| left > 0) {
                left -= 1;
                map = Some(shares(&model.explain_image(&shown.rows[point].x, pool)?, spec.width));
            }
            if left > 0 && model.explains() {
                left -= 1;
                let row = &shown.rows[point];
                let found = model.explain(&row.x, &row.unseen, COLUMNS, pool)?;
                class = found.class.and_then(|c| model.classes().get(c as usize)).map(|c| name(c));
                let shorter = |c: crate::model::Contribution| {
                    let deviations = c.deviations.map(|d| short(d, 4));
                    let value = c.note.as_ref().unwrap_or(&c.value);
                    (name(&c.column), name(value), name(&c.expected), deviations, short(c.gain, 4))
                };
                // Columns without a gain do not explain anything.
                columns = found.columns.into_iter().filter(|c| c.gain >= 0.0005).map(shorter).collect();
            }
            explained.push(Worth { point, class, columns, map });
        }
        out.push(Group { title, note, rows: explained });
    }
    Ok(out)
}

fn point(model: &Model, row: Row, at: [f64; 2], picture: Option<String>) -> Point {
    Point {
        at,
        set: row.set,
        row: row.row.number,
        line: row.row.line.map(NonZeroU64::get).filter(|&line| line != row.row.number),
        class: group(&row).map(|c| c.min(MOST_CLASSES - 1)),
        file: row.file,
        predicted: row.predicted.and_then(|c| model.classes().get(c)).map(|c| name(c)),
        label: row.label,
        probability: row.probability.map(|p| short(p, 4)),
        confidence: short(row.confidence, 6),
        p_value: short(row.p_value, 4),
        level: row.level,
        picture,
    }
}

fn training(model: &Model) -> Vec<Trained> {
    let network = |m: usize| {
        let (history, _) = model.history(m)?;
        let step = history.len().div_ceil(EPOCHS).max(1);
        // The last epoch is always included.
        let first = (history.len().max(1) - 1) % step;
        let epochs: Vec<_> = history.iter().skip(first).step_by(step).collect();
        let finite = |v: f64| short(if v.is_finite() { v } else { 0.0 }, 5);
        Some(Trained {
            loss: epochs.iter().map(|e| finite(e.loss)).collect(),
            validation_loss: epochs.iter().map(|e| finite(e.validation_loss)).collect(),
            accuracy: epochs.iter().filter_map(|e| e.validation_accuracy.map(finite)).collect(),
            epochs: epochs.iter().map(|e| e.epoch.saturating_add(1)).collect(),
        })
    };
    // One epoch does not make a curve.
    (0..model.members().min(NETWORKS)).filter_map(network).filter(|t| t.epochs.len() > 1).collect()
}

/// The settings by name, as users type them.
fn settings(model: &Model) -> Vec<(String, String)> {
    let text = |v: &Value| match v {
        Value::String(s) => s.clone(),
        Value::Null => "off".into(),
        Value::Object(o) => {
            let name = o.get("name").and_then(Value::as_str).unwrap_or_default();
            let more = crate::spec::settings(v);
            if more.is_empty() || name.is_empty() { format!("{name}{more}") } else { format!("{name}, {more}") }
        }
        other => other.to_string(),
    };
    let rows = |n: usize, what: &str| format!("{} {}", thousands(n), plural(n, what));
    let mut all = vec![
        ("mcdd".into(), env!("CARGO_PKG_VERSION").into()),
        ("model made by".into(), format!("mcdd {}", name(model.version()))),
        ("trained on".into(), rows(model.training_rows(), "row")),
        ("calibrated on".into(), rows(model.calibration().scores().len(), "calibration row")),
        ("networks".into(), model.members().to_string()),
    ];
    if let Ok(Value::Object(mut fields)) = serde_json::to_value(model.settings()) {
        if let Some(Value::Object(image)) = fields.remove("image") {
            // Settings of tables do not apply to images.
            ["hidden", "batch_norm", "clip", "latent", "preset"].iter().for_each(|key| drop(fields.remove(*key)));
            fields.extend(image);
        }
        let named = |key: &str| if key == "head" { "method".to_owned() } else { key.replace('_', " ") };
        all.extend(fields.iter().filter(|(k, _)| *k != "members").map(|(k, v)| (named(k), name(&text(v)))));
    }
    all
}
