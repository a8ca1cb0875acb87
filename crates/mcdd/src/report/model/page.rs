//! The report as one self-contained HTML page. Nothing is loaded, and all names are escaped.

use super::Report;
use crate::error::{Error, Result};
use crate::report::html::html;
use crate::report::page::{Page, TABLES};
use crate::report::words::rows;

const STYLE: &str = include_str!("page.css");
/// Charts, the scatter plot, tables, and the script of the page.
const SCRIPT: [&str; 4] = [include_str!("chart.js"), include_str!("scatter.js"), TABLES, include_str!("page.js")];
const BODY: &str = include_str!("page.html");

impl Report {
    /// The page.
    ///
    /// # Errors
    /// Never for a report of [`Gather`](super::Gather).
    pub fn page(&self) -> Result<String> {
        let data = serde_json::to_string(self).map_err(|e| Error::format(e.to_string()))?;
        let position = &self.positions[self.used];
        let filled = |part: &str| match part {
            "title" => html(&self.about.title),
            "verdict" => html(&position.sentence),
            "data" => html(&self.data()),
            "command" => html(&self.about.command),
            _ => String::new(),
        };
        // The template is split once, so that text that was filled in is not expanded again.
        let mut body = String::new();
        for (i, part) in BODY.split("%%").enumerate() {
            body.push_str(&if i % 2 == 1 { filled(part) } else { part.to_owned() });
        }
        let title = &self.about.title;
        let page = Page { title, style: STYLE, body: &body, script: &SCRIPT, data: Some(&data), images: false };
        Ok(page.write())
    }

    /// A sentence about the data.
    fn data(&self) -> String {
        let mut out = format!("Known: {} ({})", self.about.data, rows(self.rows));
        for set in self.sets.iter().take(5) {
            out.push_str(&format!("; unknown: {} ({})", set.name, rows(set.rows)));
        }
        if self.sets.len() > 5 {
            out.push_str(&format!("; and {} more unknown sets", self.sets.len() - 5));
        }
        out.push('.');
        if self.about.on_calibration_rows {
            let chose = |(name, value): &(String, String)| match name.as_str() {
                "select" => value == "best",
                "patience" => value != "off",
                _ => false,
            };
            let epoch = if self.settings.iter().any(chose) { ", and the epoch was selected on them" } else { "" };
            out.push_str(&format!(
                " These rows were not trained on, but the threshold was set on them{epoch}: what is kept of them is not a \
                 measurement, and nothing was measured on unknown rows. For both, evaluate the model on other data."
            ));
        }
        out
    }
}
