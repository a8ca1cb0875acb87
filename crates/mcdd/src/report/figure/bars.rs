//! Grouped bar charts.

use super::axis::{Along, Axis, plain, short};
use super::color::Paint;
use super::page::{HEADING, Key, MARGIN, Page, Panel, SMALL, TINY, WIDTH, y_name_width};
use super::scene::{Anchor, Area, Primitive, Scene, Style, Text};
use super::{Figure, Value, check_numbers, font};
use crate::error::{Error, Result};

/// The bars of one panel, for example of one data set.
#[derive(Clone, Debug, PartialEq)]
pub struct BarPanel {
    /// The title.
    pub title: String,
    /// The name or unit of the numbers.
    pub unit: String,
    /// The names of the groups, for example metrics.
    pub groups: Vec<String>,
    /// For each series the value in each group, if there is one.
    pub values: Vec<Vec<Option<Value>>>,
}

/// Grouped bars in panels. Bars begin at 0; error bars are standard deviations.
///
/// # Errors
/// If numbers are not finite or negative, or the lengths do not match.
pub fn bars(title: &str, caption: &str, series: &[String], panels: &[BarPanel]) -> Result<Figure> {
    for p in panels {
        let fits = p.values.len() == series.len() && p.values.iter().all(|v| v.len() == p.groups.len());
        if !fits {
            return Err(Error::data(format!("{}: the values do not match the groups and series", p.title)));
        }
        let numbers = || p.values.iter().flatten().flatten().flat_map(|v| [v.mean, v.deviation.unwrap_or(0.0)]);
        check_numbers(numbers())?;
        if numbers().any(|v| v < 0.0) {
            return Err(Error::data(format!("{}: bars cannot be below 0", p.title)));
        }
    }
    let mut page = Page::new(title);
    let keys: Vec<(String, Key)> = series.iter().enumerate().map(|(i, s)| (s.clone(), Key::Square(i))).collect();
    page.legend(&keys);
    // As many panels side by side as leave bars of some width.
    let most = panels.iter().map(|p| p.groups.len()).max().unwrap_or(0).max(1) * (series.len() + 1);
    let inner = |columns: usize| (WIDTH - 2.0 * MARGIN - (columns as f64 - 1.0) * 20.0) / columns as f64;
    let wide = |columns: usize| (inner(columns) - 50.0) / most as f64 >= 13.0;
    let columns = (1..=3.min(panels.len().max(1))).rev().find(|&c| wide(c)).unwrap_or(1);
    let left = panels.iter().map(|p| axis(p).0.label_width(SMALL) + y_name_width(&p.unit)).fold(0.0, f64::max);
    for row in panels.chunks(columns) {
        let heights = row.iter().enumerate().map(|(i, p)| {
            let x = MARGIN + i as f64 * (inner(columns) + 20.0);
            draw(&mut page.scene, p, x, page.y, inner(columns), left)
        });
        page.y += heights.fold(0.0, f64::max);
    }
    Ok(page.finish(caption))
}

/// The height of the area of the bars.
const HIGH: f64 = 230.0;

/// The axis of a panel, and the largest value.
fn axis(p: &BarPanel) -> (Axis, f64) {
    let most = p.values.iter().flatten().flatten().map(|v| v.mean + v.deviation.unwrap_or(0.0)).fold(0.0, f64::max);
    // Percentages have an axis up to 100.
    let top = if most > 50.0 && most <= 100.0 {
        100.0
    } else if most > 0.0 {
        most
    } else {
        1.0
    };
    (Axis::new(0.0, top, false, HIGH, SMALL, Along::Y), most)
}

/// Draws a panel and returns its height.
fn draw(scene: &mut Scene, p: &BarPanel, x: f64, y: f64, width: f64, left: f64) -> f64 {
    let high = HIGH;
    let (series, groups) = (p.values.len().max(1), p.groups.len().max(1));
    let (axis, most) = axis(p);
    let group = (width - left) / groups as f64;
    let bar = (group / (series as f64 + 1.0)).min(34.0);
    // Numbers above bars are horizontal if they fit, else vertical.
    let number = |v: &Value| if most >= 10.0 { plain(v.mean, 1) } else { short(v.mean, 2) };
    let all = || p.values.iter().flatten().flatten();
    let size = TINY;
    let lie = all().all(|v| font::width(&number(v), size, false) <= bar - 5.0);
    let longest = all().map(|v| font::width(&number(v), size, false)).fold(0.0, f64::max);
    let head = if lie { size + 6.0 } else { longest + 8.0 };
    let area = Area { x: x + left, y: y + 26.0 + head, w: width - left, h: high };
    let panel = Panel { area, x: None, y: axis };
    let room = area.w;
    scene.text(Text::new(area.x, y + 13.0, font::fitted(&p.title, HEADING, true, room), HEADING).bold());
    panel.grid(scene);
    panel.y_name(scene, &p.unit);
    let mut lines = 0;
    for (g, name) in p.groups.iter().enumerate() {
        let middle = area.x + (g as f64 + 0.5) * group;
        for (s, values) in p.values.iter().enumerate() {
            let at = middle + (s as f64 - series as f64 / 2.0) * bar;
            column(scene, &panel, values[g].as_ref().map(|v| (v, number(v))), s, [at, bar], lie);
        }
        let name = font::wrapped(name, SMALL, false, group - 6.0, 3);
        lines = lines.max(name.len());
        for (i, line) in name.into_iter().enumerate() {
            let base = area.y + high + 16.0 + i as f64 * 1.25 * SMALL;
            scene.text(Text::new(middle, base, line, SMALL).at(Anchor::Middle));
        }
    }
    panel.base(scene);
    area.y - y + high + 12.0 + lines as f64 * 1.25 * SMALL + 14.0
}

/// One bar with its error bar and its number.
fn column(scene: &mut Scene, panel: &Panel, value: Option<(&Value, String)>, s: usize, [x, w]: [f64; 2], lie: bool) {
    let floor = panel.area.y + panel.area.h;
    let (middle, thick) = (x + w / 2.0, 0.86 * w);
    let Some((v, number)) = value else {
        let text = Text::new(middle + font::CAPITAL * TINY / 2.0, floor - 4.0, "n/a", TINY).paint(Paint::Muted);
        scene.text(text.upwards());
        return;
    };
    let top = panel.at_y(v.mean);
    scene.rect(Area { x: middle - thick / 2.0, y: top, w: thick, h: floor - top }, Style::fill(Paint::Series(s)));
    let mut above = top;
    if let Some(d) = v.deviation.filter(|d| *d > 0.0) {
        let (up, down) = (panel.at_y(v.mean + d), panel.at_y((v.mean - d).max(0.0)));
        above = up;
        let cap = (0.18 * w).min(4.0);
        // With an outline, so that it is visible on any color.
        for (line, more) in [(Style::line(Paint::Surface, 3.0).alpha(0.55), 0.9), (Style::line(Paint::Ink, 1.2), 0.0)] {
            let whisker = vec![[middle, up], [middle, down]];
            let cap = |y: f64| vec![[middle - cap - more, y], [middle + cap + more, y]];
            scene.primitives.push(Primitive::Path {
                lines: vec![whisker, cap(up), cap(down)],
                closed: false,
                style: line,
            });
        }
    }
    let text = if lie {
        Text::new(middle, above - 4.0, number, TINY).at(Anchor::Middle)
    } else {
        Text::new(middle + font::CAPITAL * TINY / 2.0, above - 4.0, number, TINY).upwards()
    };
    scene.text(text.halo());
}
