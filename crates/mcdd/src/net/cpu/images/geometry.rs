//! Where convolutions read and write: padded images, windows, and their spans of numbers.

/// The number of lines of a panel that are used together: they stay in the first-level cache over all tiles.
const KC: usize = 288;

/// Adjacent numbers of a window; `offset` counts from the window's first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub offset: usize,
    pub length: usize,
}

/// Where a pixel that is computed reads (its window's first number) and writes (its number in the output).
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub from: u32,
    pub to: u32,
}

/// One product: all pixels of a class with the window they have in common.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub spans: Vec<Span>,
    /// The end of each block of spans.
    pub ends: Vec<usize>,
    pub places: Vec<Place>,
    /// Lines of a panel.
    pub k: usize,
    /// For the backward pass: the kernel positions, in the order of the lines.
    pub taps: Vec<[usize; 2]>,
}

/// A zero-padded image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Padded {
    pub height: usize,
    pub width: usize,
    pub channels: usize,
    /// Rows and columns of zeros before the first.
    pub before: [usize; 2],
}

impl Padded {
    pub(super) fn len(&self) -> usize {
        self.height * self.width * self.channels
    }
}

impl Window {
    /// A window of `count` pixels of an image.
    pub(super) fn new(image: Padded, count: [usize; 2], places: Vec<Place>, taps: Vec<[usize; 2]>) -> Window {
        let whole = count[1] * image.channels;
        let k = count[0] * whole;
        // Pieces of equal length where a span is too long for one block.
        let piece = whole.div_ceil(whole.div_ceil(KC).max(1)).max(1);
        let (mut spans, mut ends, mut inside) = (Vec::new(), Vec::new(), 0);
        for y in 0..count[0] {
            for from in (0..whole).step_by(piece) {
                let length = piece.min(whole - from);
                if inside > 0 && inside + length > KC {
                    ends.push(spans.len());
                    inside = 0;
                }
                inside += length;
                spans.push(Span { offset: y * image.width * image.channels + from, length });
            }
        }
        ends.push(spans.len());
        let reach = spans.iter().map(|r| r.offset + r.length).max().unwrap_or(0);
        let last = places.iter().map(|p| p.from as usize).max().unwrap_or(0);
        assert!(k == 0 || last + reach <= image.len(), "a window reaches beyond its image");
        Window { spans, ends, places, k, taps }
    }
}
