"""The report on a model: one page without outside resources."""

from __future__ import annotations

import html
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length

from . import _data, _mcdd
from ._classifier import McddClassifier
from ._images import ImageClassifier


class Report:
    """A page. Notebooks show it; `save` writes it to a file.

    Attributes
    ----------
    html : str
        The page.
    figures : dict of str to str
        The figures of the page as SVG: "scores", "roc", "latent" and others.
    """

    def __init__(self, page: str, figures: dict[str, str] | None = None) -> None:
        self.html = page
        self.figures = figures or {}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file.

        Parameters
        ----------
        path : path-like
        """
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html)

    def _repr_html_(self) -> str:
        # The page has styles and scripts of its own, which a frame keeps apart from those of the notebook.
        return f'<iframe srcdoc="{html.escape(self.html)}" style="width: 100%; height: 40em; border: 0"></iframe>'


def report(
    clf: McddClassifier | ImageClassifier,
    X: Any,
    y: Any = None,
    *,
    unknown: Mapping[str, Any] | None = None,
    title: str = "mcdd",
) -> Report:
    """The report on a classifier: what it keeps and rejects, where it errs, and why.

    Parameters
    ----------
    clf : McddClassifier or ImageClassifier
        A trained classifier; of a `Guard` its `detector_`.
    X : array-like or data frame of shape (n_samples, n_features), or images
        Known rows that were not trained on.
    y : array-like of shape (n_samples,), default=None
        Their classes.
    unknown : dict of str to array-like, data frame or images, default=None
        Sets of unknown rows by name.
    title : str, default="mcdd"
        The title of the page.

    Returns
    -------
    Report

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mcdd import McddClassifier, report
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = McddClassifier(preset="fast").fit(X[::2], y[::2])
    >>> page = report(clf, X[1::2], y[1::2])
    >>> page.html.startswith("<!doctype html>")
    True
    """
    if not isinstance(clf, McddClassifier | ImageClassifier):
        raise TypeError(f"a report is on a McddClassifier or an ImageClassifier, not on a {type(clf).__name__}")
    known = _rows(clf, X)
    if y is not None:
        y = np.asarray(y)
        check_consistent_length(range(len(known)), y)
        names = _data.class_names(clf.classes_)
        place = {label: code for code, label in enumerate(clf.classes_.tolist())}
        foreign = sorted({str(label) for label in y.tolist() if label not in place})
        if foreign:
            raise _mcdd.DataError(f"y has classes that the model does not know: {', '.join(foreign)} (give them as unknown=)")
        codes = np.array([place[label] for label in y.tolist()], dtype=np.uint32)
        known = known.with_labels(codes, names)
    sets = [(name, _rows(clf, rows)) for name, rows in (unknown or {}).items()]
    page, figures = _mcdd.report(clf.model_, known, sets, title, _data.threads(clf.n_jobs))
    return Report(page, dict(figures))


def _rows(clf: McddClassifier | ImageClassifier, X: Any) -> _mcdd.Table | _mcdd.Images:
    data = clf._read(X, reset=False)
    if isinstance(data, _mcdd.Table | _mcdd.Images):
        return data
    if _data.is_frame(data):
        return _mcdd.Table.from_arrow(data, clf.model_.named)
    names = list(clf.model_.columns) if clf.model_.named else None
    return _mcdd.Table.from_matrix(data) if names is None else _data.text_table(data, names)
