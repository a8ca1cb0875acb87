//! Pixels that follow each other in memory, and loops over their channels.

/// Some channels of images that follow each other.
#[derive(Clone, Copy)]
pub(super) struct Images<'a> {
    pub data: &'a [f32],
    /// Numbers of an image, and of a pixel.
    pub image: usize,
    pub pixel: usize,
    pub offset: usize,
}

impl<'a> Images<'a> {
    /// From a pixel of an image on.
    pub(super) fn from(&self, image: usize, pixel: usize) -> &'a [f32] {
        &self.data[image * self.image + pixel * self.pixel + self.offset..]
    }
}

/// Pixels that follow each other, from the first number of a slice on.
#[derive(Clone, Copy)]
pub(super) struct PixelShape {
    pub pixels: usize,
    pub channels: usize,
}

/// Calls a method for all lanes: in blocks of 16, 8 and 4, then one by one. A macro, because a closure would not be compiled
/// with its caller's instruction set.
macro_rules! in_blocks {
    ($channels:expr, $self:ident . $method:ident ( $($argument:expr),* )) => {
        let mut at = 0;
        while at + 16 <= $channels {
            $self.$method::<16>(at, $($argument),*);
            at += 16;
        }
        if at + 8 <= $channels {
            $self.$method::<8>(at, $($argument),*);
            at += 8;
        }
        if at + 4 <= $channels {
            $self.$method::<4>(at, $($argument),*);
            at += 4;
        }
        while at < $channels {
            $self.$method::<1>(at, $($argument),*);
            at += 1;
        }
    };
}

pub(super) use in_blocks;

#[inline(always)]
pub(super) fn lanes<const N: usize>(values: &[f32], at: usize) -> [f32; N] {
    let mut out = [0.0; N];
    out.copy_from_slice(&values[at..at + N]);
    out
}
