//! Line plots of values against a setting.

use super::axis::{Along, Axis};
use super::color::Paint;
use super::page::{HEADING, Key, MARGIN, Page, Panel, SMALL, WIDTH, y_name_width};
use super::scene::{Anchor, Area, Marker, Primitive, Scene, Style, Text};
use super::{Figure, Value, check_numbers, font};
use crate::error::{Error, Result};

/// Lines in one pair of axes.
#[derive(Clone, Debug, PartialEq)]
pub struct LinePanel {
    /// The title.
    pub title: String,
    /// The name of the x axis.
    pub x_name: String,
    /// The name or unit of the y axis.
    pub y_name: String,
    /// Whether the x axis is logarithmic.
    pub log_x: bool,
    /// The settings, in ascending order.
    pub x: Vec<f64>,
    /// For each series the value at each setting, if there is one.
    pub values: Vec<Vec<Option<Value>>>,
}

/// Lines with bands of one standard deviation to each side, in panels. The y axis covers the range of the values.
///
/// # Errors
/// If numbers are not finite, lengths do not match, or a logarithmic axis has numbers that are not above 0.
pub fn lines(title: &str, caption: &str, series: &[String], panels: &[LinePanel]) -> Result<Figure> {
    for p in panels {
        let fits = p.values.len() == series.len() && p.values.iter().all(|v| v.len() == p.x.len());
        if !fits || !p.x.is_sorted() || p.x.is_empty() {
            return Err(Error::data(format!("{}: the values do not match the settings and series", p.title)));
        }
        let numbers = p.values.iter().flatten().flatten().flat_map(|v| [v.mean, v.deviation.unwrap_or(0.0)]);
        check_numbers(numbers.chain(p.x.iter().copied()))?;
        if p.log_x && p.x[0] <= 0.0 {
            return Err(Error::data(format!("{}: a log axis needs numbers above 0", p.title)));
        }
    }
    let mut page = Page::new(title);
    let keys: Vec<(String, Key)> = series.iter().enumerate().map(|(i, s)| (s.clone(), Key::Line(i))).collect();
    // A single panel has the names beside the lines.
    let direct = panels.len() == 1;
    if !direct {
        page.legend(&keys);
    }
    let columns = if panels.len() == 4 { 2 } else { panels.len().clamp(1, 3) };
    let gap = 24.0;
    let whole = (WIDTH - 2.0 * MARGIN - (columns as f64 - 1.0) * gap) / columns as f64;
    let high = [380.0, 290.0, 220.0][columns - 1];
    let needed = |p: &LinePanel| {
        let (low, top) = range(p);
        Axis::new(low, top, false, high, SMALL, Along::Y).label_width(SMALL) + y_name_width(&p.y_name)
    };
    let left = panels.iter().map(needed).fold(0.0, f64::max);
    for row in panels.chunks(columns) {
        for (i, p) in row.iter().enumerate() {
            let place = Area { x: MARGIN + i as f64 * (whole + gap), y: page.y, w: whole, h: high };
            draw(&mut page.scene, p, series, place, left, direct);
        }
        page.y += high + 78.0;
    }
    Ok(page.finish(caption))
}

fn range(p: &LinePanel) -> (f64, f64) {
    let both = p.values.iter().flatten().flatten().map(|v| {
        let d = v.deviation.unwrap_or(0.0);
        (v.mean - d, v.mean + d)
    });
    let (low, high) = both.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), (a, b)| (l.min(a), h.max(b)));
    if low > high {
        return (0.0, 1.0);
    }
    let air = 0.05 * (high - low);
    (low - air, high + air)
}

fn draw(scene: &mut Scene, p: &LinePanel, series: &[String], place: Area, left: f64, direct: bool) {
    let (low, high) = range(p);
    let y = Axis::new(low, high, false, place.h, SMALL, Along::Y);
    let names = series.iter().map(|s| font::width(&font::fitted(s, SMALL, true, 180.0), SMALL, true));
    let right = if direct { names.fold(0.0, f64::max) + 30.0 } else { 10.0 };
    let area = Area { x: place.x + left, y: place.y + 28.0, w: place.w - left - right, h: place.h };
    let (first, last) = (p.x[0], p.x[p.x.len() - 1]);
    let x = Axis::new(first, last, p.log_x, area.w, SMALL, Along::X);
    let panel = Panel { area, x: Some(x), y };
    scene.text(Text::new(area.x, place.y + 13.0, font::fitted(&p.title, HEADING, true, area.w), HEADING).bold());
    panel.grid(scene);
    let middle = area.x + area.w / 2.0;
    let below = area.y + area.h + 7.0 + 2.6 * SMALL;
    scene.text(Text::new(middle, below, font::fitted(&p.x_name, SMALL, false, area.w), SMALL).at(Anchor::Middle));
    panel.y_name(scene, &p.y_name);
    let mut inside = Vec::new();
    for (s, values) in p.values.iter().enumerate() {
        bands(&panel, &p.x, values, s, &mut inside);
    }
    for (s, values) in p.values.iter().enumerate() {
        line(&panel, &p.x, values, s, &mut inside);
    }
    scene.primitives.append(&mut inside);
    panel.base(scene);
    if direct {
        label_ends(scene, &panel, p, series);
    }
}

/// Segments without missing values.
fn pieces<'a>(x: &'a [f64], values: &'a [Option<Value>]) -> Vec<Vec<(f64, &'a Value)>> {
    let mut out = vec![Vec::new()];
    for (x, value) in x.iter().zip(values) {
        match (value, out.last_mut()) {
            (Some(v), Some(piece)) => piece.push((*x, v)),
            _ => out.push(Vec::new()),
        }
    }
    out.retain(|p| !p.is_empty());
    out
}

fn bands(panel: &Panel, x: &[f64], values: &[Option<Value>], s: usize, out: &mut Vec<Primitive>) {
    for piece in pieces(x, values) {
        let edge = |sign: f64| {
            let at =
                move |&(x, v): &(f64, &Value)| [panel.at_x(x), panel.at_y(v.mean + sign * v.deviation.unwrap_or(0.0))];
            piece.iter().map(at).collect::<Vec<_>>()
        };
        if piece.iter().all(|(_, v)| v.deviation.unwrap_or(0.0) == 0.0) {
            continue;
        }
        let mut around = edge(1.0);
        around.extend(edge(-1.0).into_iter().rev());
        let style = Style::fill(Paint::Series(s)).alpha(0.14);
        out.push(Primitive::Path { lines: vec![around], closed: true, style });
    }
}

fn line(panel: &Panel, x: &[f64], values: &[Option<Value>], s: usize, out: &mut Vec<Primitive>) {
    let place = |&(x, v): &(f64, &Value)| [panel.at_x(x), panel.at_y(v.mean)];
    let lines: Vec<Vec<[f64; 2]>> = pieces(x, values).iter().map(|p| p.iter().map(place).collect()).collect();
    let at: Vec<[f64; 2]> = lines.iter().flatten().copied().collect();
    out.push(Primitive::Path { lines, closed: false, style: Style::line(Paint::Series(s), 1.8) });
    let style = Style::fill(Paint::Series(s)).with_line(Paint::Surface, 1.0);
    out.push(Primitive::Points { at, r: 3.8, marker: Marker::of(s), style });
}

/// Names at the right end of their lines, moved apart if they would overlap.
fn label_ends(scene: &mut Scene, panel: &Panel, p: &LinePanel, series: &[String]) {
    let step = 1.35 * SMALL;
    let mut ends: Vec<(usize, [f64; 2])> = Vec::new();
    for (s, values) in p.values.iter().enumerate() {
        let last = p.x.iter().zip(values).rev().find_map(|(x, v)| v.as_ref().map(|v| (*x, v.mean)));
        ends.extend(last.map(|(x, y)| (s, [panel.at_x(x), panel.at_y(y)])));
    }
    ends.sort_by(|a, b| a.1[1].total_cmp(&b.1[1]).then(a.0.cmp(&b.0)));
    let wanted: Vec<f64> = ends.iter().map(|e| e.1[1]).collect();
    let right = panel.area.x + panel.area.w;
    let mut places = apart(&wanted, step);
    within(&mut places, step, panel.area.y, panel.area.y + panel.area.h);
    for ((s, end), y) in ends.iter().zip(places) {
        let style = Style::line(Paint::Series(*s), 1.0).alpha(0.7);
        let elbow = vec![[end[0] + 5.0, end[1]], [right + 10.0, end[1]], [right + 18.0, y], [right + 22.0, y]];
        scene.primitives.push(Primitive::Path { lines: vec![elbow], closed: false, style });
        let name = font::fitted(&series[*s], SMALL, true, 180.0);
        let text = Text::new(right + 25.0, y + font::CAPITAL * SMALL / 2.0, name, SMALL).bold();
        scene.text(text);
    }
}

/// Ascending positions moved so that neighbors are `step` apart, with each group centered on its original positions.
fn apart(wanted: &[f64], step: f64) -> Vec<f64> {
    // Groups of neighbors that touch: their start and size.
    let mut groups: Vec<(f64, usize, f64)> = Vec::new();
    for &w in wanted {
        groups.push((w, 1, w));
        while let [.., a, b] = groups[..] {
            if a.0 + a.1 as f64 * step <= b.0 {
                break;
            }
            // Merged, centered on the mean of the original positions.
            let (n, sum) = (a.1 + b.1, a.2 + b.2);
            let begin = sum / n as f64 - (n - 1) as f64 * step / 2.0;
            groups.truncate(groups.len() - 2);
            groups.push((begin, n, sum));
        }
    }
    groups.iter().flat_map(|&(begin, n, _)| (0..n).map(move |i| begin + i as f64 * step)).collect()
}

/// Moves positions that are `step` apart into a range, as far as possible.
fn within(places: &mut [f64], step: f64, low: f64, high: f64) {
    for (i, p) in places.iter_mut().rev().enumerate() {
        *p = p.min(high - i as f64 * step);
    }
    for (i, p) in places.iter_mut().enumerate() {
        *p = p.max(low + i as f64 * step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn labels_are_moved_apart(mut wanted in prop::collection::vec(0.0..300.0f64, 0..12)) {
            wanted.sort_unstable_by(f64::total_cmp);
            let placed = apart(&wanted, 15.0);
            prop_assert_eq!(placed.len(), wanted.len());
            prop_assert!(placed.windows(2).all(|p| p[1] - p[0] >= 15.0 - 1e-9));
            if wanted.windows(2).all(|w| w[1] - w[0] > 15.0) {
                prop_assert_eq!(&placed, &wanted);
            }
            let mut moved = placed;
            within(&mut moved, 15.0, 20.0, 220.0);
            prop_assert!(moved.windows(2).all(|p| p[1] - p[0] >= 15.0 - 1e-9));
            prop_assert!(moved.iter().all(|p| (20.0 - 1e-9..=220.0 + 1e-9).contains(p)));
        }
    }
}
