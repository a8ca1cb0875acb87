"""Scoring of Arrow batches, as workers of Spark, Ray and Dask do it."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

from . import _mcdd

# The columns that scoring adds, and their types in Arrow.
ADDED = {"prediction": "string", "known": "bool", "confidence": "double", "p_value": "double"}


def model_bytes(model: Any) -> bytes:
    """The bytes of a model: of a trained classifier, of a file, or as they are."""
    if isinstance(model, bytes):
        return model
    if isinstance(model, str | os.PathLike):
        with open(model, "rb") as file:
            return file.read()
    if isinstance(model, _mcdd.Model):
        return model.to_bytes()
    found: bytes = model.model_.to_bytes()
    return found


def rate(model: Any, tpr: float | None) -> float | None:
    """The fraction of known rows to keep: what is given, or that of a classifier; None for that of the file."""
    return getattr(model, "tpr", None) if tpr is None else tpr


@functools.lru_cache(maxsize=4)
def load(data: bytes) -> _mcdd.Model:
    """The model in these bytes, loaded once by each worker."""
    return _mcdd.Model.from_bytes(data)


def check_names(names: Sequence[str]) -> None:
    """Scoring adds columns, which must not be there already."""
    taken = [name for name in ADDED if name in names]
    if taken:
        raise ValueError(f"the frame has columns that scoring adds: {', '.join(taken)} (rename or drop them)")


def align_times(table: Any, model: _mcdd.Model) -> Any:
    """Timestamps with and without a time zone as the model was trained on them.

    Spark gives its timestamps the zone of the session, pandas and files often none. A time without a zone is that of the clock in
    the zone of the column; a zone that is missing is UTC.
    """
    import pyarrow
    import pyarrow.compute

    for name, zoned in model.time_zones:
        at = table.schema.get_field_index(name)
        kind = table.schema.field(at).type if at >= 0 else None
        if kind is None or not pyarrow.types.is_timestamp(kind) or zoned == (kind.tz is not None):
            continue
        column = table.column(at)
        compute: Any = pyarrow.compute
        changed = compute.assume_timezone(column, "UTC") if zoned else compute.local_timestamp(column)
        table = table.set_column(at, name, changed)
    return table


def score(batch: Any, data: bytes, columns: Sequence[str] | None, tpr: float | None, threads: int | None) -> Any:
    """A batch or table of pyarrow with the columns that are kept and those that scoring adds."""
    import pyarrow

    model = load(data)
    kept = batch if columns is None else batch.select(list(columns))
    arrays = list(kept.columns)
    names = list(kept.schema.names)
    if batch.num_rows == 0:
        added = [pyarrow.array([], kind) for kind in ADDED.values()]
    else:
        table = pyarrow.Table.from_batches([batch]) if isinstance(batch, pyarrow.RecordBatch) else batch
        found = model.predict(align_times(table, model), threads)
        known = model.known(found["confidence"], tpr)
        if found["class"] is None:
            prediction = pyarrow.nulls(batch.num_rows, pyarrow.string())
        else:
            labels = pyarrow.array(model.classes, pyarrow.string())
            prediction = labels.take(pyarrow.array(found["class"]))
        added = [prediction, pyarrow.array(known), pyarrow.array(found["confidence"]), pyarrow.array(found["p_value"])]
    return type(batch).from_arrays([*arrays, *added], names=[*names, *ADDED])
