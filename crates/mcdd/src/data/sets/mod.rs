//! The data sets of the paper, and Fashion-MNIST: what they are, where they come from, and what is there of them.
//!
//! ```no_run
//! use mcdd::data::sets;
//!
//! let gas = sets::find("gas").unwrap();
//! let loaded = gas.read("data".as_ref())?; // from data/gas/batch1.dat and so on
//! println!("{}", loaded.coverage); // GasSensor: 6,697 of 13,910 rows
//! let digits = sets::find("svhn").unwrap().read_images("data".as_ref(), sets::Part::Test, None)?;
//! println!("{}", digits.coverage); // SVHN (test): 26,032 images, 10 classes
//! # Ok::<(), mcdd::Error>(())
//! ```

mod list;
mod read;
mod set;

pub use super::options::Part;
pub use super::text::thousands;
pub use list::{ALL, find};
pub use set::{Checksum, Coverage, Download, Found, Loaded, LoadedImages, Set};

#[cfg(test)]
mod tests;
