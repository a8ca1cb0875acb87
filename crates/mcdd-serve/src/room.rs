//! Memory for requests under way. Bodies, rows and answers are counted before they are made, so that all requests
//! together stay below one limit, also those whose answers are not fetched.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::failure::{Answer, Failure};

/// The memory for all requests, in kilobytes.
#[derive(Clone)]
pub(crate) struct Memory {
    left: Arc<Semaphore>,
    whole: u32,
}

/// The memory of a request. It is given back at the end.
pub(crate) struct Room {
    memory: Memory,
    taken: OwnedSemaphorePermit,
}

fn kilobytes(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

impl Memory {
    pub(crate) fn new(bytes: usize) -> Memory {
        let whole = kilobytes(bytes).max(1);
        Memory { left: Arc::new(Semaphore::new(whole as usize)), whole }
    }

    fn take(&self, size: u32) -> Answer<OwnedSemaphorePermit> {
        Arc::clone(&self.left).try_acquire_many_owned(size).map_err(|_| Failure::busy())
    }

    /// A kilobyte.
    pub(crate) fn room(&self) -> Answer<Room> {
        Ok(Room { memory: self.clone(), taken: self.take(1)? })
    }
}

impl Room {
    fn more(&mut self, kilobytes: u32) -> Answer<()> {
        let whole = self.memory.whole;
        if self.taken.num_permits() as u64 + u64::from(kilobytes) > u64::from(whole) {
            return Err(Failure::too_large(format!(
                "the request needs more than {} MB of memory; send its rows in several requests",
                whole / 1024
            )));
        }
        if kilobytes > 0 {
            self.taken.merge(self.memory.take(kilobytes)?);
        }
        Ok(())
    }

    /// Takes memory until it is at least so much.
    pub(crate) fn reach(&mut self, bytes: usize) -> Answer<()> {
        self.more(kilobytes(bytes).saturating_sub(self.taken.num_permits() as u32))
    }

    /// Takes so much more.
    pub(crate) fn take(&mut self, bytes: usize) -> Answer<()> {
        self.more(kilobytes(bytes))
    }

    /// Takes memory for predictions and the text that is made of them.
    pub(crate) fn take_for_answer(&mut self, rows: usize, classes: usize) -> Answer<()> {
        // A row has a verdict in about 100 bytes; for each class probability and distance, and perhaps the former as text.
        let small = rows * (classes + 3) <= 16;
        if small { Ok(()) } else { self.take(rows.saturating_mul(100 + 40 * classes)) }
    }

    /// An answer that keeps this memory until it is sent.
    pub(crate) fn hold(self, bytes: Vec<u8>) -> Body {
        Body::from(Bytes::from_owner(Held { bytes, _room: self }))
    }
}

/// Bytes of an answer, and the memory of its request.
struct Held {
    bytes: Vec<u8>,
    _room: Room,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_taken_and_given_back() {
        let memory = Memory::new(10_240);
        let mut a = memory.room().unwrap();
        a.reach(5000).unwrap();
        a.reach(4000).unwrap();
        assert_eq!(memory.left.available_permits(), 5);
        let mut b = memory.room().unwrap();
        assert_eq!(b.take(5000).unwrap_err().status, 503);
        assert_eq!(b.take(11_000).unwrap_err().status, 413);
        assert_eq!(b.take(usize::MAX).unwrap_err().status, 413);
        b.take(4000).unwrap();
        assert_eq!(memory.room().err().unwrap().status, 503);
        let body = a.hold(vec![1; 10]);
        assert_eq!(memory.left.available_permits(), 0);
        drop(body);
        drop(b);
        assert_eq!(memory.left.available_permits(), 10);
        // Small answers are within the first kilobyte.
        let mut c = memory.room().unwrap();
        c.take_for_answer(1, 3).unwrap();
        assert_eq!(memory.left.available_permits(), 9);
    }
}
