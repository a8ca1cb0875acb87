//! A scene as PNG, with two pixels for each SVG pixel in each direction.

use tiny_skia::{
    Color, FillRule, FilterQuality, LineJoin, Mask, Paint as SkiaPaint, Path, PathBuilder, Pixmap, PixmapPaint,
    PremultipliedColorU8, Rect, Stroke as SkiaStroke, Transform,
};

use super::color::{Paint, Theme};
use super::font::{self, Pen};
use super::scene::{Area, Fill, Marker, Primitive, Raster, Scene, Stroke, Style, Text};
use crate::error::{Error, Kind, Result};

/// Pixels per SVG pixel.
const SCALE: f32 = 2.0;

/// The file's bytes.
pub(super) fn write(scene: &Scene, theme: Theme) -> Result<Vec<u8>> {
    let failed =
        || Error::new(Kind::Data, "the figure is too large for a PNG").hint("draw fewer panels, rows or classes");
    let size = |v: f64| Some((v * f64::from(SCALE)).ceil().max(1.0)).filter(|v| *v <= 30_000.0).map(|v| v as u32);
    let pixels = size(scene.width).zip(size(scene.height)).and_then(|(w, h)| Pixmap::new(w, h)).ok_or_else(failed)?;
    let mut canvas = Canvas { pixels, theme, mask: None };
    let [r, g, b] = Paint::Surface.rgb(theme);
    canvas.pixels.fill(Color::from_rgba8(r, g, b, 255));
    canvas.primitives(&scene.primitives);
    canvas.pixels.encode_png().map_err(|_| failed())
}

/// An image by itself as PNG, for embedding in SVG.
pub(super) fn raster(raster: &Raster) -> Vec<u8> {
    pixmap(raster).and_then(|p| p.encode_png().ok()).unwrap_or_default()
}

fn pixmap(raster: &Raster) -> Option<Pixmap> {
    let mut out = Pixmap::new(raster.columns, raster.rows)?;
    for (to, from) in out.pixels_mut().iter_mut().zip(raster.rgba.chunks_exact(4)) {
        let color = tiny_skia::ColorU8::from_rgba(from[0], from[1], from[2], from[3]).premultiply();
        *to = PremultipliedColorU8::from_rgba(color.red(), color.green(), color.blue(), color.alpha())?;
    }
    Some(out)
}

struct Canvas {
    pixels: Pixmap,
    theme: Theme,
    /// The clip mask, if there is one.
    mask: Option<Mask>,
}

fn to_pixels() -> Transform {
    Transform::from_scale(SCALE, SCALE)
}

fn rect(area: &Area) -> Option<Rect> {
    Rect::from_xywh(area.x as f32, area.y as f32, area.w as f32, area.h as f32)
}

fn polygon(lines: &[Vec<[f64; 2]>], closed: bool) -> Option<Path> {
    let mut path = PathBuilder::new();
    for line in lines {
        for (i, &[x, y]) in line.iter().enumerate() {
            if i == 0 {
                path.move_to(x as f32, y as f32);
            } else {
                path.line_to(x as f32, y as f32);
            }
        }
        if closed {
            path.close();
        }
    }
    path.finish()
}

impl Canvas {
    fn color(&self, paint: Paint, alpha: f64) -> SkiaPaint<'static> {
        let [r, g, b] = paint.rgb(self.theme);
        let mut out = SkiaPaint::default();
        out.set_color_rgba8(r, g, b, (alpha.clamp(0.0, 1.0) * 255.0).round() as u8);
        out.anti_alias = true;
        out
    }

    fn draw(&mut self, path: Option<Path>, style: &Style, place: Transform) {
        let Some(path) = path else { return };
        if let Some(Fill { paint, alpha }) = style.fill {
            let paint = self.color(paint, alpha);
            self.pixels.fill_path(&path, &paint, FillRule::EvenOdd, place, self.mask.as_ref());
        }
        if let Some(Stroke { paint, alpha, width }) = style.stroke {
            let paint = self.color(paint, alpha);
            let stroke = SkiaStroke { width: width as f32, line_join: LineJoin::Round, ..SkiaStroke::default() };
            self.pixels.stroke_path(&path, &paint, &stroke, place, self.mask.as_ref());
        }
    }

    fn primitives(&mut self, primitives: &[Primitive]) {
        for primitive in primitives {
            match primitive {
                Primitive::Path { lines, closed, style } => self.draw(polygon(lines, *closed), style, to_pixels()),
                Primitive::Points { at, r, marker, style } => {
                    for &p in at {
                        let path = match marker {
                            Marker::Circle => PathBuilder::from_circle(p[0] as f32, p[1] as f32, *r as f32),
                            _ => polygon(&[marker.corners(p, *r)], true),
                        };
                        self.draw(path, style, to_pixels());
                    }
                }
                Primitive::Rect { area, style } => {
                    self.draw(rect(area).map(PathBuilder::from_rect), style, to_pixels())
                }
                Primitive::Text(text) => self.text(text),
                Primitive::Image { area, raster } => self.image(area, raster),
                Primitive::Clip { area, primitives } => self.clipped(area, primitives),
            }
        }
    }

    fn clipped(&mut self, area: &Area, primitives: &[Primitive]) {
        let outer = self.mask.take();
        let mut mask = Mask::new(self.pixels.width(), self.pixels.height());
        if let (Some(mask), Some(area)) = (&mut mask, rect(area)) {
            mask.fill_path(&PathBuilder::from_rect(area), FillRule::Winding, true, to_pixels());
        }
        self.mask = mask;
        self.primitives(primitives);
        self.mask = outer;
    }

    fn image(&mut self, area: &Area, raster: &Raster) {
        let Some(picture) = pixmap(raster) else { return };
        let (sx, sy) = (area.w as f32 / raster.columns as f32, area.h as f32 / raster.rows as f32);
        let place = Transform::from_row(sx, 0.0, 0.0, sy, area.x as f32, area.y as f32).post_scale(SCALE, SCALE);
        let paint = PixmapPaint { quality: FilterQuality::Nearest, ..PixmapPaint::default() };
        self.pixels.draw_pixmap(0, 0, picture.as_ref(), &paint, place, self.mask.as_ref());
    }

    fn text(&mut self, t: &Text) {
        struct Builder(PathBuilder);
        impl Pen for Builder {
            fn move_to(&mut self, x: f64, y: f64) {
                self.0.move_to(x as f32, y as f32);
            }
            fn line_to(&mut self, x: f64, y: f64) {
                self.0.line_to(x as f32, y as f32);
            }
            fn quad_to(&mut self, x1: f64, y1: f64, x: f64, y: f64) {
                self.0.quad_to(x1 as f32, y1 as f32, x as f32, y as f32);
            }
            fn close(&mut self) {
                self.0.close();
            }
        }
        let mut builder = Builder(PathBuilder::new());
        font::outline(&t.text, t.size, t.bold, -t.lead(), &mut builder);
        let Some(path) = builder.0.finish() else { return };
        let turn = if t.upwards {
            Transform::from_row(0.0, -1.0, 1.0, 0.0, t.x as f32, t.y as f32)
        } else {
            Transform::from_translate(t.x as f32, t.y as f32)
        };
        let place = turn.post_scale(SCALE, SCALE);
        if t.halo {
            self.draw(Some(path.clone()), &Style::line(Paint::Surface, 3.0), place);
        }
        // The outlines of a glyph may overlap: the nonzero winding rule fills them.
        let ink = self.color(t.paint, 1.0);
        self.pixels.fill_path(&path, &ink, FillRule::Winding, place, self.mask.as_ref());
    }
}
