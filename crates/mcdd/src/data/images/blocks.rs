//! Images block by block: from sources to pixels of one shape, decoded on several threads, in their order.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::super::batch::BadImage;
use super::super::matrix;
use super::super::options::Label;
use super::super::text::{Notices, count};
use super::decode::Raster;
use super::idx::shared;
use super::item::{Content, ImageSource, Item};
use super::memory::place;
use super::open;
use super::options::ImageOptions;
use super::shape::ImageShape;
use crate::compute::parallel_map;
use crate::error::{Error, Result};

/// The images of a block, at most.
const MOST: usize = 512;

/// The bytes of a block, about.
const BYTES: usize = 64 << 20;

/// How many bad images a notice shows.
const SHOWN: usize = 3;

/// An image of the wanted shape.
pub(super) struct Ready {
    pub pixels: Vec<u8>,
    pub label: Option<Arc<str>>,
    pub file: Arc<Path>,
    pub row: u64,
}

/// What was done to images so that they fit.
#[derive(Default)]
struct Tally {
    resized: usize,
    grayed: usize,
    colored: usize,
    bad: usize,
    /// Left out, as they are gray and others are not, or in color.
    other: usize,
    examples: Vec<String>,
    /// The classes of the bad images.
    bad_classes: BTreeSet<Arc<str>>,
}

pub(super) struct Blocks {
    sources: std::vec::IntoIter<Box<dyn ImageSource>>,
    current: Option<Box<dyn ImageSource>>,
    labeled: bool,
    /// The labels of all images, where they are in a file of their own.
    labels: Option<(Arc<Path>, std::vec::IntoIter<Arc<str>>)>,
    size: Option<(usize, usize)>,
    at_most: Option<(usize, usize)>,
    channels: Option<usize>,
    shape: Option<ImageShape>,
    /// The first image, which decides what the options leave open.
    first: String,
    expected: Option<usize>,
    skip_bad: bool,
    threads: usize,
    tally: Tally,
    /// The bad images of the block.
    bad: Vec<BadImage>,
    notices: Notices,
}

impl Blocks {
    pub(super) fn open<P: AsRef<Path>>(paths: &[P], options: &ImageOptions) -> Result<Blocks> {
        options.check()?;
        let (mut sources, mut notices) = (Vec::new(), Notices::new());
        for path in paths {
            let opened = open::open(path.as_ref(), options)?;
            sources.extend(opened.sources);
            notices.extend(opened.notices);
        }
        let labels = match &options.label {
            Label::File(path) => Some((Arc::from(path.as_path()), shared(&matrix::labels(path)?).into_iter())),
            _ => None,
        };
        let threads = match options.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        Ok(Blocks {
            labeled: labels.is_some() || !sources.is_empty() && sources.iter().all(|s| s.labeled()),
            labels,
            expected: sources.iter().map(|s| s.expected()).sum(),
            sources: sources.into_iter(),
            current: None,
            size: options.size,
            at_most: options.at_most,
            channels: options.channels,
            shape: options.size.zip(options.channels).map(|((height, width), channels)| ImageShape {
                height,
                width,
                channels,
            }),
            first: String::new(),
            skip_bad: options.skip_bad,
            threads: threads.clamp(1, 64),
            tally: Tally::default(),
            bad: Vec::new(),
            notices,
        })
    }

    /// Whether every image has a label.
    pub(super) fn labeled(&self) -> bool {
        self.labeled
    }

    /// The shape of all images, where it is known: once one was read, at the latest.
    pub(super) fn shape(&self) -> Option<ImageShape> {
        self.shape
    }

    /// About how many images there are.
    pub(super) fn expected(&self) -> Option<usize> {
        self.expected
    }

    /// The next images, at most `max`; none at the end.
    pub(super) fn next(&mut self, max: usize, ready: &mut Vec<Ready>) -> Result<()> {
        ready.clear();
        self.bad.clear();
        let mut items = Vec::new();
        while ready.is_empty() && self.bad.len() < MOST && max > 0 {
            items.clear();
            if !self.fetch(max, &mut items)? {
                return self.labels_end();
            }
            self.attach_labels(&mut items)?;
            let mut rest = items.as_mut_slice();
            if self.shape.is_none() {
                // Of the first block there is one image.
                let Some((item, others)) = std::mem::take(&mut rest).split_first_mut() else { continue };
                rest = others;
                let raster = item.raster();
                if let Ok(raster) = &raster {
                    self.decide(raster.shape, item);
                }
                let outcome = raster.map(|raster| self.fitted(raster)).map_err(Problem::Bad);
                self.take(item, outcome, ready)?;
            }
            let Some(shape) = self.shape else { continue };
            let outcomes = decode_all(rest, shape, self.channels.is_none(), self.threads);
            for (item, outcome) in rest.iter().zip(outcomes) {
                self.take(item, outcome, ready)?;
            }
        }
        Ok(())
    }

    /// The next items of the sources; `false` at the end of all of them.
    fn fetch(&mut self, max: usize, items: &mut Vec<Item>) -> Result<bool> {
        loop {
            let Some(source) = &mut self.current else {
                match self.sources.next() {
                    Some(source) => self.current = Some(source),
                    None => return Ok(false),
                }
                continue;
            };
            let largest = self.shape.into_iter().chain(source.shape()).map(ImageShape::values).max();
            let most = largest.map_or(1, |values| (BYTES / values.max(1)).clamp(1, MOST));
            let most = if self.shape.is_none() { 1 } else { most };
            if source.fill(most.min(max), items)? > 0 {
                return Ok(true);
            }
            self.current = None;
        }
    }

    fn attach_labels(&mut self, items: &mut [Item]) -> Result<()> {
        let Some((path, labels)) = &mut self.labels else { return Ok(()) };
        for item in items {
            item.label = Some(labels.next().ok_or_else(|| uneven(path, "fewer"))?);
        }
        Ok(())
    }

    fn labels_end(&mut self) -> Result<()> {
        match &mut self.labels {
            Some((path, labels)) if labels.len() > 0 => Err(uneven(path, "more")),
            _ => Ok(()),
        }
    }

    fn decide(&mut self, found: ImageShape, item: &Item) {
        let (most_high, most_wide) = self.at_most.unwrap_or((found.height, found.width));
        let own = (found.height.min(most_high), found.width.min(most_wide));
        let (height, width) = self.size.unwrap_or(own);
        self.shape = Some(ImageShape { height, width, channels: self.channels.unwrap_or(found.channels) });
        self.first = place(&item.file, item.row);
    }

    fn fitted(&self, raster: Raster) -> Fitted {
        let found = raster.shape;
        let pixels = self.shape.map_or(Vec::new(), |shape| raster.reshaped(shape).pixels);
        Fitted { found, pixels }
    }

    /// Keeps an image, or counts why not.
    fn take(&mut self, item: &Item, outcome: Outcome, ready: &mut Vec<Ready>) -> Result<()> {
        match outcome {
            Ok(Fitted { found, pixels }) => {
                let shape = self.shape.unwrap_or(found);
                self.tally.resized += usize::from((found.height, found.width) != (shape.height, shape.width));
                self.tally.grayed += usize::from((found.channels, shape.channels) == (3, 1));
                self.tally.colored += usize::from((found.channels, shape.channels) == (1, 3));
                ready.push(Ready { pixels, label: item.label.clone(), file: Arc::clone(&item.file), row: item.row });
                Ok(())
            }
            Err(problem) if self.skip_bad => {
                self.tally.bad_classes.extend(item.label.clone());
                if let Problem::Channels(_) = problem {
                    self.tally.other += 1;
                    return Ok(());
                }
                self.tally.bad += 1;
                let Problem::Bad(error) = problem else { return Ok(()) };
                let (name, reason) = (place(&item.file, item.row), error.message().to_owned());
                if self.tally.examples.len() < SHOWN {
                    self.tally.examples.push(format!("{name}: {reason}"));
                }
                self.bad.push(BadImage { before: ready.len(), name, reason });
                Ok(())
            }
            Err(Problem::Bad(error)) => Err(error),
            Err(Problem::Channels(channels)) => Err(self.mixed(item, channels)),
        }
    }

    fn mixed(&self, item: &Item, channels: usize) -> Error {
        let (this, others) = if channels == 1 { ("gray", "in color") } else { ("in color", "gray") };
        let error = Error::data(format!("the image is {this}, and others are {others} ({})", self.first))
            .at_file(&item.file)
            .hint("give `channels` 1 or 3 to make them alike; `skip_bad` goes on without it");
        if item.row > 0 { error.at_row(item.row) } else { error }
    }

    /// The bad images of the last block, if they are skipped.
    pub(super) fn take_bad(&mut self) -> Vec<BadImage> {
        std::mem::take(&mut self.bad)
    }

    /// The classes that bad images had which were left out.
    pub(super) fn bad_classes(&self) -> impl Iterator<Item = &str> {
        self.tally.bad_classes.iter().map(AsRef::as_ref)
    }

    /// What the user should know about the images read so far.
    pub(super) fn notices(&self) -> Notices {
        let mut notices = self.notices.clone();
        let Tally { resized, grayed, colored, bad, other, examples, .. } = &self.tally;
        if *bad > 0 {
            let more = match *bad - examples.len() {
                0 => String::new(),
                more => format!("; and {more} more"),
            };
            notices.push(format!("{} skipped: {}{more}", count(*bad, "bad image"), examples.join("; ")));
        }
        if let Some(shape) = self.shape.filter(|_| *other > 0) {
            let (these, first) = if shape.channels == 1 { ("color", "gray") } else { ("gray", "in color") };
            notices.push(format!(
                "{} left out, as the first ({}) is {first}; `channels` 1 or `channels` 3 keeps all",
                count(*other, &format!("{these} image")),
                self.first
            ));
        }
        if let Some(shape) = self.shape.filter(|_| *resized > 0) {
            let why = match self.size {
                Some(_) => String::new(),
                None => format!(", the size of the first ({}); `image_size` gives another", self.first),
            };
            notices.push(format!("{} resized to {}x{}{why}", count(*resized, "image"), shape.height, shape.width));
        }
        for (n, what) in [(grayed, "color image"), (colored, "gray image")] {
            if *n > 0 {
                let made = if what == "color image" { "gray" } else { "color" };
                notices.push(format!("{} made {made}", count(*n, what)));
            }
        }
        notices
    }
}

/// An image in the wanted shape, and the one it had.
struct Fitted {
    found: ImageShape,
    pixels: Vec<u8>,
}

/// Why an image cannot be used.
enum Problem {
    Bad(Error),
    /// It has another number of channels than the others.
    Channels(usize),
}

type Outcome = Result<Fitted, Problem>;

fn fit(item: &mut Item, shape: ImageShape, same_channels: bool) -> Outcome {
    let raster = item.raster().map_err(Problem::Bad)?;
    let found = raster.shape;
    if same_channels && found.channels != shape.channels {
        return Err(Problem::Channels(found.channels));
    }
    Ok(Fitted { found, pixels: raster.reshaped(shape).pixels })
}

/// Decodes items, in their order, on up to `threads` threads.
fn decode_all(items: &mut [Item], shape: ImageShape, same_channels: bool, threads: usize) -> Vec<Outcome> {
    let plain = |item: &Item| matches!(&item.content, Content::Pixels(raster) if raster.shape == shape);
    if threads < 2 || items.len() < 2 || items.iter().all(plain) {
        return items.iter_mut().map(|item| fit(item, shape, same_channels)).collect();
    }
    let part = items.len().div_ceil(threads * 8);
    let parts: Vec<Mutex<&mut [Item]>> = items.chunks_mut(part).map(Mutex::new).collect();
    let decode = |i: usize| -> Vec<Outcome> {
        let mut items = parts[i].lock().unwrap_or_else(PoisonError::into_inner);
        items.iter_mut().map(|item| fit(item, shape, same_channels)).collect()
    };
    parallel_map(parts.len(), threads, decode).into_iter().flatten().collect()
}

fn uneven(path: &Path, what: &str) -> Error {
    Error::data(format!("there are {what} labels than images"))
        .at_file(path)
        .hint("give one label for each image, in the order of their names")
}
