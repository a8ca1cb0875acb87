//! The part of Python's pickle format (protocols 2 and 3) that CIFAR's files use: dictionaries, lists, texts, integers
//! and NumPy arrays of bytes. Nothing is executed: a class or function is a name here, and only the few names that
//! stand for an array are supported.

use std::collections::HashMap;

/// A value; those with parts are in the list of objects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    None,
    Bool,
    Int(i64),
    Text(&'a [u8]),
    Object(usize),
}

#[derive(Debug)]
enum Object<'a> {
    List(Vec<Value<'a>>),
    Tuple(Vec<Value<'a>>),
    Dict(Vec<(Value<'a>, Value<'a>)>),
    Name(&'a [u8], &'a [u8]),
    /// A type of values, such as the code `u1`.
    Kind(&'a [u8]),
    Array(Option<Array<'a>>),
}

/// An array of bytes in the order of its last index.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Array<'a> {
    pub shape: Vec<usize>,
    pub data: &'a [u8],
}

/// A pickle that was read.
pub(super) struct Pickle<'a> {
    objects: Vec<Object<'a>>,
    root: Value<'a>,
}

/// The most values that a pickle may hold: CIFAR's have some tens of thousands.
const MAX_VALUES: usize = 4_000_000;

struct Machine<'a> {
    rest: &'a [u8],
    stack: Vec<Value<'a>>,
    marks: Vec<usize>,
    memo: HashMap<u32, Value<'a>>,
    objects: Vec<Object<'a>>,
    values: usize,
}

type Read<T> = Result<T, String>;

/// Reads a pickle.
pub(super) fn read(bytes: &[u8]) -> Read<Pickle<'_>> {
    let mut machine = Machine {
        rest: bytes,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        objects: Vec::new(),
        values: 0,
    };
    // Each step takes at least a byte.
    while machine.step()? {}
    let root = machine.pop()?;
    if !machine.rest.is_empty() {
        return Err("there is more after its end".into());
    }
    Ok(Pickle { objects: machine.objects, root })
}

impl<'a> Pickle<'a> {
    /// The entry of the outermost dictionary.
    pub(super) fn get(&self, key: &str) -> Option<Value<'a>> {
        let Value::Object(root) = self.root else { return None };
        let Object::Dict(entries) = self.objects.get(root)? else { return None };
        entries.iter().find(|(k, _)| *k == Value::Text(key.as_bytes())).map(|(_, v)| *v)
    }

    /// The elements of a list.
    pub(super) fn list(&self, value: Value<'a>) -> Option<&[Value<'a>]> {
        let Value::Object(at) = value else { return None };
        match self.objects.get(at)? {
            Object::List(items) => Some(items),
            _ => None,
        }
    }

    /// An array of bytes.
    pub(super) fn array(&self, value: Value<'a>) -> Option<&Array<'a>> {
        let Value::Object(at) = value else { return None };
        match self.objects.get(at)? {
            Object::Array(array) => array.as_ref(),
            _ => None,
        }
    }
}

impl<'a> Machine<'a> {
    fn take(&mut self, count: usize) -> Read<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or("it ends too early")?;
        self.rest = rest;
        Ok(head)
    }

    fn byte(&mut self) -> Read<u8> {
        Ok(self.take(1)?[0])
    }

    fn u32(&mut self) -> Read<u32> {
        let b = self.take(4)?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    fn line(&mut self) -> Read<&'a [u8]> {
        let end = memchr::memchr(b'\n', self.rest).ok_or("it ends too early")?;
        let line = self.take(end)?;
        self.take(1)?;
        Ok(line)
    }

    fn text(&mut self, length: usize) -> Read<()> {
        let text = self.take(length)?;
        self.push(Value::Text(text))
    }

    fn push(&mut self, value: Value<'a>) -> Read<()> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err("it holds too many values".into());
        }
        self.stack.push(value);
        Ok(())
    }

    fn object(&mut self, object: Object<'a>) -> Read<()> {
        self.objects.push(object);
        self.push(Value::Object(self.objects.len() - 1))
    }

    fn pop(&mut self) -> Read<Value<'a>> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err("a value is missing".into());
        }
        self.stack.pop().ok_or_else(|| "a value is missing".into())
    }

    /// The values since the last mark.
    fn marked(&mut self) -> Read<Vec<Value<'a>>> {
        let mark = self.marks.pop().ok_or("a mark is missing")?;
        Ok(self.stack.split_off(mark))
    }

    fn tuple(&mut self, count: usize) -> Read<()> {
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(self.pop()?);
        }
        items.reverse();
        self.object(Object::Tuple(items))
    }

    /// What the value on top is made of.
    fn top(&mut self) -> Read<&mut Object<'a>> {
        match self.stack.last() {
            Some(&Value::Object(at)) => self.objects.get_mut(at).ok_or_else(|| "an object is missing".into()),
            _ => Err("an object is missing".into()),
        }
    }

    fn append(&mut self, more: Vec<Value<'a>>) -> Read<()> {
        match self.top()? {
            Object::List(items) => items.extend(more),
            _ => return Err("only lists are appended to".into()),
        }
        Ok(())
    }

    fn set(&mut self, more: Vec<Value<'a>>) -> Read<()> {
        if !more.len().is_multiple_of(2) {
            return Err("a key has no value".into());
        }
        match self.top()? {
            Object::Dict(entries) => entries.extend(more.chunks_exact(2).map(|pair| (pair[0], pair[1]))),
            _ => return Err("only dictionaries have keys".into()),
        }
        Ok(())
    }

    /// One instruction; `false` at the end.
    fn step(&mut self) -> Read<bool> {
        match self.byte()? {
            0x80 => match self.byte()? {
                2 | 3 => {}
                other => return Err(format!("protocol {other} is not read")),
            },
            b'.' => return Ok(false),
            b'(' => {
                // Marks count as values, so that a file of them alone has a bound too.
                self.values += 1;
                if self.values > MAX_VALUES {
                    return Err("it holds too many values".into());
                }
                self.marks.push(self.stack.len());
            }
            b'N' => self.push(Value::None)?,
            0x88 | 0x89 => self.push(Value::Bool)?,
            b'K' => {
                let value = self.byte()?;
                self.push(Value::Int(value.into()))?;
            }
            b'M' => {
                let b = self.take(2)?;
                self.push(Value::Int(u16::from_le_bytes([b[0], b[1]]).into()))?;
            }
            b'J' => {
                let value = self.u32()? as i32;
                self.push(Value::Int(value.into()))?;
            }
            b'U' | b'C' => {
                let length = self.byte()?.into();
                self.text(length)?;
            }
            b'T' | b'B' | b'X' => {
                let length = self.u32()? as usize;
                self.text(length)?;
            }
            b']' => self.object(Object::List(Vec::new()))?,
            b'}' => self.object(Object::Dict(Vec::new()))?,
            b')' => self.tuple(0)?,
            0x85 => self.tuple(1)?,
            0x86 => self.tuple(2)?,
            0x87 => self.tuple(3)?,
            b't' => {
                let items = self.marked()?;
                self.object(Object::Tuple(items))?;
            }
            b'a' => {
                let item = self.pop()?;
                self.append(vec![item])?;
            }
            b'e' => {
                let items = self.marked()?;
                self.append(items)?;
            }
            b's' => {
                let value = self.pop()?;
                let key = self.pop()?;
                self.set(vec![key, value])?;
            }
            b'u' => {
                let pairs = self.marked()?;
                self.set(pairs)?;
            }
            b'q' => {
                let at = self.byte()?.into();
                self.keep(at)?;
            }
            b'r' => {
                let at = self.u32()?;
                self.keep(at)?;
            }
            b'h' => {
                let at = self.byte()?.into();
                self.recall(at)?;
            }
            b'j' => {
                let at = self.u32()?;
                self.recall(at)?;
            }
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.object(Object::Name(module, name))?;
            }
            b'R' => self.reduce()?,
            b'b' => self.build()?,
            other => return Err(format!("its instruction {other:#04x} is not known here")),
        }
        Ok(true)
    }

    fn keep(&mut self, at: u32) -> Read<()> {
        let value = *self.stack.last().ok_or("a value is missing")?;
        self.memo.insert(at, value);
        Ok(())
    }

    fn recall(&mut self, at: u32) -> Read<()> {
        let value = *self.memo.get(&at).ok_or("a value is missing")?;
        self.push(value)
    }

    /// The objects of an argument list.
    fn tuple_of(&self, value: Value<'a>) -> Read<&[Value<'a>]> {
        match value {
            Value::Object(at) => match self.objects.get(at) {
                Some(Object::Tuple(items)) => Ok(items),
                _ => Err("a tuple is missing".into()),
            },
            _ => Err("a tuple is missing".into()),
        }
    }

    /// A call: of the functions that make an empty array or a type of values, and no other.
    fn reduce(&mut self) -> Read<()> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let Value::Object(at) = function else { return Err("it calls something that is not a function".into()) };
        let Some(Object::Name(module, name)) = self.objects.get(at) else {
            return Err("it calls something that is not a function".into());
        };
        let made = match (*module, *name) {
            (b"numpy.core.multiarray" | b"numpy._core.multiarray", b"_reconstruct") => Object::Array(None),
            (b"numpy", b"dtype") => match self.tuple_of(arguments)?.first() {
                Some(Value::Text(kind)) => Object::Kind(kind),
                _ => return Err("a type of values has no name".into()),
            },
            (b"_codecs", b"encode") => return Err("bytes are stored as text; save it with protocol 3".into()),
            (module, name) => {
                let shown = |b: &[u8]| String::from_utf8_lossy(&b[..b.len().min(40)]).into_owned();
                return Err(format!("it calls {}.{}, which is not known here", shown(module), shown(name)));
            }
        };
        self.object(made)
    }

    /// The state of an array or of a type of values.
    fn build(&mut self) -> Read<()> {
        let state = self.pop()?;
        if let Object::Kind(_) = self.top()? {
            return Ok(());
        }
        let array = match *self.tuple_of(state)? {
            [_, shape, Value::Object(kind), _, Value::Text(data)] => {
                let known = match self.objects.get(kind) {
                    Some(Object::Kind(kind)) => matches!(*kind, b"u1" | b"|u1" | b"uint8"),
                    _ => false,
                };
                if !known {
                    return Err("an array holds no bytes".into());
                }
                let mut sizes = Vec::new();
                for size in self.tuple_of(shape)? {
                    match *size {
                        Value::Int(size) if sizes.len() < 8 => sizes.push(usize::try_from(size).unwrap_or(usize::MAX)),
                        _ => return Err("an array has no proper shape".into()),
                    }
                }
                let length = sizes.iter().try_fold(1usize, |n, &s| n.checked_mul(s));
                if length != Some(data.len()) {
                    return Err("an array has not the length of its shape".into());
                }
                Array { shape: sizes, data }
            }
            _ => return Err("an array has no proper state".into()),
        };
        match self.top()? {
            Object::Array(place) => *place = Some(array),
            _ => return Err("it builds what is not known here".into()),
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A batch as CIFAR's Python 2 wrote it.
    pub(crate) fn batch(key: &str, labels: &[u8], pixels: &[u8]) -> Vec<u8> {
        let text = |t: &str| [&b"U"[..], &[t.len() as u8], t.as_bytes()].concat();
        let mut out = b"\x80\x02}q\x01(".to_vec();
        out.extend(text("batch_label"));
        out.extend(b"q\x02");
        out.extend(text("training batch 1 of 5"));
        out.extend(b"q\x03");
        out.extend(text(key));
        out.extend(b"q\x04]q\x05(");
        labels.iter().for_each(|&l| out.extend([b'K', l]));
        out.push(b'e');
        out.extend(text("data"));
        out.extend(
            b"q\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87Rq\x09(K\x01",
        );
        out.extend([b'M', labels.len() as u8, 0]);
        out.extend(b"M\x00\x0c\x86cnumpy\ndtype\nq\x0aU\x02u1K\x00K\x01\x87Rq\x0b(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T");
        out.extend((pixels.len() as u32).to_le_bytes());
        out.extend(pixels);
        out.extend(b"tbu.");
        out
    }

    #[test]
    fn a_batch_is_read() {
        let pixels: Vec<u8> = (0..2 * 3072).map(|i| (i % 253) as u8).collect();
        let bytes = batch("labels", &[6, 9], &pixels);
        let pickle = read(&bytes).unwrap();
        let labels = pickle.list(pickle.get("labels").unwrap()).unwrap();
        assert_eq!(labels, [Value::Int(6), Value::Int(9)]);
        let array = pickle.array(pickle.get("data").unwrap()).unwrap();
        assert_eq!(*array, Array { shape: vec![2, 3072], data: &pixels });
        assert!(pickle.get("filenames").is_none());
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn nothing_is_executed() {
        for (bytes, part) in [
            (&b"\x80\x02cos\nsystem\nU\x02ls\x85R."[..], "os.system"),
            (b"\x80\x02cbuiltins\neval\nU\x011\x85R.", "builtins.eval"),
            (b"\x80\x04\x95\0\0\0\0", "protocol 4"),
            (b"\x80\x02i", "0x69"),
            (b"\x80\x02]a.", "missing"),
            (b"\x80\x02]q\x01h\x01a.1", "more after"),
            (b"\x80\x02(.", "missing"),
            (b"\x80\x02T\xff\xff\xff\xff", "too early"),
            (b"\x80\x02c_codecs\nencode\nX\x01\0\0\0aU\x06latin1\x86R.", "protocol 3"),
        ] {
            let error = read(bytes).err().unwrap();
            assert!(error.contains(part), "{error}");
        }
        // A list that holds itself does not make an endless loop.
        let pickle = read(b"\x80\x02]q\x01h\x01a.").unwrap();
        assert!(pickle.get("x").is_none());
        assert!(read(&vec![b'N'; MAX_VALUES + 1]).is_err());
        assert!(read(&vec![b'('; MAX_VALUES + 1]).is_err());
    }
}
