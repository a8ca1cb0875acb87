//! The HTML page: a summary, the figures, and all numbers.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::figures::figures;
use super::tables::{difference, most, row, title};
use super::{METRICS, Stat, Study};
use crate::error::count;
use crate::report::html::html;

const STYLE: &str = include_str!("page.css");

fn cell(stat: Option<Stat>, paper: Option<f64>, bold: bool, most: usize) -> String {
    let Some(stat) = stat else { return "<td class=none>n/a</td>".into() };
    let mut out = String::from("<td>");
    let mean = format!("{:.2}", stat.mean);
    out.push_str(&if bold { format!("<b>{mean}</b>") } else { mean });
    if let Some(std) = stat.std {
        let _ = write!(out, "<span class=std> ± {std:.2}</span>");
    }
    if stat.n < most {
        let _ = write!(out, "<span class=std> of {}</span>", stat.n);
    }
    if let Some(paper) = paper {
        let d = stat.mean - paper;
        let class = if d < -0.005 { "less" } else { "more" };
        let _ = write!(out, "<span class=paper>{paper:.2} <i class={class}>{}</i></span>", difference(d));
    }
    out.push_str("</td>");
    out
}

/// A self-contained HTML page with its own figures and with others, given as names and contents of SVG files.
pub fn page(study: &Study, others: &[(String, Vec<u8>)]) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n<meta name=viewport content=\"width=device-width, initial-scale=1\">\n<meta name=color-scheme content=\"light dark\">\n<title>{0}: out-of-distribution detection</title>\n<style>\n{STYLE}</style>\n<main>\n<h1>{0}</h1>\n<p class=lead>{2} {1}.</p>\n",
        html(&study.about.title),
        html(&study.header()),
        study.words().question
    );
    out.push_str("<ul>\n");
    for (method, sentence) in study.sentences() {
        let _ = writeln!(out, "<li><b>{}</b>: {}</li>", html(&method), html(&sentence));
    }
    out.push_str("</ul>\n");
    let failures = study.failures();
    if !failures.is_empty() {
        let _ = writeln!(out, "<p class=warn>{} failed, listed at the end.</p>", count(failures.len(), "cell"));
    }
    let words = study.words();
    let _ = write!(
        out,
        "<p class=note>Numbers are means in percent ± standard deviation over {}, the best of a row or column in bold. Known rows are positive.",
        words.runs
    );
    if let Some(whose) = study.papers() {
        out.push_str(&format!(" Below a number: {whose}, and the difference."));
    }
    for remark in study.remarks() {
        let _ = write!(out, " Note: {}.", html(&remark));
    }
    let _ =
        write!(out, "</p>\n<h2>Mean over the {}</h2>\n<div class=wide><table>\n<thead><tr><th>method</th>", words.rows);
    METRICS.iter().for_each(|m| {
        let _ = write!(out, "<th title=\"{}\">{}</th>", html(m.title), html(m.short));
    });
    let _ = writeln!(out, "<th>{}</th></tr></thead>\n<tbody>", words.runs);
    let columns: Vec<Vec<Option<Stat>>> = METRICS.iter().map(|m| row(study, None, m)).collect();
    let bold: Vec<Vec<bool>> = columns.iter().map(|c| study.best(&study.methods, c)).collect();
    for (i, method) in study.methods.iter().enumerate() {
        let _ = write!(out, "<tr><th>{}</th>", html(method));
        for (j, m) in METRICS.iter().enumerate() {
            out.push_str(&cell(columns[j][i], study.paper(method, None, m), bold[j][i], 0));
        }
        let _ = writeln!(out, "<td>{}</td></tr>", study.tested(method));
    }
    out.push_str("</tbody></table></div>\n");
    for svg in figures(study) {
        let _ = writeln!(out, "<figure>{svg}</figure>");
    }
    // As images, so that the contents of a file do not become part of the page.
    for (name, svg) in others {
        let data = BASE64_STANDARD.encode(svg);
        let _ = writeln!(out, "<figure><img alt=\"{}\" src=\"data:image/svg+xml;base64,{data}\"></figure>", html(name));
    }
    // AUROC first.
    let (first, rest): (Vec<_>, Vec<_>) = METRICS.iter().partition(|m| m.key == "auroc");
    for m in first.into_iter().chain(rest) {
        let _ = write!(out, "<h2>{}</h2>\n<div class=wide><table>\n<thead><tr><th>{}</th>", html(&title(m)), words.row);
        study.methods.iter().for_each(|method| {
            let _ = write!(out, "<th>{}</th>", html(method));
        });
        out.push_str("</tr></thead>\n<tbody>\n");
        for class in study.classes.iter().map(|c| Some(*c)).chain([None]) {
            let stats = row(study, class, m);
            let (bold, most) = (study.best(&study.methods, &stats), most(&stats));
            let kind = if class.is_none() { " class=mean" } else { "" };
            let _ = write!(out, "<tr{kind}><th>{}</th>", class.map_or("mean".into(), html));
            for (i, method) in study.methods.iter().enumerate() {
                out.push_str(&cell(stats[i], study.paper(method, class, m), bold[i], most));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody></table></div>\n");
    }
    out.push_str(
        "<h2>The data</h2>\n<div class=wide><table>\n<thead><tr><th>name</th><th>rows</th></tr></thead>\n<tbody>\n",
    );
    for (name, rows) in &study.about.classes {
        let _ = writeln!(out, "<tr><th>{}</th><td>{}</td></tr>", html(name), crate::data::sets::thousands(*rows));
    }
    out.push_str("</tbody></table></div>\n");
    if !failures.is_empty() {
        out.push_str("<h2>Failed</h2>\n<ul>\n");
        failures.iter().for_each(|f| {
            let _ = writeln!(out, "<li>{}</li>", html(f));
        });
        out.push_str("</ul>\n");
    }
    let _ = writeln!(
        out,
        "<p class=note>mcdd {}. Scaling and weights come from training rows alone. TNR and detection accuracy \
         are taken from the ROC curve of the test rows, as in the paper, not from a threshold that was set in advance.</p>\n</main>",
        html(&study.versions())
    );
    out
}
