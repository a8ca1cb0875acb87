"""A progress bar in terminals and notebooks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any


def bar(verbose: int | bool) -> Callable[[int, int, float], None] | None:
    """A function that shows how many epochs are done; None if nothing is to be shown."""
    if not verbose:
        return None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Plain()
    return _Tqdm(tqdm)


class _Plain:
    """One line on standard error that is written again and again."""

    def __init__(self) -> None:
        self.start = time.monotonic()

    def __call__(self, done: int, total: int, loss: float) -> None:
        left = (time.monotonic() - self.start) / done * (total - done)
        end = "\n" if done == total else ""
        print(f"\r{done} of {total} epochs, loss {loss:.4f}, {left:.0f} s left   ", end=end, file=sys.stderr, flush=True)


class _Tqdm:
    def __init__(self, tqdm: Any) -> None:
        self.tqdm = tqdm
        self.bar: Any = None

    def __call__(self, done: int, total: int, loss: float) -> None:
        if self.bar is None:
            self.bar = self.tqdm(total=total, unit="epoch")
        self.bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
        self.bar.update(done - self.bar.n)
        if done == total:
            self.bar.close()
