//! Tensors of the Open Inference Protocol: as JSON, and as bytes after the JSON (the binary tensor extension).

use mcdd::data::Cell;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::failure::{Answer, Failure};
use crate::room::Room;
use crate::rows::{Elements, Own};

/// The type of the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) enum Datatype {
    #[serde(rename = "BOOL")]
    Bool,
    #[serde(rename = "UINT8")]
    U8,
    #[serde(rename = "UINT16")]
    U16,
    #[serde(rename = "UINT32")]
    U32,
    #[serde(rename = "UINT64")]
    U64,
    #[serde(rename = "INT8")]
    I8,
    #[serde(rename = "INT16")]
    I16,
    #[serde(rename = "INT32")]
    I32,
    #[serde(rename = "INT64")]
    I64,
    #[serde(rename = "FP32")]
    F32,
    #[serde(rename = "FP64")]
    F64,
    #[serde(rename = "BYTES")]
    Bytes,
}

/// The parameters of a tensor that mean something here; others are not read.
#[derive(Debug, Default, Deserialize, ToSchema)]
pub(crate) struct Parameters {
    /// Its bytes after the JSON.
    #[serde(default)]
    pub binary_data_size: Option<u64>,
    /// Whether an answer has bytes after the JSON.
    #[serde(default)]
    pub binary_data: Option<bool>,
}

/// A tensor of a request. Its data stays text until its size is known to fit.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct Input<'a> {
    pub name: String,
    pub shape: Vec<u64>,
    pub datatype: Datatype,
    #[serde(default)]
    pub parameters: Parameters,
    #[serde(default, borrow)]
    #[schema(value_type = Vec<serde_json::Value>)]
    pub data: Option<&'a RawValue>,
}

impl Input<'_> {
    /// The number of rows, and of elements in each.
    pub(crate) fn rows(&self) -> Answer<(usize, usize)> {
        let wrong = || Failure::bad(format!("input {}: the shape {:?} is not that of rows", self.name, self.shape));
        let size = |d: &u64| usize::try_from(*d).ok().filter(|d| *d < 1 << 40).ok_or_else(wrong);
        let Some((rows, rest)) = self.shape.split_first() else { return Err(wrong()) };
        let mut columns = 1;
        for d in rest {
            columns = size(d)?.checked_mul(columns).ok_or_else(wrong)?;
        }
        let rows = size(rows)?;
        rows.checked_mul(columns).ok_or_else(wrong)?;
        Ok((rows, columns))
    }

    /// The elements, in row-major order; takes bytes from the front of `binary` where the data is there.
    pub(crate) fn cells(&self, binary: &mut &[u8], room: &mut Room) -> Answer<Vec<Own>> {
        let (rows, columns) = self.rows()?;
        let count = rows * columns;
        let wrong =
            |found: String| Failure::bad(format!("input {}: {found}, and the shape needs {count} elements", self.name));
        match (self.data, self.parameters.binary_data_size) {
            (Some(data), None) => {
                // An element has a character and a comma.
                let likely = count.min(data.get().len() / 2);
                room.take(likely * size_of::<Own>())?;
                let mut out = Vec::with_capacity(likely);
                let fits = |cell: Cell<'_>| fitting(cell, self.datatype);
                Elements { out: &mut out, fits: &fits, most: count, nested: true, depth: 0 }
                    .read(data)
                    .map_err(|e| wrong(format!("the data: {}", e.message)))?;
                if out.len() == count { Ok(out) } else { Err(wrong(format!("the data has {} elements", out.len()))) }
            }
            (None, Some(size)) => {
                let bytes = usize::try_from(size).ok().and_then(|size| binary.split_at_checked(size));
                let Some((own, rest)) = bytes else {
                    return Err(wrong(format!(
                        "binary_data_size is {size}, and the request has {} bytes left",
                        binary.len()
                    )));
                };
                *binary = rest;
                room.take(count.min(own.len()) * size_of::<Own>())?;
                self.decode(own, count).ok_or_else(|| wrong(format!("the data has {} bytes", own.len())))
            }
            _ => Err(Failure::bad(format!("input {}: give data, or the parameter binary_data_size", self.name))),
        }
    }

    /// Elements from bytes; `None` unless there are exactly as many.
    fn decode(&self, bytes: &[u8], count: usize) -> Option<Vec<Own>> {
        fn each<const N: usize>(
            bytes: &[u8],
            count: usize,
            cell: impl Fn([u8; N]) -> Cell<'static>,
        ) -> Option<Vec<Own>> {
            let (items, rest) = bytes.as_chunks::<N>();
            (items.len() == count && rest.is_empty()).then(|| items.iter().map(|b| Own::Plain(cell(*b))).collect())
        }
        match self.datatype {
            Datatype::Bool => each(bytes, count, |[b]| Cell::Bool(b != 0)),
            Datatype::U8 => each(bytes, count, |b| Cell::Uint(u8::from_le_bytes(b).into())),
            Datatype::U16 => each(bytes, count, |b| Cell::Uint(u16::from_le_bytes(b).into())),
            Datatype::U32 => each(bytes, count, |b| Cell::Uint(u32::from_le_bytes(b).into())),
            Datatype::U64 => each(bytes, count, |b| Cell::Uint(u64::from_le_bytes(b))),
            Datatype::I8 => each(bytes, count, |b| Cell::Int(i8::from_le_bytes(b).into())),
            Datatype::I16 => each(bytes, count, |b| Cell::Int(i16::from_le_bytes(b).into())),
            Datatype::I32 => each(bytes, count, |b| Cell::Int(i32::from_le_bytes(b).into())),
            Datatype::I64 => each(bytes, count, |b| Cell::Int(i64::from_le_bytes(b))),
            Datatype::F32 => each(bytes, count, |b| Cell::F32(f32::from_le_bytes(b))),
            Datatype::F64 => each(bytes, count, |b| Cell::F64(f64::from_le_bytes(b))),
            Datatype::Bytes => {
                let (mut rest, mut out) = (bytes, Vec::new());
                while !rest.is_empty() {
                    let (length, after) = rest.split_first_chunk::<4>()?;
                    let (text, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
                    out.push(Own::Text(std::str::from_utf8(text).ok()?.into()));
                    rest = after;
                }
                (out.len() == count).then_some(out)
            }
        }
    }
}

/// An element of JSON as one of a datatype.
fn fitting(found: Cell<'_>, datatype: Datatype) -> Result<Own, String> {
    let fits = match (datatype, found) {
        (_, Cell::Missing) => Some(found),
        // Single precision, as the client has it.
        (Datatype::F32, Cell::Int(v)) => Some(Cell::F32(v as f32)),
        (Datatype::F32, Cell::Uint(v)) => Some(Cell::F32(v as f32)),
        (Datatype::F32, Cell::F64(v)) => Some(Cell::F32(v as f32)),
        (Datatype::F64, Cell::Int(_) | Cell::Uint(_) | Cell::F64(_)) => Some(found),
        (Datatype::Bool, Cell::Bool(_)) => Some(found),
        (Datatype::Bool, Cell::Int(v @ 0..=1)) => Some(Cell::Bool(v == 1)),
        (Datatype::Bytes, Cell::Text(_)) => Some(found),
        (Datatype::Bool | Datatype::Bytes, _) => None,
        (_, Cell::Int(_) | Cell::Uint(_)) => Some(found),
        _ => None,
    };
    fits.map(Own::from).ok_or_else(|| {
        let shown = match found {
            Cell::Text(text) => format!("{:?}", text.chars().take(100).collect::<String>()),
            Cell::Bool(v) => v.to_string(),
            Cell::Int(v) => v.to_string(),
            Cell::Uint(v) => v.to_string(),
            Cell::F32(v) => v.to_string(),
            Cell::F64(v) => v.to_string(),
            Cell::Missing => "null".into(),
        };
        format!("{shown} is not of the datatype {}", json!(datatype).as_str().unwrap_or_default())
    })
}

/// The values of a tensor of an answer.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum Values {
    Bools(Vec<bool>),
    Numbers(Vec<f64>),
    Texts(Vec<String>),
}

/// A tensor of an answer.
#[derive(Serialize)]
pub(crate) struct Output {
    name: &'static str,
    datatype: Datatype,
    shape: Vec<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Size>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Values>,
}

#[derive(Serialize)]
struct Size {
    binary_data_size: usize,
}

impl Output {
    /// With its values, or with their bytes appended to `binary`.
    pub(crate) fn new(name: &'static str, shape: Vec<usize>, values: Values, binary: Option<&mut Vec<u8>>) -> Output {
        let datatype = match &values {
            Values::Bools(_) => Datatype::Bool,
            Values::Numbers(_) => Datatype::F64,
            Values::Texts(_) => Datatype::Bytes,
        };
        let Some(binary) = binary else {
            return Output { name, datatype, shape, parameters: None, data: Some(values) };
        };
        let before = binary.len();
        match values {
            Values::Bools(values) => binary.extend(values.into_iter().map(u8::from)),
            Values::Numbers(values) => binary.extend(values.iter().flat_map(|v| v.to_le_bytes())),
            Values::Texts(values) => {
                for text in values {
                    binary.extend((text.len() as u32).to_le_bytes());
                    binary.extend(text.as_bytes());
                }
            }
        }
        let size = Size { binary_data_size: binary.len() - before };
        Output { name, datatype, shape, parameters: Some(size), data: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, mut binary: &[u8]) -> Result<String, String> {
        let input: Input<'_> = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let mut room = crate::room::Memory::new(1 << 20).room().unwrap();
        input
            .cells(&mut binary, &mut room)
            .map(|cells| format!("{:?} {}", cells.iter().map(Own::cell).collect::<Vec<_>>(), binary.len()))
            .map_err(|e| e.message)
    }

    #[test]
    fn json_data_is_flat_or_nested() {
        let nested = r#"{"name":"a","shape":[2,2],"datatype":"FP64","data":[[1,2.5],[null,4]]}"#;
        assert_eq!(shown(nested, b"x").unwrap(), "[Int(1), F64(2.5), Missing, Int(4)] 1");
        let flat = r#"{"name":"a","shape":[1,2],"datatype":"FP32","data":[0.1,3]}"#;
        assert_eq!(shown(flat, b"").unwrap(), "[F32(0.1), F32(3.0)] 0");
        let texts = r#"{"name":"a","shape":[2],"datatype":"BYTES","data":["x",""]}"#;
        assert_eq!(shown(texts, b"").unwrap(), "[Text(\"x\"), Text(\"\")] 0");
    }

    #[test]
    fn bytes_are_little_endian() {
        let doubles = r#"{"name":"a","shape":[1],"datatype":"FP64","parameters":{"binary_data_size":8}}"#;
        let bytes = [0.1f64.to_le_bytes().as_slice(), b"rest"].concat();
        assert_eq!(shown(doubles, &bytes).unwrap(), "[F64(0.1)] 4");
        let texts = r#"{"name":"a","shape":[2,1],"datatype":"BYTES","parameters":{"binary_data_size":10}}"#;
        assert_eq!(shown(texts, b"\x02\0\0\0hi\0\0\0\0").unwrap(), "[Text(\"hi\"), Text(\"\")] 0");
        let mut out = Vec::new();
        let texts = Values::Texts(vec!["hi".into(), String::new()]);
        let output = json!(Output::new("label", vec![2], texts, Some(&mut out)));
        assert_eq!(output["parameters"]["binary_data_size"], 10);
        assert_eq!(out, b"\x02\0\0\0hi\0\0\0\0");
    }

    #[test]
    fn wrong_sizes_and_types_are_errors() {
        for (text, binary) in [
            (r#"{"name":"a","shape":[2],"datatype":"FP64","data":[1]}"#, &b""[..]),
            (r#"{"name":"a","shape":[1],"datatype":"INT64","data":[1.5]}"#, b""),
            (r#"{"name":"a","shape":[1],"datatype":"BYTES","data":[1]}"#, b""),
            (r#"{"name":"a","shape":[1],"datatype":"FP64","data":[{}]}"#, b""),
            (r#"{"name":"a","shape":[1],"datatype":"FP64","data":1}"#, b""),
            (r#"{"name":"a","shape":[1],"datatype":"FP64","data":[1,2,3]}"#, b""),
            (
                r#"{"name":"a","shape":[1],"datatype":"FP64","data":[1],"parameters":{"binary_data_size":8}}"#,
                b"12345678",
            ),
            (r#"{"name":"a","shape":[],"datatype":"FP64","data":[1]}"#, b""),
            (r#"{"name":"a","shape":[18446744073709551615,2],"datatype":"FP64","data":[1]}"#, b""),
            (r#"{"name":"a","shape":[1099511627775,1099511627775],"datatype":"FP64","data":[1]}"#, b""),
            (r#"{"name":"a","shape":[1],"datatype":"FP64"}"#, b""),
            (r#"{"name":"a","shape":[1],"datatype":"FP64","parameters":{"binary_data_size":9}}"#, b"12345678"),
            (r#"{"name":"a","shape":[1],"datatype":"FP64","parameters":{"binary_data_size":-1}}"#, b"12345678"),
            (
                r#"{"name":"a","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":5}}"#,
                b"\xff\xff\xff\xffa",
            ),
            (r#"{"name":"a","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":5}}"#, b"\x01\0\0\0\xff"),
        ] {
            assert!(shown(text, binary).is_err(), "{text}");
        }
    }
}
