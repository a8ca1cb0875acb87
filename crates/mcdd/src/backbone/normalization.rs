//! How a network wants its images: mean and deviation of each channel, and their order, as given, or from common metadata.

use std::path::Path;

use serde_json::Value;

use super::BackboneOptions;
use super::input::ChannelOrder;
use crate::error::{Error, Result};
use crate::onnx::read::File;

/// Mean and deviation over ImageNet's images, with which most networks were trained.
const IMAGENET: ([f32; 3], [f32; 3]) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);

/// The largest file with metadata that is read.
const MAX_METADATA: u64 = 1 << 20;

/// How images are normalized.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Normalization {
    pub(super) mean: Vec<f32>,
    pub(super) std: Vec<f32>,
    pub(super) order: ChannelOrder,
    /// Where it is from, for a notice; `None` if it was given.
    pub(super) source: Option<String>,
}

/// The normalization of a network's images: given, or from the metadata of the file, or from `preprocessor_config.json` (transformers)
/// or `config.json` (timm) beside it; else that of ImageNet.
///
/// # Errors
/// If the given numbers are not one for each channel.
pub(super) fn find(
    file: &File,
    folder: Option<&Path>,
    channels: usize,
    options: &BackboneOptions,
) -> Result<Normalization> {
    for (name, values) in [("mean", &options.mean), ("std", &options.std)] {
        if let Some(values) = values.as_ref().filter(|v| v.len() != channels) {
            return Err(Error::setting(format!(
                "`{name}` has {} numbers, and the images of the network have {channels} channels",
                values.len()
            ))
            .hint(format!("give `{name}` as {channels} numbers")));
        }
    }
    let found = of_metadata(file, channels).or_else(|| of_files(folder?, channels));
    let order = options.order.or_else(|| of_format(file)).unwrap_or_default();
    let (mean, std, source) = found.unwrap_or_else(|| {
        let of = |values: [f32; 3]| match channels {
            3 => values.to_vec(),
            _ => vec![(values.iter().sum::<f32>()) / 3.0; channels],
        };
        (of(IMAGENET.0), of(IMAGENET.1), "ImageNet, as the file has none".to_owned())
    });
    let given = options.mean.is_some() && options.std.is_some();
    Ok(Normalization {
        mean: options.mean.clone().unwrap_or(mean),
        std: options.std.clone().unwrap_or(std),
        order,
        source: (!given).then_some(source),
    })
}

type Found = (Vec<f32>, Vec<f32>, String);

/// The metadata of ONNX files (`Image.NominalPixelRange`), or numbers by the usual names.
fn of_metadata(file: &File, channels: usize) -> Option<Found> {
    let list = |names: [&str; 2]| {
        let text = names.iter().find_map(|name| file.metadata.get(*name))?;
        let text = text.trim().trim_start_matches(['[', '(']).trim_end_matches([']', ')']);
        let numbers = text.split(',').map(|v| v.trim().parse::<f32>().ok().filter(|v| v.is_finite()));
        numbers.collect::<Option<Vec<f32>>>().filter(|v| v.len() == channels)
    };
    if let (Some(mean), Some(std)) = (list(["mean", "image_mean"]), list(["std", "image_std"])) {
        return Some((mean, std, "the metadata of the file".into()));
    }
    let (mean, std) = match file.metadata.get("Image.NominalPixelRange")?.as_str() {
        "NominalRange_0_255" => (0.0, 1.0 / 255.0),
        "Normalized_0_1" => (0.0, 1.0),
        "Normalized_1_1" => (0.5, 0.5),
        _ => return None,
    };
    Some((vec![mean; channels], vec![std; channels], "the metadata of the file".into()))
}

fn of_format(file: &File) -> Option<ChannelOrder> {
    match file.metadata.get("Image.BitmapPixelFormat")?.as_str() {
        "Bgr8" => Some(ChannelOrder::Bgr),
        "Rgb8" => Some(ChannelOrder::Rgb),
        _ => None,
    }
}

/// The files that transformers and timm write beside a network.
fn of_files(folder: &Path, channels: usize) -> Option<Found> {
    let list = |value: &Value| -> Option<Vec<f32>> {
        let numbers = value.as_array()?.iter().map(|v| Some(v.as_f64()? as f32).filter(|v| v.is_finite()));
        numbers.collect::<Option<Vec<f32>>>().filter(|v| v.len() == channels)
    };
    for (name, inside, mean, std) in
        [("preprocessor_config.json", "", "image_mean", "image_std"), ("config.json", "pretrained_cfg", "mean", "std")]
    {
        let path = folder.join(name);
        if !std::fs::metadata(&path).is_ok_and(|m| m.is_file() && m.len() <= MAX_METADATA) {
            continue;
        }
        let Some(all) = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok()) else {
            continue;
        };
        let part = if inside.is_empty() { &all } else { &all[inside] };
        if let (Some(mean), Some(std)) = (list(&part[mean]), list(&part[std])) {
            return Some((mean, std, name.to_owned()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_first_then_metadata_then_files_then_imagenet() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = File::default();
        let options = BackboneOptions::default();
        let find = |file: &File, options: &BackboneOptions| super::find(file, Some(folder.path()), 3, options).unwrap();
        assert_eq!(find(&file, &options).mean, IMAGENET.0);
        let config = r#"{"pretrained_cfg": {"mean": [0.1, 0.2, 0.3], "std": [1, 1, 1]}}"#;
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        assert_eq!(find(&file, &options).mean, [0.1, 0.2, 0.3]);
        file.metadata.insert("Image.NominalPixelRange".into(), "Normalized_1_1".into());
        file.metadata.insert("Image.BitmapPixelFormat".into(), "Bgr8".into());
        let found = find(&file, &options);
        assert_eq!((found.mean, found.std, found.order), (vec![0.5; 3], vec![0.5; 3], ChannelOrder::Bgr));
        file.metadata.insert("mean".into(), "[0.4, 0.4, 0.4]".into());
        file.metadata.insert("std".into(), "0.2,0.2,0.2".into());
        assert_eq!(find(&file, &options).mean, [0.4; 3]);
        let given = BackboneOptions { mean: Some(vec![0.0; 3]), std: Some(vec![1.0; 3]), ..options };
        let found = find(&file, &given);
        assert_eq!((found.mean, found.source), (vec![0.0; 3], None));
        let wrong = BackboneOptions { mean: Some(vec![0.0]), ..given };
        assert!(super::find(&file, None, 3, &wrong).is_err());
    }
}
