//! The rows with the highest and the lowest confidence of each class, as images or as strips of their features.

use super::axis::{plain, short};
use super::color::{Paint, Theme};
use super::page::{BODY, HEADING, Key, MARGIN, Page, TINY, WIDTH};
use super::scene::{Anchor, Area, Primitive, Raster, Scene, Style, Text};
use super::{Figure, check_numbers, font};
use crate::error::{Error, Result};

/// A row to show.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its name, for example its row number.
    pub name: String,
    /// The confidence.
    pub confidence: f64,
    /// A note, for example the predicted class; may be empty.
    pub note: String,
    /// For an image the brightness of each pixel and channel, from 0 to 1, by rows; else the difference of each feature from
    /// its mean, in standard deviations.
    pub values: Vec<f64>,
    /// The features as in the data, if there are at most [`MOST_CELLS`]; else empty.
    pub cells: Vec<Cell>,
}

/// A feature as in the data.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A number, with as many digits as fit.
    Number(f64),
    /// A word.
    Word(String),
}

impl Cell {
    fn fitted(&self, room: f64) -> String {
        let number = match self {
            Cell::Word(word) => return font::fitted(word, TINY, false, room),
            Cell::Number(number) => *number,
        };
        let power = |digits: usize| format!("{number:.digits$e}").replace('-', "−");
        let ways = [short(number, 4), short(number, 3), short(number, 2), power(1), power(0)];
        let fits = |text: &&String| font::width(text, TINY, false) <= room;
        ways.iter().find(fits).cloned().unwrap_or_else(|| "…".into())
    }
}

/// The rows of a class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassSamples {
    /// The class.
    pub name: String,
    /// Those with the highest confidence, the highest first.
    pub highest: Vec<Sample>,
    /// Those with the lowest confidence, the lowest first.
    pub lowest: Vec<Sample>,
}

/// What the values of a row represent.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleKind {
    /// An image.
    Picture {
        /// Its width in pixels.
        width: usize,
        /// Its height in pixels.
        height: usize,
        /// Values of a pixel: 1 for gray, 3 for red, green and blue.
        channels: usize,
    },
    /// Features with these names.
    Features(Vec<String>),
}

/// The largest number of features that are shown as in the data.
pub const MOST_CELLS: usize = 10;

const GAP: f64 = 26.0;

/// For each class the rows with the highest confidence on the left and with the lowest on the right.
///
/// # Errors
/// If numbers are not finite, or lengths do not match.
pub fn samples(title: &str, caption: &str, kind: &SampleKind, classes: &[ClassSamples]) -> Result<Figure> {
    let all = || classes.iter().flat_map(|c| c.highest.iter().chain(&c.lowest));
    let wanted = match kind {
        SampleKind::Picture { width, height, channels: channels @ (1 | 3) } => {
            width.checked_mul(*height).and_then(|n| n.checked_mul(*channels)).unwrap_or(0)
        }
        SampleKind::Picture { .. } => 0,
        SampleKind::Features(names) => names.len(),
    };
    if wanted == 0 || all().any(|s| s.values.len() != wanted) {
        return Err(Error::data(format!("each row must have {wanted} values, and at least one")));
    }
    check_numbers(all().flat_map(|s| s.values.iter().copied().chain([s.confidence])))?;
    let mut page = Page::new(title);
    let name = classes.iter().map(|c| font::width(&c.name, BODY, true)).fold(0.0, f64::max).min(CLASS) + 14.0;
    let (left, room) = (MARGIN + name, WIDTH - 2.0 * MARGIN - name);
    let half = (room - GAP) / 2.0;
    let beside = vec![vec![(0, left), (1, left + half + GAP)]];
    let decimals = decimals(all().map(|s| s.confidence));
    match kind {
        SampleKind::Picture { width, height, .. } => {
            let most = all_sizes(classes).max(1);
            ImageGrid { size: [*width, *height], parts: beside, block: half, most, decimals }.draw(&mut page, classes);
        }
        SampleKind::Features(names) => {
            let with_texts = names.len() <= MOST_CELLS && all().all(|s| s.cells.len() == names.len());
            let strength = if with_texts { 0.55 } else { 1.0 };
            page.legend(&[("deviations from the mean of the training rows".into(), Key::Diverging(strength))]);
            let widest = |text: &dyn Fn(&Sample) -> String| {
                all().map(|s| font::width(&text(s), TINY, false)).fold(0.0, f64::max)
            };
            let row = widest(&|s| s.name.clone()).min(LONGEST) + 8.0;
            let number = widest(&|s| plain(s.confidence, decimals)).max(font::width("confidence", TINY, false));
            let note = widest(&|s| s.note.clone()).min(LONGEST);
            let words = number + 6.0 + if note > 0.0 { 10.0 + note } else { 0.0 };
            // One part below the other if the strips would be too narrow side by side.
            let least = row + words + if with_texts { CELL * names.len() as f64 } else { STRIP };
            let (parts, block) = match half >= least {
                true => (beside, half),
                false => (vec![vec![(0, left)], vec![(1, left)]], room),
            };
            Strips { names, with_texts, strength, parts, block, row, number, note, decimals }.draw(&mut page, classes);
        }
    }
    Ok(page.finish(caption))
}

/// The widest name of a class, and of a row or note.
const CLASS: f64 = 110.0;
const LONGEST: f64 = 200.0;
/// The smallest width of a feature with its value, and of a strip without values.
const CELL: f64 = 27.0;
const STRIP: f64 = 150.0;

/// What is drawn side by side: the rows with the highest confidence (0) or the lowest (1), and where they begin.
type Part = Vec<(usize, f64)>;

/// The rows of one end.
fn end(class: &ClassSamples, which: usize) -> &[Sample] {
    if which == 0 { &class.highest } else { &class.lowest }
}

fn all_sizes(classes: &[ClassSamples]) -> usize {
    classes.iter().map(|c| c.highest.len().max(c.lowest.len())).max().unwrap_or(0)
}

/// The decimals for three significant digits of the largest number, and at least two for numbers below 1000.
fn decimals(confidences: impl Iterator<Item = f64>) -> usize {
    let largest = confidences.fold(0.0, |most: f64, c| most.max(c.abs()));
    if largest >= 1000.0 || largest == 0.0 {
        return 0;
    }
    (2.0 - libm::floor(libm::log10(largest))).clamp(2.0, 6.0) as usize
}

fn heads(page: &mut Page, part: &Part) {
    for &(which, x) in part {
        let text = ["Highest confidence", "Lowest confidence"][which];
        page.scene.text(Text::new(x, page.y + 14.0, text, HEADING).bold());
    }
    page.y += 26.0;
}

/// The name of a class beside its rows, in as many lines as their height allows.
fn class_name(scene: &mut Scene, name: &str, middle: f64, high: f64) {
    let step = 1.2 * BODY;
    let lines = font::wrapped(name, BODY, true, CLASS, ((high / step) as usize).max(1));
    let first = middle - (lines.len() as f64 - 1.0) * step / 2.0 + font::CAPITAL * BODY / 2.0;
    for (i, line) in lines.into_iter().enumerate() {
        scene.text(Text::new(MARGIN, first + i as f64 * step, line, BODY).bold());
    }
}

/// Rows as images.
struct ImageGrid {
    size: [usize; 2],
    parts: Vec<Part>,
    block: f64,
    /// Images side by side.
    most: usize,
    /// Decimals of confidences.
    decimals: usize,
}

/// The largest number of lines of a note below an image.
const LINES: usize = 3;

impl ImageGrid {
    fn draw(&self, page: &mut Page, classes: &[ClassSamples]) {
        let [columns, rows] = self.size.map(|n| n as f64);
        let cell = (self.block / self.most as f64).min(112.0);
        // The height of images is limited.
        let scale = ((cell - 8.0) / columns).min(120.0 / rows);
        let (w, h) = (scale * columns, scale * rows);
        let line = 1.25 * TINY;
        let note = |s: &Sample| font::wrapped(&s.note, TINY, false, cell - 6.0, LINES);
        for part in &self.parts {
            heads(page, part);
            for class in classes {
                class_name(&mut page.scene, &class.name, page.y + h / 2.0, h);
                let mut lines = 0;
                for &(which, x) in part {
                    for (i, s) in end(class, which).iter().enumerate() {
                        let at = x + i as f64 * cell;
                        let area = Area { x: at, y: page.y, w, h };
                        page.scene.primitives.push(Primitive::Image { area, raster: picture(&s.values, self.size) });
                        page.scene.rect(area, Style::line(Paint::Muted, 0.7));
                        let base = page.y + h + 5.0 + font::ASCENT * TINY;
                        let number = font::fitted(&plain(s.confidence, self.decimals), TINY, false, cell - 6.0);
                        page.scene.text(Text::new(at, base, number, TINY).paint(Paint::Muted));
                        let note = note(s);
                        lines = lines.max(note.len());
                        for (k, text) in note.into_iter().enumerate() {
                            page.scene.text(Text::new(at, base + (k + 1) as f64 * line, text, TINY));
                        }
                    }
                }
                page.y += h + 5.0 + line * (lines as f64 + 1.0) + 9.0;
            }
        }
    }
}

/// Grayscale, or RGB if there are three values per pixel.
fn picture(values: &[f64], [columns, rows]: [usize; 2]) -> Raster {
    let level = |v: f64| (v.clamp(0.0, 1.0) * 255.0).round() as u8;
    let channels = values.len() / (columns * rows).max(1);
    let pixel = |p: &[f64]| match *p {
        [red, green, blue] => [level(red), level(green), level(blue), 255],
        _ => {
            let gray = level(p.first().copied().unwrap_or(0.0));
            [gray, gray, gray, 255]
        }
    };
    let rgba = values.chunks_exact(channels.max(1)).flat_map(pixel);
    Raster { columns: columns as u32, rows: rows as u32, rgba: rgba.collect() }
}

/// Rows as strips of their features.
struct Strips<'a> {
    names: &'a [String],
    with_texts: bool,
    strength: f64,
    parts: Vec<Part>,
    block: f64,
    /// The widths of the name of a row, of its confidence, and of its note.
    row: f64,
    number: f64,
    note: f64,
    /// Decimals of confidences.
    decimals: usize,
}

impl Strips<'_> {
    fn strip_width(&self) -> f64 {
        let note = if self.note > 0.0 { 10.0 + self.note } else { 0.0 };
        (self.block - self.row - self.number - 6.0 - note).max(1.0)
    }

    fn draw(&self, page: &mut Page, classes: &[ClassSamples]) {
        let (thick, step) = if self.with_texts { (15.0, 17.0) } else { (12.0, 15.0) };
        for part in &self.parts {
            heads(page, part);
            self.columns(page, part);
            for class in classes {
                let rows = part.iter().map(|&(which, _)| end(class, which).len()).max().unwrap_or(0);
                if rows == 0 {
                    continue;
                }
                let high = (rows - 1) as f64 * step + thick;
                class_name(&mut page.scene, &class.name, page.y + high / 2.0, high);
                for &(which, x) in part {
                    for (i, s) in end(class, which).iter().enumerate() {
                        let y = page.y + i as f64 * step;
                        let area = Area { x: x + self.row, y, w: self.strip_width(), h: thick };
                        self.sample(&mut page.scene, s, area);
                    }
                }
                page.y += rows as f64 * step + 9.0;
            }
            page.y += 6.0;
        }
    }

    /// The names of the features above their columns; only their number if there are many.
    fn columns(&self, page: &mut Page, part: &Part) {
        let cell = self.strip_width() / self.names.len() as f64;
        let lie = self.names.iter().all(|n| font::width(n, TINY, false) <= cell - 3.0);
        let longest = self.names.iter().map(|n| font::width(n, TINY, false)).fold(0.0, f64::max).min(90.0);
        let high = if !self.with_texts || lie { 1.2 * TINY } else { longest };
        let base = page.y + high;
        for x in part.iter().map(|&(_, x)| x + self.row) {
            let right = x + self.strip_width() + 6.0 + self.number;
            page.scene.text(Text::new(right, base, "confidence", TINY).at(Anchor::End).paint(Paint::Muted));
            if !self.with_texts {
                let text = format!("{} features, in the order of the data", self.names.len());
                let text = font::fitted(&text, TINY, false, self.strip_width());
                page.scene.text(Text::new(x, base, text, TINY).paint(Paint::Muted));
                continue;
            }
            for (i, name) in self.names.iter().enumerate() {
                let middle = x + (i as f64 + 0.5) * cell;
                let text = if lie {
                    Text::new(middle, base, name, TINY).at(Anchor::Middle)
                } else {
                    let name = font::fitted(name, TINY, false, 90.0);
                    Text::new(middle + font::CAPITAL * TINY / 2.0, base, name, TINY).upwards()
                };
                page.scene.text(text.paint(Paint::Muted));
            }
        }
        page.y = base + 6.0;
    }

    fn sample(&self, scene: &mut Scene, s: &Sample, area: Area) {
        scene.primitives.push(Primitive::Image { area, raster: self.strip(&s.values) });
        scene.rect(area, Style::line(Paint::Grid, 1.0));
        let base = area.y + area.h / 2.0 + font::CAPITAL * TINY / 2.0;
        let name = font::fitted(&s.name, TINY, false, self.row - 8.0);
        scene.text(Text::new(area.x - 6.0, base, name, TINY).at(Anchor::End).paint(Paint::Muted));
        let x = area.x + area.w + 6.0 + self.number;
        scene.text(Text::new(x, base, plain(s.confidence, self.decimals), TINY).at(Anchor::End));
        let note = font::fitted(&s.note, TINY, false, self.note);
        scene.text(Text::new(x + 10.0, base, note, TINY).paint(Paint::Muted));
        if self.with_texts {
            let cell = area.w / s.cells.len() as f64;
            for (i, text) in s.cells.iter().enumerate() {
                let text = text.fitted(cell - 3.0);
                scene.text(Text::new(area.x + (i as f64 + 0.5) * cell, base, text, TINY).at(Anchor::Middle));
            }
        }
    }

    fn strip(&self, values: &[f64]) -> Raster {
        let rgba = values.iter().flat_map(|&z| {
            let [r, g, b] = (if z < 0.0 { Paint::Below } else { Paint::Above }).rgb(Theme::Light);
            [r, g, b, ((z.abs() / 3.0).min(1.0) * self.strength * 255.0).round() as u8]
        });
        Raster { columns: values.len() as u32, rows: 1, rgba: rgba.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_as_many_digits_as_fit() {
        let cell = |v: f64, room: f64| Cell::Number(v).fitted(room);
        assert_eq!(cell(12345.6, 40.0), "12,346");
        assert_eq!(cell(12345.6, 25.0), "1.2e4");
        assert_eq!(cell(-0.123456, 40.0), "−0.1235");
        assert_eq!(cell(0.0, 10.0), "0");
        assert_eq!(cell(1e-300, 5.0), "…");
        assert_eq!(decimals([0.5, -12.0].into_iter()), 2);
        assert_eq!(decimals([0.005].into_iter()), 5);
        assert_eq!(decimals([12345.0].into_iter()), 0);
    }

    #[test]
    fn notes_are_not_cut_off() {
        let long = "unknown → Acetaldehyde from a fermentation";
        let sample = |values: usize, note: &str| Sample {
            name: "row 12,345,678".into(),
            confidence: -1.5,
            note: note.into(),
            values: vec![0.5; values],
            cells: if values <= MOST_CELLS { vec![Cell::Number(1.5); values] } else { Vec::new() },
        };
        let features = |n: usize| (SampleKind::Features(vec!["feature".into(); n]), n);
        for (kind, n) in
            [(SampleKind::Picture { width: 8, height: 8, channels: 1 }, 64), features(4), features(10), features(200)]
        {
            let side = vec![sample(n, long), sample(n, "")];
            let class = ClassSamples { name: "a class".into(), highest: side.clone(), lowest: side };
            let figure = samples("t", "", &kind, &[class]).unwrap();
            let texts: Vec<&str> = figure.scene.texts().iter().map(|t| t.text.as_str()).collect();
            let all = texts.join(" ");
            assert!(all.matches(long).count() == 2 && !all.contains('…'), "{n}: {texts:?}");
            let right = figure.scene.texts().iter().map(|t| t.area().x + t.area().w).fold(0.0, f64::max);
            assert!(right <= WIDTH - MARGIN + 1.0, "{n}: {right}");
        }
    }

    #[test]
    fn the_number_of_values_is_checked() {
        let sample =
            Sample { name: "1".into(), confidence: 1.0, note: String::new(), values: vec![0.5; 6], cells: vec![] };
        let class = ClassSamples { name: "a".into(), highest: vec![sample.clone()], lowest: vec![sample] };
        let draw = |kind| samples("t", "", &kind, std::slice::from_ref(&class));
        assert!(draw(SampleKind::Picture { width: 3, height: 2, channels: 1 }).is_ok());
        assert!(draw(SampleKind::Picture { width: 1, height: 2, channels: 3 }).is_ok());
        assert!(draw(SampleKind::Picture { width: 3, height: 1, channels: 2 }).is_err());
        assert!(draw(SampleKind::Picture { width: 3, height: 3, channels: 1 }).is_err());
        assert!(draw(SampleKind::Picture { width: usize::MAX, height: 2, channels: 1 }).is_err());
        assert!(draw(SampleKind::Features(vec!["f".into(); 6])).is_ok());
        assert!(draw(SampleKind::Features(Vec::new())).is_err());
    }
}
