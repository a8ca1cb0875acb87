"""Scoring with Dask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _arrow

__all__ = ["score"]


def score(df: Any, model: Any, columns: Sequence[str] | None = None, *, tpr: float | None = None) -> Any:
    """A Dask data frame with the columns `prediction`, `known`, `confidence` and `p_value`.

    Parameters
    ----------
    df : dask.dataframe.DataFrame
        Rows with the columns that the model was trained on.
    model : McddClassifier, path-like or bytes
        A trained classifier, or a model file.
    columns : list of str, default=None
        The columns of the frame to keep; None for all of them.
    tpr : float, default=None
        The fraction of known rows to keep; None for that of the classifier or of the file.

    Returns
    -------
    dask.dataframe.DataFrame
    """
    _arrow.check_names(list(df.columns if columns is None else columns))
    data, tpr = _arrow.model_bytes(model), _arrow.rate(model, tpr)

    def part(frame: Any) -> Any:
        import pyarrow

        scored = _arrow.score(pyarrow.Table.from_pandas(frame, preserve_index=False), data, [], tpr, 1)
        kept = frame if columns is None else frame[list(columns)]
        return kept.assign(**{name: scored.column(name).to_pandas().to_numpy() for name in _arrow.ADDED})

    kinds = {"prediction": object, "known": bool, "confidence": float, "p_value": float}
    kept = df._meta if columns is None else df._meta[list(columns)]
    meta = kept.assign(**{name: [] for name in kinds}).astype(kinds)
    return df.map_partitions(part, meta=meta)
