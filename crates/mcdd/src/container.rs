//! The container of models and checkpoints: a safetensors file with a JSON text and a checksum in its metadata.
//!
//! Reading executes nothing and trusts nothing: lengths and offsets are checked before anything is allocated, and the
//! SHA-256 sum covers the text, the table of tensors and the data. `docs/file-format.md` describes the layout.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;

use safetensors::tensor::Metadata;
use safetensors::{Dtype, SafeTensors};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::files::{read_at_most, write_beside};

/// Files of at most this length are read before they are looked at.
const SMALL: u64 = 16 << 20;
/// The longest header: that of safetensors.
const MAX_HEADER: u64 = 100_000_000;
/// The longest file: 32 times the parameters that can be trained, so that there is room for stored rows and covariances.
const MAX_BYTES: u64 = 16 << 30;

/// Numbers of one tensor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values {
    /// 32 bits each.
    F32(Vec<f32>),
    /// 64 bits each.
    F64(Vec<f64>),
    /// Integers of 16 bits.
    U16(Vec<u16>),
    /// Bytes.
    U8(Vec<u8>),
}

impl Values {
    fn dtype(&self) -> Dtype {
        match self {
            Values::F32(_) => Dtype::F32,
            Values::F64(_) => Dtype::F64,
            Values::U16(_) => Dtype::U16,
            Values::U8(_) => Dtype::U8,
        }
    }

    /// In bytes.
    fn size(&self) -> u64 {
        let (count, each) = match self {
            Values::F32(v) => (v.len(), 4),
            Values::F64(v) => (v.len(), 8),
            Values::U16(v) => (v.len(), 2),
            Values::U8(v) => (v.len(), 1),
        };
        count as u64 * each
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Values::F32(v) => v.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Values::F64(v) => v.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Values::U16(v) => v.iter().flat_map(|v| v.to_le_bytes()).collect(),
            Values::U8(v) => v.clone(),
        }
    }
}

/// A text and named tensors.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Container {
    /// What the tensors mean.
    pub text: String,
    /// Name, shape and values.
    pub tensors: BTreeMap<String, (Vec<usize>, Values)>,
}

impl Container {
    /// Adds a tensor.
    pub(crate) fn put(&mut self, name: impl Into<String>, shape: &[usize], values: Values) {
        self.tensors.insert(name.into(), (shape.to_vec(), values));
    }

    /// The shape of a tensor.
    ///
    /// # Errors
    /// If there is none of this name.
    pub(crate) fn shape(&self, name: &str) -> Result<&[usize]> {
        self.tensors.get(name).map(|t| &t.0[..]).ok_or_else(|| missing(name))
    }

    /// Takes out a tensor of 32-bit numbers, all finite, of the given shape.
    ///
    /// # Errors
    /// If there is no such tensor.
    pub(crate) fn take_f32(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        match self.take(name, shape)? {
            Values::F32(v) if v.iter().all(|v| v.is_finite()) => Ok(v),
            _ => Err(Error::format(format!("tensor {name} does not hold finite 32-bit numbers"))),
        }
    }

    /// The same, where values may be infinite or NaN: the state of an optimizer may overflow and training goes on.
    ///
    /// # Errors
    /// If there is no such tensor.
    pub(crate) fn take_f32_unchecked(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        match self.take(name, shape)? {
            Values::F32(v) => Ok(v),
            _ => Err(Error::format(format!("tensor {name} does not hold 32-bit numbers"))),
        }
    }

    /// Takes out a tensor of 64-bit numbers, all finite, of the given shape.
    ///
    /// # Errors
    /// If there is no such tensor.
    pub(crate) fn take_f64(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f64>> {
        match self.take(name, shape)? {
            Values::F64(v) if v.iter().all(|v| v.is_finite()) => Ok(v),
            _ => Err(Error::format(format!("tensor {name} does not hold finite 64-bit numbers"))),
        }
    }

    /// Takes out a tensor of 16-bit integers of the given shape.
    ///
    /// # Errors
    /// If there is no such tensor.
    pub(crate) fn take_u16(&mut self, name: &str, shape: &[usize]) -> Result<Vec<u16>> {
        match self.take(name, shape)? {
            Values::U16(v) => Ok(v),
            _ => Err(Error::format(format!("tensor {name} does not hold 16-bit integers"))),
        }
    }

    /// Takes out bytes.
    ///
    /// # Errors
    /// If there is no such tensor.
    pub(crate) fn take_u8(&mut self, name: &str, shape: &[usize]) -> Result<Vec<u8>> {
        match self.take(name, shape)? {
            Values::U8(v) => Ok(v),
            _ => Err(Error::format(format!("tensor {name} does not hold bytes"))),
        }
    }

    fn take(&mut self, name: &str, shape: &[usize]) -> Result<Values> {
        let (found, values) = self.tensors.remove(name).ok_or_else(|| missing(name))?;
        if found != shape {
            return Err(Error::format(format!("tensor {name} has the shape {found:?}, not {shape:?}")));
        }
        Ok(values)
    }

    /// The file's bytes; `format` names what it is and its version, as in `mcdd model 1`.
    pub(crate) fn to_bytes(&self, format: &str) -> Vec<u8> {
        let mut header = serde_json::Map::new();
        let mut data = Vec::new();
        for (name, (shape, values)) in &self.tensors {
            let from = data.len();
            data.extend(values.bytes());
            let dtype = match values {
                Values::F32(_) => "F32",
                Values::F64(_) => "F64",
                Values::U16(_) => "U16",
                Values::U8(_) => "U8",
            };
            header.insert(name.clone(), json!({ "dtype": dtype, "shape": shape, "data_offsets": [from, data.len()] }));
        }
        let table = self.tensors.iter().map(|(n, (s, v))| (n.as_str(), s.as_slice(), v.dtype()));
        let checksum = checksum(&self.text, table, &data);
        header.insert("__metadata__".into(), json!({ "format": format, "checksum": checksum, "mcdd": self.text }));
        let mut json = serde_json::Value::Object(header).to_string().into_bytes();
        while !json.len().is_multiple_of(8) {
            json.push(b' ');
        }
        let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
        bytes.extend(json);
        bytes.extend(data);
        bytes
    }

    /// Writes the file beside its place and renames it.
    ///
    /// # Errors
    /// If writing fails, or it would be longer than what is read.
    pub(crate) fn write(&self, path: &Path, format: &str) -> Result<()> {
        let data: u64 = self.tensors.values().map(|(_, values)| values.size()).sum();
        if data + MAX_HEADER > MAX_BYTES {
            return Err(too_long(data).at_file(path).hint("let the detector keep fewer rows or features"));
        }
        let bytes = self.to_bytes(format);
        write_beside(path, |w| w.write_all(&bytes).map_err(|e| Error::io(e, path)))
    }

    /// Reads a file that must be of this format.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or is something else.
    pub(crate) fn read(path: &Path, format: &str) -> Result<Container> {
        Self::from_bytes(&Self::bytes_of(path)?, format).map_err(|e| e.at_file(path))
    }

    /// The bytes of a file; a folder or a device is an error. Of a large file that is not a container only the start is read, which
    /// is not a container either.
    ///
    /// # Errors
    /// If it cannot be read, is longer than [`MAX_BYTES`], or there is no memory for it.
    pub(crate) fn bytes_of(path: &Path) -> Result<Vec<u8>> {
        let io = |e| Error::io(e, path);
        let data = std::fs::metadata(path).map_err(io)?;
        if !data.is_file() {
            return Err(Error::format("is not a file").at_file(path).hint("give a file that mcdd has written"));
        }
        if data.len() <= SMALL {
            return read_at_most(path, SMALL);
        }
        let mut file = std::fs::File::open(path).map_err(io)?;
        let mut bytes = vec![0; 8];
        file.read_exact(&mut bytes).map_err(io)?;
        let header = bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b));
        if header > MAX_HEADER {
            return Ok(bytes);
        }
        file.by_ref().take(header).read_to_end(&mut bytes).map_err(io)?;
        // Ours, and its tensors fill the file.
        let about: Option<Metadata> = serde_json::from_slice(&bytes[8..]).ok();
        let ours = about.filter(|a| a.metadata().as_ref().is_some_and(|texts| texts.contains_key("mcdd")));
        if ours.and_then(|a| (a.data_len() as u64).checked_add(8 + header)) != Some(data.len()) {
            return Ok(bytes);
        }
        if data.len() > MAX_BYTES {
            return Err(too_long(data.len())
                .at_file(path)
                .hint("it may be made to do harm: use a file that you trust"));
        }
        // For its bytes and for the tensors. An allocation that fails later would end the program.
        let room = usize::try_from(data.len() * 2).unwrap_or(usize::MAX);
        if Vec::<u8>::new().try_reserve_exact(room).is_err() {
            return Err(Error::format(format!("there is no memory for its {} MiB", data.len() >> 20))
                .at_file(path)
                .hint("give the process more memory, or use a smaller file"));
        }
        file.take(data.len() - 8 - header).read_to_end(&mut bytes).map_err(io)?;
        Ok(bytes)
    }

    /// The format of the file, such as `mcdd model 1`; none if it is not a container.
    pub(crate) fn format_of(bytes: &[u8]) -> Option<String> {
        let (_, metadata) = SafeTensors::read_metadata(bytes).ok()?;
        metadata.metadata().as_ref()?.get("format").cloned()
    }

    /// Reads the content of a file.
    ///
    /// # Errors
    /// If it is damaged or something else.
    pub(crate) fn from_bytes(bytes: &[u8], format: &str) -> Result<Container> {
        let (kind, version) = format.rsplit_once(' ').unwrap_or((format, ""));
        let foreign = || Error::format(format!("not an {kind} file")).hint("give a file that mcdd has written");
        let (header, metadata) = SafeTensors::read_metadata(bytes).map_err(|_| foreign())?;
        let texts = metadata.metadata().as_ref().ok_or_else(foreign)?;
        let get = |key: &str| texts.get(key).ok_or_else(foreign);
        let found = get("format")?;
        if found != format {
            let newer = found.rsplit_once(' ').filter(|(k, _)| *k == kind).and_then(|(_, v)| v.parse::<u64>().ok());
            return Err(match (newer, version.parse::<u64>()) {
                (Some(theirs), Ok(ours)) if theirs > ours => {
                    Error::format(format!("the file has format version {theirs}, and this program knows {ours}"))
                        .hint("use a newer version of mcdd")
                }
                _ => match found.rsplit_once(' ').filter(|(k, _)| k.starts_with("mcdd ")) {
                    Some((other, _)) => Error::format(format!("an {other} file, not an {kind} file"))
                        .hint(format!("give an {kind} file")),
                    None => foreign(),
                },
            });
        }
        let damaged = || Error::format("the file is damaged").hint("copy it again, or train again");
        let tensors = SafeTensors::deserialize(bytes).map_err(|_| damaged())?;
        let mut container = Container { text: get("mcdd")?.clone(), tensors: BTreeMap::new() };
        for (name, view) in tensors.iter() {
            let values = match view.dtype() {
                Dtype::F32 => Values::F32(numbers(view.data(), f32::from_le_bytes)),
                Dtype::F64 => Values::F64(numbers(view.data(), f64::from_le_bytes)),
                Dtype::U16 => Values::U16(numbers(view.data(), u16::from_le_bytes)),
                Dtype::U8 => Values::U8(view.data().to_vec()),
                _ => return Err(damaged()),
            };
            container.put(name, view.shape(), values);
        }
        let table = container.tensors.iter().map(|(n, (s, v))| (n.as_str(), s.as_slice(), v.dtype()));
        let data = bytes.get(8 + header..).ok_or_else(damaged)?;
        if *get("checksum")? != checksum(&container.text, table, data) {
            return Err(damaged());
        }
        Ok(container)
    }
}

fn numbers<T, const N: usize>(bytes: &[u8], convert: fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|&b| convert(b)).collect()
}

fn too_long(bytes: u64) -> Error {
    let (mib, most) = (bytes >> 20, MAX_BYTES >> 30);
    Error::format(format!("has {mib} MiB, and a file of mcdd has {most} GiB at most"))
}

fn missing(name: &str) -> Error {
    Error::format(format!("tensor {name} is missing")).hint("copy the file again, or train again")
}

fn checksum<'a>(text: &str, table: impl Iterator<Item = (&'a str, &'a [usize], Dtype)>, data: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update(text.as_bytes());
    for (name, shape, dtype) in table {
        hash.update(format!("\n{name} {dtype:?} {shape:?}").as_bytes());
    }
    hash.update(b"\n");
    hash.update(data);
    hex(&hash.finalize())
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FORMAT: &str = "mcdd test 1";

    fn example() -> Container {
        let mut c = Container { text: "{\"a\": \"ü\"}".into(), ..Default::default() };
        c.put("w", &[2, 3], Values::F32(vec![1.0, -2.5, 0.0, 4.0, 5.0, 6.0]));
        c.put("s", &[2], Values::F64(vec![0.1, 1e300]));
        c.put("none", &[0], Values::F32(vec![]));
        c
    }

    #[test]
    fn comes_back_as_it_was() {
        let bytes = example().to_bytes(FORMAT);
        assert_eq!(bytes, example().to_bytes(FORMAT));
        assert_eq!(Container::from_bytes(&bytes, FORMAT).unwrap(), example());
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_found() {
        let bytes = example().to_bytes(FORMAT);
        for n in 0..bytes.len() {
            assert!(Container::from_bytes(&bytes[..n], FORMAT).is_err(), "cut at {n}");
        }
        for i in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[i / 8] ^= 1 << (i % 8);
            assert!(Container::from_bytes(&damaged, FORMAT).is_err(), "bit {i}");
        }
        assert!(Container::from_bytes(&[bytes, vec![0]].concat(), FORMAT).is_err());
    }

    #[test]
    fn of_a_large_file_that_is_something_else_only_the_start_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let mut large = example();
        large.put("large", &[5 << 20], Values::F32(vec![1.5; 5 << 20]));
        large.write(&path, FORMAT).unwrap();
        assert_eq!(Container::read(&path, FORMAT).unwrap(), large);
        let bytes = std::fs::read(&path).unwrap();
        let foreign = br#"{"w":{"dtype":"U8","shape":[68719476736],"data_offsets":[0,68719476736]}}"#;
        let foreign = [&(foreign.len() as u64).to_le_bytes()[..], foreign].concat();
        // A file with zeros, with any start, with a model at its start, with tensors of another program.
        for start in [&[][..], &[255; 8][..], &[9, 0, 0, 0, 0, 0, 0, 0][..], &bytes[..], &foreign[..]] {
            std::fs::write(&path, start).unwrap();
            let length = if start == foreign { start.len() as u64 } else { 0 } + (1 << 36);
            std::fs::File::options().write(true).open(&path).unwrap().set_len(length).unwrap();
            assert!(Container::bytes_of(&path).unwrap().len() < 1 << 12);
            assert!(Container::read(&path, FORMAT).is_err());
        }
    }

    #[test]
    fn a_file_that_is_too_long_is_refused_before_it_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        for bytes in [MAX_BYTES, 1 << 40] {
            let header = format!(
                r#"{{"__metadata__":{{"format":"{FORMAT}","checksum":"","mcdd":""}},"w":{{"dtype":"U8","shape":[{bytes}],"data_offsets":[0,{bytes}]}}}}"#
            );
            std::fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat()).unwrap();
            let length = 8 + header.len() as u64 + bytes;
            std::fs::File::options().write(true).open(&path).unwrap().set_len(length).unwrap();
            let e = Container::read(&path, FORMAT).unwrap_err();
            let text = e.to_string();
            assert!(text.starts_with(&path.display().to_string()) && text.contains("16 GiB at most"), "{text}");
            assert!(e.hint_text().is_some());
        }
    }

    #[test]
    fn other_versions_and_kinds_are_errors() {
        let newer = example().to_bytes("mcdd test 2");
        assert!(Container::from_bytes(&newer, FORMAT).unwrap_err().to_string().contains("version 2"));
        let other = example().to_bytes("mcdd cake 1");
        assert!(Container::from_bytes(&other, FORMAT).unwrap_err().to_string().contains("not an mcdd test file"));
    }

    #[test]
    fn absurd_headers_are_errors() {
        let file = |header: &str| [(header.len() as u64).to_le_bytes().to_vec(), header.into()].concat();
        for header in [
            r#"{"w":{"dtype":"F32","shape":[9223372036854775807,9223372036854775807],"data_offsets":[0,4]}}"#,
            r#"{"w":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}"#,
            r#"{"__metadata__":{"format":"mcdd test 1"}}"#,
            "[]",
        ] {
            assert!(Container::from_bytes(&file(header), FORMAT).is_err(), "{header}");
        }
        assert!(Container::from_bytes(&u64::MAX.to_le_bytes(), FORMAT).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Container::from_bytes(&bytes, FORMAT);
        }
    }
}
