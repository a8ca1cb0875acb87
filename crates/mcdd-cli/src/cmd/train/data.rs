//! What is trained on: a table or images.

use std::path::PathBuf;

use clap::ValueEnum;
use mcdd::data::{ImageOptions, Images, ReadOptions, Table};
use mcdd::net::NetName;
use mcdd::train::Settings;

use super::Args;
use crate::ui;

/// What images have and tables have not.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Images")]
pub(super) struct ImageArgs {
    /// Train on images with this network: resnet8, resnet20, resnet18, resnet34, resnet20x2 (twice as wide), densenet100, …;
    /// mlp is the network of tables
    #[arg(long, value_name = "NAME")]
    pub(super) net: Option<String>,

    /// Height and width that all images get [default: those of the first]
    #[arg(long, value_name = "HxW", requires = "net", value_parser = size)]
    image_size: Option<(usize, usize)>,

    /// Make all images gray (1) or colored (3) [default: as they are]
    #[arg(long, value_name = "N", requires = "net", value_parser = ["1", "3"])]
    channels: Option<String>,

    /// Change the training images at random: move and mirror them, or only move them (digits, text) [default: on]
    #[arg(long, value_enum, requires = "net")]
    augment: Option<Augmentation>,

    /// Share of the run over which the learning rate rises [default: 0]
    #[arg(long, value_name = "SHARE", requires = "net")]
    warmup: Option<f64>,

    /// Begin with the weights of a safetensors file that has the network's names, those of the usual PyTorch code for
    /// CIFAR. Images are normalized as those in training here
    #[arg(long, value_name = "FILE", requires = "net")]
    pub(super) init: Option<PathBuf>,

    /// Leave the network as --init gives it, and train only what stands on it
    #[arg(long, requires = "init")]
    freeze: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Augmentation {
    On,
    Move,
    Off,
}

/// `32x32`.
fn size(text: &str) -> Result<(usize, usize), String> {
    let sides = text.split_once('x').and_then(|(h, w)| Some((h.parse().ok()?, w.parse().ok()?)));
    sides.filter(|&(h, w)| h > 0 && w > 0).ok_or_else(|| "give height and width, e.g. 32x32".into())
}

impl ImageArgs {
    /// The settings to begin with, where the training is on images.
    pub(super) fn settings(&self) -> mcdd::Result<Option<Settings>> {
        let Some(net) = self.net() else { return Ok(None) };
        let mut settings = Settings::for_images(NetName::parse(net)?);
        if let Some(image) = &mut settings.image {
            image.augment = image.augment.filter(|_| self.augment != Some(Augmentation::Off));
            if let (Some(augment), Some(Augmentation::Move)) = (&mut image.augment, self.augment) {
                augment.flip = false;
            }
            image.warmup = self.warmup.unwrap_or(0.0);
            image.frozen = self.freeze;
        }
        Ok(Some(settings))
    }

    /// The network, where it is one for images.
    pub(super) fn net(&self) -> Option<&str> {
        self.net.as_deref().filter(|net| *net != "mlp")
    }

    /// Finds out before the images are read what cannot go well.
    pub(super) fn check(&self) -> mcdd::Result<()> {
        let given = self.image_size.is_some()
            || self.channels.is_some()
            || self.augment.is_some()
            || self.warmup.is_some()
            || self.init.is_some();
        if self.net().is_none() && given {
            return Err(mcdd::Error::setting("mlp is for tables, and this is for images")
                .hint("take another --net, e.g. resnet20, or leave the options for images out"));
        }
        match &self.init {
            Some(file) => std::fs::File::open(file).map(drop).map_err(|e| mcdd::Error::io(e, file)),
            None => Ok(()),
        }
    }

    fn read(&self, paths: &[PathBuf], reading: &ReadOptions, threads: usize) -> mcdd::Result<(Images, Vec<String>)> {
        let channels = self.channels.as_ref().and_then(|c| c.parse().ok());
        let (label, skip_bad, size) = (reading.label.clone(), reading.skip_bad, self.image_size);
        Images::read(paths, &ImageOptions { label, size, channels, skip_bad, threads, ..ImageOptions::default() })
    }
}

/// What is trained on.
pub(super) enum Data {
    Table(Table),
    Images(Images),
}

impl Data {
    /// What an image is called.
    pub(super) fn image_name(&self, row: usize) -> Option<String> {
        match self {
            Data::Table(_) => None,
            Data::Images(images) => Some(images.name(row)),
        }
    }

    pub(super) fn told(&self) -> String {
        match self {
            Data::Table(t) => {
                let (rows, columns, classes) = (t.rows(), t.names.len(), t.classes().len());
                format!("{rows} rows, {columns} feature columns, classes: {classes}")
            }
            Data::Images(i) => {
                let (rows, classes) = (i.rows(), i.classes().len());
                format!("{rows} images of {}x{}x{}, classes: {classes}", i.height, i.width, i.channels)
            }
        }
    }
}

impl Args {
    pub(super) fn read(&self) -> mcdd::Result<Data> {
        let reading = self.columns.of(&self.reading);
        if self.images.net().is_some() {
            let (images, notices) = self.images.read(&self.data, &reading, self.running.threads())?;
            if !self.running.quiet {
                notices.iter().for_each(|n| ui::note(n));
            }
            return Ok(Data::Images(images));
        }
        if let Some(folder) = self.data.iter().find(|p| p.is_dir()) {
            return Err(mcdd::Error::data("is a folder, and tables are files")
                .at_file(folder)
                .hint("give files; for images add --net resnet20"));
        }
        Table::read(&self.data, &reading).map(Data::Table)
    }
}
