"""What every trained model can say of new rows: class, confidence, p-value, known or unknown."""

from __future__ import annotations

import copy
import html
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from . import _data, _mcdd
from ._warnings import warn

if TYPE_CHECKING:
    from ._mcdd import Arrays

Array = npt.NDArray[Any]
Method = TypeVar("Method", bound=Callable[..., Any])


def there_if(check: Callable[[Any], bool]) -> Callable[[Method], Method]:
    """scikit-learn's `available_if`, with the type of the method."""
    return cast(Callable[[Method], Method], available_if(check))


def with_unknown(labels: Array, known: npt.NDArray[np.bool_], unknown: Any) -> Array:
    """The labels, with `unknown` where a row is not known. Types that do not mix become objects."""
    if labels.dtype.kind in "US" and isinstance(unknown, str):
        return np.where(known, labels, np.asarray(unknown))
    if labels.dtype.kind in "iuf" and isinstance(unknown, int | float | np.number):
        return np.where(known, labels, np.asarray(unknown))
    mixed = labels.astype(object)
    mixed[~known] = unknown
    return mixed


def _classifies(clf: VerdictMixin) -> bool:
    """Whether the methods of a classifier are there: not for a model that was trained without classes."""
    model = getattr(clf, "model_", None)
    if model is not None and not model.classifies:
        raise AttributeError(f"the method {clf.method!r} does not classify; use is_known, p_values or score_samples")
    return True


class VerdictMixin:
    """Predictions of a trained `model_`, for classes that can `_read` their input."""

    classes_: Array
    doctor_: list[str]
    method: str | None
    model_: _mcdd.Model
    n_jobs: int | None
    tpr: float
    unknown_label: Any

    def _read(self, X: Any, reset: bool) -> Any:
        raise NotImplementedError

    @there_if(_classifies)
    def predict(self, X: Any) -> Array:
        """The most probable class of each row; unknown rows get `unknown_label` if that is set.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features), or images

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        found = self._predict(X)
        labels = self._labels(found)
        if self.unknown_label is None:
            return labels
        return with_unknown(labels, self.model_.known(found["confidence"], self.tpr), self.unknown_label)

    @there_if(_classifies)
    def predict_open(self, X: Any, tpr: float | None = None) -> Array:
        """The class of each row, or "unknown" (or `unknown_label`, if that is set).

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features), or images
        tpr : float, default=None
            The fraction of known rows to keep; None for that of the classifier.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            An array of objects if classes are not strings and `unknown_label` is not a number.
        """
        found = self._predict(X)
        unknown = "unknown" if self.unknown_label is None else self.unknown_label
        if unknown in self.classes_.tolist():
            raise ValueError(f"{unknown!r} is a class: set unknown_label= to another label")
        known = self.model_.known(found["confidence"], self.tpr if tpr is None else tpr)
        return with_unknown(self._labels(found), known, unknown)

    def is_known(self, X: Any, tpr: float | None = None) -> npt.NDArray[np.bool_]:
        """Whether each row is like the training rows.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features), or images
        tpr : float, default=None
            The fraction of known rows to keep; None for that of the classifier.

        Returns
        -------
        known : ndarray of bool of shape (n_samples,)
        """
        confidence = self._predict(X)["confidence"]
        return self.model_.known(confidence, self.tpr if tpr is None else tpr)

    def p_values(self, X: Any) -> npt.NDArray[np.float64]:
        """The fraction of known rows that look as strange as each row, or stranger.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features), or images

        Returns
        -------
        p_values : ndarray of shape (n_samples,)
            Of new known rows, a fraction of about ``a`` has a p-value of ``a`` or less.
        """
        return self._predict(X)["p_value"]

    def score_samples(self, X: Any) -> npt.NDArray[np.float64]:
        """The confidence of each row; higher is more normal.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features), or images

        Returns
        -------
        confidence : ndarray of shape (n_samples,)
        """
        return self._predict(X)["confidence"]

    @there_if(_classifies)
    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """The probability of each class, given that the row is of one of them.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features), or images

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
        """
        probabilities = self._predict(X, probabilities=True)["probability"]
        # `there_if` has looked.
        assert probabilities is not None
        return probabilities

    @there_if(_classifies)
    def predict_log_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """The logarithm of `predict_proba`.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features), or images

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, n_classes)
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    @there_if(_classifies)
    def decision_function(self, X: Any) -> npt.NDArray[np.float64]:
        """The logarithms of the class probabilities; with two classes the log-odds of the second.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features), or images

        Returns
        -------
        scores : ndarray of shape (n_samples, n_classes), or (n_samples,) with two classes
        """
        log = np.log(np.maximum(self.predict_proba(X), np.finfo(float).tiny))
        return log[:, 1] - log[:, 0] if log.shape[1] == 2 else log

    @there_if(_classifies)
    def predict_set(self, X: Any, coverage: float = 0.95) -> npt.NDArray[np.bool_]:
        """Which classes are plausible for each row; none for an unknown row.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features), or images
        coverage : float, default=0.95
            The fraction of known rows whose true class is to be among the plausible ones, of those that are kept as known.

        Returns
        -------
        sets : ndarray of bool of shape (n_samples, n_classes)
        """
        if not 0 < coverage < 1:
            raise _mcdd.SettingError(f"coverage= is {coverage} (give a fraction between 0 and 1)")
        data = self._read(X, reset=False)
        found, sets = self.model_.plausible(data, coverage, _data.threads(self.n_jobs))
        # `there_if` has looked.
        assert sets is not None
        sets[~self.model_.known(found["confidence"], self.tpr)] = False
        return sets

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file that the command `mcdd` reads too. It holds no code.

        Parameters
        ----------
        path : path-like
        """
        check_is_fitted(self)
        self.model_.save(os.fspath(path))

    def to_onnx(self, path: str | os.PathLike[str] | None = None, *, core: bool = False, tpr: float | None = None) -> bytes:
        """The model as ONNX: from raw rows to class, probabilities, score, p_value, known and label.

        Columns with names are inputs of their own, of shape (n_samples, 1): numbers in float64 with NaN for a missing value,
        times in seconds since 1970-01-01, categories as strings. An array is one input ``x``, of shape (n_samples, n_features);
        images are ``image``, of shape (n_samples, height, width, channels), in uint8.

        Parameters
        ----------
        path : path-like, default=None
            A file to write it to.
        core : bool, default=False
            Only operators of the standard domain, and no strings: categories are given by their index, and there is no label.
        tpr : float, default=None
            Fix the threshold, so that it keeps this fraction of known rows. None for an input ``threshold``, whose default is
            the threshold of the classifier.

        Returns
        -------
        onnx : bytes
        """
        check_is_fitted(self)
        file = None if path is None else os.fspath(path)
        return self.model_.to_onnx(file, core, self.tpr if tpr is None else tpr, tpr is not None)

    def _with_model(self, model: _mcdd.Model) -> Self:
        """A copy of this classifier that predicts with another model of the same classes."""
        other = copy.copy(self)
        other.model_ = model
        other.doctor_ = model.findings
        warn(other.doctor_)
        return other

    def _refitted(self, data: Any, detector: str | None, tpr: float | None, per_class: bool | None) -> Self:
        model = self.model_.refit(data, detector, tpr, per_class, _data.threads(self.n_jobs))
        other = self._with_model(model)
        given = {"detector": detector, "tpr": tpr, "per_class": per_class}
        for name, value in given.items():
            if value is not None:
                setattr(other, name, value)
        return other

    def _predict(self, X: Any, *, probabilities: bool = False, distances: bool = False) -> Arrays:
        data = self._read(X, reset=False)
        return self.model_.predict(data, _data.threads(self.n_jobs), probabilities, distances)

    def _labels(self, found: Arrays) -> Array:
        labels: Array = self.classes_[found["class"]]
        return labels

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())  # type: ignore[call-overload]
        if "model_" in state:
            state["model_"] = state["model_"].to_bytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        if isinstance(state.get("model_"), bytes):
            state["model_"] = _mcdd.Model.from_bytes(state["model_"])
        super().__setstate__(state)  # type: ignore[misc]

    def verdict(self) -> str:
        """What the model promises, in a sentence or two.

        Returns
        -------
        text : str
        """
        check_is_fitted(self)
        model = self.model_
        what = "rows" if model.image_shape is None else "images"
        classes = f" of {len(self.classes_)} classes" if model.classifies else ""
        text = f"Trained on {model.training_rows:,} {what}{classes}."
        if model.validation_accuracy is not None:
            text += f" Accuracy on {what} that were left out: {model.validation_accuracy:.1%}."
        scores = model.calibration_scores
        return text + f" Keeps about {self.tpr:.0%} of known {what}, by {len(scores):,} calibration {what}."

    def _html_repr(self) -> str:
        page = str(super()._html_repr())  # type: ignore[misc]
        if not hasattr(self, "model_"):
            return page
        items = "".join(f"<li>{html.escape(finding)}</li>" for finding in self.doctor_)
        findings = f"<ul>{items}</ul>" if items else ""
        return f"<p>{html.escape(self.verdict())}</p>{findings}{page}"
