"""A progress bar in terminals and notebooks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any


def bar(verbose: int | bool, unit: str = "epoch", number: str = "loss") -> Callable[[int, int, float], None] | None:
    """A function that shows how many parts are done, and a number about the last one; None if nothing is to be shown."""
    if not verbose:
        return None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Plain(unit, number)
    return _Tqdm(tqdm, unit, number)


def close(shown: Callable[[int, int, float], None] | None) -> None:
    """Ends a bar, also before its end."""
    if isinstance(shown, _Tqdm) and shown.bar is not None:
        shown.bar.close()


class _Plain:
    """One line on standard error that is written again and again."""

    def __init__(self, unit: str, number: str) -> None:
        self.unit, self.number, self.start = unit, number, time.monotonic()

    def __call__(self, done: int, total: int, value: float) -> None:
        left = (time.monotonic() - self.start) / done * (total - done)
        text = f"\r{done} of {total} {self.unit}s, {self.number} {value:.4f}, {left:.0f} s left   "
        print(text, end="\n" if done == total else "", file=sys.stderr, flush=True)


class _Tqdm:
    def __init__(self, tqdm: Any, unit: str, number: str) -> None:
        self.tqdm, self.unit, self.number = tqdm, unit, number
        self.bar: Any = None

    def __call__(self, done: int, total: int, value: float) -> None:
        if self.bar is None:
            self.bar = self.tqdm(total=total, unit=self.unit)
        self.bar.set_postfix({self.number: f"{value:.4f}"}, refresh=False)
        self.bar.update(done - self.bar.n)
