//! A figure as a list of primitives with styles, before it is written as SVG or PNG. Units are SVG pixels; y points down.

use super::color::Paint;
use super::font;
use crate::error::plain;

/// The color of an interior.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fill {
    pub paint: Paint,
    pub alpha: f64,
}

/// The color and width of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stroke {
    pub paint: Paint,
    pub alpha: f64,
    pub width: f64,
}

/// The style of a primitive.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Style {
    pub fill: Option<Fill>,
    pub stroke: Option<Stroke>,
}

impl Style {
    /// Filled, without a line.
    pub(super) fn fill(paint: Paint) -> Style {
        Style { fill: Some(Fill { paint, alpha: 1.0 }), stroke: None }
    }

    /// A line, with nothing inside.
    pub(super) fn line(paint: Paint, width: f64) -> Style {
        Style { fill: None, stroke: Some(Stroke { paint, alpha: 1.0, width }) }
    }

    /// The same style with an outline.
    pub(super) fn with_line(self, paint: Paint, width: f64) -> Style {
        Style { stroke: Style::line(paint, width).stroke, ..self }
    }

    /// The same style with this opacity.
    pub(super) fn alpha(mut self, alpha: f64) -> Style {
        self.fill.iter_mut().for_each(|f| f.alpha = alpha);
        self.stroke.iter_mut().for_each(|s| s.alpha = alpha);
        self
    }
}

/// A rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Area {
    pub x: f64,
    pub y: f64,
    pub w: f64,
    pub h: f64,
}

impl Area {
    /// Whether the two overlap by more than an edge.
    pub(super) fn overlaps(&self, other: &Area) -> bool {
        let apart = |a: f64, n: f64, b: f64, m: f64| a + n <= b || b + m <= a;
        !(apart(self.x, self.w, other.x, other.w) || apart(self.y, self.h, other.y, other.h))
    }

    /// Whether the other lies inside.
    pub(super) fn contains(&self, other: &Area) -> bool {
        other.x >= self.x
            && other.y >= self.y
            && other.x + other.w <= self.x + self.w
            && other.y + other.h <= self.y + self.h
    }
}

/// Which part of a text is at its position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Anchor {
    #[default]
    Start,
    Middle,
    End,
}

/// A line of text; `y` is its baseline.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Text {
    pub x: f64,
    pub y: f64,
    pub text: String,
    pub size: f64,
    pub bold: bool,
    pub anchor: Anchor,
    pub paint: Paint,
    /// Rotated by 90 degrees: upwards instead of to the right.
    pub upwards: bool,
    /// With an outline in the background color.
    pub halo: bool,
}

impl Text {
    /// Text in the default color that starts at `x`.
    pub(super) fn new(x: f64, y: f64, text: impl AsRef<str>, size: f64) -> Text {
        let text = plain(text.as_ref());
        let (bold, anchor, paint) = (false, Anchor::Start, Paint::Ink);
        Text { x, y, text, size, bold, anchor, paint, upwards: false, halo: false }
    }

    /// The same text in bold.
    pub(super) fn bold(self) -> Text {
        Text { bold: true, ..self }
    }

    /// The same text with another anchor.
    pub(super) fn at(self, anchor: Anchor) -> Text {
        Text { anchor, ..self }
    }

    /// The same text in another color.
    pub(super) fn paint(self, paint: Paint) -> Text {
        Text { paint, ..self }
    }

    /// The same text, rotated upwards.
    pub(super) fn upwards(self) -> Text {
        Text { upwards: true, ..self }
    }

    /// The same text with a halo.
    pub(super) fn halo(self) -> Text {
        Text { halo: true, ..self }
    }

    /// The length of the text.
    pub(super) fn width(&self) -> f64 {
        font::width(&self.text, self.size, self.bold)
    }

    /// The distance from its start to its anchor.
    pub(super) fn lead(&self) -> f64 {
        match self.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => self.width() / 2.0,
            Anchor::End => self.width(),
        }
    }

    /// The rectangle that it covers.
    pub(super) fn area(&self) -> Area {
        let (long, lead) = (self.width(), self.lead());
        let (above, high) = (font::ASCENT * self.size, (font::ASCENT + font::DESCENT) * self.size);
        if self.upwards {
            Area { x: self.x - above, y: self.y - (long - lead), w: high, h: long }
        } else {
            Area { x: self.x - lead, y: self.y - above, w: long, h: high }
        }
    }
}

/// The symbol of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
    Cross,
}

impl Marker {
    /// The marker of a series.
    pub(super) fn of(series: usize) -> Marker {
        [Marker::Circle, Marker::Square, Marker::Triangle, Marker::Diamond][series % 4]
    }

    /// The corners around a point. All markers have about the area of a circle of radius `r`; a circle has no corners.
    pub(super) fn corners(self, [x, y]: [f64; 2], r: f64) -> Vec<[f64; 2]> {
        let s = 0.89 * r;
        match self {
            Marker::Circle => Vec::new(),
            Marker::Square => vec![[x - s, y - s], [x + s, y - s], [x + s, y + s], [x - s, y + s]],
            Marker::Triangle => vec![[x, y - 1.3 * r], [x + 1.15 * r, y + 0.8 * r], [x - 1.15 * r, y + 0.8 * r]],
            Marker::Diamond => vec![[x, y - 1.3 * r], [x + 1.3 * r, y], [x, y + 1.3 * r], [x - 1.3 * r, y]],
            Marker::Cross => {
                let t = 0.3 * r;
                let arms = [[t, -r], [t, -t], [r, -t], [r, t], [t, t], [t, r]];
                let mut all: Vec<[f64; 2]> = arms.iter().map(|&[a, b]| [x + a, y + b]).collect();
                all.extend(arms.iter().map(|&[a, b]| [x - a, y - b]));
                all
            }
        }
    }
}

/// Pixels with transparency, not premultiplied.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Raster {
    pub columns: u32,
    pub rows: u32,
    pub rgba: Vec<u8>,
}

/// One element of a scene.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Primitive {
    /// Polylines, closed or not.
    Path { lines: Vec<Vec<[f64; 2]>>, closed: bool, style: Style },
    /// Markers.
    Points { at: Vec<[f64; 2]>, r: f64, marker: Marker, style: Style },
    /// A rectangle.
    Rect { area: Area, style: Style },
    /// Text.
    Text(Text),
    /// An image, scaled without interpolation.
    Image { area: Area, raster: Raster },
    /// Primitives that are clipped to a rectangle.
    Clip { area: Area, primitives: Vec<Primitive> },
}

/// Primitives on a canvas; later ones are drawn on top.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Scene {
    pub width: f64,
    pub height: f64,
    pub primitives: Vec<Primitive>,
}

impl Scene {
    pub(super) fn text(&mut self, text: Text) {
        if !text.text.is_empty() {
            self.primitives.push(Primitive::Text(text));
        }
    }

    pub(super) fn line(&mut self, from: [f64; 2], to: [f64; 2], style: Style) {
        self.primitives.push(Primitive::Path { lines: vec![vec![from, to]], closed: false, style });
    }

    pub(super) fn rect(&mut self, area: Area, style: Style) {
        self.primitives.push(Primitive::Rect { area, style });
    }

    pub(super) fn point(&mut self, at: [f64; 2], r: f64, marker: Marker, style: Style) {
        self.primitives.push(Primitive::Points { at: vec![at], r, marker, style });
    }

    /// All texts, for tests.
    #[cfg(test)]
    pub(super) fn texts(&self) -> Vec<&Text> {
        fn collect<'a>(primitives: &'a [Primitive], out: &mut Vec<&'a Text>) {
            for primitive in primitives {
                match primitive {
                    Primitive::Text(t) => out.push(t),
                    Primitive::Clip { primitives, .. } => collect(primitives, out),
                    _ => {}
                }
            }
        }
        let mut out = Vec::new();
        collect(&self.primitives, &mut out);
        out
    }
}
