//! Draws `docs/latent.svg`: the latent space of the digits, with one digit left out of training, and the confidences.
//!
//! ```text
//! cargo run --release -p mcdd-studies --bin readme_picture > docs/latent.svg
//! ```

use std::fmt::Write;

use mcdd::data::digits;
use mcdd::model::Model;
use mcdd::train::Settings;

const COLOURS: [&str; 9] =
    ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#997700", "#bb5566", "#004488"];
const SIZE: f64 = 460.0;

/// The projection onto the first two principal components of `rows`, by power iteration.
fn principal(rows: &[f32], width: usize) -> impl Fn(&[f32]) -> Vec<[f64; 2]> + use<> {
    let n = (rows.len() / width) as f64;
    let mut center = vec![0.0f64; width];
    for row in rows.chunks_exact(width) {
        center.iter_mut().zip(row).for_each(|(c, &v)| *c += f64::from(v) / n);
    }
    let mut axes: Vec<Vec<f64>> = Vec::new();
    for a in 0..2 {
        let mut axis: Vec<f64> = (0..width).map(|i| 1.0 + (i * (7 + a) % 11) as f64).collect();
        for _ in 0..200 {
            let mut next = vec![0.0; width];
            for row in rows.chunks_exact(width) {
                let along: f64 = row.iter().zip(&center).zip(&axis).map(|((&v, c), a)| (f64::from(v) - c) * a).sum();
                next.iter_mut().zip(row).zip(&center).for_each(|((o, &v), c)| *o += along * (f64::from(v) - c));
            }
            for other in &axes {
                let along: f64 = next.iter().zip(other).map(|(a, b)| a * b).sum();
                next.iter_mut().zip(other).for_each(|(v, o)| *v -= along * o);
            }
            let length = next.iter().map(|v| v * v).sum::<f64>().sqrt();
            axis = next.into_iter().map(|v| v / length).collect();
        }
        axes.push(axis);
    }
    move |rows| {
        let along = |row: &[f32], a: &[f64]| {
            row.iter().zip(&center).zip(a).map(|((&v, c), a)| (f64::from(v) - c) * a).sum::<f64>()
        };
        rows.chunks_exact(width).map(|r| [along(r, &axes[0]), along(r, &axes[1])]).collect()
    }
}

fn main() -> mcdd::Result<()> {
    let (known, unknown) = digits().leave_out("7")?;
    let (train, test) = known.split(0.2, 0)?;
    let model = Model::fit(&train, &Settings::default())?;
    let latents = |table| model.schema().transform(table, None).map(|x| model.latents(0, &x).unwrap_or_default());
    let (id, ood) = (latents(&test)?, latents(&unknown)?);
    let (p_id, p_ood) = (model.predict(&test)?, model.predict(&unknown)?);
    let means = model.head(0).map(|h| h.params().get(0).to_vec()).unwrap_or_default();
    let threshold = model.threshold()?;

    // Two principal components of all that is drawn; the class means, and some air, fill the square.
    let all = [&id[..], &ood, &means].concat();
    let plane = principal(&all, means.len() / model.classes().len());
    let (id, ood, means) = (plane(&id), plane(&ood), plane(&means));
    let reach = means.iter().flatten().fold(0.0f64, |m, v| m.max(v.abs())) * 1.25;
    let at = |v: f64| ((v / reach).clamp(-1.0, 1.0) + 1.0) * SIZE / 2.0;
    let mut svg = String::new();
    let write_failed = |_| mcdd::Error::data("formatting failed");
    let mut draw = |text: String| writeln!(svg, "{text}").map_err(write_failed);
    draw(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 900 {}\" font-family=\"sans-serif\" font-size=\"14\">",
        SIZE + 50.0
    ))?;
    draw("<rect width=\"100%\" height=\"100%\" fill=\"white\"/><g transform=\"translate(10,36)\">".into())?;
    draw(
        "<text x=\"0\" y=\"-14\" font-weight=\"bold\">Latent space of one network (two principal components)</text>"
            .into(),
    )?;
    draw(format!("<rect width=\"{SIZE}\" height=\"{SIZE}\" fill=\"none\" stroke=\"#ccc\"/>"))?;
    for z in &ood {
        draw(format!(
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"white\" stroke=\"#222\"/>",
            at(z[0]),
            at(z[1])
        ))?;
    }
    for (i, z) in id.iter().enumerate() {
        let color = COLOURS[test.label(i).unwrap_or(0) as usize];
        draw(format!("<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.5\" fill=\"{color}\"/>", at(z[0]), at(z[1])))?;
    }
    for (k, mean) in means.iter().enumerate() {
        draw(format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" font-weight=\"bold\" text-anchor=\"middle\" stroke=\"white\" stroke-width=\"4\" paint-order=\"stroke\">{}</text>",
            at(mean[0]),
            at(mean[1]) - 12.0,
            model.classes()[k]
        ))?;
    }
    draw("</g><g transform=\"translate(500,36)\">".into())?;
    draw("<text x=\"0\" y=\"-14\" font-weight=\"bold\">Confidence: known digits and 7s</text>".into())?;
    // In deviations of held-out rows.
    let (least, most) = (-8, 4);
    let scale = |c: f64| (c - f64::from(least)) / f64::from(most - least);
    let bins = 40;
    let histogram = |confidences: &[f64]| {
        let mut counts = vec![0.0; bins];
        confidences.iter().for_each(|&c| counts[(scale(c).clamp(0.0, 0.999) * bins as f64) as usize] += 1.0);
        counts.iter().map(|c| c / confidences.len() as f64).collect::<Vec<f64>>()
    };
    let (a, b) = (histogram(&p_id.confidence), histogram(&p_ood.confidence));
    let top = a.iter().chain(&b).fold(0.0f64, |m, &v| m.max(v));
    let (width, height) = (370.0, SIZE - 30.0);
    for (counts, style) in
        [(&a, "fill=\"#4477aa\" fill-opacity=\"0.7\""), (&b, "fill=\"none\" stroke=\"#222\" stroke-width=\"1.5\"")]
    {
        for (i, &share) in counts.iter().enumerate().filter(|(_, s)| **s > 0.0) {
            let h = share / top * (height - 40.0);
            let (x, w) = (i as f64 * width / bins as f64, width / bins as f64 - 1.0);
            draw(format!("<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" {style}/>", height - h))?;
        }
    }
    let x = scale(threshold.confidence) * width;
    draw(format!("<path d=\"M{x:.1} 0V{height}\" stroke=\"#cc3311\" stroke-width=\"2\" stroke-dasharray=\"6 4\"/>"))?;
    draw(format!("<text x=\"{:.1}\" y=\"14\" text-anchor=\"end\" fill=\"#cc3311\">unknown</text>", x - 8.0))?;
    draw(format!("<text x=\"{:.1}\" y=\"14\" fill=\"#cc3311\">known</text>", x + 8.0))?;
    draw(format!("<path d=\"M0 {height}H{width}\" stroke=\"#222\"/>"))?;
    for label in (least..=most).step_by(2) {
        let x = scale(f64::from(label)) * width;
        draw(format!(
            "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" font-size=\"12\">{label}</text>",
            height + 18.0
        ))?;
    }
    draw(format!(
        "<rect x=\"{0}\" y=\"34\" width=\"12\" height=\"12\" fill=\"#4477aa\" fill-opacity=\"0.7\"/><text x=\"{1}\" y=\"45\">known digits</text>",
        width - 110.0,
        width - 92.0
    ))?;
    draw(format!(
        "<rect x=\"{0}\" y=\"56\" width=\"12\" height=\"12\" fill=\"none\" stroke=\"#222\"/><text x=\"{1}\" y=\"67\">7s</text>",
        width - 110.0,
        width - 92.0
    ))?;
    draw("</g></svg>".into())?;
    print!("{svg}");
    Ok(())
}
