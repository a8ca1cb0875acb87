//! What a figure is made of, before it is SVG or pixels: shapes with styles, in pixels of the SVG, y down.

use super::color::Paint;
use super::font;

/// The color inside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fill {
    pub paint: Paint,
    pub alpha: f64,
}

/// A line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stroke {
    pub paint: Paint,
    pub alpha: f64,
    pub width: f64,
}

/// How a shape looks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Style {
    pub fill: Option<Fill>,
    pub stroke: Option<Stroke>,
}

impl Style {
    /// Filled, without a line.
    pub fn fill(paint: Paint) -> Style {
        Style { fill: Some(Fill { paint, alpha: 1.0 }), stroke: None }
    }

    /// A line, with nothing inside.
    pub fn line(paint: Paint, width: f64) -> Style {
        Style { fill: None, stroke: Some(Stroke { paint, alpha: 1.0, width }) }
    }

    /// The same with a line.
    pub fn with_line(self, paint: Paint, width: f64) -> Style {
        Style { stroke: Style::line(paint, width).stroke, ..self }
    }

    /// Seen through to this degree.
    pub fn alpha(mut self, alpha: f64) -> Style {
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
    /// Whether the two have more than an edge in common.
    pub fn meets(&self, other: &Area) -> bool {
        let apart = |a: f64, n: f64, b: f64, m: f64| a + n <= b || b + m <= a;
        !(apart(self.x, self.w, other.x, other.w) || apart(self.y, self.h, other.y, other.h))
    }

    /// Whether the other lies inside.
    pub fn holds(&self, other: &Area) -> bool {
        other.x >= self.x
            && other.y >= self.y
            && other.x + other.w <= self.x + self.w
            && other.y + other.h <= self.y + self.h
    }
}

/// Which end of a text its place is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Anchor {
    #[default]
    Start,
    Middle,
    End,
}

/// A line of text; `y` is where its letters stand.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Text {
    pub x: f64,
    pub y: f64,
    pub text: String,
    pub size: f64,
    pub bold: bool,
    pub anchor: Anchor,
    pub paint: Paint,
    /// Upwards instead of to the right.
    pub upwards: bool,
    /// With a rim in the color of the ground, over whatever is there.
    pub halo: bool,
}

impl Text {
    /// In ink, from `x` on.
    pub fn new(x: f64, y: f64, text: impl AsRef<str>, size: f64) -> Text {
        let text = font::clean(text.as_ref());
        let (bold, anchor, paint) = (false, Anchor::Start, Paint::Ink);
        Text { x, y, text, size, bold, anchor, paint, upwards: false, halo: false }
    }

    /// Bold.
    pub fn bold(self) -> Text {
        Text { bold: true, ..self }
    }

    /// Placed by another end.
    pub fn at(self, anchor: Anchor) -> Text {
        Text { anchor, ..self }
    }

    /// In another color.
    pub fn paint(self, paint: Paint) -> Text {
        Text { paint, ..self }
    }

    /// Upwards.
    pub fn upwards(self) -> Text {
        Text { upwards: true, ..self }
    }

    /// With a rim.
    pub fn halo(self) -> Text {
        Text { halo: true, ..self }
    }

    /// How long it is.
    pub fn width(&self) -> f64 {
        font::width(&self.text, self.size, self.bold)
    }

    /// How far before its place it begins.
    pub fn lead(&self) -> f64 {
        match self.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => self.width() / 2.0,
            Anchor::End => self.width(),
        }
    }

    /// The place that it takes.
    pub fn area(&self) -> Area {
        let (long, lead) = (self.width(), self.lead());
        let (above, high) = (font::ASCENT * self.size, (font::ASCENT + font::DESCENT) * self.size);
        if self.upwards {
            Area { x: self.x - above, y: self.y - (long - lead), w: high, h: long }
        } else {
            Area { x: self.x - lead, y: self.y - above, w: long, h: high }
        }
    }
}

/// What stands for a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
    Cross,
}

impl Marker {
    /// One for each series.
    pub fn of(series: usize) -> Marker {
        [Marker::Circle, Marker::Square, Marker::Triangle, Marker::Diamond][series % 4]
    }

    /// Its corners around a point, all about as large as a circle of radius `r`; none for a circle.
    pub fn corners(self, [x, y]: [f64; 2], r: f64) -> Vec<[f64; 2]> {
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

/// A thing to draw.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    /// Lines from point to point, several of them, closed or not.
    Path { lines: Vec<Vec<[f64; 2]>>, closed: bool, style: Style },
    /// Many markers.
    Points { at: Vec<[f64; 2]>, r: f64, marker: Marker, style: Style },
    /// A rectangle.
    Rect { area: Area, style: Style },
    /// A text.
    Text(Text),
    /// A picture whose pixels stay squares.
    Image { area: Area, raster: Raster },
    /// Shapes of which only what is inside the rectangle is seen.
    Clip { area: Area, shapes: Vec<Shape> },
}

/// Shapes on a sheet; later ones lie on top.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Scene {
    pub width: f64,
    pub height: f64,
    pub shapes: Vec<Shape>,
}

impl Scene {
    pub fn text(&mut self, text: Text) {
        if !text.text.is_empty() {
            self.shapes.push(Shape::Text(text));
        }
    }

    pub fn line(&mut self, from: [f64; 2], to: [f64; 2], style: Style) {
        self.shapes.push(Shape::Path { lines: vec![vec![from, to]], closed: false, style });
    }

    pub fn rect(&mut self, area: Area, style: Style) {
        self.shapes.push(Shape::Rect { area, style });
    }

    pub fn point(&mut self, at: [f64; 2], r: f64, marker: Marker, style: Style) {
        self.shapes.push(Shape::Points { at: vec![at], r, marker, style });
    }

    /// All texts, for tests.
    #[cfg(test)]
    pub fn texts(&self) -> Vec<&Text> {
        fn collect<'a>(shapes: &'a [Shape], out: &mut Vec<&'a Text>) {
            for shape in shapes {
                match shape {
                    Shape::Text(t) => out.push(t),
                    Shape::Clip { shapes, .. } => collect(shapes, out),
                    _ => {}
                }
            }
        }
        let mut out = Vec::new();
        collect(&self.shapes, &mut out);
        out
    }
}
