//! Text in Windows-1252 and UTF-16, as UTF-8.
//!
//! A text is UTF-16 if it begins with a byte-order mark, or if every second byte of its start is zero as in no other
//! text. Else it is ASCII up to its first other character, and what follows decides: more UTF-8 characters than bytes
//! that are no UTF-8, or Windows-1252. ASCII is the same in both, so that nothing is read twice.

use std::io::Read;
use std::sync::{Arc, OnceLock};

/// How many bytes decide between UTF-8 and Windows-1252, and are decoded at a time.
const CHUNK: usize = 1 << 16;

/// The encoding of a text that is not UTF-8, once it is known.
pub(crate) type Foreign = Arc<OnceLock<&'static str>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Nothing but ASCII so far.
    Ascii,
    /// As it is; what is not valid is an error of the cell that holds it.
    Utf8,
    Windows1252,
    Utf16 {
        big: bool,
    },
}

/// Reads a text as UTF-8.
pub(crate) struct Decoder {
    input: Box<dyn Read + Send>,
    mode: Mode,
    foreign: Foreign,
    /// Bytes that are read and not decoded.
    raw: Vec<u8>,
    ended: bool,
    /// What is decoded, and how much of it was handed out.
    out: Vec<u8>,
    at: usize,
}

impl Decoder {
    /// `start` is the beginning of what `input` reads.
    pub(super) fn new(input: Box<dyn Read + Send>, start: &[u8]) -> Decoder {
        let foreign = Foreign::default();
        let mode = match utf16(start) {
            Some(big) => {
                let _ = foreign.set(if big { "UTF-16 (big-endian)" } else { "UTF-16 (little-endian)" });
                Mode::Utf16 { big }
            }
            None => Mode::Ascii,
        };
        Decoder { input, mode, foreign, raw: Vec::new(), ended: false, out: Vec::new(), at: 0 }
    }

    /// Where the encoding will be, if it is not UTF-8.
    pub(super) fn foreign(&self) -> Foreign {
        Arc::clone(&self.foreign)
    }

    /// Reads on until there are [`CHUNK`] bytes to decode, or the input ends.
    fn fill(&mut self) -> std::io::Result<()> {
        let missing = CHUNK.saturating_sub(self.raw.len()) as u64;
        self.input.by_ref().take(missing).read_to_end(&mut self.raw)?;
        self.ended = self.raw.len() < CHUNK;
        Ok(())
    }

    fn decode(&mut self) {
        match self.mode {
            Mode::Ascii | Mode::Utf8 => std::mem::swap(&mut self.out, &mut self.raw),
            Mode::Windows1252 => {
                for &byte in &self.raw {
                    match byte {
                        0x00..0x80 => self.out.push(byte),
                        _ => push(&mut self.out, windows_1252(byte)),
                    }
                }
                self.raw.clear();
            }
            Mode::Utf16 { big } => self.decode_utf16(big),
        }
    }

    fn decode_utf16(&mut self, big: bool) {
        let unit = |pair: &[u8; 2]| if big { u16::from_be_bytes(*pair) } else { u16::from_le_bytes(*pair) };
        let (pairs, _) = self.raw.as_chunks::<2>();
        // The second half of a character may be still to come.
        let half = !self.ended && pairs.last().is_some_and(|pair| (0xd800..0xdc00).contains(&unit(pair)));
        let pairs = &pairs[..pairs.len() - usize::from(half)];
        for c in char::decode_utf16(pairs.iter().map(unit)) {
            push(&mut self.out, c.unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        let used = 2 * pairs.len();
        self.raw.drain(..used);
        if self.ended && !self.raw.is_empty() {
            self.raw.clear();
            push(&mut self.out, char::REPLACEMENT_CHARACTER);
        }
    }
}

impl Read for Decoder {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        loop {
            if self.at < self.out.len() {
                let count = (&self.out[self.at..]).read(to)?;
                self.at += count;
                return Ok(count);
            }
            self.out.clear();
            self.at = 0;
            match self.mode {
                Mode::Utf8 => return self.input.read(to),
                Mode::Ascii => {
                    let count = self.input.read(to)?;
                    let read = &to[..count];
                    let Some(at) = (!read.is_ascii()).then(|| read.iter().position(|b| !b.is_ascii())).flatten() else {
                        return Ok(count);
                    };
                    self.raw.extend_from_slice(&read[at..]);
                    self.fill()?;
                    self.mode = decide(&self.raw, self.ended);
                    if self.mode == Mode::Windows1252 {
                        let _ = self.foreign.set("Windows-1252");
                    }
                    self.decode();
                    if at > 0 {
                        return Ok(at);
                    }
                }
                Mode::Windows1252 | Mode::Utf16 { .. } => {
                    self.fill()?;
                    if self.raw.is_empty() {
                        return Ok(0);
                    }
                    self.decode();
                }
            }
        }
    }
}

/// Whether a text with other characters than ASCII is UTF-8 or Windows-1252.
fn decide(raw: &[u8], ended: bool) -> Mode {
    let (mut right, mut wrong, mut seen) = (0, 0, 0);
    for chunk in raw.utf8_chunks() {
        right += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
        seen += chunk.valid().len() + chunk.invalid().len();
        // A character that the chunk cuts is not wrong.
        let cut = seen == raw.len() && !ended;
        wrong += usize::from(!chunk.invalid().is_empty() && !cut);
    }
    if wrong > right { Mode::Windows1252 } else { Mode::Utf8 }
}

/// Whether a text begins with the mark of UTF-32, which begins with that of UTF-16 where the low byte is first.
pub(super) fn utf32(start: &[u8]) -> bool {
    // As UTF-16 the second would begin with a NUL, which no text does.
    start.starts_with(&[0, 0, 0xfe, 0xff]) || start.starts_with(&[0xff, 0xfe, 0, 0])
}

/// Whether a text is UTF-16, and of these the one with the high byte first.
pub(super) fn utf16(start: &[u8]) -> Option<bool> {
    match start {
        [0xff, 0xfe, ..] => return Some(false),
        [0xfe, 0xff, ..] => return Some(true),
        _ => {}
    }
    let (pairs, _) = start.as_chunks::<2>();
    let like = |big: bool| {
        let (mut ascii, mut newlines) = (0, 0);
        for &[a, b] in pairs {
            let (high, low) = if big { (a, b) } else { (b, a) };
            match (high, low) {
                (0, b'\n' | b'\r') => newlines += 1,
                (0, b'\t' | b' '..=b'~') => ascii += 1,
                (0, 0x00..0xa0) => return false,
                _ => {}
            }
        }
        newlines > 0 && (ascii + newlines) * 4 > pairs.len() * 3
    };
    [false, true].into_iter().find(|&big| like(big))
}

fn push(out: &mut Vec<u8>, c: char) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

/// As the WHATWG's encoding standard has it: five bytes without a character are control characters.
fn windows_1252(byte: u8) -> char {
    const FROM_0X80: [char; 32] = [
        '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž', '\u{8f}', '\u{90}', '‘',
        '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}', 'ž', 'Ÿ',
    ];
    FROM_0X80.get(usize::from(byte).wrapping_sub(0x80)).copied().unwrap_or(char::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// Hands out a few bytes at a time.
    struct Slow(Cursor<Vec<u8>>, usize);

    impl Read for Slow {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            let most = to.len().min(self.1);
            self.0.read(&mut to[..most])
        }
    }

    fn decoded(bytes: &[u8]) -> (String, Option<&'static str>) {
        let mut all = Vec::new();
        for step in [1, 3, 1 << 20] {
            let input = Slow(Cursor::new(bytes.to_vec()), step);
            let mut decoder = Decoder::new(Box::new(input), bytes);
            let (mut out, foreign) = (Vec::new(), decoder.foreign());
            decoder.read_to_end(&mut out).unwrap();
            all.push((String::from_utf8_lossy(&out).into_owned(), foreign.get().copied()));
        }
        assert!(all.iter().all(|a| *a == all[0]), "reading in other steps gives another text");
        all.remove(0)
    }

    fn as_utf16(text: &str, big: bool) -> Vec<u8> {
        text.encode_utf16().flat_map(|u| if big { u.to_be_bytes() } else { u.to_le_bytes() }).collect()
    }

    #[test]
    fn utf_8_stays_as_it_is() {
        let long = "x,é\n".repeat(40_000);
        for text in ["", "a,b\n1,2\n", "na\u{ef}ve,😀\n", long.as_str()] {
            assert_eq!(decoded(text.as_bytes()), (text.to_owned(), None));
        }
        // One bad byte among good characters is a mistake, not another encoding.
        let (text, foreign) = decoded(b"\xc3\xa9,\xc3\xa8,\xff\n");
        assert_eq!((text.as_str(), foreign), ("é,è,\u{fffd}\n", None));
    }

    #[test]
    fn windows_1252_is_found_wherever_it_begins() {
        assert_eq!(decoded(b"caf\xe9,\x80 5\x96\x81\n"), ("café,€ 5–\u{81}\n".into(), Some("Windows-1252")));
        let mut late = b"x,1\n".repeat(100_000);
        late.extend(b"\xfcber,2\n".repeat(50_000));
        let (text, foreign) = decoded(&late);
        assert_eq!(foreign, Some("Windows-1252"));
        assert!(text.len() == late.len() + 50_000 && text.ends_with("über,2\n"));
        // A capital letter before a quotation mark is UTF-8 by chance.
        assert_eq!(decoded(b"\xe9t\xe9;\xc9\x94;\xe0\n"), ("été;É”;à\n".into(), Some("Windows-1252")));
    }

    #[test]
    fn utf_16_with_and_without_a_mark() {
        let text = "name,größe\n😀 x,1\n".repeat(9000);
        for (big, name) in [(false, "UTF-16 (little-endian)"), (true, "UTF-16 (big-endian)")] {
            assert_eq!(decoded(&as_utf16(&text, big)), (text.clone(), Some(name)));
            let marked = format!("\u{feff}{text}");
            assert_eq!(decoded(&as_utf16(&marked, big)), (marked, Some(name)));
        }
        let mut cut = as_utf16("\u{feff}a,😀", false);
        cut.pop();
        assert_eq!(decoded(&cut).0, "\u{feff}a,\u{fffd}\u{fffd}");
        for other in [&b""[..], b"a,b\n", b"\0\0\x08\x01", b"a\0b\0", b"a\0\0\0\n\0", b"\x01\0\n\0\n\0"] {
            assert_eq!(utf16(other), None, "{other:?}");
        }
    }

    #[test]
    fn the_table_of_windows_1252() {
        assert_eq!(windows_1252(0x80), '€');
        assert_eq!(windows_1252(0x9f), 'Ÿ');
        assert_eq!(windows_1252(0xa0), '\u{a0}');
        assert_eq!(windows_1252(0xff), 'ÿ');
    }
}
