"""The methods and detectors by name."""

from __future__ import annotations

from . import _mcdd


def methods() -> dict[str, str]:
    """Methods to train a network with, and what each does.

    Returns
    -------
    summaries : dict of str to str
        A sentence for each name.

    Examples
    --------
    >>> import mcdd
    >>> sorted(mcdd.methods())[:3]
    ['alad', 'deep-mcdd', 'deep-ncm']
    """
    return {name: summary for name, summary, _ in _mcdd.methods()}


def detectors() -> dict[str, str]:
    """Detectors that score features or logits, and what each does.

    Returns
    -------
    summaries : dict of str to str
        A sentence for each name.

    Examples
    --------
    >>> import mcdd
    >>> "mahalanobis" in mcdd.detectors()
    True
    """
    return {name: summary for name, summary, _ in _mcdd.detectors()}
