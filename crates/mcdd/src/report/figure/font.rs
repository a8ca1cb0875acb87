//! The embedded font: text widths and outlines.
//!
//! Arimo (SIL Open Font License, beside the files) has the widths of Arial and Helvetica, the fonts that viewers use
//! for an SVG. So a text that fits in a PNG fits in an SVG as well. The files are subsets with Latin, Greek and some symbols.

use std::sync::OnceLock;

use ttf_parser::{Face, GlyphId, OutlineBuilder};

use crate::error::plain;

/// The font families of an SVG; all have the same widths.
pub(super) const FAMILY: &str = "Arial, Helvetica, 'Liberation Sans', Arimo, sans-serif";

/// The height of a capital letter, in ems.
pub(super) const CAPITAL: f64 = 0.716;
/// The ascent and descent relative to the baseline, in ems.
pub(super) const ASCENT: f64 = 0.74;
pub(super) const DESCENT: f64 = 0.21;

fn face(bold: bool) -> Option<&'static Face<'static>> {
    static FACES: OnceLock<[Option<Face<'static>>; 2]> = OnceLock::new();
    let load = || {
        let regular: &[u8] = include_bytes!("font/arimo-regular.ttf");
        let bold: &[u8] = include_bytes!("font/arimo-bold.ttf");
        [Face::parse(regular, 0).ok(), Face::parse(bold, 0).ok()]
    };
    FACES.get_or_init(load)[usize::from(bold)].as_ref()
}

/// The glyph of a character and its width in ems. A character that the font lacks counts as one em.
fn glyph(face: &Face, c: char) -> (GlyphId, f64) {
    let per_em = f64::from(face.units_per_em());
    match face.glyph_index(c) {
        Some(id) => (id, f64::from(face.glyph_hor_advance(id).unwrap_or(0)) / per_em),
        None => (GlyphId(0), 1.0),
    }
}

/// The width of a text, in the unit of `size`.
pub(super) fn width(text: &str, size: f64, bold: bool) -> f64 {
    let Some(face) = face(bold) else { return 0.6 * size * text.chars().count() as f64 };
    text.chars().map(|c| glyph(face, c).1).sum::<f64>() * size
}

/// Draws the glyphs of a text from `x` on, with the baseline at 0 and y down.
pub(super) fn outline(text: &str, size: f64, bold: bool, mut x: f64, to: &mut dyn Pen) {
    let Some(face) = face(bold) else { return };
    let scale = size / f64::from(face.units_per_em());
    for c in text.chars() {
        let (id, advance) = glyph(face, c);
        // A character that the font lacks is drawn as an empty box.
        face.outline_glyph(id, &mut Placed { to, x, scale });
        x += advance * size;
    }
}

/// Receives an outline.
pub(super) trait Pen {
    fn move_to(&mut self, x: f64, y: f64);
    fn line_to(&mut self, x: f64, y: f64);
    fn quad_to(&mut self, x1: f64, y1: f64, x: f64, y: f64);
    fn close(&mut self);
}

struct Placed<'a> {
    to: &'a mut dyn Pen,
    x: f64,
    scale: f64,
}

impl Placed<'_> {
    fn at(&self, x: f32, y: f32) -> (f64, f64) {
        (self.x + f64::from(x) * self.scale, -f64::from(y) * self.scale)
    }
}

impl OutlineBuilder for Placed<'_> {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.to.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.at(x, y);
        self.to.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.at(x1, y1), self.at(x, y));
        self.to.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        // TrueType has no cubic curves; a quadratic one with the same midpoint approximates them.
        let (x1, y1) = (0.75 * (x1 + x2) - 0.25 * x, 0.75 * (y1 + y2) - 0.25 * y);
        self.quad_to(x1, y1, x, y);
    }

    fn close(&mut self) {
        self.to.close();
    }
}

/// The text, or as much of it as fits, with an ellipsis.
pub(super) fn fitted(text: &str, size: f64, bold: bool, room: f64) -> String {
    // Also without what XML forbids.
    let text = plain(text);
    if width(&text, size, bold) <= room {
        return text;
    }
    // Only the part that may fit is measured.
    let mut kept = Vec::new();
    let mut wide = 0.0;
    for c in text.chars() {
        wide += width(c.encode_utf8(&mut [0; 4]), size, bold);
        if wide > room {
            break;
        }
        kept.push(c);
    }
    loop {
        let short = kept.iter().collect::<String>().trim_end().to_owned() + "…";
        if width(&short, size, bold) <= room {
            return short;
        }
        if kept.pop().is_none() {
            return String::new();
        }
    }
}

/// The text in at most `most` lines that fit; the last one is truncated if needed.
pub(super) fn wrapped(text: &str, size: f64, bold: bool, room: f64, most: usize) -> Vec<String> {
    let text = plain(text);
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let last = lines.len() == most;
        match lines.last_mut() {
            Some(line) if last || width(&format!("{line} {word}"), size, bold) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| fitted(line, size, bold, room)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_font_has_the_widths_of_arial() {
        for bold in [false, true] {
            assert!(face(bold).is_some());
        }
        // From Arial's table: digits 1139 of 2048, "A" 1366, "i" 455.
        assert!((width("0", 2048.0, false) - 1139.0).abs() < 2.0);
        assert!((width("Ai", 2048.0, false) - (1366.0 + 455.0)).abs() < 3.0);
        let needed = "ν σ μ ± × − – … → ≤ ≥ ₁ ₂ ° % ·".split(' ');
        for sign in needed {
            let c = sign.chars().next().unwrap();
            assert!(face(false).unwrap().glyph_index(c).is_some(), "{sign}");
        }
    }

    #[test]
    fn lines_are_wrapped_at_words() {
        assert_eq!(wrapped("TNR at 95% TPR", 10.0, false, 40.0, 3), ["TNR at", "95%", "TPR"]);
        assert_eq!(wrapped("one two three", 10.0, false, 40.0, 1), ["one tw…"]);
        assert!(wrapped("  ", 10.0, false, 40.0, 2).is_empty());
    }

    proptest! {
        #[test]
        fn fitted_text_fits(text in "\\PC{0,40}", room in 5.0..200.0f64, bold: bool) {
            prop_assert!(width(&fitted(&text, 11.0, bold, room), 11.0, bold) <= room);
            for line in wrapped(&text, 11.0, bold, room, 3) {
                prop_assert!(width(&line, 11.0, bold) <= room);
            }
        }
    }
}
