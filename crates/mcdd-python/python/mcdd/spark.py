"""Scoring and training with Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from . import _arrow

__all__ = ["fit", "score"]


def score(df: Any, model: Any, columns: Sequence[str] | None = None, *, tpr: float | None = None) -> Any:
    """A data frame with the columns `prediction`, `known`, `confidence` and `p_value`, scored by the workers.

    Data go from Spark to the library as Arrow batches, without pandas. The model is sent to each worker once. Results are
    those of scoring on one machine, to the bit.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        Rows with the columns that the model was trained on.
    model : McddClassifier, path-like or bytes
        A trained classifier, or a model file.
    columns : list of str, default=None
        The columns of the frame to keep; None for all of them.
    tpr : float, default=None
        The fraction of known rows to keep; None for that of the classifier or of the file.

    Returns
    -------
    pyspark.sql.DataFrame
        `prediction` is the most probable class as a string, whether the row is known or not.
    """
    from pyspark.sql import types

    kept = list(df.columns if columns is None else columns)
    _arrow.check_names(kept)
    tpr = _arrow.rate(model, tpr)
    content = _arrow.model_bytes(model)
    try:
        data = df.sparkSession.sparkContext.broadcast(content)
    except Exception:
        # Spark Connect has no context: the bytes go with the function.
        data = _Sent(content)
    schema = types.StructType([df.schema[name] for name in kept])
    schema = schema.add("prediction", types.StringType()).add("known", types.BooleanType())
    schema = schema.add("confidence", types.DoubleType()).add("p_value", types.DoubleType())

    def part(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            # One thread for each task: Spark has as many tasks as cores.
            yield _arrow.score(batch, data.value, kept, tpr, 1)

    return df.mapInArrow(part, schema)


class _Sent:
    """Bytes that are sent with each task."""

    def __init__(self, value: bytes) -> None:
        self.value = value


def fit(df: Any, label: str, *, rows: int = 100_000, classifier: Any = None, seed: int = 0) -> Any:
    """Train on a sample that is drawn on the cluster: classes in proportion, small ones whole.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        Rows with their classes.
    label : str
        The column of the classes.
    rows : int, default=100_000
        The number of rows to train on, approximately.
    classifier : McddClassifier, default=None
        The classifier to train; None for ``McddClassifier()``.
    seed : int, default=0
        The seed of the sample.

    Returns
    -------
    McddClassifier
        The trained classifier, on this machine.
    """
    from sklearn.base import clone

    from ._classifier import McddClassifier

    counts = {row[0]: row[1] for row in df.where(df[label].isNotNull()).groupBy(label).count().collect()}
    fractions = sample_fractions(counts, rows)
    sample = df.sampleBy(label, fractions, seed).toArrow()
    clf: McddClassifier = McddClassifier() if classifier is None else clone(classifier)
    y = sample.column(label).to_numpy(zero_copy_only=False)
    return clf.fit(sample.drop_columns([label]), y)


def sample_fractions(counts: dict[Any, int], rows: int) -> dict[Any, float]:
    """The fraction of each class to draw: all of the small ones, and equal fractions of the others."""
    fractions = dict.fromkeys(counts, 1.0)
    total = sum(counts.values())
    if total <= rows or not counts:
        return fractions
    # Small classes are kept whole: those with at most an equal part of half of the rows.
    small = {label for label, n in counts.items() if n <= rows / (2 * len(counts))}
    rest = total - sum(counts[label] for label in small)
    wanted = rows - (total - rest)
    return {label: 1.0 if label in small else wanted / rest for label in counts}
