//! Protocol buffers, as far as ONNX needs them: numbers, texts and messages within messages.

/// The fields of a message, encoded.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(pub(super) Vec<u8>);

/// How a field is encoded.
const VARINT: u64 = 0;
const BYTES: u64 = 2;
const FOUR_BYTES: u64 = 5;

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u64, kind: u64) {
        self.varint(field << 3 | kind);
    }

    /// An integer.
    pub(super) fn int(&mut self, field: u64, value: i64) {
        self.key(field, VARINT);
        self.varint(value as u64);
    }

    /// A number of 32 bits.
    pub(super) fn float(&mut self, field: u64, value: f32) {
        self.key(field, FOUR_BYTES);
        self.0.extend(value.to_le_bytes());
    }

    /// The beginning of a field of `length` bytes, which must follow.
    pub(super) fn begin(&mut self, field: u64, length: usize) {
        self.key(field, BYTES);
        self.varint(length as u64);
    }

    /// A text, or the bytes of anything else.
    pub(super) fn bytes(&mut self, field: u64, value: &[u8]) {
        self.begin(field, value.len());
        self.0.extend_from_slice(value);
    }

    /// A message.
    pub(super) fn message(&mut self, field: u64, value: &Message) {
        self.bytes(field, &value.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the format's documentation, and numbers at the limits.
    #[test]
    fn fields_are_encoded_as_documented() {
        let encoded = |write: &dyn Fn(&mut Message)| {
            let mut message = Message::default();
            write(&mut message);
            message.0
        };
        assert_eq!(encoded(&|m| m.int(1, 150)), [0x08, 0x96, 0x01]);
        assert_eq!(encoded(&|m| m.bytes(2, b"testing")), [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67]);
        let inner = Message(encoded(&|m| m.int(1, 150)));
        assert_eq!(encoded(&|m| m.message(3, &inner)), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        assert_eq!(encoded(&|m| m.int(16, 0)), [0x80, 0x01, 0x00]);
        assert_eq!(encoded(&|m| m.int(1, -1)), [[0x08].as_slice(), &[0xff; 9], &[0x01]].concat());
        assert_eq!(encoded(&|m| m.float(2, 1.0)), [0x15, 0, 0, 0x80, 0x3f]);
    }
}
