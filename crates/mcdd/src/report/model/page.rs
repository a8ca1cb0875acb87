//! The report as one self-contained HTML page. Nothing is loaded, and all names are escaped.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

use super::Report;
use crate::data::sets::thousands;
use crate::error::{Error, Result};
use crate::report::figure::{Theme, variables};
use crate::report::html::{html, json};

const STYLE: &str = include_str!("page.css");
/// Charts, the scatter plot, and the script of the page.
const SCRIPT: [&str; 3] = [include_str!("chart.js"), include_str!("scatter.js"), include_str!("page.js")];
const BODY: &str = include_str!("page.html");

/// The hash of a script or style that the browser may run.
fn fingerprint(text: &str) -> String {
    format!("'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(text.as_bytes())))
}

impl Report {
    /// The page.
    ///
    /// # Errors
    /// Never for a report of [`Gather`](super::Gather).
    pub fn page(&self) -> Result<String> {
        let data = serde_json::to_string(self).map_err(|e| Error::format(e.to_string()))?;
        let script = format!("'use strict';\n(() => {{\n{}}})();\n", SCRIPT.concat());
        let style = format!(
            ":root{{{}}}\n@media screen and (prefers-color-scheme: dark){{:root{{{}}}}}\n{STYLE}",
            variables(Theme::Light),
            variables(Theme::Dark)
        );
        let policy = format!(
            "default-src 'none'; style-src {}; script-src {}; base-uri 'none'; form-action 'none'",
            fingerprint(&style),
            fingerprint(&script)
        );
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
        Ok(format!(
            "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n<meta http-equiv=Content-Security-Policy content=\"{}\">\n\
             <meta name=viewport content=\"width=device-width, initial-scale=1\">\n<meta name=color-scheme content=\"light dark\">\n\
             <title>{}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}\
             <script type=\"application/json\" id=data>{}</script>\n<script>{script}</script>\n</body>\n</html>\n",
            policy,
            html(&self.about.title),
            json(&data),
        ))
    }

    /// A sentence about the data.
    fn data(&self) -> String {
        let rows = |n: usize| format!("{} row{}", thousands(n), if n == 1 { "" } else { "s" });
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
                " These rows were not trained on, but the threshold was set on them{epoch}: the fraction that is kept is \
                 correct by construction, and nothing was measured on unknown rows. For that, evaluate the model on other data."
            ));
        }
        out
    }
}
