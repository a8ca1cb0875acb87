//! The shape of an image.

/// The longest side of an image.
pub(crate) const MAX_SIDE: usize = 1 << 15;

/// The size of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageShape {
    /// Rows of pixels.
    pub height: usize,
    /// Pixels in a row.
    pub width: usize,
    /// Values of a pixel: 1 for gray, 3 for color.
    pub channels: usize,
}

impl ImageShape {
    /// The values of an image.
    pub fn values(self) -> usize {
        self.height.saturating_mul(self.width).saturating_mul(self.channels)
    }
}
