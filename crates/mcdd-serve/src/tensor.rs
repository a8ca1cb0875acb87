//! Tensors of the Open Inference Protocol: as JSON, and as bytes after the JSON (the binary tensor extension).

use mcdd::data::Cell;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::failure::{Answer, Failure};
use crate::rows::{Own, cell};

/// The type of the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// A tensor of a request.
#[derive(Debug, Deserialize)]
pub(crate) struct Input {
    pub name: String,
    pub shape: Vec<u64>,
    pub datatype: Datatype,
    #[serde(default)]
    pub parameters: Map<String, Value>,
    #[serde(default)]
    pub data: Option<Value>,
}

impl Input {
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
    pub(crate) fn cells(&self, binary: &mut &[u8]) -> Answer<Vec<Own>> {
        let (rows, columns) = self.rows()?;
        let count = rows * columns;
        let wrong =
            |found: String| Failure::bad(format!("input {}: {found}, and the shape needs {count} elements", self.name));
        let size = self.parameters.get("binary_data_size");
        match (&self.data, size) {
            (Some(data), None) => {
                let mut out = Vec::new();
                flatten(data, self.datatype, &mut out)
                    .map_err(|e| Failure::bad(format!("input {}: {}", self.name, e.message)))?;
                if out.len() == count { Ok(out) } else { Err(wrong(format!("the data has {} elements", out.len()))) }
            }
            (None, Some(size)) => {
                let bytes = size.as_u64().and_then(|s| binary.split_at_checked(usize::try_from(s).ok()?));
                let Some((own, rest)) = bytes else {
                    return Err(wrong(format!(
                        "binary_data_size is {size}, and the request has {} bytes left",
                        binary.len()
                    )));
                };
                *binary = rest;
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

/// The elements of nested or flat arrays.
fn flatten(data: &Value, datatype: Datatype, out: &mut Vec<Own>) -> Answer<()> {
    if let Value::Array(items) = data {
        return items.iter().try_for_each(|item| flatten(item, datatype, out));
    }
    let found = cell(data)?;
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
    let Some(fits) = fits else {
        return Err(Failure::bad(format!(
            "{data} is not of the datatype {}",
            json!(datatype).as_str().unwrap_or_default()
        )));
    };
    out.push(fits.into());
    Ok(())
}

/// The values of a tensor of an answer.
pub(crate) enum Values {
    Bools(Vec<bool>),
    Numbers(Vec<f64>),
    Texts(Vec<String>),
}

/// A tensor of an answer.
pub(crate) struct Output {
    pub name: &'static str,
    pub shape: Vec<usize>,
    pub values: Values,
    /// Whether it is written as bytes.
    pub binary: bool,
}

impl Output {
    /// Its JSON; its bytes are appended where it is binary.
    pub(crate) fn write(self, binary: &mut Vec<u8>) -> Value {
        let datatype = match &self.values {
            Values::Bools(_) => Datatype::Bool,
            Values::Numbers(_) => Datatype::F64,
            Values::Texts(_) => Datatype::Bytes,
        };
        let mut tensor = json!({ "name": self.name, "datatype": datatype, "shape": self.shape });
        if !self.binary {
            tensor["data"] = match self.values {
                Values::Bools(values) => json!(values),
                Values::Numbers(values) => json!(values),
                Values::Texts(values) => json!(values),
            };
            return tensor;
        }
        let before = binary.len();
        match self.values {
            Values::Bools(values) => binary.extend(values.into_iter().map(u8::from)),
            Values::Numbers(values) => binary.extend(values.iter().flat_map(|v| v.to_le_bytes())),
            Values::Texts(values) => {
                for text in values {
                    binary.extend((text.len() as u32).to_le_bytes());
                    binary.extend(text.as_bytes());
                }
            }
        }
        tensor["parameters"] = json!({ "binary_data_size": binary.len() - before });
        tensor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(text: &str) -> Input {
        serde_json::from_str(text).unwrap()
    }

    fn shown(text: &str, mut binary: &[u8]) -> Result<String, String> {
        input(text)
            .cells(&mut binary)
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
        let output = Output {
            name: "label",
            shape: vec![2],
            values: Values::Texts(vec!["hi".into(), String::new()]),
            binary: true,
        };
        assert_eq!(output.write(&mut out)["parameters"]["binary_data_size"], 10);
        assert_eq!(out, b"\x02\0\0\0hi\0\0\0\0");
    }

    #[test]
    fn wrong_sizes_and_types_are_errors() {
        for (text, binary) in [
            (r#"{"name":"a","shape":[2],"datatype":"FP64","data":[1]}"#, &b""[..]),
            (r#"{"name":"a","shape":[1],"datatype":"INT64","data":[1.5]}"#, b""),
            (r#"{"name":"a","shape":[1],"datatype":"BYTES","data":[1]}"#, b""),
            (r#"{"name":"a","shape":[1],"datatype":"FP64","data":[{}]}"#, b""),
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
