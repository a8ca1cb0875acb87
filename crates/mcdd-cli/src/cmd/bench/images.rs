//! `mcdd bench images`: images of one set against those of other sets.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mcdd::data::sets::{self, Part, Set};
use mcdd::data::{ImageOptions, ImageShape, Images, Label};
use mcdd::net::NetName;
use mcdd::protocol::Grid;
use mcdd::protocol::images::{self, ImageSets};
use mcdd::protocol::results::About;

use super::{Args, execute};
use crate::{options, ui};

impl Args {
    /// The images of `--id` and `--ood`, and the name of the first.
    fn image_sets(&self, id: &str) -> mcdd::Result<(ImageSets, String, Option<&'static Set>)> {
        let folder = options::data_folder(self.data_dir.clone());
        let folder = folder.as_deref().unwrap_or(Path::new(options::NO_FOLDER));
        let label = self.reading.options().label;
        let skip_bad = self.reading.skip_bad;
        let report = |notices: &[String]| notices.iter().filter(|_| !self.quiet).for_each(|n| ui::note(n));
        let read = |name: &str, options: ImageOptions| {
            let (images, notices) = Images::read(&[PathBuf::from(name)], &options)?;
            report(&notices);
            mcdd::Result::Ok(images)
        };
        let of_set = |set: &'static Set, part: Part, shape: Option<ImageShape>| {
            let loaded = set.read_images(folder, part, shape)?;
            report(&loaded.notices);
            mcdd::Result::Ok(loaded.images)
        };
        let some = |images: Images| match self.limit.filter(|n| *n < images.rows()) {
            Some(n) => images.select(&(0..n).map(|i| i * images.rows() / n).collect::<Vec<_>>()),
            None => images,
        };
        let (train, test, title, set) = match sets::find(id) {
            Some(set) => {
                let [train, test] = [Part::Train, Part::Test].map(|part| of_set(set, part, None));
                (train?, test?, set.title.to_owned(), Some(set))
            }
            None => {
                let all = read(id, ImageOptions { label, skip_bad, ..ImageOptions::default() })?;
                let (train, test) = all.split_rows(0.2, 0)?;
                (all.select(&train), all.select(&test), id.trim_end_matches('/').to_owned(), None)
            }
        };
        let shape = train.shape();
        let names = self.ood.iter().flatten().flat_map(|n| n.split(',')).map(str::trim).filter(|n| !n.is_empty());
        let other = |name: &str| {
            if name.trim_end_matches('/') == id.trim_end_matches('/') {
                let error = mcdd::Error::setting(format!("{name} is both known and unknown"));
                return Err(error.hint("give --ood other images than --id"));
            }
            let images = match sets::find(name) {
                Some(set) => of_set(set, Part::Test, Some(shape))?,
                None => {
                    let (size, channels) = (Some((shape.height, shape.width)), Some(shape.channels));
                    let (label, part) = (Label::None, Part::Test);
                    read(name, ImageOptions { label, size, channels, skip_bad, part, ..ImageOptions::default() })?
                }
            };
            Ok((name.trim_end_matches('/').to_owned(), some(images)))
        };
        let ood = names.map(other).collect::<mcdd::Result<Vec<_>>>()?;
        Ok((ImageSets::new(some(train), some(test), ood), title, set))
    }
}

/// Runs the command on images.
pub(super) fn run(args: &Args, id: &str, net: &str) -> anyhow::Result<ExitCode> {
    if args.data != ["images"] {
        let e = mcdd::Error::setting("--id is for images");
        return Err(e.hint("mcdd bench images --id NAME --ood NAME,… --net NAME").into());
    }
    let net = NetName::parse(net)?;
    if args.limit == Some(0) {
        return Err(mcdd::Error::setting("a limit of 0 images leaves nothing").hint("give a larger --limit").into());
    }
    let mut methods = images::methods(args.methods.as_deref().unwrap_or_default(), net)?;
    args.apply(&mut methods)?;
    let (sets, title, set) = args.image_sets(id)?;
    if set.is_some_and(|set| !set.mirrors()) {
        for image in methods.iter_mut().filter_map(|m| m.settings.image.as_mut()) {
            image.augment.iter_mut().for_each(|augment| augment.flip = false);
            image.test_flips = false;
        }
    }
    let about = args.limited(About::of_images(&sets, &title, set, net)?, true);
    let grid = Grid { experiment: sets, methods, seeds: args.seeds.unwrap_or(1), retry: args.retry };
    execute(args, &about, grid, set.map_or("images", |set| set.name))
}
