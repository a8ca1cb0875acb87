//! An image beside its map of where it is strange, as PNG.

use tiny_skia::{ColorU8, Pixmap};

use crate::data::ImageSpec;
use crate::error::{Error, Kind, Result};
use crate::model::Occlusion;

/// The least number of PNG pixels along the longer side of an image.
const SIDE: usize = 256;
/// PNG pixels between the image and the map.
const GAP: usize = 8;
/// The color of what is strange.
const STRANGE: [f64; 3] = [220.0, 38.0, 38.0];
/// How much of that color the strangest cell has.
const MOST: f64 = 0.75;

/// The image of preprocessed pixels `x`, and the same image with strange parts in red.
///
/// # Errors
/// If the image is too large for a PNG.
pub fn heat_map(spec: &ImageSpec, x: &[f32], map: &Occlusion) -> Result<Vec<u8>> {
    let (height, width, channels) = (spec.height, spec.width, spec.channels);
    let scale = SIDE.div_ceil(height.max(width)).max(1);
    let failed = || Error::new(Kind::Data, "the image is too large for a PNG");
    let size = |v: usize| u32::try_from(v).ok().filter(|v| *v <= 30_000);
    let (wide, high) = (2 * width * scale + GAP, height * scale);
    let mut out = size(wide).zip(size(high)).and_then(|(w, h)| Pixmap::new(w, h)).ok_or_else(failed)?;
    let color = |px: usize, py: usize| -> [f64; 3] {
        std::array::from_fn(|c| {
            let c = if channels == 3 { c } else { 0 };
            let value = x[(py * width + px) * channels + c] * spec.std[c] + spec.mean[c];
            f64::from(value).clamp(0.0, 1.0) * 255.0
        })
    };
    let most = map.gains.iter().fold(0.0f64, |m, &g| m.max(g));
    let strange = |px: usize, py: usize| {
        let gain = map.gains[py / map.cell * map.columns + px / map.cell];
        if most > 0.0 { MOST * (gain / most).max(0.0) } else { 0.0 }
    };
    for (i, pixel) in out.pixels_mut().iter_mut().enumerate() {
        let (at, py) = (i % wide, i / wide / scale);
        let of = |at: usize| at / scale;
        let rgb = match at {
            at if at < width * scale => color(of(at), py),
            at if at < width * scale + GAP => [255.0; 3],
            at => {
                let px = of(at - width * scale - GAP);
                let (own, share) = (color(px, py), strange(px, py));
                std::array::from_fn(|c| own[c] * (1.0 - share) + STRANGE[c] * share)
            }
        };
        let [r, g, b] = rgb.map(|v| v.round() as u8);
        *pixel = ColorU8::from_rgba(r, g, b, 255).premultiply();
    }
    out.encode_png().map_err(|_| failed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strange_parts_are_red() {
        let spec = ImageSpec { height: 2, width: 2, channels: 1, mean: vec![0.5], std: vec![0.5] };
        let map = Occlusion { cell: 1, rows: 2, columns: 2, gains: vec![2.0, -1.0, 1.0, 0.0] };
        let png = heat_map(&spec, &[1.0, -1.0, 0.0, 0.0], &map).unwrap();
        let image = Pixmap::decode_png(&png).unwrap();
        assert_eq!((image.width(), image.height()), (2 * 256 + 8, 256));
        let at = |x: u32, y: u32| {
            let p = image.pixel(x, y).unwrap();
            [p.red(), p.green(), p.blue()]
        };
        assert_eq!((at(0, 0), at(200, 0), at(0, 200)), ([255; 3], [0; 3], [128; 3]));
        assert_eq!(at(264, 0), [229, 92, 92]); // a quarter white, three quarters red
        assert_eq!(at(464, 0), [0; 3]); // covering it lowers the confidence
        assert_eq!(at(464, 200), [128; 3]);
        // An image without strange parts stays as it is.
        let none = Occlusion { gains: vec![-1.0; 4], ..map };
        let image = Pixmap::decode_png(&heat_map(&spec, &[1.0; 4], &none).unwrap()).unwrap();
        assert_eq!(image.pixel(300, 9).unwrap().green(), 255);
    }
}
