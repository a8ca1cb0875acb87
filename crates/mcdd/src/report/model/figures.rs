//! The plots of the page as figures.

use super::{Report, Set};
use crate::error::Result;
use crate::report::figure::{Curve, CurvePanel, Figure, LatentSpace, Point, Sphere, curves, latent_spaces};
use crate::report::words::rows;

type Points = Vec<[f64; 2]>;

fn hundred(points: &[[f64; 2]]) -> Points {
    points.iter().map(|p| p.map(|v| 100.0 * v)).collect()
}

/// A panel of percentages.
fn percentages(title: &str, x_name: &str, y_name: &str) -> CurvePanel {
    CurvePanel {
        title: title.into(),
        x_name: format!("{x_name}, %"),
        y_name: format!("{y_name}, %"),
        x: [0.0, 100.0],
        y: [0.0, 100.0],
        ..CurvePanel::default()
    }
}

fn curve(series: usize, points: Points) -> Curve {
    Curve { series, points, filled: false }
}

impl Report {
    /// All plots with data, each with a name for its file.
    ///
    /// # Errors
    /// If a number is too large to be drawn.
    pub fn figures(&self) -> Result<Vec<(&'static str, Figure)>> {
        let mut out = vec![("scores", self.scores_figure()?)];
        if !self.sets.is_empty() {
            out.push(("roc", self.detection_figure("ROC", "unknown rows kept", "known rows kept", |s| &s.roc, roc)?));
            let title = "Precision and recall of known rows";
            out.push((
                "precision-recall-known",
                self.detection_figure(title, "known rows kept", "known among kept", |s| &s.pr_known, pr_known)?,
            ));
            let title = "Precision and recall of unknown rows";
            out.push((
                "precision-recall-unknown",
                self.detection_figure(
                    title,
                    "unknown rows rejected",
                    "unknown among rejected",
                    |s| &s.pr_unknown,
                    pr_unknown,
                )?,
            ));
        }
        if !self.risk.is_empty() {
            out.push(("risk-coverage", self.risk_figure()?));
        }
        if let Some(reliability) = &self.reliability {
            let points: Points = reliability.bins.iter().map(|b| [100.0 * b.0, 100.0 * b.1]).collect();
            let mut panel = percentages("", "predicted probability", "accuracy");
            panel.marks = points.iter().map(|p| (0, *p)).collect();
            panel.curves = vec![curve(0, points)];
            panel.diagonal = true;
            let caption = format!("{} Expected calibration error: {:.1}%.", self.caption(), 100.0 * reliability.error);
            out.push(("calibration", curves("Calibration of the probability", &caption, &[], &[panel])?));
        }
        if !self.training.is_empty() {
            out.push(("training", self.training_figure()?));
        }
        out.push(("latent", self.latent_figure()?));
        Ok(out)
    }

    fn caption(&self) -> String {
        format!("{}, {}.", self.about.data, rows(self.rows))
    }

    /// Known rows first, then the sets.
    fn series(&self) -> Vec<String> {
        std::iter::once("known".to_owned()).chain(self.sets.iter().map(|s| s.name.clone())).collect()
    }

    fn scores_figure(&self) -> Result<Figure> {
        let h = &self.histogram;
        let width = (h.high - h.low) / h.known.len().max(1) as f64;
        let steps = |counts: &[usize], rows: usize| -> Points {
            let fraction = |n: usize| 100.0 * n as f64 / rows.max(1) as f64;
            let step = |(i, &n): (usize, &usize)| [0, 1].map(|e| [h.low + (i + e) as f64 * width, fraction(n)]);
            counts.iter().enumerate().flat_map(step).collect()
        };
        let known = Curve { series: 0, points: steps(&h.known, self.rows), filled: true };
        let sets = h.sets.iter().zip(&self.sets).enumerate();
        let all: Vec<Curve> = std::iter::once(known)
            .chain(sets.map(|(i, (n, s))| Curve { series: i + 1, points: steps(n, s.rows), filled: true }))
            .collect();
        let top = all.iter().flat_map(|c| &c.points).map(|p| p[1]).fold(1e-6, f64::max);
        let position = &self.positions[self.used];
        let panel = CurvePanel {
            x_name: "confidence".into(),
            y_name: "fraction of rows, %".into(),
            x: [h.low, h.high],
            y: [0.0, 1.05 * top],
            curves: all,
            cut: Some(position.threshold.clamp(h.low, h.high)),
            ..CurvePanel::default()
        };
        let caption = format!("{} The line is the threshold. {}", self.caption(), position.sentence);
        curves("Confidence of known and unknown rows", &caption, &self.series(), &[panel])
    }

    fn detection_figure(
        &self,
        title: &str,
        x_name: &str,
        y_name: &str,
        points: fn(&Set) -> &Points,
        place: fn([f64; 4]) -> [f64; 2],
    ) -> Result<Figure> {
        let mut panel = percentages("", x_name, y_name);
        panel.diagonal = title == "ROC";
        panel.curves = self.sets.iter().enumerate().map(|(i, s)| curve(i + 1, hundred(points(s)))).collect();
        let (kept, _, taken) = &self.positions[self.used].counts;
        let marks = self.sets.iter().zip(taken).enumerate().map(|(i, (s, taken))| {
            (i + 1, place([*kept as f64, self.rows as f64, *taken as f64, s.rows as f64]).map(|v| 100.0 * v))
        });
        panel.marks = marks.filter(|(_, at)| at.iter().all(|v| v.is_finite())).collect();
        // Sets have the same colors in all figures; known rows have no curve here.
        let mut names = self.series();
        names[0].clear();
        let caption = format!("{} The mark is the threshold. {}", self.caption(), self.positions[self.used].sentence);
        curves(title, &caption, &names, &[panel])
    }

    fn risk_figure(&self) -> Result<Figure> {
        let points = hundred(&self.risk);
        let top = points.iter().map(|p| p[1]).fold(1.0, f64::max);
        let mut panel = percentages("", "known rows kept", "wrong among kept");
        panel.y = [0.0, (1.15 * top).min(100.0)];
        let (kept, right, _) = self.positions[self.used].counts;
        if kept > 0 {
            let (kept, right) = (kept as f64, right as f64);
            panel.marks = vec![(0, [100.0 * kept / self.rows as f64, 100.0 * (1.0 - right / kept)])];
        }
        panel.curves = vec![curve(0, points)];
        curves("Risk against coverage", &format!("{} The mark is the threshold.", self.caption()), &[], &[panel])
    }

    fn training_figure(&self) -> Result<Figure> {
        let last = self.training.iter().flat_map(|t| &t.epochs).copied().max().unwrap_or(2).max(2);
        let line = |series: usize, epochs: &[usize], values: &[f64], factor: f64| {
            curve(series, epochs.iter().zip(values).map(|(&e, v)| [e as f64, factor * v]).collect())
        };
        let panel = |title: &str, y_name: &str, y: [f64; 2], curves: Vec<Curve>| CurvePanel {
            title: title.into(),
            x_name: "epoch".into(),
            y_name: y_name.into(),
            x: [1.0, last as f64],
            y,
            curves,
            ..CurvePanel::default()
        };
        let losses = self
            .training
            .iter()
            .flat_map(|t| [line(0, &t.epochs, &t.loss, 1.0), line(1, &t.epochs, &t.validation_loss, 1.0)]);
        let mut all: Vec<f64> =
            self.training.iter().flat_map(|t| t.loss.iter().chain(&t.validation_loss).copied()).collect();
        all.sort_by(f64::total_cmp);
        // The largest 2% of losses, usually of the first epochs, do not extend the axis.
        let (low, high) = (all[0].min(0.0), all[((all.len() - 1) as f64 * 0.98) as usize]);
        let y = [low, if high > low { 1.05 * high } else { low + 1.0 }];
        let mut panels = vec![panel("Loss", "loss", y, losses.collect())];
        let rates: Vec<f64> = self.training.iter().flat_map(|t| t.accuracy.iter().copied()).collect();
        if !rates.is_empty() {
            let least = rates.iter().copied().fold(1.0, f64::min);
            let lines = self.training.iter().map(|t| line(1, &t.epochs, &t.accuracy, 100.0)).collect();
            panels.push(panel(
                "Accuracy on validation rows",
                "accuracy, %",
                [(100.0 * least - 5.0).max(0.0), 100.0],
                lines,
            ));
        }
        let caption = match self.training.len() {
            1 => String::new(),
            n => format!("A line for each of {n} networks."),
        };
        curves("Training", &caption, &["training rows".into(), "validation rows".into()], &panels)
    }

    fn latent_figure(&self) -> Result<Figure> {
        // Without classes all known rows have one color.
        let one = self.classes.is_empty();
        let names: Vec<String> =
            if one { vec!["known".into()] } else { self.classes.iter().map(|c| c.name.clone()).collect() };
        let points = self.points.iter().map(|p| {
            let class = if p.set == 0 { Some(p.class.unwrap_or(0)) } else { None };
            Point { at: p.at, class }
        });
        // The mean of a class without one is placed outside of the view.
        let away = [self.plane.view.corner[0] - 10.0 * self.plane.view.side, self.plane.view.corner[1]];
        let sphere =
            |c: &super::Class| Sphere { center: c.mean.unwrap_or(away), radius: c.circle.filter(|_| c.mean.is_some()) };
        let spheres =
            if one { vec![Sphere { center: away, radius: None }] } else { self.classes.iter().map(sphere).collect() };
        let space = LatentSpace {
            title: String::new(),
            note: String::new(),
            points: points.collect(),
            spheres,
            view: self.plane.view,
            logits: Vec::new(),
            axes: self.plane.axes.clone(),
            sphere: "95% of a class's drawn rows".into(),
        };
        latent_spaces(
            "Latent space",
            &format!("{} {}", self.caption(), self.plane.caption),
            &names,
            "unknown rows",
            &[space],
        )
    }
}

/// Operating points from the numbers of kept and all known rows, and of kept and all unknown rows.
fn roc([kept, known, taken, unknown]: [f64; 4]) -> [f64; 2] {
    [taken / unknown, kept / known]
}

fn pr_known([kept, known, taken, _]: [f64; 4]) -> [f64; 2] {
    [kept / known, kept / (kept + taken)]
}

fn pr_unknown([kept, known, taken, unknown]: [f64; 4]) -> [f64; 2] {
    let rejected = unknown - taken;
    [rejected / unknown, rejected / (rejected + known - kept)]
}
