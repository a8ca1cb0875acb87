//! `.Z`, the output of Unix `compress`: LZW with codes of 9 to 16 bits.
//!
//! Codes come in groups of eight, which take as many bytes as a code has bits. Where the width changes, the
//! rest of the group is void.

use std::io::{Error, ErrorKind, Read, Result};

/// What a `.Z` file begins with.
pub(crate) const MAGIC: &[u8] = b"\x1f\x9d";

/// The code that empties the table.
const CLEAR: usize = 256;
const FIRST_WIDTH: usize = 9;
/// The widest code, and so the largest table.
const LAST_WIDTH: usize = 16;

/// Decompresses what it reads. Its memory does not depend on the input.
pub(crate) struct Decoder<R> {
    input: R,
    /// Whether the header was read: the widest code and whether [`CLEAR`] is a code.
    header: Option<(usize, bool)>,
    width: usize,
    group: [u8; LAST_WIDTH],
    /// The codes of the group, and how many of them were taken.
    codes: usize,
    taken: usize,
    /// For each code the code of all but its last byte, and that byte.
    prefix: Vec<u16>,
    last: Vec<u8>,
    /// The codes in the table.
    size: usize,
    /// The code before, and the first byte that it stands for.
    before: Option<(usize, u8)>,
    /// Bytes that nobody has read yet, the next at the end.
    ready: Vec<u8>,
}

fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

/// Reads until `bytes` is full or the input ends.
fn read_up_to(input: &mut impl Read, bytes: &mut [u8]) -> Result<usize> {
    let mut count = 0;
    while count < bytes.len() {
        match input.read(&mut bytes[count..]) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(count)
}

impl<R: Read> Decoder<R> {
    pub(super) fn new(input: R) -> Self {
        Decoder {
            input,
            header: None,
            width: FIRST_WIDTH,
            group: [0; LAST_WIDTH],
            codes: 0,
            taken: 0,
            prefix: vec![0; 1 << LAST_WIDTH],
            last: (0..1 << LAST_WIDTH).map(|code: u32| code as u8).collect(),
            size: 0,
            before: None,
            ready: Vec::new(),
        }
    }

    fn read_header(&mut self) -> Result<(usize, bool)> {
        let mut header = [0; 3];
        if read_up_to(&mut self.input, &mut header)? < 3 || !header.starts_with(MAGIC) {
            return Err(damaged("it does not begin as compress writes it"));
        }
        let (widest, clears) = (usize::from(header[2] & 0x1f), header[2] & 0x80 != 0);
        if !(FIRST_WIDTH..=LAST_WIDTH).contains(&widest) || header[2] & 0x60 != 0 {
            return Err(damaged("its codes are of an unknown kind"));
        }
        self.size = 256 + usize::from(clears);
        Ok(*self.header.insert((widest, clears)))
    }

    /// The next code; nothing at the end.
    fn code(&mut self, widest: usize) -> Result<Option<usize>> {
        if self.size == 1 << self.width && self.width < widest {
            self.width += 1;
            self.codes = 0;
            self.taken = 0;
        }
        if self.taken == self.codes {
            let count = read_up_to(&mut self.input, &mut self.group[..self.width])?;
            self.codes = count * 8 / self.width;
            self.taken = 0;
            if self.codes == 0 {
                return Ok(None);
            }
        }
        let bit = self.taken * self.width;
        self.taken += 1;
        // A code of 16 bits touches three bytes at most.
        let byte = |at: usize| self.group.get(bit / 8 + at).map_or(0, |&b| usize::from(b) << (8 * at));
        Ok(Some(((byte(0) | byte(1) | byte(2)) >> (bit % 8)) & ((1 << self.width) - 1)))
    }

    /// Decodes a code; false at the end.
    fn step(&mut self) -> Result<bool> {
        let (widest, clears) = match self.header {
            Some(header) => header,
            None => self.read_header()?,
        };
        let Some(code) = self.code(widest)? else { return Ok(false) };
        if code == CLEAR && clears {
            self.size = 257;
            self.width = FIRST_WIDTH;
            self.codes = 0;
            self.taken = 0;
            self.before = None;
            return Ok(true);
        }
        let Some((before, first)) = self.before else {
            if code > 255 {
                return Err(damaged("a code comes before it is made"));
            }
            self.ready.push(code as u8);
            self.before = Some((code, code as u8));
            return Ok(true);
        };
        let mut at = code;
        if code >= self.size {
            if code > self.size || self.size == 1 << widest {
                return Err(damaged("a code comes before it is made"));
            }
            // The one that is made below: the code before, and its first byte again.
            self.ready.push(first);
            at = before;
        }
        // A prefix is smaller than its code, so this ends.
        while at > 255 {
            self.ready.push(self.last[at]);
            at = usize::from(self.prefix[at]);
        }
        self.ready.push(at as u8);
        if self.size < 1 << widest {
            self.prefix[self.size] = before as u16;
            self.last[self.size] = at as u8;
            self.size += 1;
        }
        self.before = Some((code, at as u8));
        Ok(true)
    }
}

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        let mut count = 0;
        while count < bytes.len() {
            if let Some(byte) = self.ready.pop() {
                bytes[count] = byte;
                count += 1;
            } else if !self.step()? {
                break;
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// Packs as `compress -b WIDEST` does; `clear` empties the table now and then, as the real one does where
    /// it no longer pays.
    pub(crate) fn pack(bytes: &[u8], widest: usize, clear: Option<usize>) -> Vec<u8> {
        let mut out = [MAGIC, &[widest as u8 | if clear.is_some() { 0x80 } else { 0 }]].concat();
        let first = 256 + usize::from(clear.is_some());
        let (mut width, mut size, mut table) = (9, first, HashMap::new());
        let mut group: Vec<usize> = Vec::new();
        let flush = |group: &mut Vec<usize>, width: usize, whole: bool, out: &mut Vec<u8>| {
            let mut packed = vec![0u8; width];
            for (i, code) in group.iter().enumerate() {
                for b in 0..width {
                    packed[(i * width + b) / 8] |= ((code >> b & 1) as u8) << ((i * width + b) % 8);
                }
            }
            if !whole {
                packed.truncate((group.len() * width).div_ceil(8));
            }
            if !group.is_empty() {
                out.extend(packed);
            }
            group.clear();
        };
        let mut current: Option<usize> = None;
        let mut written = 0;
        // The table as the decoder has it: one entry behind, as it learns an entry with the code after it.
        let mut known = first;
        let emit = |code: usize, width: &mut usize, out: &mut Vec<u8>, group: &mut Vec<usize>, known: usize| {
            if known == 1 << *width && *width < widest {
                flush(group, *width, true, out);
                *width += 1;
            }
            group.push(code);
            if group.len() == 8 {
                flush(group, *width, true, out);
            }
        };
        for &byte in bytes {
            let Some(code) = current else {
                current = Some(byte.into());
                continue;
            };
            if let Some(&longer) = table.get(&(code, byte)) {
                current = Some(longer);
                continue;
            }
            emit(code, &mut width, &mut out, &mut group, known);
            written += 1;
            known = size;
            if size < 1 << widest {
                table.insert((code, byte), size);
                size += 1;
            }
            if clear.is_some_and(|every| written % every == 0) {
                emit(CLEAR, &mut width, &mut out, &mut group, known);
                flush(&mut group, width, true, &mut out);
                (width, size, known) = (9, first, first);
                table.clear();
            }
            current = Some(byte.into());
        }
        if let Some(code) = current {
            emit(code, &mut width, &mut out, &mut group, known);
        }
        flush(&mut group, width, false, &mut out);
        out
    }

    fn unpack(bytes: &[u8]) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        Decoder::new(bytes).read_to_end(&mut out)?;
        Ok(out)
    }

    /// `gzip -dc` reads the same from these bytes.
    #[test]
    fn a_file_as_compress_writes_it() {
        assert_eq!(unpack(b"\x1f\x9d\x90\x61\xc4\x04\x04").unwrap(), b"abab");
        assert_eq!(unpack(b"\x1f\x9d\x90").unwrap(), b"");
    }

    #[test]
    fn long_texts_pass_every_width() {
        let mut state = 1u32;
        let text: Vec<u8> = (0..400_000)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                b"0123456789 \n"[(state >> 24) as usize % 12]
            })
            .collect();
        for (widest, clear) in [(16, None), (16, Some(100_000)), (16, Some(777)), (12, None), (9, Some(300))] {
            assert!(unpack(&pack(&text, widest, clear)).unwrap() == text, "{widest} {clear:?}");
        }
    }

    #[test]
    fn damage_is_an_error() {
        for bytes in [
            &b""[..],
            b"\x1f\x9d",
            b"\x1f\x8b\x90",
            b"\x1f\x9d\x88",         // codes of 8 bits
            b"\x1f\x9d\x91",         // of 17
            b"\x1f\x9d\x90\x01\x03", // the first code is not a byte
            b"\x1f\x9d\x90\x61\xfe\x07",
        ] {
            assert!(unpack(bytes).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_packed_comes_back(
            bytes in proptest::collection::vec(0u8..4, 0..3000), widest in 9usize..=16, every in 0usize..600,
        ) {
            let clear = (every > 0).then_some(every);
            prop_assert_eq!(unpack(&pack(&bytes, widest, clear)).unwrap(), bytes);
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400), kind in 9u8..=16) {
            let _ = unpack(&[MAGIC, &[kind | 0x80], &bytes].concat());
            let _ = unpack(&[MAGIC, &[kind], &bytes].concat());
            let _ = unpack(&bytes);
        }
    }
}
