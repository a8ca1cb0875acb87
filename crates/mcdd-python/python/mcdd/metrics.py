"""Metrics of how well a confidence separates known from unknown rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _mcdd

__all__ = ["Detection", "Metric", "detection"]


@dataclass(frozen=True)
class Metric:
    """A metric and its 95% confidence interval.

    Attributes
    ----------
    name : str
        Such as "AUROC".
    positive : {"ID", "OOD"}
        The positive class: in-distribution (known) or out-of-distribution (unknown) rows.
    value : float
        Between 0 and 1.
    low, high : float or None
        The ends of the interval; None without bootstrap replicates.
    """

    name: str
    positive: str
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Detection:
    """All metrics of detection. Equal scores share one threshold, so the order of rows does not matter."""

    auroc: Metric
    aupr_id: Metric
    aupr_ood: Metric
    tnr85: Metric
    tnr95: Metric
    fpr95_id: Metric
    fpr95_ood: Metric
    detection_accuracy: Metric
    tie_fraction: float

    def __str__(self) -> str:
        lines = []
        for metric in self.__dict__.values():
            if isinstance(metric, Metric):
                interval = "" if metric.low is None else f"  [{metric.low:.4f}, {metric.high:.4f}]"
                lines.append(f"{metric.name:<20} (positive: {metric.positive:<3})  {metric.value:.4f}{interval}")
        return "\n".join(lines)


def detection(known: Any, unknown: Any, *, n_bootstrap: int = 1000, random_state: int = 0) -> Detection:
    """Metrics of the scores of known and of unknown rows; a higher score is more normal.

    Parameters
    ----------
    known : array-like of shape (n_known,)
        Scores of in-distribution rows, for example of `McddClassifier.score_samples`.
    unknown : array-like of shape (n_unknown,)
        Scores of out-of-distribution rows.
    n_bootstrap : int, default=1000
        Bootstrap replicates for the intervals; 0 for none.
    random_state : int, default=0
        The seed of the replicates.

    Returns
    -------
    Detection

    Examples
    --------
    >>> from mcdd import metrics
    >>> found = metrics.detection([0.9, 0.8, 0.8, 0.4], [0.8, 0.3, 0.1, 0.1], n_bootstrap=0)
    >>> found.auroc.value
    0.875
    """
    for name, count in (("n_bootstrap", n_bootstrap), ("random_state", random_state)):
        if count < 0:
            raise _mcdd.SettingError(f"{name}= is {count} (give a whole number that is not negative)")
    rows, ties = _mcdd.detection(_scores(known, "known"), _scores(unknown, "unknown"), n_bootstrap, random_state)
    found = {key: Metric(name, positive, value, low, high) for key, name, positive, value, low, high in rows}
    return Detection(**found, tie_fraction=ties)


def _scores(values: Any, name: str) -> npt.NDArray[np.float64]:
    scores = np.ascontiguousarray(values, dtype=np.float64)
    if scores.ndim != 1 or np.ndim(values) != 1:
        raise _mcdd.DataError(f"{name} has the shape {np.shape(values)} (give one score a row)")
    return scores
