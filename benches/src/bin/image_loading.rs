//! Reads a folder of images at 224 x 224 pixels and prints the images of a second; `benches/peers/image_loading.py` runs it.
//!
//! ```text
//! image_loading FOLDER [THREADS]
//! ```

use std::path::PathBuf;
use std::time::Instant;

use mcdd::data::{ImageOptions, Images};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(args.next().ok_or("usage: image_loading FOLDER [THREADS]")?);
    let threads = args.next().map_or(Ok(2), |t| t.parse())?;
    let start = Instant::now();
    let options = ImageOptions { size: Some((224, 224)), channels: Some(3), threads, ..ImageOptions::default() };
    let (images, _) = Images::read(&[folder], &options)?;
    let seconds = start.elapsed().as_secs_f64();
    println!("{}", serde_json::json!({ "images": images.rows(), "seconds": seconds }));
    Ok(())
}
