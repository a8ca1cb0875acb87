//! Latent spaces of two features: the rows, and the decision regions of the classifier.

use super::axis::{Along, Axis};
use super::color::Paint;
use super::contour;
use super::page::{HEADING, Key, MARGIN, Page, Panel, SMALL, TINY, WIDTH, hollow, mean};
use super::scene::{Anchor, Area, Marker, Primitive, Scene, Style, Text};
use super::{Figure, check_numbers, font};
use crate::error::{Error, Result};

/// A row in the plane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Its latent features.
    pub at: [f64; 2],
    /// Its class; none for an out-of-distribution row.
    pub class: Option<usize>,
}

/// A class in the plane.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sphere {
    /// Its mean.
    pub center: [f64; 2],
    /// The distance from the mean within which a row is known, if the method has distances.
    pub radius: Option<f64>,
}

/// The square section of the plane that is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    /// The corner with the smallest coordinates.
    pub corner: [f64; 2],
    /// The length of a side, above 0.
    pub side: f64,
}

/// Grid steps along each side at which decisions are evaluated.
pub const STEPS: usize = 160;

impl View {
    /// A square with all classes and their spheres, and all rows except the few most distant ones: at most half a percent
    /// at each end, and those farther from nine tenths of the rows than these are from each other.
    pub fn around(points: &[Point], spheres: &[Sphere]) -> View {
        let range = |axis: usize| {
            let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
            let mut add = |a: f64, b: f64| (low, high) = (low.min(a), high.max(b));
            for (known, fraction) in [(true, 0.005), (false, 0.04)] {
                let of = points.iter().filter(|p| p.class.is_some() == known);
                let mut values: Vec<f64> = of.map(|p| p.at[axis]).filter(|v| v.is_finite()).collect();
                values.sort_unstable_by(f64::total_cmp);
                let cut = (values.len() as f64 * fraction) as usize;
                if let [first, .., last] | [first @ last] = values[cut..values.len() - cut] {
                    let most = values.len() / 20;
                    let (a, b) = (values[most], values[values.len() - 1 - most]);
                    let reach = if b > a { b - a } else { f64::INFINITY };
                    add(first.max(a - reach), last.min(b + reach));
                }
            }
            for s in spheres.iter().filter(|s| s.center[axis].is_finite()) {
                let r = s.radius.filter(|r| r.is_finite()).unwrap_or(0.0);
                add(s.center[axis] - r, s.center[axis] + r);
            }
            if low > high { (-1.0, 1.0) } else { (low, high) }
        };
        let (x, y) = (range(0), range(1));
        let longest = (x.1 - x.0).max(y.1 - y.0);
        let side = 1.12 * if longest > 0.0 { longest } else { 1.0 };
        View { corner: [(x.0 + x.1 - side) / 2.0, (y.0 + y.1 - side) / 2.0], side }
    }

    /// The nodes of the grid, row by row from the corner: `STEPS + 1` in each.
    pub fn nodes(&self) -> impl Iterator<Item = [f64; 2]> + '_ {
        let step = self.side / STEPS as f64;
        let line = 0..=STEPS;
        line.clone().flat_map(move |j| {
            let y = self.corner[1] + j as f64 * step;
            line.clone().map(move |i| [self.corner[0] + i as f64 * step, y])
        })
    }
}

/// One latent space.
#[derive(Clone, Debug, PartialEq)]
pub struct LatentSpace {
    /// The title, for example the method.
    pub title: String,
    /// A note below the title, for example its accuracy.
    pub note: String,
    /// The rows to draw.
    pub points: Vec<Point>,
    /// The classes.
    pub spheres: Vec<Sphere>,
    /// The section of the plane.
    pub view: View,
    /// The logit of each class at each of [`View::nodes`]; empty if decisions cannot be drawn in this plane.
    pub logits: Vec<f64>,
    /// The names of the axes.
    pub axes: [String; 2],
    /// The meaning of a sphere, for the legend.
    pub sphere: String,
}

/// Several latent spaces of the same classes side by side: rows in the color of their class, `unknown` ones hollow, decision
/// regions as background colors, class means as crosses, and the boundary of known rows as a circle.
///
/// # Errors
/// If numbers are not finite, or lengths do not match.
pub fn latent_spaces(
    title: &str,
    caption: &str,
    classes: &[String],
    unknown: &str,
    panels: &[LatentSpace],
) -> Result<Figure> {
    for p in panels {
        check(p, classes.len())?;
    }
    let mut page = Page::new(title);
    let mut keys: Vec<(String, Key)> = classes.iter().enumerate().map(|(i, c)| (c.clone(), Key::Dot(i))).collect();
    keys.push((unknown.to_owned(), Key::Hollow));
    keys.push(("class mean".into(), Key::Mean));
    if let Some(p) = panels.iter().find(|p| p.spheres.iter().any(|s| s.radius.is_some())) {
        keys.push((p.sphere.clone(), Key::Sphere));
    }
    page.legend(&keys);
    let columns = match panels.len() {
        n @ 0..=3 => n.max(1),
        4 => 2,
        _ => 3,
    };
    let gap = 16.0;
    let whole = (WIDTH - 2.0 * MARGIN - (columns as f64 - 1.0) * gap) / columns as f64;
    // The width of the y axis labels, the same in all panels.
    let numbers = |p: &LatentSpace| axes(&p.view, whole - 60.0)[1].label_width(SMALL);
    let left = panels.iter().map(numbers).fold(0.0, f64::max) + 30.0;
    // The height of a single panel is limited.
    let side = (whole - left).min(520.0);
    for row in panels.chunks(columns) {
        for (i, space) in row.iter().enumerate() {
            let corner = [MARGIN + i as f64 * (whole + gap) + left, page.y + 42.0];
            draw(&mut page.scene, space, classes, Area { x: corner[0], y: corner[1], w: side, h: side });
        }
        page.y += 42.0 + side + 46.0;
    }
    Ok(page.finish(caption))
}

fn check(space: &LatentSpace, classes: usize) -> Result<()> {
    let nodes = (STEPS + 1) * (STEPS + 1);
    let decided = space.logits.is_empty() || space.logits.len() == nodes * classes;
    if !decided || space.spheres.len() != classes {
        return Err(Error::data(format!("{}: the numbers do not match {classes} classes", space.title)));
    }
    if space.points.iter().any(|p| p.class.is_some_and(|c| c >= classes)) {
        return Err(Error::data(format!("{}: a row has an unknown class number", space.title)));
    }
    let points = space.points.iter().flat_map(|p| p.at);
    let spheres = space.spheres.iter().flat_map(|s| [s.center[0], s.center[1], s.radius.unwrap_or(0.0)]);
    check_numbers(points.chain(spheres).chain(space.view.corner).chain([space.view.side]))?;
    if space.view.side > 0.0 { Ok(()) } else { Err(Error::data("a view must have a side above 0")) }
}

fn axes(view: &View, length: f64) -> [Axis; 2] {
    let axis = |from: f64, along| Axis::new(from, from + view.side, false, length, SMALL, along);
    [axis(view.corner[0], Along::X), axis(view.corner[1], Along::Y)]
}

fn draw(scene: &mut Scene, space: &LatentSpace, classes: &[String], area: Area) {
    let [x, y] = axes(&space.view, area.w);
    let panel = Panel { area, x: Some(x), y };
    let title = font::fitted(&space.title, HEADING, true, area.w);
    scene.text(Text::new(area.x, area.y - 25.0, title, HEADING).bold());
    let note = font::fitted(&space.note, SMALL, false, area.w);
    scene.text(Text::new(area.x, area.y - 9.0, note, SMALL).paint(Paint::Muted));
    panel.grid(scene);
    let mut inside = if space.logits.is_empty() { Vec::new() } else { regions(space, &panel) };
    inside.extend(rows(space, &panel));
    scene.primitives.push(Primitive::Clip { area, primitives: inside });
    panel.frame(scene);
    let base = area.y + area.h + 7.0 + 2.3 * SMALL;
    let [first, second] = &space.axes;
    scene.text(Text::new(area.x + area.w / 2.0, base, first, SMALL).at(Anchor::Middle).paint(Paint::Muted));
    let (beside, middle) = (area.x - 16.0 - panel.y.label_width(SMALL), area.y + area.h / 2.0);
    scene.text(Text::new(beside, middle, second, SMALL).at(Anchor::Middle).upwards().paint(Paint::Muted));
    let outside = space.points.iter().filter(|p| !visible(&space.view, p.at)).count();
    let mut taken = Vec::new();
    if outside > 0 {
        let text = if outside == 1 { "1 row outside".into() } else { format!("{outside} rows outside") };
        let (x, y) = (area.x + area.w - 6.0, area.y + area.h - 6.0);
        let text = Text::new(x, y, text, TINY + 0.5).at(Anchor::End).halo().paint(Paint::Muted);
        taken.push(text.area());
        scene.text(text);
    }
    names(scene, space, classes, &panel, taken);
}

fn visible(view: &View, at: [f64; 2]) -> bool {
    (0..2).all(|i| (view.corner[i]..=view.corner[i] + view.side).contains(&at[i]))
}

/// The decision region of each class.
fn regions(space: &LatentSpace, panel: &Panel) -> Vec<Primitive> {
    let classes = space.spheres.len();
    let n = STEPS + 1;
    let cell = panel.area.w / STEPS as f64;
    let mut fills = Vec::new();
    let mut edges = Vec::new();
    for class in 0..classes {
        let ahead = |logits: &[f64]| {
            let others = logits.iter().enumerate().filter(|&(k, _)| k != class).map(|(_, &v)| v);
            let ahead = logits[class] - others.fold(f64::NEG_INFINITY, f64::max);
            if ahead.is_nan() { -1.0 } else { ahead }
        };
        let values: Vec<f64> = space.logits.chunks_exact(classes).map(ahead).collect();
        let lines: Vec<Vec<[f64; 2]>> = contour::positive(n, n, &values)
            .iter()
            .map(|line| {
                let placed: Vec<[f64; 2]> = line
                    .iter()
                    .map(|&[i, j]| [panel.area.x + i * cell, panel.area.y + panel.area.h - j * cell])
                    .collect();
                contour::simplified(&placed, 0.2)
            })
            .collect();
        let line = Style::line(Paint::Muted, 0.8).alpha(0.7);
        edges.push(Primitive::Path { lines: lines.clone(), closed: true, style: line });
        fills.push(Primitive::Path { lines, closed: true, style: Style::fill(Paint::Series(class)).alpha(0.13) });
    }
    fills.extend(edges);
    fills
}

/// Rows, means and spheres.
fn rows(space: &LatentSpace, panel: &Panel) -> Vec<Primitive> {
    let place = |at: [f64; 2]| [panel.at_x(at[0]), panel.at_y(at[1])];
    let seen = |class: Option<usize>| {
        let of = space.points.iter().filter(|p| p.class == class && visible(&space.view, p.at));
        of.map(|p| place(p.at)).collect::<Vec<_>>()
    };
    let mut out = Vec::new();
    for class in 0..space.spheres.len() {
        let style = Style::fill(Paint::Series(class)).alpha(0.6);
        out.push(Primitive::Points { at: seen(Some(class)), r: 2.3, marker: Marker::Circle, style });
    }
    out.push(Primitive::Points { at: seen(None), r: 2.4, marker: Marker::Circle, style: hollow().alpha(0.6) });
    let per_unit = panel.area.w / space.view.side;
    for (class, s) in space.spheres.iter().enumerate() {
        // Circles smaller than a pixel or far larger than the panel are left out.
        if let Some(r) = s.radius.map(|r| r * per_unit).filter(|r| (1.0..1e4).contains(r)) {
            // In the color of the class, with an outline that separates it from its rows.
            for style in [Style::line(Paint::Surface, 3.6).alpha(0.75), Style::line(Paint::Series(class), 1.8)] {
                out.push(Primitive::Points { at: vec![place(s.center)], r, marker: Marker::Circle, style });
            }
        }
    }
    let means = space.spheres.iter().filter(|s| visible(&space.view, s.center)).map(|s| place(s.center)).collect();
    out.push(Primitive::Points { at: means, r: 6.0, marker: Marker::Cross, style: mean() });
    out
}

/// The names of the classes beside their means, if there is room.
fn names(scene: &mut Scene, space: &LatentSpace, classes: &[String], panel: &Panel, mut taken: Vec<Area>) {
    let place = |at: [f64; 2]| [panel.at_x(at[0]), panel.at_y(at[1])];
    let means: Vec<[f64; 2]> = space.spheres.iter().map(|s| place(s.center)).collect();
    taken.extend(means.iter().map(|&[x, y]| Area { x: x - 6.0, y: y - 6.0, w: 12.0, h: 12.0 }));
    let shown = classes.iter().zip(&means).zip(&space.spheres).filter(|(_, s)| visible(&space.view, s.center));
    for ((name, &[x, y]), _) in shown {
        let name = font::fitted(name, SMALL, true, 90.0);
        let high = font::CAPITAL * SMALL / 2.0;
        let rings = [1.0, 1.7, 2.6].into_iter().flat_map(|f| {
            let (d, e) = (9.0 * f, 7.0 * f);
            [
                (0.0, -d, Anchor::Middle),
                (d, high, Anchor::Start),
                (-d, high, Anchor::End),
                (0.0, d + 2.0 * high, Anchor::Middle),
                (e, -e, Anchor::Start),
                (-e, -e, Anchor::End),
                (e, e + 2.0 * high, Anchor::Start),
                (-e, e + 2.0 * high, Anchor::End),
            ]
        });
        let texts = rings.map(|(dx, dy, anchor)| Text::new(x + dx, y + dy, &name, SMALL).bold().at(anchor).halo());
        let free = |t: &Text| panel.area.contains(&t.area()) && !taken.iter().any(|a| a.overlaps(&t.area()));
        if let Some(text) = texts.into_iter().find(free) {
            taken.push(text.area());
            scene.text(text);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::seed::Stream;

    /// Classes around a circle of radius `spread`.
    pub(crate) fn example(classes: usize, spread: f64) -> LatentSpace {
        let mut random = Stream::new(1, "figure");
        let spheres: Vec<Sphere> = (0..classes)
            .map(|k| {
                let angle = k as f64 * std::f64::consts::TAU / classes as f64;
                Sphere { center: [spread * angle.cos(), spread * angle.sin()], radius: (k != 1).then_some(2.0) }
            })
            .collect();
        let mut points = Vec::new();
        for i in 0..400 {
            let class = (i % 5 != 0).then_some(i % classes);
            let [x, y] = class.map_or([0.0, 0.0], |c| spheres[c].center);
            points.push(Point { at: [x + random.normal(), y + random.normal()], class });
        }
        points.push(Point { at: [1e6, 0.0], class: None });
        let view = View::around(&points, &spheres);
        let logits = view.nodes().flat_map(|[x, y]| {
            let distance = |s: &Sphere| (x - s.center[0]).powi(2) + (y - s.center[1]).powi(2);
            spheres.iter().map(|s| -distance(s)).collect::<Vec<_>>()
        });
        let logits = logits.collect();
        LatentSpace {
            title: "Deep-MCDD".into(),
            note: "AUROC 99.1%".into(),
            points,
            spheres,
            view,
            logits,
            axes: ["z₁", "z₂"].map(Into::into),
            sphere: "known inside".into(),
        }
    }

    #[test]
    fn the_view_shows_almost_all_rows_despite_outliers() {
        let space = example(5, 6.0);
        assert!(space.view.side < 25.0);
        assert!((1..6).contains(&space.points.iter().filter(|p| !visible(&space.view, p.at)).count()));
        assert_eq!(space.view.nodes().count(), (STEPS + 1) * (STEPS + 1));
        let none = View::around(&[], &[]);
        assert!(none.side > 0.0);
        let one = View::around(&[Point { at: [3.0, 4.0], class: None }], &[]);
        assert!(visible(&one, [3.0, 4.0]));
        // A few distant rows of a small table, all of whose classes are known.
        let point = |i: usize| Point { at: [i as f64, if i < 97 { i as f64 } else { 1e4 }], class: Some(0) };
        let few = View::around(&(0..100).map(point).collect::<Vec<_>>(), &[]);
        assert!(few.side < 250.0, "{few:?}");
    }

    #[test]
    fn invalid_numbers_are_refused() {
        let names: Vec<String> = (0..5).map(|i| i.to_string()).collect();
        let good = example(5, 6.0);
        let figure = |space: LatentSpace| latent_spaces("t", "c", &names, "u", &[space]);
        assert!(figure(good.clone()).is_ok());
        let mut bad = good.clone();
        bad.points[0].at[0] = f64::NAN;
        assert!(figure(bad).is_err());
        let mut bad = good.clone();
        bad.points[0].class = Some(5);
        assert!(figure(bad).is_err());
        let mut bad = good;
        bad.logits.pop();
        assert!(figure(bad).is_err());
    }
}
