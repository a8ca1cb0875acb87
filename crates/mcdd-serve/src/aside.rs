//! Threads for work that takes long: large bodies are read as rows there, and large answers are written. They are few, so that
//! they do not take the time of the predictions.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use tokio::sync::oneshot;

use crate::failure::{Answer, Failure};

type Work = Box<dyn FnOnce() + Send>;

/// The fewest threads, so that a few very large requests leave others room.
const FEWEST: usize = 4;

/// Makes the threads if there are none.
pub(crate) fn start() -> &'static Sender<Work> {
    static WORK: OnceLock<Sender<Work>> = OnceLock::new();
    WORK.get_or_init(|| {
        let (sender, work) = mpsc::channel();
        let work = Arc::new(Mutex::new(work));
        for _ in 0..thread::available_parallelism().map_or(1, usize::from).max(FEWEST) {
            let work = Arc::clone(&work);
            // If the system refuses threads, fewer do the same work.
            let _ = thread::Builder::new().name("aside".into()).spawn(move || each(&work));
        }
        sender
    })
}

fn each(work: &Mutex<Receiver<Work>>) {
    loop {
        let next = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(next) = next else { return };
        // Who waits for it sees that there is no answer.
        let _ = catch_unwind(AssertUnwindSafe(next));
    }
}

/// Runs work that takes long on another thread, and other work at once.
pub(crate) async fn aside<T: Send + 'static>(
    long: bool,
    work: impl FnOnce() -> Answer<T> + Send + 'static,
) -> Answer<T> {
    if !long {
        return work();
    }
    let (reply, answer) = oneshot::channel();
    let work: Work = Box::new(move || drop(reply.send(work())));
    if let Err(mpsc::SendError(work)) = start().send(work) {
        // There is no thread.
        work();
    }
    answer.await.map_err(|_| Failure::internal())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;
    use tokio::runtime::Builder;

    #[test]
    fn a_panic_is_a_failure_and_the_next_work_is_done() {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for _ in 0..20 {
                let failed: Answer<()> = aside(true, || panic!("a test")).await;
                assert_eq!(failed.unwrap_err().status, StatusCode::INTERNAL_SERVER_ERROR);
                assert_eq!(aside(true, || Ok(7)).await.unwrap(), 7);
            }
        });
    }
}
