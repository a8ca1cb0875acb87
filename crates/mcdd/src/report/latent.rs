//! The data for a figure of the latent space of a model.

use super::figure::{LatentSpace, Point, Sphere, View};
use crate::data::Table;
use crate::error::{Error, Result};
use crate::head::{Head, Loop};
use crate::metrics;
use crate::model::{Model, Predictions};
use crate::seed::Stream;

/// The largest numbers of rows that are drawn: more would hide each other.
const MOST_KNOWN: usize = 1500;
const MOST_UNKNOWN: usize = 500;

/// The largest number of classes. The work grows with its square.
const MOST_CLASSES: usize = 100;

/// The numbers of rows that are drawn, and of all rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Known rows that are drawn.
    pub known: usize,
    /// All known rows.
    pub of_known: usize,
    /// Unknown rows that are drawn.
    pub unknown: usize,
    /// All unknown rows.
    pub of_unknown: usize,
}

/// The latent space of a model's first network with known rows, which have labels, and unknown rows. Of many rows a random
/// sample is drawn; accuracy and AUROC are of all rows.
///
/// The circle of a class is where the confidence equals the threshold of the model: rows outside of all circles are unknown.
/// Methods without distances have no circles, and their class means are those of the known rows.
///
/// # Errors
/// If the model does not have two latent features, does not classify, or has too many classes.
pub fn latent_space(model: &Model, title: &str, known: &Table, unknown: &Table) -> Result<(LatentSpace, Shown)> {
    let classes = model.classes().len();
    let head = model.head(0).filter(|h| h.classes() == classes && model.graph().latent().is_ok_and(|n| n == 2));
    let head = head.filter(|_| model.settings().head.trained_by() == Loop::Gradients).ok_or_else(|| {
        Error::setting("the model has no plane to draw: it needs two latent features and classes")
            .hint("train with 2 as `latent` and a method that classifies, such as deep-mcdd or softmax")
    })?;
    if classes > MOST_CLASSES {
        return Err(Error::data(format!("{classes} classes are too many for a figure"))
            .hint(format!("draw rows of at most {MOST_CLASSES} classes")));
    }
    let place = |table: &Table| -> Result<Vec<[f64; 2]>> {
        let x = model.schema().transform(table, None)?;
        let z = model.latents(0, &x).unwrap_or_default();
        Ok(z.chunks_exact(2).map(|z| [f64::from(z[0]), f64::from(z[1])]).collect())
    };
    let (id, ood) = (place(known)?, place(unknown)?);
    let class = |row: usize| {
        let name = known.label_name(row)?;
        model.classes().iter().position(|c| c == name)
    };
    let means = means(head, classes, id.iter().enumerate().filter_map(|(i, z)| Some((class(i)?, *z))));
    let radii = radii(model, head, &means)?;
    let spheres: Vec<Sphere> = means.into_iter().zip(radii).map(|(center, radius)| Sphere { center, radius }).collect();
    let drawn = [sampled(id.len(), MOST_KNOWN, "known"), sampled(ood.len(), MOST_UNKNOWN, "unknown")];
    let mut points: Vec<Point> =
        drawn[0].iter().filter_map(|&i| Some(Point { at: id[i], class: Some(class(i)?) })).collect();
    points.extend(drawn[1].iter().map(|&i| Point { at: ood[i], class: None }));
    let view = View::around(&points, &spheres);
    let mut scratch = vec![0.0; classes];
    let logits = view.nodes().flat_map(|[x, y]| {
        let mut logits = vec![0.0; classes];
        head.score(&[x as f32, y as f32], &mut logits, &mut scratch);
        logits
    });
    let logits = logits.collect();
    let (p_id, p_ood) = (model.predict(known)?, model.predict(unknown)?);
    let note = note(known, model, &p_id, &p_ood)?;
    let (axes, sphere) = (["z₁", "z₂"].map(Into::into), "known inside".into());
    let shown = Shown { known: drawn[0].len(), of_known: id.len(), unknown: drawn[1].len(), of_unknown: ood.len() };
    Ok((LatentSpace { title: title.to_owned(), note, points, spheres, view, logits, axes, sphere }, shown))
}

/// A random sample of rows, in order.
fn sampled(rows: usize, most: usize, name: &str) -> Vec<usize> {
    let mut all: Vec<usize> = (0..rows).collect();
    if rows > most {
        Stream::new(0, &format!("figure/{name}")).shuffle(&mut all);
        all.truncate(most);
        all.sort_unstable();
    }
    all
}

/// The means of the head if it has any, else those of the rows.
fn means(head: &dyn Head, classes: usize, rows: impl Iterator<Item = (usize, [f64; 2])>) -> Vec<[f64; 2]> {
    if let Some(own) = head.means() {
        let own = own.chunks_exact(2).map(|m| [f64::from(m[0]), f64::from(m[1])]);
        return own.take(classes).collect();
    }
    let mut sums = vec![[0.0; 3]; classes];
    for (class, z) in rows {
        let s = &mut sums[class];
        *s = [s[0] + z[0], s[1] + z[1], s[2] + 1.0];
    }
    sums.iter().map(|s| [s[0] / s[2].max(1.0), s[1] / s[2].max(1.0)]).collect()
}

/// The distance from each mean at which the confidence equals the threshold, if the confidence is a distance.
fn radii(model: &Model, head: &dyn Head, means: &[[f64; 2]]) -> Result<Vec<Option<f64>>> {
    let settings = model.settings();
    let plain = settings.detector.is_own() && settings.clip.is_none() && model.members() == 1;
    if !head.has_distances() || !plain {
        return Ok(vec![None; means.len()]);
    }
    let threshold = model.threshold()?;
    let (mut logits, mut distances) = (vec![0.0; means.len()], vec![0.0; means.len()]);
    let mut known = |class: usize, [x, y]: [f64; 2], r: f64| {
        head.score(&[(x + r) as f32, y as f32], &mut logits, &mut distances);
        threshold.known(head.class_confidence(class, &logits, &distances))
    };
    let mut radius = |class: usize, mean: [f64; 2]| {
        if !known(class, mean, 0.0) {
            return None;
        }
        let (mut inside, mut outside) = (0.0, 1.0);
        while known(class, mean, outside) {
            (inside, outside) = (outside, 2.0 * outside);
            if outside > 1e12 {
                return None;
            }
        }
        for _ in 0..50 {
            let middle = (inside + outside) / 2.0;
            if known(class, mean, middle) { inside = middle } else { outside = middle }
        }
        Some(inside)
    };
    Ok(means.iter().enumerate().map(|(class, &mean)| radius(class, mean)).collect())
}

fn note(known: &Table, model: &Model, id: &Predictions, ood: &Predictions) -> Result<String> {
    let right: Vec<bool> = (0..id.rows())
        .map(|i| known.label_name(i) == id.class.get(i).map(|&c| model.classes()[c as usize].as_str()))
        .collect();
    let accuracy = metrics::accuracy(&right)?.accuracy;
    let auroc = metrics::detection(&id.confidence, &ood.confidence)?.auroc;
    Ok(format!("accuracy {:.1}%, AUROC {:.1}%", 100.0 * accuracy, 100.0 * auroc))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::digits;
    use crate::head::HeadConfig;
    use crate::train::{Preset, Settings};

    fn trained(method: &str) -> (Model, Table, Table) {
        let table = digits().select(&(0..600).collect::<Vec<_>>());
        let (known, unknown) = table.leave_out("7").unwrap();
        let (train, test) = known.split(0.3, 0).unwrap();
        let head = HeadConfig::parse(method).unwrap();
        let settings = Settings { hidden: vec![16], latent: 2, epochs: 3, head, ..Preset::Paper.settings() };
        (Model::fit(&train, &settings).unwrap(), test, unknown)
    }

    #[test]
    fn a_row_is_known_if_it_is_inside_a_circle() {
        for method in ["deep-mcdd", "deep-mcdd:sigma=learned", "soft-mcdd", "deep-ncm", "protonet", "softmax"] {
            let (model, test, unknown) = trained(method);
            let (space, shown) = latent_space(&model, method, &test, &unknown).unwrap();
            assert_eq!(space.points.len(), shown.known + shown.unknown);
            assert_eq!((shown.of_known, shown.of_unknown), (test.rows(), unknown.rows()));
            let circles: Vec<_> = space.spheres.iter().filter_map(|s| Some((s.center, s.radius?))).collect();
            if method == "softmax" {
                assert!(circles.is_empty());
                continue;
            }
            assert!(!circles.is_empty(), "{method}");
            let x = model.schema().transform(&unknown, None).unwrap();
            let z = model.latents(0, &x).unwrap();
            let threshold = model.threshold().unwrap();
            let predicted = model.predict(&unknown).unwrap();
            for (z, &confidence) in z.chunks_exact(2).zip(&predicted.confidence) {
                let away = |c: &[f64; 2]| (f64::from(z[0]) - c[0]).hypot(f64::from(z[1]) - c[1]);
                let depth = circles.iter().map(|(c, r)| (r - away(c)) / r).fold(f64::MIN, f64::max);
                // On the circle itself rounding decides.
                assert!(depth.abs() < 1e-4 || (depth > 0.0) == threshold.known(confidence), "{method} {depth}");
            }
        }
    }

    #[test]
    fn other_models_are_refused() {
        let table = digits().select(&(0..300).collect::<Vec<_>>());
        let settings = Settings { hidden: vec![8], latent: 3, epochs: 1, ..Preset::Paper.settings() };
        let model = Model::fit(&table, &settings).unwrap();
        assert!(latent_space(&model, "", &table, &table).unwrap_err().hint_text().is_some());
    }

    #[test]
    fn a_sample_is_in_order_and_deterministic() {
        let some = sampled(5000, 100, "a");
        assert_eq!(some.len(), 100);
        assert!(some.is_sorted() && some == sampled(5000, 100, "a") && some != sampled(5000, 100, "b"));
        assert_eq!(sampled(3, 100, "a"), [0, 1, 2]);
    }
}
