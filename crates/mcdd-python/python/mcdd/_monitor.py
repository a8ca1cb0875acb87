"""Watching a stream of rows."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from . import _data, _mcdd
from ._classifier import McddClassifier
from ._detector import Detector
from ._guard import Guard
from ._images import ImageClassifier
from ._report import Report

_Watched = McddClassifier | ImageClassifier | Guard | Detector


def _inner(clf: _Watched) -> tuple[McddClassifier | ImageClassifier | Detector, _mcdd.Model | _mcdd.Scorer]:
    """What gives the confidences, and its compiled part."""
    if not isinstance(clf, _Watched):
        raise TypeError(f"a monitor watches the rows of a classifier, a Guard or a Detector, not of a {type(clf).__name__}")
    check_is_fitted(clf)
    if isinstance(clf, Guard):
        return clf.detector_, clf.detector_.model_
    return (clf, clf.scorer_) if isinstance(clf, Detector) else (clf, clf.model_)


def _numbers(values: Any) -> npt.NDArray[np.float64]:
    return np.ascontiguousarray(np.asarray(values, dtype=np.float64).ravel())


class Monitor:
    """An alarm when the rows of a stream are no longer like the calibration rows of a classifier.

    The evidence starts at 1. If the rows are exchangeable with the calibration rows, it ever reaches ``1 / alpha`` with a
    probability of at most `alpha`, however long the stream is and however often one looks. The numbers are those of
    ``mcdd monitor``, to the bit, and so is the file of `save`.

    Parameters
    ----------
    clf : McddClassifier, ImageClassifier, Guard or Detector
        What was trained.
    alpha : float, default=0.01
        The probability of a false alarm over the whole stream.
    reference : array-like, data frame or images, default=None
        Rows that are as they should be and that were not used for training. With them, classes and columns that changed
        are named (`changed`). Not for a `Detector`.

    Examples
    --------
    >>> import numpy as np
    >>> from mcdd import McddClassifier, Monitor
    >>> random = np.random.default_rng(0)
    >>> X, y = random.normal(size=(600, 3)), np.arange(600) % 2
    >>> X[:, 0] += 5 * y
    >>> clf = McddClassifier(preset="fast").fit(X[:400], y[:400])
    >>> monitor = Monitor(clf)
    >>> monitor.add(X[400:]).alarm
    >>> monitor.add(X[400:460] + 20).alarm < 250
    True
    """

    def __init__(self, clf: _Watched, *, alpha: float = 0.01, reference: Any = None) -> None:
        self._clf, compiled = _inner(clf)
        self._state = _mcdd.Monitor(compiled, alpha)
        if reference is not None:
            model, data, threads = self._read(reference)
            self._state.watch_parts(model, data, threads)

    @classmethod
    def load(cls, path: str | os.PathLike[str], clf: _Watched) -> Monitor:
        """A monitor from its file, which `mcdd monitor --state` writes too.

        Parameters
        ----------
        path : path-like
        clf : McddClassifier, ImageClassifier, Guard or Detector
            What the monitor was made for.

        Returns
        -------
        Monitor
        """
        monitor = cls.__new__(cls)
        monitor._clf, compiled = _inner(clf)
        monitor._state = _mcdd.Monitor.load(compiled, os.fspath(path))
        return monitor

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a small JSON file. It is written beside and renamed, so that a crash leaves a whole one.

        Parameters
        ----------
        path : path-like
        """
        self._state.save(os.fspath(path))

    def add(self, X: Any) -> Monitor:
        """Add rows, in the order in which they came.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features), or images

        Returns
        -------
        self : Monitor
        """
        model, data, threads = self._read(X)
        self._state.add_rows(model, data, threads)
        return self

    def add_scores(self, confidence: npt.ArrayLike) -> Monitor:
        """Add rows by their confidences, as `score_samples` gives them. Classes and columns get no evidence from these.

        Parameters
        ----------
        confidence : array-like of shape (n_samples,)

        Returns
        -------
        self : Monitor
        """
        self._state.add_scores(_numbers(confidence))
        return self

    def add_p_values(self, p_values: npt.ArrayLike) -> Monitor:
        """Add rows by their p-values. The same as `add_scores`, but where a confidence equals that of a calibration row.

        Parameters
        ----------
        p_values : array-like of shape (n_samples,)

        Returns
        -------
        self : Monitor
        """
        self._state.add_p_values(_numbers(p_values))
        return self

    def restart(self) -> Monitor:
        """Start again after an alarm: the evidence is 1, and from here on the promise holds as before.

        Returns
        -------
        self : Monitor
        """
        self._state.restart()
        return self

    @property
    def rows(self) -> int:
        """The number of rows so far."""
        return self._state.rows

    @property
    def evidence(self) -> float:
        """The evidence that the rows have changed: an e-value."""
        return self._state.evidence

    @property
    def alarm(self) -> int | None:
        """The row at which the alarm was raised, counted from 1; None if it was not."""
        return self._state.alarm

    @property
    def limit(self) -> float:
        """The evidence at which the alarm is raised: ``1 / alpha``."""
        return float(self.about()["limit"])

    @property
    def changed(self) -> dict[str, int]:
        """The classes and columns that changed, with the row at which that was clear: ``{"column width": 212}``.

        The probability that one is named that did not change is at most `alpha`, over all of them together.
        """
        found = {}
        for part in self.about()["parts"]:
            if part["changed"] is not None:
                what = part["part"]
                name = what if isinstance(what, str) else " ".join(*what.items())
                found[name] = int(part["changed"])
        return found

    @property
    def history(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.float64]]:
        """The evidence over time, in at most 512 points: rows, and the common logarithm of the highest evidence since the
        point before."""
        return self._state.history

    def about(self) -> dict[str, Any]:
        """All numbers, as ``mcdd monitor --json`` prints them.

        Returns
        -------
        about : dict
        """
        about: dict[str, Any] = json.loads(self._state.about)
        return about

    def report(self, title: str = "model") -> Report:
        """A page with the evidence over time and the line where the alarm stands; `figures["evidence"]` is the figure.

        Parameters
        ----------
        title : str, default="model"
            What the monitor is of.

        Returns
        -------
        Report
        """
        page, figure = self._state.report(title)
        return Report(page, {"evidence": figure})

    def __repr__(self) -> str:
        alarm = "no alarm" if self.alarm is None else f"alarm at row {self.alarm}"
        return f"<Monitor: {self.rows} rows, evidence {self.evidence:.3g}, {alarm}>"

    def _read(self, X: Any) -> tuple[_mcdd.Model, Any, int | None]:
        clf = self._clf
        if isinstance(clf, Detector):
            raise TypeError("a Detector has features and logits: give add_scores(detector.score_samples(features))")
        return clf.model_, clf._read(X, reset=False), _data.threads(clf.n_jobs)
