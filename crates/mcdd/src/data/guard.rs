//! Running a library on an untrusted file.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Whether a panic of this thread is caught and becomes an error.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `run`; `None` where it panics, and the panic is not printed. What `run` works on must not be used
/// after a panic. The hook is set once and passes every other panic on to the one that was there before.
pub(crate) fn guard<T>(run: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                previous(info);
            }
        }));
    });
    let before = QUIET.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(run));
    QUIET.set(before);
    outcome.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_none() {
        assert_eq!(guard(|| 3), Some(3));
        let empty: Vec<u8> = Vec::new();
        assert_eq!(guard(|| empty[std::hint::black_box(0)]), None);
        assert_eq!(guard(|| (guard(|| panic!("inner")), 4)), Some((None::<()>, 4)));
        assert!(!QUIET.get());
    }
}
