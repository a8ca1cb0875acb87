//! The evidence of a monitor over time, as a figure and as a page.

use std::fmt::Write as _;

use super::figure::{Curve, CurvePanel, Figure, classes, curves, short_number};
use super::html::{html, name};
use super::page::{Page, TABLES};
use super::words::rows;
use crate::error::Result;
use crate::monitor::{Monitor, Part};

/// An evidence as text: `12.3`, `4.1e8`.
pub fn amount(evidence: f64) -> String {
    if evidence >= 1e6 || (evidence > 0.0 && evidence < 1e-3) {
        format!("{evidence:.1e}")
    } else {
        short_number(evidence, 3)
    }
}

/// The highest evidence over time, on a logarithmic scale, and the line where the alarm stands.
///
/// # Errors
/// Never for a monitor that was made or loaded.
pub fn figure(monitor: &Monitor, model: &str) -> Result<Figure> {
    let points: Vec<[f64; 2]> =
        [[0.0, 0.0]].into_iter().chain(monitor.history().iter().map(|p| [p.row as f64, p.log10])).collect();
    let limit = libm::log10(monitor.limit());
    let last = points.last().map_or(1.0, |p| p[0]).max(1.0);
    let highest = points.iter().map(|p| p[1]).fold(limit, f64::max);
    let lowest = points.iter().map(|p| p[1]).fold(-0.5, f64::min);
    let line = |series, points| Curve { series, points, filled: false };
    let panel = CurvePanel {
        title: "Evidence that the rows changed".into(),
        x_name: "row".into(),
        y_name: "log10 of the evidence".into(),
        x: [0.0, last],
        y: [lowest * 1.05, highest * 1.08],
        curves: vec![line(0, points), line(1, vec![[0.0, limit], [last, limit]])],
        cut: monitor.alarm().map(|row| row as f64),
        ..CurvePanel::default()
    };
    let caption = format!(
        "If nothing changed, the evidence ever reaches {} with a probability of at most {}.",
        amount(monitor.limit()),
        short_number(monitor.about().alpha, 3)
    );
    curves(&format!("Monitor of {}", name(model)), &caption, &["evidence".into(), "alarm".into()], &[panel])
}

/// A page about a monitor: one HTML file that loads nothing.
///
/// # Errors
/// As for [`figure`].
pub fn page(monitor: &Monitor, model: &str) -> Result<String> {
    let about = monitor.about();
    let title = format!("Monitor of {}", name(model));
    let verdict = match about.alarm {
        Some(row) => format!("Alarm at row {row}: the rows are no longer like the calibration rows."),
        None => "No alarm: the rows are like the calibration rows, as far as can be told.".to_owned(),
    };
    let low = if about.rows == 0 { 0.0 } else { 100.0 * about.low as f64 / about.rows as f64 };
    let mut body = format!(
        "<main>\n<h1>{}</h1>\n<p class=lead>{verdict}</p>\n<p>{} so far, {} of them with a p-value of at most 5%, which is {}%. \
         Evidence: {}; the alarm is raised at {}.</p>\n<figure>{}</figure>\n",
        html(&title),
        rows(about.rows as usize),
        about.low,
        short_number(low, 3),
        amount(about.evidence),
        amount(about.limit),
        figure(monitor, model)?.embedded(),
    );
    if !about.parts.is_empty() {
        let _ = write!(
            body,
            "<h2>Classes and columns</h2>\n<p class=note>A class or column is named at an evidence of {}. With a probability of at \
             least {}%, none is named that did not change.</p>\n<div class=wide><table>\n<thead><tr><th scope=col>part</th>\
             <th scope=col>evidence</th><th scope=col>changed</th></tr></thead>\n<tbody>\n",
            amount(monitor.part_limit()),
            short_number(100.0 * (1.0 - about.alpha), 4)
        );
        for found in about.parts.iter().take(200) {
            let what = match found.part {
                Part::Class(class) => format!("class {}: confidences", name(class)),
                Part::Labels => "predicted classes".into(),
                Part::Column(column) => format!("column {}", name(column)),
            };
            let changed = found.changed.map_or(String::new(), |row| format!("row {row}"));
            let _ = writeln!(
                body,
                "<tr><th scope=row>{}</th><td>{}</td><td>{changed}</td></tr>",
                html(&what),
                amount(found.evidence)
            );
        }
        body.push_str("</tbody></table></div>\n");
    }
    body.push_str("</main>\n");
    let style =
        format!("{}\nfigure {{ margin: 1rem 0; }}\nfigure svg {{ max-width: 100%; height: auto; }}\n", classes());
    Ok(Page { title: &title, style: &style, body: &body, script: &[TABLES], ..Page::default() }.write())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Calibration;

    #[test]
    fn page_and_figure_have_the_alarm_and_escape_names() {
        let calibration = Calibration::new((0..200).map(f64::from).collect()).unwrap();
        let mut monitor = Monitor::new(&calibration, 0.01).unwrap();
        assert!(page(&monitor, "m").unwrap().contains("No alarm"));
        (0..300).for_each(|i| monitor.add(if i < 200 { f64::from(i * 77 % 200) } else { -1.0 }));
        let row = monitor.alarm().unwrap();
        let text = page(&monitor, "<b>&m").unwrap();
        assert!(
            text.contains(&format!("Alarm at row {row}:"))
                && text.contains("&lt;b&gt;&amp;m")
                && !text.contains("<b>&m")
        );
        let svg = figure(&monitor, "<b>").unwrap().svg();
        assert!(roxmltree::Document::parse(&svg).is_ok() && svg.contains("at most 0.01"));
        assert_eq!([12.345, 2e7, 0.0].map(amount), ["12.3", "2.0e7", "0"]);
    }
}
