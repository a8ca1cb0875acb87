//! Sources of blocks, read on a thread of their own.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use crate::data::{Batch, KeptField, Notices, Reader};
use crate::error::{Error, Result};

/// The number of rows of a block.
pub const BLOCK_ROWS: usize = 4096;

/// A source of preprocessed rows.
///
/// It is implemented for [`Reader`], and for iterators of batches whose `x` has the width of the model's schema.
pub trait Blocks: Send {
    /// Replaces `out` by the next block, of at most `max_rows` rows if the source can choose. Returns `false` at the end.
    ///
    /// # Errors
    /// If the source cannot be read.
    fn next_block(&mut self, max_rows: usize, out: &mut Batch) -> Result<bool>;

    /// The columns that are passed through to the output, as [`Batch::kept`] has them.
    fn kept(&self) -> Vec<KeptField> {
        Vec::new()
    }

    /// Notices about the rows that were read.
    fn notices(&self) -> Notices {
        Notices::new()
    }
}

impl Blocks for Reader {
    fn next_block(&mut self, max_rows: usize, out: &mut Batch) -> Result<bool> {
        self.next(max_rows, out)
    }

    fn kept(&self) -> Vec<KeptField> {
        Reader::kept(self)
    }

    fn notices(&self) -> Notices {
        Reader::notices(self)
    }
}

impl<I: Iterator<Item = Result<Batch>> + Send> Blocks for I {
    fn next_block(&mut self, _max_rows: usize, out: &mut Batch) -> Result<bool> {
        match self.next() {
            Some(batch) => {
                *out = batch?;
                Ok(true)
            }
            None => Ok(false),
        }
    }
}

/// Calls `work` with each block of a source, in order, and returns the notices of the source. The next blocks are read on
/// another thread at the same time.
///
/// # Errors
/// The first error of the source or of `work`.
pub fn for_each<E: From<Error>>(
    mut source: impl Blocks,
    mut work: impl FnMut(&Batch) -> Result<(), E>,
) -> Result<Notices, E> {
    let (filled, blocks) = sync_channel::<Result<Batch>>(2);
    let (give_back, spare) = sync_channel::<Batch>(4);
    thread::scope(|scope| {
        let reading = scope.spawn(move || {
            loop {
                let mut batch = spare.try_recv().unwrap_or_default();
                let message = match source.next_block(BLOCK_ROWS, &mut batch) {
                    Ok(true) => Ok(batch),
                    Ok(false) => break,
                    Err(e) => Err(e),
                };
                let failed = message.is_err();
                // If nobody receives the block, the work has failed.
                if filled.send(message).is_err() || failed {
                    break;
                }
            }
            source.notices()
        });
        // `blocks` is dropped when the work fails, which ends the reading thread.
        let worked = (|blocks: Receiver<Result<Batch>>| {
            for block in blocks {
                let block = block?;
                work(&block)?;
                let _ = give_back.try_send(block);
            }
            Ok(())
        })(blocks);
        let notices = reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        worked.map(|()| notices)
    })
}
