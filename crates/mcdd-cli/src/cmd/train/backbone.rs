//! A frozen ONNX network, on whose features a model is trained.

use std::path::PathBuf;

use clap::ValueEnum;
use mcdd::backbone::{BackboneOptions, ChannelOrder, NetworkFile};

use crate::options::yes_or_no;

/// Options of a backbone.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Backbone")]
pub(super) struct BackboneArgs {
    /// Train on the features of this frozen ONNX network, which takes images or rows of numbers. All settings are those for
    /// tables
    #[arg(long, value_name = "FILE", conflicts_with_all = ["net", "augment", "test_flips", "warmup", "init", "freeze"])]
    pub(super) backbone: Option<PathBuf>,

    /// Layers of --backbone whose values are the features; mcdd layers lists them [default: what feeds the last linear layer]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', requires = "backbone")]
    layer: Vec<String>,

    /// Whether the model file contains the backbone, or only its name and SHA-256 sum [default: yes]
    #[arg(long, value_name = "yes|no", value_parser = yes_or_no, requires = "backbone")]
    embed: Option<bool>,

    /// Mean of each channel of the backbone's images, of values from 0 to 1 [default: that of the file's metadata, or ImageNet's]
    #[arg(long, value_name = "N,…", value_delimiter = ',', requires = "backbone")]
    mean: Option<Vec<f32>>,

    /// Standard deviation of each channel, as --mean
    #[arg(long, value_name = "N,…", value_delimiter = ',', requires = "backbone")]
    std: Option<Vec<f32>>,

    /// Order of the channels of the backbone's images [default: that of the file's metadata, or rgb]
    #[arg(long, value_enum, requires = "backbone")]
    channel_order: Option<OrderName>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OrderName {
    Rgb,
    Bgr,
}

impl BackboneArgs {
    /// The network, if one is given.
    pub(super) fn read(&self) -> mcdd::Result<Option<NetworkFile>> {
        self.backbone.as_ref().map(NetworkFile::read).transpose()
    }

    pub(super) fn options(&self) -> BackboneOptions {
        BackboneOptions {
            layers: self.layer.clone(),
            mean: self.mean.clone(),
            std: self.std.clone(),
            order: self.channel_order.map(|order| match order {
                OrderName::Rgb => ChannelOrder::Rgb,
                OrderName::Bgr => ChannelOrder::Bgr,
            }),
            embed: self.embed.unwrap_or(true),
        }
    }
}
