//! The frame of a page: one file that loads nothing. Only its own style and script run, by their hashes.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

use super::figure::{Theme, variables};
use super::html::{html, json};

/// The style that all pages share.
const STYLE: &str = include_str!("page.css");
/// Tables that can be sorted.
pub(super) const TABLES: &str = include_str!("table.js");

/// The parts of a page.
#[derive(Default)]
pub(super) struct Page<'a> {
    pub title: &'a str,
    /// Added to the style of all pages.
    pub style: &'a str,
    /// The contents, as HTML.
    pub body: &'a str,
    /// The script, in parts that share a scope.
    pub script: &'a [&'a str],
    /// JSON that the script reads from the element `data`.
    pub data: Option<&'a str>,
    /// Whether the page has images, as `data:` addresses.
    pub images: bool,
}

/// The hash of a script or style that the browser may run.
fn fingerprint(text: &str) -> String {
    format!("'sha256-{}'", BASE64_STANDARD.encode(Sha256::digest(text.as_bytes())))
}

impl Page<'_> {
    /// The HTML.
    pub(super) fn write(&self) -> String {
        let script = format!("'use strict';\n(() => {{\n{}}})();\n", self.script.concat());
        let style = format!(
            ":root{{{}}}\n@media screen and (prefers-color-scheme: dark){{:root{{{}}}}}\n{STYLE}{}",
            variables(Theme::Light),
            variables(Theme::Dark),
            self.style
        );
        let policy = format!(
            "default-src 'none'; {}style-src {}; script-src {}; base-uri 'none'; form-action 'none'",
            if self.images { "img-src data:; " } else { "" },
            fingerprint(&style),
            fingerprint(&script)
        );
        let data = self.data.map_or(String::new(), |data| {
            format!("<script type=\"application/json\" id=data>{}</script>\n", json(data))
        });
        format!(
            "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n<meta http-equiv=Content-Security-Policy content=\"{policy}\">\n\
             <meta name=viewport content=\"width=device-width, initial-scale=1\">\n<meta name=color-scheme content=\"light dark\">\n\
             <title>{}</title>\n<style>{style}</style>\n</head>\n<body>\n{}{data}<script>{script}</script>\n</body>\n</html>\n",
            html(self.title),
            self.body,
        )
    }
}
