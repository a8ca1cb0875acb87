"""Detectors on features and logits from any network."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils.validation import check_array, check_is_fitted

from . import _data, _mcdd
from ._classifier import _spec, encode_labels, seed

if TYPE_CHECKING:
    from ._mcdd import Arrays


def _features(values: Any, name: str) -> npt.NDArray[np.float32] | None:
    if values is None:
        return None
    return np.ascontiguousarray(check_array(values, dtype=np.float32, order="C", input_name=name))


def _logits(values: Any, name: str) -> npt.NDArray[np.float64] | None:
    if values is None:
        return None
    return np.ascontiguousarray(check_array(values, dtype=np.float64, order="C", input_name=name))


class Detector(OutlierMixin, BaseEstimator):
    """A score on features or logits that come from a network of your own, with p-values and a threshold.

    Parameters
    ----------
    detector : str, default="knn"
        The detector with its settings, such as ``"vim"``, ``"knn:k=10"`` or ``"energy"``; see `mcdd.detectors`.
    tpr : float, default=0.95
        The fraction of known rows to keep as known.
    calibration_fraction : float, default=0.1
        The fraction of the rows that calibrate and are not fitted on.
    random_state : int, RandomState instance or None, default=0
        The seed of all random numbers.
    n_jobs : int, default=None
        The number of threads; None and -1 for all cores.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes, if labels were given.
    offset_ : float
        The lowest confidence of a known row.
    scorer_ : object
        The fitted detector of the library.

    Examples
    --------
    >>> import numpy as np
    >>> from mcdd import Detector
    >>> random = np.random.default_rng(0)
    >>> features = random.normal(size=(500, 16))
    >>> detector = Detector("mahalanobis").fit(features, random.integers(2, size=500))
    >>> detector.is_known(np.full((1, 16), 9.0))
    array([False])
    """

    def __init__(
        self,
        detector: str = "knn",
        *,
        tpr: float = 0.95,
        calibration_fraction: float = 0.1,
        random_state: Any = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.detector = detector
        self.tpr = tpr
        self.calibration_fraction = calibration_fraction
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, features: Any = None, y: Any = None, *, logits: Any = None) -> Detector:
        """Fit on known rows.

        Parameters
        ----------
        features : array-like of shape (n_samples, n_features), default=None
            Features of a layer; not needed by detectors of logits.
        y : array-like of shape (n_samples,), default=None
            The classes, for detectors that use them.
        logits : array-like of shape (n_samples, n_classes), default=None
            The logits, for detectors that use them.

        Returns
        -------
        self : Detector
        """
        rows, outputs = _features(features, "features"), _logits(logits, "logits")
        names: list[str] = []
        codes = None
        if y is not None:
            self.classes_, codes = encode_labels(y)
            names = _data.class_names(self.classes_)
        elif outputs is not None:
            names = [str(k) for k in range(outputs.shape[1])]
        self.scorer_ = _mcdd.Scorer.fit(
            self.detector,
            rows,
            outputs,
            codes,
            names,
            self.tpr,
            self.calibration_fraction,
            seed(self.random_state),
            _data.threads(self.n_jobs),
        )
        if rows is not None:
            self.n_features_in_ = rows.shape[1]
        return self

    def score_samples(self, features: Any = None, *, logits: Any = None) -> npt.NDArray[np.float64]:
        """The confidence of each row; higher is more normal.

        Parameters
        ----------
        features : array-like of shape (n_samples, n_features), default=None
        logits : array-like of shape (n_samples, n_classes), default=None

        Returns
        -------
        confidence : ndarray of shape (n_samples,)
        """
        return self._predict(features, logits)["confidence"]

    @property
    def offset_(self) -> float:
        """The lowest confidence of a known row."""
        check_is_fitted(self)
        return self.scorer_.threshold(self.tpr)

    def decision_function(self, features: Any = None, *, logits: Any = None) -> npt.NDArray[np.float64]:
        """The confidence of each row less that of the threshold: negative for unknown rows.

        Parameters
        ----------
        features : array-like of shape (n_samples, n_features), default=None
        logits : array-like of shape (n_samples, n_classes), default=None

        Returns
        -------
        scores : ndarray of shape (n_samples,)
        """
        return self.score_samples(features, logits=logits) - self.offset_

    def p_values(self, features: Any = None, *, logits: Any = None) -> npt.NDArray[np.float64]:
        """The fraction of known rows that look as strange as each row, or stranger.

        Parameters
        ----------
        features : array-like of shape (n_samples, n_features), default=None
        logits : array-like of shape (n_samples, n_classes), default=None

        Returns
        -------
        p_values : ndarray of shape (n_samples,)
        """
        return self._predict(features, logits)["p_value"]

    def is_known(
        self, features: Any = None, *, logits: Any = None, tpr: float | None = None
    ) -> npt.NDArray[np.bool_]:
        """Whether each row is like the rows that it was fitted on.

        Parameters
        ----------
        features : array-like of shape (n_samples, n_features), default=None
        logits : array-like of shape (n_samples, n_classes), default=None
        tpr : float, default=None
            The fraction of known rows to keep; None for that of the detector.

        Returns
        -------
        known : ndarray of bool of shape (n_samples,)
        """
        confidence = self._predict(features, logits)["confidence"]
        return self.scorer_.known(confidence, self.tpr if tpr is None else tpr)

    def predict(self, features: Any = None, *, logits: Any = None) -> npt.NDArray[np.int64]:
        """1 for known rows and -1 for the others, as scikit-learn's outlier detectors do.

        Parameters
        ----------
        features : array-like of shape (n_samples, n_features), default=None
        logits : array-like of shape (n_samples, n_classes), default=None

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        return np.where(self.is_known(features, logits=logits), 1, -1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the detector to a file that ``mcdd score`` reads too. It holds no code.

        Parameters
        ----------
        path : path-like
        """
        check_is_fitted(self)
        self.scorer_.save(os.fspath(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Detector:
        """Read a detector from a file of `save` or of the command ``mcdd fit-detector``.

        Parameters
        ----------
        path : path-like

        Returns
        -------
        detector : Detector
        """
        scorer = _mcdd.Scorer.load(os.fspath(path))
        settings = json.loads(scorer.settings)
        detector = cls(
            _spec(settings["detector"]),
            tpr=settings["tpr"],
            calibration_fraction=settings["calibration_fraction"],
            random_state=settings["seed"],
        )
        detector.scorer_ = scorer
        if scorer.classes:
            detector.classes_ = _data.classes_from_names(scorer.classes)
        return detector

    def _predict(self, features: Any, logits: Any) -> Arrays:
        check_is_fitted(self)
        rows, outputs = _features(features, "features"), _logits(logits, "logits")
        expected = getattr(self, "n_features_in_", None)
        if rows is not None and expected is not None and rows.shape[1] != expected:
            raise _mcdd.DataError(f"X has {rows.shape[1]} features, but Detector is expecting {expected} features as input")
        return self.scorer_.predict(rows, outputs, _data.threads(self.n_jobs))

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "scorer_" in state:
            state["scorer_"] = state["scorer_"].to_bytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        if isinstance(state.get("scorer_"), bytes):
            state["scorer_"] = _mcdd.Scorer.from_bytes(state["scorer_"])
        super().__setstate__(state)
