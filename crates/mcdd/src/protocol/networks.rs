//! Trained networks that several methods of a grid share.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use super::Method;
use crate::detector::Detect;
use crate::train::{Preset, Select, Settings};

/// The prefix of the folders in which networks are stored.
const PREFIX: &str = ".networks-";

/// The folder for the networks of one group of cells.
pub(super) fn folder(parent: &Path, seed: u64, fold: usize, group: &str) -> PathBuf {
    parent.join(format!("{PREFIX}{seed}-{fold}-{:x}", hash(group)))
}

/// The folder of a method's network: methods that differ only in their detector have the same.
pub(super) fn checkpoint(folder: &Path, method: &Method) -> PathBuf {
    folder.join(format!("{:x}", hash(&key(method))))
}

/// Whether two methods have the same network.
pub(super) fn shared(a: &Method, b: &Method) -> bool {
    key(a) == key(b)
}

/// Removes all networks, of this run and of runs that were killed.
pub(super) fn clear(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The settings that determine a network, without the others.
fn key(method: &Method) -> String {
    let (detector, preset) = (Detect::default(), Preset::Best);
    // Members are independent of each other, but a single one leaves out other rows than the first of several.
    let members = method.settings.members.min(2);
    let shared = Settings { detector, preset, members, select: Select::Last, ..method.settings.clone() };
    // Another version of the program may train another network.
    serde_json::to_string(&(env!("CARGO_PKG_VERSION"), shared)).unwrap_or_default()
}

fn hash(text: &str) -> u64 {
    let mut hash = DefaultHasher::new();
    text.hash(&mut hash);
    hash.finish()
}
