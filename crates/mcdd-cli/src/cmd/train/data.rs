//! The training data: a table or images.

use std::path::PathBuf;

use clap::ValueEnum;
use mcdd::backbone::NetworkFile;
use mcdd::compute::pool::Pool;
use mcdd::data::{ImageOptions, Images, ReadOptions, Table};
use mcdd::error::{Kind, count};
use mcdd::evaluate::{Bootstrap, Evaluation};
use mcdd::model::Model;
use mcdd::report::model::ReportData;
use mcdd::train::Augmentation;

use super::{Args, Switch};
use crate::options::image_size;
use crate::ui;

/// Options for images only.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Images")]
pub(super) struct ImageArgs {
    /// Network for images: cnn, cnn32 (half as wide), resnet20, resnet34, resnet20x2 (twice as wide), densenet100, …; mlp
    /// is the network for tables [default: cnn for images, mlp for tables and IDX files]
    #[arg(long, value_name = "NAME")]
    pub(super) net: Option<String>,

    /// Resize all images to this height and width [default: those of the first image; with --backbone at most those of
    /// the network]
    #[arg(long, value_name = "HxW", value_parser = image_size)]
    image_size: Option<(usize, usize)>,

    /// Convert all images to grayscale (1) or color (3) [default: as they are]
    #[arg(long, value_name = "N", value_parser = ["1", "3"])]
    channels: Option<String>,

    /// Random augmentation of the training images: shift and flip, or only shift (for digits, text) [default: on]
    #[arg(long, value_enum)]
    augment: Option<AugmentName>,

    /// Predict with the mean over an image and its mirror image [default: on with cnn]
    #[arg(long, value_enum, value_name = "on|off", hide_possible_values = true)]
    pub(super) test_flips: Option<Switch>,

    /// Fraction of the run over which the learning rate rises from 0 [default: 0]
    #[arg(long, value_name = "FRACTION")]
    pub(super) warmup: Option<f64>,

    /// Initial weights: a safetensors file with the parameter names of the common PyTorch code for CIFAR. Images are
    /// standardized by the training images given here
    #[arg(long, value_name = "FILE")]
    pub(super) init: Option<PathBuf>,

    /// Keep the weights of --init, and train only the head
    #[arg(long, requires = "init")]
    pub(super) freeze: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum AugmentName {
    On,
    Move,
    Off,
}

impl ImageArgs {
    /// The augmentation, if it is given.
    pub(super) fn augment(&self) -> Option<Augmentation> {
        self.augment.map(|a| match a {
            AugmentName::On => Augmentation::On,
            AugmentName::Move => Augmentation::Move,
            AugmentName::Off => Augmentation::Off,
        })
    }

    /// Checks, before anything is read, the options that are not settings.
    fn check(&self, of_images: bool) -> mcdd::Result<()> {
        let given = [
            ("image_size", self.image_size.is_some()),
            ("channels", self.channels.is_some()),
            ("init", self.init.is_some()),
        ];
        if let (false, Some((name, _))) = (of_images, given.iter().find(|(_, given)| *given)) {
            return Err(mcdd::Error::setting(format!("`{name}` is for images"))
                .hint(format!("leave out `{name}`, or give a `net` for images, e.g. cnn")));
        }
        match &self.init {
            // Opening a pipe would wait.
            Some(file) if std::fs::metadata(file).is_ok_and(|data| !data.is_file()) => {
                Err(mcdd::Error::setting("is not a file").at_file(file).hint("give a safetensors file as `init`"))
            }
            Some(file) => std::fs::File::open(file).map(drop).map_err(|e| mcdd::Error::io(e, file)),
            None => Ok(()),
        }
    }

    fn read(
        &self,
        paths: &[PathBuf],
        reading: &ReadOptions,
        network: Option<&NetworkFile>,
        threads: usize,
    ) -> mcdd::Result<(Images, Vec<String>)> {
        let (needed, at_most) = match network {
            Some(network) => network.image_input().map(|(channels, size)| (Some(channels), size))?,
            None => (None, None),
        };
        let channels = self.channels.as_ref().and_then(|c| c.parse().ok()).or(needed);
        let (label, skip_bad, size) = (reading.label.clone(), reading.skip_bad, self.image_size);
        let options = ImageOptions { label, size, at_most, channels, skip_bad, threads, ..ImageOptions::default() };
        Images::read(paths, &options)
    }
}

/// The training data.
pub(super) enum Data {
    Table(Box<Table>),
    Images(Images),
}

impl Data {
    /// For a report.
    pub(super) fn training_data(&self) -> ReportData<'_> {
        match self {
            Data::Table(table) => ReportData::Table(table),
            Data::Images(images) => ReportData::Images(images),
        }
    }

    /// What an example is called.
    pub(super) fn item(&self) -> &'static str {
        match self {
            Data::Table(_) => "row",
            Data::Images(_) => "image",
        }
    }

    /// Its size, in words.
    pub(super) fn summary(&self) -> String {
        let classes = |n: usize| if n == 0 { "no labels".to_owned() } else { count(n, "class") };
        match self {
            Data::Table(t) => {
                let (rows, columns) = (count(t.rows(), "row"), count(t.names.len(), "feature column"));
                format!("{rows}, {columns}, {}", classes(t.classes().len()))
            }
            Data::Images(i) => {
                let (rows, classes) = (count(i.rows(), "image"), classes(i.classes().len()));
                format!("{rows} of {}x{}x{}, {classes}", i.height, i.width, i.channels)
            }
        }
    }

    /// Divides the rows into training rows and test rows.
    pub(super) fn split_rows(&self, fraction: f64, seed: u64) -> mcdd::Result<(Vec<usize>, Vec<usize>)> {
        let parts = match self {
            Data::Table(table) => table.split_rows(fraction, seed),
            Data::Images(images) => images.split_rows(fraction, seed),
        }?;
        if parts.1.is_empty() {
            return Err(mcdd::Error::setting("there are no test rows: too few rows for this fraction")
                .hint("raise `test`, e.g. to 0.5, or leave it out"));
        }
        Ok(parts)
    }

    /// Some of the rows.
    pub(super) fn select(&self, rows: &[usize]) -> Data {
        match self {
            Data::Table(table) => Data::Table(Box::new(table.select(rows))),
            Data::Images(images) => Data::Images(images.select(rows)),
        }
    }

    /// Evaluates a model on some of the rows, as `mcdd evaluate` does.
    pub(super) fn evaluate(&self, rows: &[usize], model: &Model, seed: u64, pool: &Pool) -> mcdd::Result<Evaluation> {
        let (threshold, bootstrap) = (model.threshold()?, Bootstrap { seed, ..Bootstrap::default() });
        match self {
            Data::Table(table) => Evaluation::of_tables(model, &table.select(rows), &[], threshold, bootstrap),
            Data::Images(images) => Evaluation::of_images(model, &images.select(rows), threshold, bootstrap, pool),
        }
    }
}

impl Args {
    /// Whether the training data are images: by the network, or else by what the first path holds.
    pub(super) fn of_images(&self, network: Option<&NetworkFile>) -> mcdd::Result<bool> {
        if let (Some(network), Some(file)) = (network, &self.backbone.backbone) {
            return network.takes_images().map_err(|e| e.at_file(file));
        }
        Ok(match self.images.net.as_deref() {
            Some(net) => net != "mlp",
            None => self.data.first().is_some_and(|path| Images::found_at(path)),
        })
    }

    /// Checks the options of reading before anything is read.
    pub(super) fn check_reading(&self, of_images: bool) -> mcdd::Result<()> {
        if let Some(test) = self.test.filter(|test| !(*test > 0.0 && *test < 1.0)) {
            return Err(mcdd::Error::setting(format!("`test` is {test}"))
                .hint("give `test` as a fraction between 0 and 1, e.g. 0.2"));
        }
        let given = [
            ("header", self.reading.header.is_some()),
            ("separator", self.reading.separator.is_some()),
            ("sheet", self.reading.sheet.is_some()),
            ("max_rows", self.sampling.max_rows.is_some()),
        ];
        let given = self.columns.given().or_else(|| Some(given.iter().find(|(_, given)| *given)?.0));
        if let (true, Some(name)) = (of_images, given) {
            return Err(mcdd::Error::setting(format!("`{name}` is for tables")).hint(format!("leave out `{name}`")));
        }
        self.images.check(of_images)
    }

    /// Reads the training data.
    pub(super) fn read(&self, of_images: bool, network: Option<&NetworkFile>) -> mcdd::Result<Data> {
        let reading = self.columns.of(&self.reading);
        if of_images {
            let (images, notices) = self.images.read(&self.data, &reading, network, self.running.threads())?;
            if !self.running.quiet {
                notices.iter().for_each(|n| ui::note(n));
            }
            return Ok(Data::Images(images));
        }
        let reading = ReadOptions { limit: self.sampling.limit(self.seed), ..reading };
        Table::read(&self.data, &reading).map(|table| Data::Table(Box::new(table))).map_err(with_check)
    }
}

/// An error about a table, with the command that finds all of them.
pub(super) fn with_check(error: mcdd::Error) -> mcdd::Error {
    match error.hint_text().map(str::to_owned) {
        Some(hint) if error.kind() == Kind::Data => {
            error.hint(format!("{hint}; mcdd check lists all problems at once"))
        }
        _ => error,
    }
}
