//! Reading and writing a [`Model`] or a [`Scorer`], the same way for both.

use std::path::Path;

use super::embedding::Beside;
use super::{Model, Scorer};
use crate::container::Container;
use crate::error::Result;

/// Implements saving and loading for a type with `FORMAT`, `container` and `from_container`.
macro_rules! stored {
    ($type:ty) => {
        impl $type {
            /// The bytes of its file: the same for the same data, settings and seed.
            ///
            /// # Errors
            /// Never for one that was fitted or loaded.
            pub fn to_bytes(&self) -> Result<Vec<u8>> {
                Ok(self.container()?.to_bytes(Self::FORMAT))
            }

            /// Writes it to a file. A temporary file is renamed at the end, so a crash leaves the old file or the new one.
            ///
            /// # Errors
            /// If writing fails.
            pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
                self.container()?.write(path.as_ref(), Self::FORMAT)
            }

            /// Reads it from a file. Loading runs no code from the file, and everything in the file is checked.
            ///
            /// # Errors
            /// If the file cannot be read, is damaged, is something else, or has a newer format version.
            pub fn load(path: impl AsRef<Path>) -> Result<Self> {
                let path = path.as_ref();
                let beside = Beside { model: Some(path), backbone: None };
                Self::at(&Container::bytes_of(path)?, beside).map_err(|e| e.at_file(path))
            }

            /// Reads it from the bytes of a file.
            ///
            /// # Errors
            /// If the bytes are damaged, are something else, or have a newer format version.
            pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
                Self::at(bytes, Beside::default())
            }

            fn at(bytes: &[u8], beside: Beside) -> Result<Self> {
                Self::from_container(Container::from_bytes(bytes, Self::FORMAT)?, beside)
            }
        }
    };
}

impl Model {
    /// As [`Model::load`]; `backbone` is the ONNX file of a model that does not contain it. Without it, it is looked for in the folder of
    /// the model.
    ///
    /// # Errors
    /// As for [`Model::load`], and if it is not the network that the model was trained with.
    pub fn load_with(path: impl AsRef<Path>, backbone: Option<&Path>) -> Result<Model> {
        let path = path.as_ref();
        Model::at(&Container::bytes_of(path)?, Beside { model: Some(path), backbone }).map_err(|e| e.at_file(path))
    }
}

stored!(Model);
stored!(Scorer);

/// A model or a scorer from a file.
pub enum Saved {
    /// A network with everything that prediction needs.
    Model(Box<Model>),
    /// A detector for features from another network.
    Scorer(Box<Scorer>),
}

impl Saved {
    /// Reads a model or a scorer, whichever the file contains.
    ///
    /// # Errors
    /// As for [`Model::load`].
    pub fn load(path: impl AsRef<Path>) -> Result<Saved> {
        Saved::load_with(path, None)
    }

    /// As [`Saved::load`]; `backbone` is the ONNX file of a model that does not contain it. Without it, it is looked for in the folder of
    /// the model.
    ///
    /// # Errors
    /// As for [`Model::load`], and if it is not the network that the model was trained with.
    pub fn load_with(path: impl AsRef<Path>, backbone: Option<&Path>) -> Result<Saved> {
        let path = path.as_ref();
        Saved::at(&Container::bytes_of(path)?, Beside { model: Some(path), backbone }).map_err(|e| e.at_file(path))
    }

    /// Reads a model or a scorer from the bytes of a file.
    ///
    /// # Errors
    /// As for [`Model::from_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Saved> {
        Saved::at(bytes, Beside::default())
    }

    fn at(bytes: &[u8], beside: Beside) -> Result<Saved> {
        if Container::format_of(bytes).is_some_and(|f| f.starts_with("mcdd detector ")) {
            Scorer::at(bytes, beside).map(|s| Saved::Scorer(Box::new(s)))
        } else {
            Model::at(bytes, beside).map(|m| Saved::Model(Box::new(m)))
        }
    }
}
