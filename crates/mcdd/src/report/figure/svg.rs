//! A scene as SVG: one file for light and dark backgrounds.
//!
//! Colors are attributes of the light theme. A style sheet in the file replaces them with the dark ones if the viewer prefers
//! these; programs without style sheets show the light theme. Names of classes and clip paths begin with a hash of the
//! drawing, so that several figures in one page do not conflict.

use std::collections::BTreeSet;
use std::fmt::Write;

use base64::Engine;
use sha2::{Digest, Sha256};

use super::color::{Paint, Theme};
use super::font::FAMILY;
use super::png;
use super::scene::{Anchor, Area, Marker, Primitive, Scene, Style, Text};
use crate::error::plain;

/// The file's text.
pub(super) fn write(scene: &Scene, title: &str) -> String {
    Writer::new(prefix(scene, title), false).document(scene, title)
}

/// An element of a page that defines the colors ([`super::color::classes`]): without a style sheet and style attributes, which
/// a page with a strict content security policy does not allow.
pub(super) fn embedded(scene: &Scene, title: &str) -> String {
    Writer::new(prefix(scene, title), true).document(scene, title)
}

/// Whether a file was written by [`write`] with this title.
pub(super) fn has_title(file: &[u8], title: &str) -> bool {
    let label = format!("aria-label=\"{}\"", escaped(&plain(title)));
    let head = file.split(|&b| b == b'>').next().unwrap_or_default();
    head.starts_with(b"<svg ") && head.windows(label.len()).any(|part| part == label.as_bytes())
}

/// The start of all names in a figure.
fn prefix(scene: &Scene, title: &str) -> String {
    let draft = Writer::new(String::new(), false).document(scene, title);
    let hash = Sha256::digest(draft.as_bytes());
    hash.iter().take(4).fold(String::from("f"), |s, b| format!("{s}{b:02x}"))
}

/// A number with at most two decimals, as short as possible.
fn number(v: f64) -> String {
    let text = format!("{v:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.into() }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

struct Writer {
    prefix: String,
    /// For a page, whose classes have no prefix.
    embedded: bool,
    out: String,
    /// The colors that the style sheet needs, and whether each is a stroke.
    used: BTreeSet<(Paint, bool)>,
    clips: usize,
}

impl Writer {
    fn new(prefix: String, embedded: bool) -> Writer {
        Writer { prefix, embedded, out: String::new(), used: BTreeSet::new(), clips: 0 }
    }

    /// The class of a color, as a fill or as a line.
    fn class(&self, paint: Paint, line: bool) -> String {
        let prefix = if self.embedded { "" } else { &self.prefix };
        format!("{prefix}{}-{}", if line { 'k' } else { 'f' }, paint.name())
    }

    fn put(&mut self, text: std::fmt::Arguments) {
        // Writing to a string does not fail.
        let _ = self.out.write_fmt(text);
    }

    fn document(mut self, scene: &Scene, title: &str) -> String {
        let background = Area { x: 0.0, y: 0.0, w: scene.width, h: scene.height };
        self.primitives(&[Primitive::Rect { area: background, style: Style::fill(Paint::Surface) }]);
        self.primitives(&scene.primitives);
        let (w, h) = (number(scene.width), number(scene.height));
        let start = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" role=\"img\" \
             aria-label=\"{}\" font-family=\"{FAMILY}\"",
            escaped(&plain(title))
        );
        if self.embedded {
            return start + ">\n" + &self.out + "</svg>\n";
        }
        let mut head = start + " style=\"max-width:100%;height:auto\">\n<style>@media (prefers-color-scheme:dark){";
        for &(paint, line) in &self.used {
            let property = if line { "stroke" } else { "fill" };
            head.push_str(&format!(".{}{{{property}:{}}}", self.class(paint, line), paint.css(Theme::Dark)));
        }
        head + "}</style>\n" + &self.out + "</svg>\n"
    }

    /// The attributes of a style.
    fn style(&mut self, style: &Style) -> String {
        let mut classes = Vec::new();
        let mut text = String::new();
        match style.fill {
            Some(fill) => {
                self.used.insert((fill.paint, false));
                classes.push(self.class(fill.paint, false));
                text += &format!(" fill=\"{}\"", fill.paint.css(Theme::Light));
                if fill.alpha < 1.0 {
                    text += &format!(" fill-opacity=\"{}\"", number(fill.alpha));
                }
            }
            None => text += " fill=\"none\"",
        }
        if let Some(stroke) = style.stroke {
            self.used.insert((stroke.paint, true));
            classes.push(self.class(stroke.paint, true));
            text +=
                &format!(" stroke=\"{}\" stroke-width=\"{}\"", stroke.paint.css(Theme::Light), number(stroke.width));
            if stroke.alpha < 1.0 {
                text += &format!(" stroke-opacity=\"{}\"", number(stroke.alpha));
            }
        }
        if !classes.is_empty() {
            text += &format!(" class=\"{}\"", classes.join(" "));
        }
        text
    }

    fn primitives(&mut self, primitives: &[Primitive]) {
        for primitive in primitives {
            match primitive {
                Primitive::Path { lines, closed, style } => {
                    let style = self.style(style);
                    let d: String = lines.iter().map(|line| path(line, *closed)).collect();
                    self.put(format_args!(
                        "<path{style} stroke-linejoin=\"round\" fill-rule=\"evenodd\" d=\"{d}\"/>\n"
                    ));
                }
                Primitive::Points { at, r, marker, style } => self.points(at, *r, *marker, style),
                Primitive::Rect { area, style } => {
                    let style = self.style(style);
                    let Area { x, y, w, h } = *area;
                    let [x, y, w, h] = [x, y, w, h].map(number);
                    self.put(format_args!("<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\"{style}/>\n"));
                }
                Primitive::Text(text) => self.text(text),
                Primitive::Image { area, raster } => {
                    let [x, y, w, h] = [area.x, area.y, area.w, area.h].map(number);
                    let data = base64::engine::general_purpose::STANDARD.encode(png::raster(raster));
                    let style = if self.embedded { "" } else { " style=\"image-rendering:pixelated\"" };
                    self.put(format_args!(
                        "<image x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" preserveAspectRatio=\"none\" \
                         image-rendering=\"optimizeSpeed\"{style} href=\"data:image/png;base64,{data}\"/>\n"
                    ));
                }
                Primitive::Clip { area, primitives } => {
                    self.clips += 1;
                    let id = format!("{}-{}", self.prefix, self.clips);
                    let [x, y, w, h] = [area.x, area.y, area.w, area.h].map(number);
                    self.put(format_args!(
                        "<clipPath id=\"{id}\"><rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\"/></clipPath>\n\
                         <g clip-path=\"url(#{id})\">\n"
                    ));
                    self.primitives(primitives);
                    self.put(format_args!("</g>\n"));
                }
            }
        }
    }

    fn points(&mut self, at: &[[f64; 2]], r: f64, marker: Marker, style: &Style) {
        let style = self.style(style);
        if marker == Marker::Circle {
            let r = number(r);
            let circles = at.iter().map(|&[x, y]| {
                let (x, y) = (number(x), number(y));
                format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{r}\"/>")
            });
            let circles = circles.collect::<String>();
            self.put(format_args!("<g{style}>{circles}</g>\n"));
        } else {
            // One path per marker, so that they overlap as circles do.
            let paths = at.iter().map(|&p| format!("<path d=\"{}\"/>", path(&marker.corners(p, r), true)));
            let paths = paths.collect::<String>();
            self.put(format_args!("<g{style}>{paths}</g>\n"));
        }
    }

    fn text(&mut self, t: &Text) {
        let mut style = Style::fill(t.paint);
        let mut more = String::new();
        if t.halo {
            style = style.with_line(Paint::Surface, 3.0);
            more += " paint-order=\"stroke\" stroke-linejoin=\"round\"";
        }
        if t.bold {
            more += " font-weight=\"bold\"";
        }
        match t.anchor {
            Anchor::Start => {}
            Anchor::Middle => more += " text-anchor=\"middle\"",
            Anchor::End => more += " text-anchor=\"end\"",
        }
        let (x, y, size) = (number(t.x), number(t.y), number(t.size));
        if t.upwards {
            more += &format!(" transform=\"rotate(-90 {x} {y})\"");
        }
        let style = self.style(&style);
        self.put(format_args!(
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\"{style}{more}>{}</text>\n",
            number(t.width()),
            escaped(&t.text)
        ));
    }
}

fn path(line: &[[f64; 2]], closed: bool) -> String {
    let mut out = String::new();
    for (i, &[x, y]) in line.iter().enumerate() {
        let letter = if i == 0 { 'M' } else { 'L' };
        let _ = write!(out, "{letter}{} {}", number(x), number(y));
    }
    if closed && !line.is_empty() {
        out.push('Z');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([1.0, -0.001, 2.5, 100.0, 0.126].map(number), ["1", "0", "2.5", "100", "0.13"]);
    }

    #[test]
    fn text_is_escaped_and_classes_have_a_prefix() {
        let mut scene = Scene { width: 10.0, height: 10.0, ..Scene::default() };
        scene.text(Text::new(0.0, 5.0, "a<b & \"c\"\u{1}", 5.0));
        let svg = write(&scene, "x<y");
        assert!(svg.contains("a&lt;b &amp; &quot;c&quot;\u{fffd}") && svg.contains("aria-label=\"x&lt;y\""));
        let other = write(&scene, "another");
        let prefix = |s: &str| s.split("class=\"").nth(1).unwrap()[..9].to_owned();
        assert_ne!(prefix(&svg), prefix(&other));
        assert_eq!(svg, write(&scene, "x<y"));
        assert!(has_title(svg.as_bytes(), "x<y") && !has_title(other.as_bytes(), "x<y"));
        assert!(!has_title(b"", "") && !has_title(b"<p aria-label=\"x&lt;y\">", "x<y"));
        let inside = embedded(&scene, "x<y");
        assert!(inside.contains("class=\"f-ink\"") && !inside.contains("style"), "{inside}");
    }
}
