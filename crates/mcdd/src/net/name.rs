//! Networks for images by their names: `cnn`, `cnn32`, `resnet34`, `resnet20x2`, `torchvision-resnet18`, `densenet100`, `densenet40-24`.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::cnn::cnn;
use super::densenet::densenet;
use super::graph::Graph;
use super::resnet::{classic_resnet, resnet, small_resnet};
use crate::error::{Error, Result};

/// A network for images of any size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum NetName {
    /// `cnn`: three stages, for little compute.
    Cnn {
        /// The number of channels of the first stage, 64 by default; the other stages have four times as many.
        channels: usize,
    },
    /// `resnet18` and `resnet34` with four stages; 8, 20, 32, 56 and so on with three.
    Resnet {
        /// The number of layers.
        depth: usize,
        /// The factor of the number of channels: the number after the `x`.
        factor: usize,
    },
    /// `torchvision-resnet18` and `torchvision-resnet34`: for large images, with a window of 7 x 7 and pooling at the start.
    ClassicResnet {
        /// The number of layers.
        depth: usize,
    },
    /// `densenet100`: compression 0.5.
    Densenet {
        /// The number of layers.
        depth: usize,
        /// The number of channels that a layer adds: the number after the `-`; 12 if there is none.
        growth: usize,
    },
}

/// The default channels of a `cnn`.
const CHANNELS: usize = 64;
/// The default growth, as in the paper.
const GROWTH: usize = 12;
/// The beginning of the names of torchvision's form.
const CLASSIC: &str = "torchvision-resnet";
/// DenseNet's compression.
const REDUCTION: f64 = 0.5;

impl NetName {
    /// Reads a name.
    ///
    /// # Errors
    /// If there is no such network.
    pub fn parse(name: &str) -> Result<NetName> {
        let cnn = name.strip_prefix("cnn").and_then(|rest| match rest {
            "" => Some(CHANNELS),
            _ => number(rest),
        });
        let resnet = name.strip_prefix("resnet").and_then(|rest| numbers(rest, 'x', 1));
        let classic = name.strip_prefix(CLASSIC).and_then(number).map(|depth| NetName::ClassicResnet { depth });
        let parsed = match (cnn, resnet) {
            _ if classic.is_some() => classic,
            (Some(channels), _) => Some(NetName::Cnn { channels }),
            (_, Some((depth, factor))) => Some(NetName::Resnet { depth, factor }),
            _ => name
                .strip_prefix("densenet")
                .and_then(|rest| numbers(rest, '-', GROWTH))
                .map(|(depth, growth)| NetName::Densenet { depth, growth }),
        };
        let unknown = || {
            Error::setting(format!("there is no network called {name:?}"))
                .hint("use cnn, cnn32 (half as wide), resnet8, resnet20, resnet18, resnet34, resnet20x2 (twice as wide), densenet100, densenet40-24 (growth 24), torchvision-resnet18 or torchvision-resnet34")
        };
        let parsed = parsed.ok_or_else(unknown)?;
        // The depth must exist for images of any size.
        parsed.graph([32, 32, 3], None)?;
        Ok(parsed)
    }

    /// The network for images of this height, width and number of channels. The latent vector is the mean of each channel
    /// over the last image, or `latent` features of a linear layer after it.
    ///
    /// # Errors
    /// If there is no such depth, or the image is too small or too large.
    pub fn graph(self, image: [usize; 3], latent: Option<usize>) -> Result<Graph> {
        match self {
            NetName::Cnn { channels } => cnn(image, channels, latent),
            NetName::Resnet { depth: 50, .. } => {
                let error = Error::setting("ResNet-50 has bottleneck blocks, which are not supported");
                Err(error.hint("use resnet34 or resnet56"))
            }
            NetName::Resnet { depth: depth @ (18 | 34), factor } => resnet(image, depth, factor, latent),
            NetName::Resnet { depth, factor } => small_resnet(image, depth, factor, latent),
            NetName::ClassicResnet { depth } => classic_resnet(image, depth, latent),
            NetName::Densenet { depth, growth } => densenet(image, depth, growth, REDUCTION, latent),
        }
    }
}

fn number(text: &str) -> Option<usize> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

/// `100` or `100-24`, the second number being `default` if there is none.
fn numbers(text: &str, between: char, default: usize) -> Option<(usize, usize)> {
    match text.split_once(between) {
        Some((first, second)) => Some((number(first)?, number(second)?)),
        None => Some((number(text)?, default)),
    }
}

impl fmt::Display for NetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetName::Cnn { channels: CHANNELS } => write!(f, "cnn"),
            NetName::Cnn { channels } => write!(f, "cnn{channels}"),
            NetName::Resnet { depth, factor: 1 } => write!(f, "resnet{depth}"),
            NetName::Resnet { depth, factor } => write!(f, "resnet{depth}x{factor}"),
            NetName::ClassicResnet { depth } => write!(f, "{CLASSIC}{depth}"),
            NetName::Densenet { depth, growth: GROWTH } => write!(f, "densenet{depth}"),
            NetName::Densenet { depth, growth } => write!(f, "densenet{depth}-{growth}"),
        }
    }
}

impl TryFrom<String> for NetName {
    type Error = Error;

    fn try_from(name: String) -> Result<NetName> {
        NetName::parse(&name)
    }
}

impl From<NetName> for String {
    fn from(name: NetName) -> String {
        name.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for name in [
            "cnn",
            "cnn32",
            "resnet18",
            "resnet34",
            "resnet8",
            "resnet20x2",
            "densenet100",
            "densenet40-24",
            "torchvision-resnet34",
        ] {
            let parsed = NetName::parse(name).unwrap();
            assert_eq!(parsed.to_string(), name);
            assert!(parsed.graph([32, 32, 1], Some(7)).is_ok_and(|g| g.latent().unwrap() == 7));
        }
        assert_eq!(NetName::parse("densenet40-12").unwrap().to_string(), "densenet40");
        let wrong = [
            "",
            "mlp",
            "cnn2",
            "cnnx",
            "cnn0",
            "resnet",
            "resnet9",
            "resnet50",
            "resnet20x",
            "resnet20x0",
            "resnet-20",
            "torchvision-resnet50",
            "densenet100-",
            "densenet+100",
        ];
        for name in wrong.into_iter().chain(["resnet99999999999999999999", "densenet1000006"]) {
            assert!(NetName::parse(name).is_err(), "{name}");
        }
        assert!(NetName::parse("resnet19").unwrap_err().hint_text().is_some());
    }
}
