//! Line plots with given axis ranges: curves, filled areas and single points.

use super::axis::{Along, Axis};
use super::color::Paint;
use super::page::{HEADING, Key, MARGIN, Page, Panel, SMALL, WIDTH, y_name_width};
use super::scene::{Anchor, Area, Marker, Primitive, Scene, Style, Text};
use super::{Figure, check_numbers, font};
use crate::error::{Error, Result};

/// A polyline.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The series, which gives its color and name.
    pub series: usize,
    /// The points.
    pub points: Vec<[f64; 2]>,
    /// Whether the area below is filled.
    pub filled: bool,
}

/// Curves in one pair of axes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CurvePanel {
    /// The title.
    pub title: String,
    /// The name of the x axis.
    pub x_name: String,
    /// The name of the y axis.
    pub y_name: String,
    /// The range of x.
    pub x: [f64; 2],
    /// The range of y.
    pub y: [f64; 2],
    /// The curves; points out of range are drawn at the edge.
    pub curves: Vec<Curve>,
    /// Points, each with its series.
    pub marks: Vec<(usize, [f64; 2])>,
    /// A vertical line at this x.
    pub cut: Option<f64>,
    /// Whether the diagonal is drawn.
    pub diagonal: bool,
}

/// Panels of curves side by side. The legend has the series with a name.
///
/// # Errors
/// If the numbers are not finite, or a range is empty.
pub fn curves(title: &str, caption: &str, series: &[String], panels: &[CurvePanel]) -> Result<Figure> {
    for p in panels {
        let points = p.curves.iter().flat_map(|c| &c.points).chain(p.marks.iter().map(|m| &m.1)).flatten();
        check_numbers(points.chain(&p.x).chain(&p.y).chain(&p.cut).copied())?;
        if p.x[0] >= p.x[1] || p.y[0] >= p.y[1] {
            return Err(Error::data(format!("{}: an axis has no length", p.title)));
        }
    }
    let mut page = Page::new(title);
    if !series.is_empty() {
        let named = series.iter().enumerate().filter(|(_, s)| !s.is_empty());
        let keys: Vec<(String, Key)> = named.map(|(i, s)| (s.clone(), Key::Line(i))).collect();
        page.legend(&keys);
    }
    let columns = if panels.len() == 4 { 2 } else { panels.len().clamp(1, 3) };
    let gap = 24.0;
    let whole = (WIDTH - 2.0 * MARGIN - (columns as f64 - 1.0) * gap) / columns as f64;
    let high = [380.0, 290.0, 230.0][columns - 1];
    let needed = |p: &CurvePanel| {
        Axis::new(p.y[0], p.y[1], false, high, SMALL, Along::Y).label_width(SMALL) + y_name_width(&p.y_name)
    };
    let left = panels.iter().map(needed).fold(0.0, f64::max);
    for row in panels.chunks(columns) {
        for (i, p) in row.iter().enumerate() {
            let (x, y) = (MARGIN + i as f64 * (whole + gap) + left, page.y + 28.0);
            draw(&mut page.scene, p, Area { x, y, w: whole - left - 8.0, h: high });
        }
        page.y += high + 78.0;
    }
    Ok(page.finish(caption))
}

fn draw(scene: &mut Scene, p: &CurvePanel, area: Area) {
    let x = Axis::new(p.x[0], p.x[1], false, area.w, SMALL, Along::X);
    let y = Axis::new(p.y[0], p.y[1], false, area.h, SMALL, Along::Y);
    let panel = Panel { area, x: Some(x), y };
    scene.text(Text::new(area.x, area.y - 15.0, font::fitted(&p.title, HEADING, true, area.w), HEADING).bold());
    panel.grid(scene);
    let (middle, below) = (area.x + area.w / 2.0, area.y + area.h + 7.0 + 2.6 * SMALL);
    scene.text(Text::new(middle, below, font::fitted(&p.x_name, SMALL, false, area.w), SMALL).at(Anchor::Middle));
    panel.y_name(scene, &p.y_name);
    let place = |[x, y]: [f64; 2]| [panel.at_x(x.clamp(p.x[0], p.x[1])), panel.at_y(y.clamp(p.y[0], p.y[1]))];
    if p.diagonal {
        scene.line(place([p.x[0], p.y[0]]), place([p.x[1], p.y[1]]), Style::line(Paint::Muted, 1.0).alpha(0.6));
    }
    for c in p.curves.iter().filter(|c| c.filled && !c.points.is_empty()) {
        let mut around: Vec<[f64; 2]> = c.points.iter().map(|&at| place(at)).collect();
        let floor = area.y + area.h;
        around.extend([[around[around.len() - 1][0], floor], [around[0][0], floor]]);
        let style = Style::fill(Paint::Series(c.series)).alpha(0.22);
        scene.primitives.push(Primitive::Path { lines: vec![around], closed: true, style });
    }
    for c in &p.curves {
        let line = c.points.iter().map(|&at| place(at)).collect();
        let style = Style::line(Paint::Series(c.series), 1.8);
        scene.primitives.push(Primitive::Path { lines: vec![line], closed: false, style });
    }
    for &(series, at) in &p.marks {
        let style = Style::fill(Paint::Series(series)).with_line(Paint::Surface, 1.5);
        scene.point(place(at), 5.0, Marker::of(series), style);
    }
    if let Some(cut) = p.cut {
        let [at, _] = place([cut, p.y[0]]);
        scene.line([at, area.y], [at, area.y + area.h], Style::line(Paint::Ink, 1.6));
    }
    panel.base(scene);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figure::Theme;

    #[test]
    fn curves_are_drawn_and_invalid_numbers_refused() {
        let panel = CurvePanel {
            title: "ROC <b>".into(),
            x: [0.0, 100.0],
            y: [0.0, 100.0],
            curves: vec![Curve { series: 0, points: vec![[0.0, 0.0], [50.0, 300.0], [100.0, 100.0]], filled: true }],
            marks: vec![(1, [50.0, 50.0])],
            cut: Some(-5.0),
            diagonal: true,
            ..CurvePanel::default()
        };
        for n in 1..=4 {
            let figure = curves("t", "c", &["a".into(), "b".into()], &vec![panel.clone(); n]).unwrap();
            assert!(figure.svg().contains("ROC &lt;b") && figure.png(Theme::Dark).is_ok());
        }
        let bad = CurvePanel { x: [1.0, 1.0], ..panel.clone() };
        assert!(curves("t", "c", &[], &[bad]).is_err());
        let bad = CurvePanel { marks: vec![(0, [f64::NAN, 0.0])], ..panel };
        assert!(curves("t", "c", &[], &[bad]).is_err());
    }
}
