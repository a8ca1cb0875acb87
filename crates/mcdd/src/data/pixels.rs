//! Reading images for prediction.

use std::path::Path;

use super::batch::Batch;
use super::images::{ImageBatch, ImageOptions, ImageReader, ImageSpec};
use super::options::{Part, ReadOptions};
use super::text::Notices;
use crate::error::Result;

/// Images as a network gets them.
pub struct PixelReader {
    reader: ImageReader,
    spec: ImageSpec,
    batch: ImageBatch,
}

/// Numbers of a block of images, about.
const PIXELS: usize = 1 << 22;

impl PixelReader {
    pub(crate) fn open(spec: &ImageSpec, path: &Path, options: &ReadOptions) -> Result<PixelReader> {
        let (label, skip_bad) = (options.label.clone(), options.skip_bad);
        // What a model is asked about is not what it was trained on.
        let options = ImageOptions { label, skip_bad, part: Part::Test, ..ImageOptions::default() };
        let reader = ImageReader::open(&[path], spec.shape(), &options)?;
        Ok(PixelReader { reader, spec: spec.clone(), batch: ImageBatch::default() })
    }

    pub(crate) fn next(&mut self, max_rows: usize, out: &mut Batch) -> Result<bool> {
        let most = (PIXELS / self.spec.shape().values().max(1)).max(1);
        let more = self.reader.next(max_rows.clamp(1, most), &mut self.batch)?;
        *out = Batch { rows: self.batch.rows, x: std::mem::take(&mut out.x), ..Batch::default() };
        out.x.resize(self.batch.pixels.len(), 0.0);
        self.spec.transform_into(&self.batch.pixels, &mut out.x);
        out.labels = self.batch.labels.take().map(|l| l.into_iter().map(Some).collect());
        out.names = std::mem::take(&mut self.batch.names);
        out.bad = std::mem::take(&mut self.batch.bad);
        Ok(more)
    }

    pub(crate) fn has_labels(&self) -> bool {
        self.reader.has_labels()
    }

    pub(crate) fn rows(&self) -> u64 {
        self.reader.rows()
    }

    pub(crate) fn notices(&self) -> Notices {
        self.reader.notices()
    }
}
