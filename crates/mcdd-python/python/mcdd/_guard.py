"""A classifier of the user's own, with a verdict on whether each row is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from ._classifier import McddClassifier
from ._verdict import there_if, with_unknown

Array = npt.NDArray[Any]


def _estimator_has(method: str) -> Any:
    def has(guard: Guard) -> bool:
        # An AttributeError of the estimator is that of the guard.
        getattr(getattr(guard, "estimator_", guard.estimator), method)
        return True

    return has


class Guard(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """Your classifier for the label, and mcdd for whether the row is known.

    Parameters
    ----------
    estimator : classifier
        A classifier of scikit-learn, LightGBM, XGBoost or others, or a pipeline. It is cloned and trained on all rows; one
        that is trained already is given as ``sklearn.frozen.FrozenEstimator(estimator)``.
    detector : McddClassifier, default=None
        Decides which rows are known, by out-of-fold rows of the same training data; None for ``McddClassifier()``.
    unknown_label : object, default="unknown"
        The label of unknown rows in `predict_open`.

    Attributes
    ----------
    estimator_ : classifier
        The trained classifier.
    detector_ : McddClassifier
        The trained detector.
    classes_ : ndarray of shape (n_classes,)
        The classes of the classifier.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from mcdd import Guard
    >>> X, y = load_iris(return_X_y=True)
    >>> guard = Guard(RandomForestClassifier(random_state=0)).fit(X, y)
    >>> guard.predict_open([[5.0, 3.4, 1.5, 0.2], [50.0, 34.0, 15.0, 2.0]])
    array([0, 'unknown'], dtype=object)
    """

    def __init__(self, estimator: Any, detector: McddClassifier | None = None, *, unknown_label: Any = "unknown") -> None:
        self.estimator = estimator
        self.detector = detector
        self.unknown_label = unknown_label

    def fit(self, X: Any, y: Any, groups: Any = None, **fit_params: Any) -> Guard:
        """Train the classifier and the detector.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        groups : array-like of shape (n_samples,), default=None
            Rows of one group are never divided between training and calibration of the detector.
        **fit_params : dict
            Passed to the classifier's `fit`.

        Returns
        -------
        self : Guard
        """
        detector = McddClassifier() if self.detector is None else clone(self.detector)
        self.detector_ = detector.fit(X, y, groups=groups)
        self.estimator_ = clone(self.estimator).fit(X, y, **fit_params)
        self.classes_ = self.estimator_.classes_
        self.n_features_in_ = self.detector_.n_features_in_
        if hasattr(self.detector_, "feature_names_in_"):
            self.feature_names_in_ = self.detector_.feature_names_in_
        return self

    def predict(self, X: Any) -> Array:
        """The classifier's label of each row.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict(X))

    def predict_open(self, X: Any, tpr: float | None = None) -> Array:
        """The classifier's label of each known row, and `unknown_label` for the others.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
        tpr : float, default=None
            The fraction of known rows to keep; None for that of the detector.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        return with_unknown(self.predict(X), self.is_known(X, tpr), self.unknown_label)

    @there_if(_estimator_has("predict_proba"))
    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """The classifier's probabilities.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict_proba(X))

    @there_if(_estimator_has("predict_log_proba"))
    def predict_log_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """The logarithms of the classifier's probabilities.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        return np.asarray(self.estimator_.predict_log_proba(X))

    @there_if(_estimator_has("decision_function"))
    def decision_function(self, X: Any) -> npt.NDArray[np.float64]:
        """The classifier's decision function.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)

        Returns
        -------
        scores : ndarray of shape (n_samples, n_classes), or (n_samples,) with two classes
        """
        check_is_fitted(self)
        return np.asarray(self.estimator_.decision_function(X))

    def is_known(self, X: Any, tpr: float | None = None) -> npt.NDArray[np.bool_]:
        """Whether each row is like the training rows; see `McddClassifier.is_known`.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
        tpr : float, default=None
            The fraction of known rows to keep; None for that of the detector.

        Returns
        -------
        known : ndarray of bool of shape (n_samples,)
        """
        check_is_fitted(self)
        return self.detector_.is_known(X, tpr)

    def p_values(self, X: Any) -> npt.NDArray[np.float64]:
        """The fraction of known rows that look as strange; see `McddClassifier.p_values`.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)

        Returns
        -------
        p_values : ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        return self.detector_.p_values(X)

    def score_samples(self, X: Any) -> npt.NDArray[np.float64]:
        """The confidence of each row; see `McddClassifier.score_samples`.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)

        Returns
        -------
        confidence : ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        return self.detector_.score_samples(X)

    def explain(self, X: Any, n: int = 5) -> Any:
        """The columns that explain the confidence of each row; see `McddClassifier.explain`.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
        n : int, default=5
            The number of columns for each row.

        Returns
        -------
        frame : pandas.DataFrame, or dict of lists without pandas
        """
        check_is_fitted(self)
        return self.detector_.explain(X, n)

    @property
    def doctor_(self) -> list[str]:
        """What is worth a look about the detector and the data; see `McddClassifier.doctor_`."""
        findings: list[str] = self.detector_.doctor_
        return findings

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = get_tags(self.estimator).input_tags.allow_nan
        return tags
