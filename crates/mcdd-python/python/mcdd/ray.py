"""Scoring with Ray Data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _arrow

__all__ = ["Scorer"]


class Scorer:
    """A callable for ``Dataset.map_batches``, which adds `prediction`, `known`, `confidence` and `p_value`.

    Parameters
    ----------
    model : McddClassifier, path-like or bytes
        A trained classifier, or a model file.
    columns : list of str, default=None
        The columns to keep; None for all of them.
    tpr : float, default=None
        The fraction of known rows to keep; None for that of the model.
    n_jobs : int, default=1
        The number of threads of each actor.

    Notes
    -----
    Call it with actors and Arrow batches, so that each actor loads the model once::

        ds.map_batches(
            Scorer, fn_constructor_args=(model,), concurrency=2, batch_format="pyarrow"
        )
    """

    def __init__(
        self, model: Any, columns: Sequence[str] | None = None, *, tpr: float | None = None, n_jobs: int = 1
    ) -> None:
        self.data = _arrow.model_bytes(model)
        self.columns, self.tpr, self.n_jobs = columns, _arrow.rate(model, tpr), n_jobs

    def __call__(self, batch: Any) -> Any:
        kept = batch.schema.names if self.columns is None else self.columns
        _arrow.check_names(kept)
        return _arrow.score(batch, self.data, self.columns, self.tpr, self.n_jobs)
