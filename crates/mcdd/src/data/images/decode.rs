//! From an encoded image to pixels of a wanted shape.

use std::io::Cursor;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use super::super::guard::guard;
use super::resize::resize;
use super::shape::{ImageShape, MAX_SIDE};
use crate::error::{Error, Result};

/// What one image may take while it is decoded: some 130 million pixels of color.
const MAX_DECODED: u64 = 400 << 20;

/// What is read of one file; nothing that can be decoded within the limits is larger.
pub(super) const MAX_FILE: u64 = 512 << 20;

/// An image that takes more than this is decoded alone, so that memory does not grow with the number of threads.
const LARGE: u64 = 64 << 20;

/// What a byte of a file can become at most: by the compression of PNG, and by that of TIFF.
const DEFLATE: u64 = 1032;
const LZW: u64 = 4096;

const KINDS: &str = "give PNG, JPEG, WebP, BMP, GIF or TIFF, or leave the file out; `skip_bad` goes on without it";

/// Pixels, channels last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Raster {
    pub shape: ImageShape,
    pub pixels: Vec<u8>,
}

/// Decodes an image as a viewer would show it (rotated by its EXIF data), with 8 bits a value, and 1 or 3
/// channels as the file has; an alpha channel is left out, as PyTorch's image folders do. Of several frames or pages it is
/// the first.
pub(super) fn decode(bytes: &[u8], file: &Path) -> Result<Raster> {
    let format = match image::guess_format(bytes) {
        Ok(
            format @ (ImageFormat::Png
            | ImageFormat::Jpeg
            | ImageFormat::WebP
            | ImageFormat::Bmp
            | ImageFormat::Gif
            | ImageFormat::Tiff),
        ) => format,
        Ok(other) => {
            return Err(Error::data(format!("images of the kind {other:?} are not read")).at_file(file).hint(KINDS));
        }
        Err(_) if bytes.is_empty() => return Err(Error::data("the file is empty").at_file(file).hint(KINDS)),
        Err(_) => return Err(Error::data("it is not an image of a supported format").at_file(file).hint(KINDS)),
    };
    let bad = |message: String| {
        Error::data(format!("the image is damaged or too large: {message}"))
            .at_file(file)
            .hint("make the file again, or leave it out; `skip_bad` goes on without it")
    };
    let whole = match format {
        ImageFormat::Jpeg => jpeg_ends(bytes),
        ImageFormat::WebP => webp_ends(bytes),
        _ => true,
    };
    if !whole {
        return Err(bad("it ends too early".into()));
    }
    guard(|| pixels(bytes, format)).unwrap_or_else(|| Err("its structure is inconsistent".into())).map_err(bad)
}

fn pixels(bytes: &[u8], format: ImageFormat) -> Result<Raster, String> {
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_SIDE as u32);
    limits.max_image_height = Some(MAX_SIDE as u32);
    limits.max_alloc = Some(MAX_DECODED);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits.clone());
    let text = |e: image::ImageError| e.to_string();
    let mut decoder = reader.into_decoder().map_err(text)?;
    let (width, height) = decoder.dimensions();
    // Not every decoder looks at the limits.
    limits.check_dimensions(width, height).map_err(text)?;
    limits.reserve(decoder.total_bytes()).map_err(text)?;
    if width == 0 || height == 0 {
        return Err("it has no pixels".into());
    }
    let (pixels, size) = (u64::from(width) * u64::from(height), decoder.total_bytes());
    let length = bytes.len() as u64;
    let filled = match format {
        // A bit for each block of 8x8 pixels, at least.
        ImageFormat::Jpeg => u64::from(width.div_ceil(8)) * u64::from(height.div_ceil(8)) <= length * 8,
        ImageFormat::Png => pixels / 8 <= length.saturating_mul(DEFLATE),
        ImageFormat::Tiff => pixels / 8 <= length.saturating_mul(LZW),
        _ => true,
    };
    if !filled {
        return Err(format!("its {length} bytes cannot fill {width}x{height} pixels"));
    }
    // One after the other, and only if there is the memory: an allocation that fails later would end the program.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = (size > LARGE).then(|| ALONE.lock().unwrap_or_else(PoisonError::into_inner));
    let room = usize::try_from(size.saturating_mul(3).saturating_add(length)).unwrap_or(usize::MAX);
    Vec::<u8>::new().try_reserve_exact(room).map_err(|_| format!("there is no memory for {width}x{height} pixels"))?;
    let turn = decoder.orientation().unwrap_or(image::metadata::Orientation::NoTransforms);
    let mut image = DynamicImage::from_decoder(decoder).map_err(text)?;
    image.apply_orientation(turn);
    let (width, height) = (image.width() as usize, image.height() as usize);
    let (channels, pixels) = match image {
        DynamicImage::ImageLuma8(_) | DynamicImage::ImageLumaA8(_) => (1, image.into_luma8().into_raw()),
        DynamicImage::ImageLuma16(_) | DynamicImage::ImageLumaA16(_) => (1, image.into_luma8().into_raw()),
        _ => (3, image.into_rgb8().into_raw()),
    };
    Ok(Raster { shape: ImageShape { height, width, channels }, pixels })
}

/// Whether the segments of a JPEG lead to its end mark. The decoder would fill up what is missing.
fn jpeg_ends(bytes: &[u8]) -> bool {
    let mut at = 2;
    loop {
        // Between segments there is nothing, and within a scan its data: either way on to the next mark.
        let Some(skip) = bytes.get(at..).and_then(|rest| memchr::memchr(0xff, rest)) else {
            return false;
        };
        at += skip + 1;
        match bytes.get(at) {
            None => return false,
            Some(0xd9) => return true,
            // Stuffing, restarts, a fill byte.
            Some(0x00 | 0x01 | 0xd0..=0xd8) => at += 1,
            Some(0xff) => {}
            Some(_) => match bytes.get(at + 1..at + 3) {
                Some(&[high, low]) => at += 1 + usize::from(u16::from_be_bytes([high, low])).max(2),
                _ => return false,
            },
        }
    }
}

/// Whether the chunks of a WebP file lie within it. The decoder would make memory for what they announce.
fn webp_ends(bytes: &[u8]) -> bool {
    let mut rest = bytes.get(12..).unwrap_or_default();
    while let Some((size, data)) = rest.split_first_chunk::<8>() {
        let size = u32::from_le_bytes([size[4], size[5], size[6], size[7]]) as usize;
        if size > data.len() {
            return false;
        }
        // Chunks have an even length; the last one may lack its end.
        rest = data.get(size + size % 2..).unwrap_or_default();
    }
    true
}

impl Raster {
    /// The same image in another shape: gray from color by the weights of ITU-R BT.601 (as PIL), color from gray
    /// by repeating it, another size as PIL's bilinear, whatever the sides' ratio.
    pub(super) fn reshaped(self, to: ImageShape) -> Raster {
        self.with_channels(to.channels).resized(to.height, to.width)
    }

    fn with_channels(self, channels: usize) -> Raster {
        let pixels = match (self.shape.channels, channels) {
            (3, 1) => self.pixels.chunks_exact(3).map(|p| gray(p[0], p[1], p[2])).collect(),
            (1, 3) => self.pixels.iter().flat_map(|&v| [v; 3]).collect(),
            _ => return self,
        };
        Raster { shape: ImageShape { channels, ..self.shape }, pixels }
    }

    fn resized(self, height: usize, width: usize) -> Raster {
        let from = self.shape;
        let pixels = resize(&self.pixels, from.channels, (from.height, from.width), (height, width));
        Raster { shape: ImageShape { height, width, ..from }, pixels }
    }
}

fn gray(r: u8, g: u8, b: u8) -> u8 {
    ((u32::from(r) * 19_595 + u32::from(g) * 38_470 + u32::from(b) * 7_471 + 0x8000) >> 16) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{ImageBuffer, Luma, Rgb};

    fn encode(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
        let mut out = Cursor::new(Vec::new());
        image.write_to(&mut out, format).unwrap();
        out.into_inner()
    }

    fn shape(height: usize, width: usize, channels: usize) -> ImageShape {
        ImageShape { height, width, channels }
    }

    #[test]
    fn formats_and_depths() {
        let rgb = image::RgbImage::from_fn(5, 3, |x, y| Rgb([(40 * x) as u8, (80 * y) as u8, 7]));
        let image = DynamicImage::ImageRgb8(rgb.clone());
        for format in [ImageFormat::Png, ImageFormat::Bmp, ImageFormat::WebP, ImageFormat::Gif, ImageFormat::Tiff] {
            let got = decode(&encode(&image, format), Path::new("a")).unwrap();
            assert_eq!(got, Raster { shape: shape(3, 5, 3), pixels: rgb.as_raw().clone() }, "{format:?}");
        }
        let jpeg = decode(&encode(&image, ImageFormat::Jpeg), Path::new("a")).unwrap();
        assert_eq!(jpeg.shape, shape(3, 5, 3));
        let deep = DynamicImage::ImageLuma16(ImageBuffer::from_fn(2, 1, |x, _| Luma([x as u16 * 65_535])));
        let got = decode(&encode(&deep, ImageFormat::Png), Path::new("a")).unwrap();
        assert_eq!(got, Raster { shape: shape(1, 2, 1), pixels: vec![0, 255] });
        // Alpha goes, and what it covers stays.
        let clear = DynamicImage::ImageRgba8(ImageBuffer::from_fn(1, 1, |_, _| image::Rgba([9, 8, 7, 0])));
        let got = decode(&encode(&clear, ImageFormat::Png), Path::new("a")).unwrap();
        assert_eq!(got, Raster { shape: shape(1, 1, 3), pixels: vec![9, 8, 7] });
    }

    #[test]
    fn of_several_frames_it_is_the_first() {
        let mut bytes = Vec::new();
        let mut encoder = image::codecs::gif::GifEncoder::new(&mut bytes);
        for gray in [200, 30] {
            let frame = image::RgbaImage::from_pixel(4, 2, image::Rgba([gray, gray, gray, 255]));
            encoder.encode_frame(image::Frame::new(frame)).unwrap();
        }
        drop(encoder);
        let got = decode(&bytes, Path::new("a.gif")).unwrap();
        assert_eq!(got, Raster { shape: shape(2, 4, 3), pixels: vec![200; 24] });
        let deep = DynamicImage::ImageLuma16(ImageBuffer::from_fn(2, 1, |x, _| Luma([x as u16 * 65_535])));
        let got = decode(&encode(&deep, ImageFormat::Tiff), Path::new("a.tif")).unwrap();
        assert_eq!(got, Raster { shape: shape(1, 2, 1), pixels: vec![0, 255] });
    }

    #[test]
    fn shapes_change() {
        let gray = Raster { shape: shape(1, 2, 1), pixels: vec![10, 20] };
        assert_eq!(gray.clone().reshaped(shape(1, 2, 3)).pixels, [10, 10, 10, 20, 20, 20]);
        assert_eq!(gray.clone().reshaped(shape(1, 2, 3)).reshaped(shape(1, 2, 1)), gray);
        let flat = Raster { shape: shape(4, 6, 3), pixels: [1, 2, 3].repeat(24) };
        assert_eq!(flat.clone().reshaped(shape(7, 2, 3)).pixels, [1, 2, 3].repeat(14));
        assert_eq!(flat.reshaped(shape(2, 2, 1)).pixels, [2; 4]);
        // A triangle twice as wide as a new pixel, cut off at the edge: weights of 3, 3 and 1. As PIL gives.
        let step = Raster { shape: shape(1, 4, 1), pixels: vec![0, 0, 200, 200] };
        assert_eq!(step.reshaped(shape(1, 2, 1)).pixels, [29, 171]);
    }

    /// A PNG whose header gives a size, without data.
    fn claim(width: u32, height: u32) -> Vec<u8> {
        let mut chunk = b"IHDR".to_vec();
        chunk.extend(width.to_be_bytes());
        chunk.extend(height.to_be_bytes());
        chunk.extend([8, 2, 0, 0, 0]);
        let mut crc = flate2::Crc::new();
        crc.update(&chunk);
        let mut out = b"\x89PNG\r\n\x1a\n\0\0\0\x0d".to_vec();
        out.extend(&chunk);
        out.extend(crc.sum().to_be_bytes());
        out.extend(b"\0\0\0\x04IDAT\0\0\0\0\0\0\0\0");
        out
    }

    #[test]
    fn invalid_images_are_errors() {
        for (bytes, part) in [
            (&b""[..], "empty"),
            (b"GIF89a\x01\0\x01\0\0\0\0;", "damaged"),
            (b"\0\0\x01\0\x01\0", "Ico"),
            (b"hello", "not an image"),
            (b"\x89PNG\r\n\x1a\n", "damaged"),
            (b"\xff\xd8\xff\xe0\0\x10JFIF\0", "ends too early"),
            (&claim(50_000, 50_000), "too large"),
            (&claim(30_000, 30_000), "too large"),
            (&claim(0, 3), "damaged"),
        ] {
            let e = decode(bytes, Path::new("x.png")).unwrap_err();
            assert!(e.to_string().contains(part) && e.to_string().starts_with("x.png"), "{e}");
            assert!(e.hint_text().is_some());
        }
    }

    #[test]
    fn an_image_that_its_bytes_cannot_fill_is_refused() {
        let mut jpeg = encode(&DynamicImage::new_luma8(16, 16), ImageFormat::Jpeg);
        let frame = memchr::memmem::find(&jpeg, &[0xff, 0xc0]).unwrap();
        jpeg[frame + 5..frame + 7].copy_from_slice(&11_625u16.to_be_bytes());
        jpeg[frame + 7..frame + 9].copy_from_slice(&28_262u16.to_be_bytes());
        let e = decode(&jpeg, Path::new("a.jpg")).unwrap_err();
        assert!(e.to_string().contains("cannot fill 28262x11625 pixels") && e.hint_text().is_some(), "{e}");
        let e = decode(&claim(11_000, 11_000), Path::new("a.png")).unwrap_err();
        assert!(e.to_string().contains("cannot fill"), "{e}");
        // What is empty and large is an image.
        let large = DynamicImage::new_rgb8(3000, 2000);
        for format in [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::WebP, ImageFormat::Tiff, ImageFormat::Gif] {
            assert_eq!(decode(&encode(&large, format), Path::new("a")).unwrap().shape, shape(2000, 3000, 3));
        }
    }

    #[test]
    fn a_webp_whose_metadata_are_longer_than_the_file_is_refused() {
        let plain = encode(&DynamicImage::new_rgb8(4, 2), ImageFormat::WebP);
        assert_eq!(decode(&plain, Path::new("a.webp")).unwrap().shape, shape(2, 4, 3));
        let with_exif = |length: u32| {
            let mut chunks = b"WEBPVP8X\x0a\0\0\0\x08\0\0\0\x03\0\0\x01\0\0".to_vec();
            chunks.extend(&plain[12..]);
            chunks.extend(b"EXIF");
            chunks.extend(length.to_le_bytes());
            chunks.extend([0; 8]);
            let mut out = b"RIFF".to_vec();
            out.extend((chunks.len() as u32).to_le_bytes());
            out.extend(chunks);
            out
        };
        decode(&with_exif(8), Path::new("a.webp")).unwrap();
        let e = decode(&with_exif(u32::MAX - 1), Path::new("a.webp")).unwrap_err();
        assert!(e.to_string().contains("ends too early"), "{e}");
    }

    #[test]
    fn photographs_are_rotated_by_their_exif_data() {
        // A JPEG of 16x8 pixels whose EXIF data say: turn by 90 degrees.
        let image = DynamicImage::new_rgb8(16, 8);
        let mut bytes = encode(&image, ImageFormat::Jpeg);
        let exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
        let mut segment = vec![0xff, 0xe1, 0, exif.len() as u8 + 2];
        segment.extend(exif);
        bytes.splice(2..2, segment);
        assert_eq!(decode(&bytes, Path::new("a")).unwrap().shape, shape(16, 8, 3));
    }
}
