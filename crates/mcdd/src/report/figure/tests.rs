//! Complete figures: well-formed, without overlaps, deterministic.

use super::latent::tests::example;
use super::scene::{Area, Text};
use super::*;

fn names(n: usize) -> Vec<String> {
    [
        "Ethanol",
        "Ethylene",
        "Acetaldehyde",
        "Acetone",
        "Toluene",
        "a very long name of a class indeed",
        "<&>",
        "7",
        "8",
        "ν",
    ]
    .iter()
    .cycle()
    .take(n)
    .map(|s| s.to_string())
    .collect()
}

fn value(mean: f64) -> Option<Value> {
    Some(Value { mean, deviation: Some(0.03 * mean) })
}

fn bar_panel(title: &str, series: usize, groups: usize) -> BarPanel {
    let metrics = ["ID accuracy", "TNR at 85% TPR", "AUROC", "Detection accuracy", "AUPR in", "AUPR out"];
    let number =
        |s: usize, g: usize| if s == 2 && g == 0 { None } else { value(40.0 + ((s * 7 + g * 13) % 57) as f64) };
    BarPanel {
        title: title.into(),
        unit: "%".into(),
        groups: (0..groups).map(|g| metrics[g % 6].to_owned()).collect(),
        values: (0..series).map(|s| (0..groups).map(|g| number(s, g)).collect()).collect(),
    }
}

fn line_panel(series: usize) -> LinePanel {
    let number = |s: usize, i: usize| value(90.0 + ((s * 3 + i * 5) % 10) as f64);
    LinePanel {
        title: "Gas".into(),
        x_name: "ν".into(),
        y_name: "%".into(),
        log_x: true,
        x: (-3..=3).map(|e| 10f64.powi(e)).collect(),
        values: (0..series).map(|s| (0..7).map(|i| number(s, i)).collect()).collect(),
    }
}

fn sample_figure(kind: &SampleKind) -> Figure {
    let count = match kind {
        SampleKind::Picture { width, height, channels } => width * height * channels,
        SampleKind::Features(names) => names.len(),
    };
    let sample = |i: usize| Sample {
        name: format!("row {}", 1000 * i),
        confidence: -12.3456 * i as f64,
        note: if i.is_multiple_of(2) { "says another class".into() } else { String::new() },
        values: (0..count).map(|v| ((v * i) % 7) as f64 / 3.0 - 1.0).collect(),
        cells: (0..count).map(|v| Cell::Number(1234.5 * v as f64)).collect(),
    };
    let class = |name: String| ClassSamples {
        name,
        highest: (0..5).map(sample).collect(),
        lowest: (5..10).map(sample).collect(),
    };
    samples("Samples", "A caption.", kind, &names(6).into_iter().map(class).collect::<Vec<_>>()).unwrap()
}

fn all() -> Vec<(String, Figure)> {
    let mut out = Vec::new();
    for panels in 1..=5 {
        let spaces: Vec<_> = (0..panels).map(|i| example(10, 0.5 + 3.0 * i as f64)).collect();
        let figure = latent_spaces("Latent", &"words ".repeat(60), &names(10), "unknown", &spaces).unwrap();
        out.push((format!("latent {panels}"), figure));
    }
    for spread in [1e-4, 1e4, 1e9] {
        let spaces = [example(10, spread), example(10, 3.0 * spread), example(10, 1.0)];
        let figure = latent_spaces("Latent", "Caption.", &names(10), "unknown", &spaces).unwrap();
        out.push((format!("latent of {spread}"), figure));
    }
    for (series, groups, panels) in [(1, 1, 1), (4, 6, 1), (4, 3, 4), (9, 9, 2), (4, 6, 3)] {
        let panels: Vec<_> = (0..panels).map(|p| bar_panel(&format!("set {p}"), series, groups)).collect();
        out.push((format!("bars {series} {groups}"), bars("Bars", "Caption.", &names(series), &panels).unwrap()));
    }
    for (series, panels) in [(1, 1), (9, 1), (4, 2), (5, 7)] {
        let panels: Vec<_> = (0..panels).map(|_| line_panel(series)).collect();
        out.push((format!("lines {series}"), lines("Lines", "Caption.", &names(series), &panels).unwrap()));
    }
    let few = SampleKind::Features(names(8));
    let [gray, color] = [1, 3].map(|channels| SampleKind::Picture { width: 8, height: 8, channels });
    for kind in [gray, color, few, SampleKind::Features(vec!["f".into(); 128])] {
        out.push((format!("samples {kind:?}"), sample_figure(&kind)));
    }
    out
}

#[test]
fn texts_are_on_the_canvas_and_do_not_overlap() {
    for (name, figure) in all() {
        let canvas = Area { x: 0.0, y: 0.0, w: figure.scene.width, h: figure.scene.height };
        let texts: Vec<(&Text, Area)> = figure.scene.texts().into_iter().map(|t| (t, t.area())).collect();
        assert!(!texts.is_empty());
        for (i, (a, place)) in texts.iter().enumerate() {
            assert!(canvas.contains(place), "{name}: {a:?} leaves the canvas");
            // Adjacent lines of text may touch.
            let inner = Area { x: place.x + 0.5, y: place.y + 0.5, w: place.w - 1.0, h: place.h - 1.0 };
            if let Some((b, other)) = texts[i + 1..].iter().find(|(_, other)| inner.overlaps(other)) {
                panic!("{name}: {:?} at {place:?} overlaps {:?} at {other:?}", a.text, b.text);
            }
        }
    }
}

#[test]
fn svg_is_well_formed_and_without_nan() {
    for (name, figure) in all() {
        let svg = figure.svg();
        let document = roxmltree::Document::parse(&svg).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(document.root_element().tag_name().name(), "svg");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name}");
        assert_eq!(svg, figure.clone().svg());
        // Every class has a color in the dark theme.
        let style = document.descendants().find(|n| n.has_tag_name("style")).unwrap().text().unwrap().to_owned();
        for class in document.descendants().filter_map(|n| n.attribute("class")).flat_map(|c| c.split(' ')) {
            assert!(style.contains(&format!(".{class}{{")), "{name}: {class}");
        }
    }
}

#[test]
fn png_is_deterministic_and_has_the_background_of_its_theme() {
    let figure = bars("Bars", "Caption.", &names(3), &[bar_panel("set", 3, 4)]).unwrap();
    for (theme, background) in [(Theme::Light, [255, 255, 255]), (Theme::Dark, [0x15, 0x18, 0x1c])] {
        let bytes = figure.png(theme).unwrap();
        assert_eq!(bytes, figure.png(theme).unwrap());
        let pixels = tiny_skia::Pixmap::decode_png(&bytes).unwrap();
        assert_eq!(f64::from(pixels.width()), 2.0 * figure.scene.width);
        let corner = pixels.pixel(3, 3).unwrap();
        assert_eq!([corner.red(), corner.green(), corner.blue()], background);
        // Something is drawn.
        assert!(pixels.pixels().iter().filter(|p| **p != corner).count() > 10_000);
    }
}

#[test]
fn unusual_numbers_are_refused_or_drawn() {
    let mut panel = bar_panel("set", 2, 2);
    panel.values[0][0] = value(f64::NAN);
    assert!(bars("b", "", &names(2), &[panel]).is_err());
    let mut panel = bar_panel("set", 2, 2);
    panel.values[0].pop();
    assert!(bars("b", "", &names(2), &[panel]).is_err());
    let mut panel = line_panel(2);
    panel.x[0] = 0.0;
    assert!(lines("l", "", &names(2), &[panel]).is_err());
    // All equal, all missing, or tiny: still a figure.
    for v in [value(0.0), value(7.0), value(1e-90), value(1e90), None] {
        let mut panel = line_panel(2);
        panel.values.iter_mut().flatten().for_each(|x| *x = v);
        let svg = lines("l", "", &names(2), &[panel]).unwrap().svg();
        assert!(!svg.contains("NaN"));
        let mut panel = bar_panel("set", 2, 2);
        panel.values.iter_mut().flatten().for_each(|x| *x = v);
        assert!(!bars("b", "", &names(2), &[panel]).unwrap().svg().contains("NaN"));
    }
}
