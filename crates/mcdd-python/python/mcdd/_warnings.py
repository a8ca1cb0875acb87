"""Warnings about data and models."""

from __future__ import annotations

import warnings
from collections.abc import Iterable


class McddWarning(UserWarning):
    """Something about the data or the model that is worth a look."""


def warn(messages: Iterable[str]) -> None:
    """Issues a warning for each message, at the caller of the estimator's method."""
    for message in messages:
        warnings.warn(message, McddWarning, stacklevel=3)
