//! The layout that all figures share: title, legend, panels with axes, caption.

use super::Figure;
use super::axis::Axis;
use super::color::Paint;
use super::font;
use super::scene::{Anchor, Area, Marker, Primitive, Scene, Style, Text};
use crate::error::plain;

/// The width of a figure.
pub(super) const WIDTH: f64 = 960.0;
/// The margin on each side.
pub(super) const MARGIN: f64 = 20.0;
/// Font sizes.
pub(super) const TITLE: f64 = 17.0;
pub(super) const HEADING: f64 = 13.5;
pub(super) const BODY: f64 = 12.0;
pub(super) const SMALL: f64 = 11.0;
pub(super) const TINY: f64 = 9.5;

/// The symbol beside a name in a legend.
#[derive(Clone, Copy, Debug)]
pub(super) enum Key {
    /// A filled dot.
    Dot(usize),
    /// A hollow dot.
    Hollow,
    /// The mean of a class.
    Mean,
    /// A circle.
    Sphere,
    /// A filled square.
    Square(usize),
    /// A line with its marker.
    Line(usize),
    /// A color scale from three deviations below to three above the mean, with this opacity.
    Diverging(f64),
}

/// A canvas that is filled from top to bottom.
pub(super) struct Page {
    pub scene: Scene,
    title: String,
    /// Where the next element begins.
    pub y: f64,
}

impl Page {
    /// A page with a title.
    pub(super) fn new(title: &str) -> Page {
        let mut page = Page { scene: Scene { width: WIDTH, ..Scene::default() }, title: plain(title), y: MARGIN };
        for line in font::wrapped(title, TITLE, true, WIDTH - 2.0 * MARGIN, 2) {
            page.scene.text(Text::new(MARGIN, page.y + font::ASCENT * TITLE, line, TITLE).bold());
            page.y += 1.3 * TITLE;
        }
        page.y += 6.0;
        page
    }

    /// A legend, in as many lines as needed.
    pub(super) fn legend(&mut self, entries: &[(String, Key)]) {
        let room = WIDTH - 2.0 * MARGIN;
        let mut x = MARGIN;
        let line = 1.7 * BODY;
        for (name, key) in entries {
            let mark = if matches!(key, Key::Diverging(_)) { 142.0 } else { 24.0 };
            let name = font::fitted(name, BODY, false, room - mark);
            let width = mark + font::width(&name, BODY, false);
            if x > MARGIN && x + width > WIDTH - MARGIN {
                x = MARGIN;
                self.y += line;
            }
            let middle = self.y + line / 2.0;
            self.key(*key, x, middle);
            self.scene.text(Text::new(x + mark, middle + font::CAPITAL * BODY / 2.0, name, BODY));
            x += width + 20.0;
        }
        self.y += line + 8.0;
    }

    fn key(&mut self, key: Key, x: f64, y: f64) {
        let at = [x + 9.0, y];
        match key {
            Key::Dot(s) => self.scene.point(at, 5.0, Marker::Circle, Style::fill(Paint::Series(s))),
            Key::Hollow => self.scene.point(at, 4.5, Marker::Circle, hollow()),
            Key::Mean => self.scene.point(at, 6.0, Marker::Cross, mean()),
            Key::Sphere => {
                self.scene.point(at, 7.0, Marker::Circle, Style::line(Paint::Muted, 1.8));
            }
            Key::Square(s) => {
                self.scene.rect(Area { x: x + 3.0, y: y - 6.0, w: 12.0, h: 12.0 }, Style::fill(Paint::Series(s)))
            }
            Key::Line(s) => {
                self.scene.line([x, y], [x + 18.0, y], Style::line(Paint::Series(s), 2.0));
                self.scene.point(at, 3.5, Marker::of(s), Style::fill(Paint::Series(s)));
            }
            Key::Diverging(strength) => self.diverging(x, y, strength),
        }
    }

    fn diverging(&mut self, x: f64, y: f64, strength: f64) {
        let steps = 25;
        let (from, w) = (x + 20.0, 96.0 / f64::from(steps));
        for i in 0..steps {
            let z = f64::from(2 * i - steps + 1) / f64::from(steps - 1);
            let paint = if z < 0.0 { Paint::Below } else { Paint::Above };
            let area = Area { x: from + f64::from(i) * w, y: y - 6.0, w, h: 12.0 };
            self.scene.rect(area, Style::fill(paint).alpha(strength * z.abs()));
        }
        let frame = Area { x: from, y: y - 6.0, w: 96.0, h: 12.0 };
        self.scene.rect(frame, Style::line(Paint::Grid, 1.0));
        let base = y + font::CAPITAL * SMALL / 2.0;
        self.scene.text(Text::new(from - 4.0, base, "−3", SMALL).at(Anchor::End).paint(Paint::Muted));
        self.scene.text(Text::new(from + 100.0, base, "+3", SMALL).paint(Paint::Muted));
    }

    /// Adds the caption and returns the figure.
    pub(super) fn finish(mut self, caption: &str) -> Figure {
        let lines = font::wrapped(caption, SMALL, false, WIDTH - 2.0 * MARGIN, 8);
        if !lines.is_empty() {
            self.y += 6.0;
        }
        for line in lines {
            self.scene.text(Text::new(MARGIN, self.y + font::ASCENT * SMALL, line, SMALL).paint(Paint::Muted));
            self.y += 1.4 * SMALL;
        }
        self.scene.height = (self.y + MARGIN * 0.7).ceil();
        Figure { title: self.title, scene: self.scene }
    }
}

/// The style of out-of-distribution rows.
pub(super) fn hollow() -> Style {
    Style::line(Paint::Ink, 1.0)
}

/// The style of a class mean.
pub(super) fn mean() -> Style {
    Style { fill: Style::fill(Paint::Ink).fill, ..Style::line(Paint::Surface, 1.2) }
}

/// The longest name of a y axis that is written above it.
const SHORT: f64 = 20.0;

/// The width of ticks and name of the y axis, without the tick labels.
pub(super) fn y_name_width(name: &str) -> f64 {
    if font::width(name, SMALL, false) <= SHORT { 14.0 } else { 30.0 }
}

/// A panel: the area of the data, and its axes.
pub(super) struct Panel {
    pub area: Area,
    pub x: Option<Axis>,
    pub y: Axis,
}

impl Panel {
    /// The position of a number on the x axis.
    pub(super) fn at_x(&self, value: f64) -> f64 {
        self.area.x + self.area.w * self.x.as_ref().map_or(value, |axis| axis.place(value))
    }

    /// The position of a number on the y axis.
    pub(super) fn at_y(&self, value: f64) -> f64 {
        self.area.y + self.area.h * (1.0 - self.y.place(value))
    }

    /// Grid lines and tick labels.
    pub(super) fn grid(&self, scene: &mut Scene) {
        let Area { x, y, w, h } = self.area;
        for tick in &self.y.ticks {
            let at = self.at_y(tick.at);
            scene.line([x, at], [x + w, at], Style::line(Paint::Grid, 1.0));
            let base = at + font::CAPITAL * SMALL / 2.0;
            scene.text(Text::new(x - 7.0, base, &tick.label, SMALL).at(Anchor::End).paint(Paint::Muted));
        }
        for tick in self.x.iter().flat_map(|axis| &axis.ticks) {
            let at = self.at_x(tick.at);
            scene.line([at, y], [at, y + h], Style::line(Paint::Grid, 1.0));
            let base = y + h + 7.0 + font::ASCENT * SMALL;
            scene.text(Text::new(at, base, &tick.label, SMALL).at(Anchor::Middle).paint(Paint::Muted));
        }
    }

    /// The name of the y axis: above it if short, else along it.
    pub(super) fn y_name(&self, scene: &mut Scene, name: &str) {
        let Area { x, y, h, .. } = self.area;
        let name = font::fitted(name, SMALL, false, h);
        let text = if font::width(&name, SMALL, false) <= SHORT {
            Text::new(x - 7.0, y - 12.0, name, SMALL).at(Anchor::End)
        } else {
            let at = x - 7.0 - self.y.label_width(SMALL) - 9.0;
            Text::new(at, y + h / 2.0, name, SMALL).at(Anchor::Middle).upwards()
        };
        scene.text(text.paint(Paint::Muted));
    }

    /// The line at the bottom.
    pub(super) fn base(&self, scene: &mut Scene) {
        let Area { x, y, w, h } = self.area;
        scene.line([x, y + h], [x + w, y + h], Style::line(Paint::Muted, 1.0));
    }

    /// A frame.
    pub(super) fn frame(&self, scene: &mut Scene) {
        scene.primitives.push(Primitive::Rect { area: self.area, style: Style::line(Paint::Muted, 1.0) });
    }
}
