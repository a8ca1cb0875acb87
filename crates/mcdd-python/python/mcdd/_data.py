"""Arrays and data frames as the tables of the library."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _mcdd

Array = npt.NDArray[Any]


def is_frame(x: Any) -> bool:
    """Whether it is a data frame of pandas, polars or Arrow, with columns that have names."""
    if type(x).__name__ == "LazyFrame":
        raise TypeError("a LazyFrame has no rows yet: give X.collect()")
    return hasattr(x, "__arrow_c_stream__") or _is_pandas(x)


def _is_pandas(x: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(x, pandas.DataFrame)


def frame_names(x: Any) -> list[Any]:
    """The names of the columns of a frame."""
    return list(x.column_names if hasattr(x, "column_names") else x.columns)


def frame(x: Any, categorical: Sequence[str] = (), keep: Sequence[str] = ()) -> Any:
    """A frame in a form that the library reads: one with `__arrow_c_stream__`, or a table.

    How a column is read depends on its type alone, never on the other rows of a batch.
    """
    named = has_names(x)
    if not named:
        # As scikit-learn has it, columns have names if all of them are strings; else they are matched by position.
        x = x.set_axis([str(i + 1) for i in range(x.shape[1])], axis=1)
    polars = sys.modules.get("polars")
    if polars is not None and isinstance(x, polars.DataFrame):
        # A column of nulls without a type.
        return x.with_columns(polars.col(polars.Null).cast(polars.String))
    if not _is_pandas(x):
        return x
    try:
        import pyarrow
    except ImportError:
        return _from_pandas(x, named, categorical, keep)
    objects = [at for at, kind in enumerate(x.dtypes) if kind == object]
    if objects:
        x = x.copy(deep=False)
        for at in objects:
            x.isetitem(at, pyarrow_texts(x.iloc[:, at]))
    return pyarrow.Table.from_pandas(x, preserve_index=False)


def pyarrow_texts(series: Any) -> Any:
    """A column of objects as texts, in a type that Arrow knows as such."""
    import pandas

    return pandas.Series(texts(series), index=series.index, dtype="string")


def text(value: Any) -> str:
    """A value as a text file would have it."""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    return str(value.isoformat() if hasattr(value, "isoformat") else value)


def texts(values: Any) -> list[str | None]:
    """Values of any types as texts; None where one is missing."""
    pandas = sys.modules.get("pandas")

    def missing(value: Any) -> bool:
        if value is None or isinstance(value, float) and value != value:
            return True
        return pandas is not None and pandas.api.types.is_scalar(value) and bool(pandas.isna(value))

    return [None if missing(value) else text(value) for value in values]


def has_names(x: Any) -> bool:
    """Whether all columns of a frame have names."""
    return all(isinstance(name, str) for name in frame_names(x))


def table(x: Any, categorical: Sequence[str] = (), keep: Sequence[str] = ()) -> _mcdd.Table:
    """A table from a frame."""
    found = frame(x, categorical, keep)
    if isinstance(found, _mcdd.Table):
        return found
    return _mcdd.Table.from_arrow(found, has_names(x), list(categorical), list(keep))


def _from_pandas(frame: Any, named: bool, categorical: Sequence[str], keep: Sequence[str]) -> _mcdd.Table:
    columns = []
    for name, series in frame.items():
        kind = str(series.dtype)
        columns.append((name, _values(series), name in categorical or kind == "category"))
    return _mcdd.Table.from_columns(columns, named, list(keep))


def _values(series: Any) -> Any:
    """The values of a column of pandas: an array of numbers, or a list of strings and None."""
    if series.dtype.kind in "iufb":
        values = series.to_numpy(dtype=np.float64, na_value=np.nan) if series.isna().any() else series.to_numpy()
        return numbers(values)
    return texts(series.tolist())


def numbers(values: Array) -> Array:
    """One-dimensional numbers in a type that the library reads."""
    kind, size = values.dtype.kind, values.dtype.itemsize
    if kind == "f":
        return np.ascontiguousarray(values, dtype=np.float32 if size <= 4 else np.float64)
    wide = {"i": np.int64, "u": np.uint64, "b": np.bool_}[kind]
    return np.ascontiguousarray(values, dtype=wide)


def matrix(x: Array) -> Array | None:
    """A two-dimensional array as float32 or float64 in C order, which copies only what is not; None if it is text.

    Raises
    ------
    TypeError
        If a value is neither a number nor a text.
    """
    if x.dtype.kind in "mM":
        raise TypeError(f"an array of {x.dtype} cannot be used: give dates and times in a data frame")
    if np.ma.isMaskedArray(x):
        x = np.ma.filled(x.astype(np.float64), np.nan)
    single = x.dtype.kind == "f" and x.dtype.itemsize <= 4
    try:
        return np.require(x, np.float32 if single else np.float64, ["C", "A"])
    except ValueError:
        return None


def text_table(
    x: Array, names: Sequence[str] | None, categorical: Sequence[str] = (), keep: Sequence[str] = ()
) -> _mcdd.Table:
    """A table from a two-dimensional array of objects or strings, or of numbers of which some are categories."""
    columns = []
    for i in range(x.shape[1]):
        name = names[i] if names is not None else str(i + 1)
        values: Any = numbers(x[:, i]) if x.dtype.kind in "iufb" else texts(x[:, i].tolist())
        columns.append((name, values, name in categorical))
    return _mcdd.Table.from_columns(columns, names is not None, list(keep))


def class_names(classes: Array) -> list[str]:
    """The classes as the texts of the model file."""
    if classes.dtype.kind == "f":
        return [str(int(c)) if float(c).is_integer() else str(c) for c in classes.tolist()]
    return [str(c) for c in classes.tolist()]


def classes_from_names(names: Sequence[str]) -> Array:
    """The classes of a model file: integers if all names are integers in their usual form, else strings."""
    try:
        values = [int(name) for name in names]
    except ValueError:
        return np.array(names, dtype=str)
    if all(str(value) == name for value, name in zip(values, names, strict=True)):
        return np.array(values)
    return np.array(names, dtype=str)


def threads(n_jobs: int | None) -> int | None:
    """The number of threads for scikit-learn's `n_jobs`; None for all cores."""
    if n_jobs is None or n_jobs == -1:
        return None
    from joblib import effective_n_jobs

    return int(effective_n_jobs(n_jobs))


def backbone(
    path: Any, layer: Any, embed: bool, mean: Any = None, std: Any = None, channel_order: Any = None
) -> tuple[str, list[str], list[float] | None, list[float] | None, bool | None, bool] | None:
    """What the library takes for a frozen network; None without one."""
    if path is None:
        for name, value in {"layer": layer, "mean": mean, "std": std, "channel_order": channel_order}.items():
            if value is not None:
                raise _mcdd.SettingError(f"{name}= is for a backbone (give backbone= as well, or leave out {name}=)")
        return None
    if channel_order not in (None, "rgb", "bgr"):
        raise _mcdd.SettingError(f'channel_order= is {channel_order!r} (give "rgb" or "bgr")')
    layers = [] if layer is None else [layer] if isinstance(layer, str) else list(layer)
    numbers = [None if values is None else [float(v) for v in values] for values in (mean, std)]
    order = None if channel_order is None else channel_order == "bgr"
    return os.fspath(path), layers, numbers[0], numbers[1], order, bool(embed)
