"""The classifier, as scikit-learn has them."""

from __future__ import annotations

import copy
import json
import os
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d, validate_data

from . import _data, _mcdd, _progress
from ._verdict import VerdictMixin, there_if
from ._warnings import warn

Array = npt.NDArray[Any]

# Parameters that are settings of the library, under the same name.
_SETTINGS = (
    "preset",
    "method",
    "detector",
    "tpr",
    "per_class",
    "nu",
    "sigma",
    "hidden",
    "latent",
    "batch_norm",
    "clip",
    "bins",
    "members",
    "epochs",
    "steps",
    "batch",
    "lr",
    "optimizer",
    "momentum",
    "weight_decay",
    "schedule",
    "select",
    "patience",
    "calibration_fraction",
)


def seed(random_state: Any) -> int:
    """The seed for scikit-learn's `random_state`: a whole number as it is, else one that is drawn."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def encode_labels(y: Any) -> tuple[Array, npt.NDArray[np.uint32]]:
    """The classes, and the number of the class of each row."""
    if hasattr(y, "to_list") and not hasattr(y, "columns"):
        # A series: its missing values are None.
        missing = [at for at, value in enumerate(_data.texts(y.to_list())) if value is None]
        if missing:
            raise _mcdd.DataError(f"row {missing[0] + 1}: y is missing (leave out rows without a label)")
    y = column_or_1d(check_array(y, ensure_2d=False, dtype=None, input_name="y", estimator="McddClassifier"), warn=True)
    if y.dtype.kind == "O" and None in y.tolist():
        raise _mcdd.DataError(f"row {y.tolist().index(None) + 1}: y is missing (leave out rows without a label)")
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    if classes.dtype.kind == "O" and all(isinstance(c, str) for c in classes):
        classes = classes.astype(str)
    return classes, codes.astype(np.uint32)


def _spec(config: dict[str, Any]) -> str:
    """A method or detector of a model file as it is typed: ``knn:k=1:log=true``."""

    def word(value: Any) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    parts = [f"{key}={word(value)}" for key, value in config.items() if key != "name" and value is not None]
    return ":".join([config["name"], *parts])


def _has_distances(clf: McddClassifier) -> bool:
    check_is_fitted(clf)
    if not clf.model_.has_distances:
        raise AttributeError(f"the method {clf.method!r} has no distances to the classes")
    return True


class McddClassifier(VerdictMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClassifierMixin, BaseEstimator):
    """A classifier that can answer "unknown".

    Networks map each row to a latent vector in which every class is an isotropic Gaussian (Deep-MCDD). The distance of a
    row to the training rows gives a confidence. Out-of-fold rows turn it into a p-value: the fraction of known rows whose
    confidence is as low or lower. A row is unknown if its p-value is at most ``1 - tpr``.

    Parameters
    ----------
    preset : {"best", "fast", "paper"}, default="best"
        The base configuration; the other parameters override it. "best" trains seven networks, "fast" one, "paper" is
        the method as published.
    method : str, default=None
        The training objective with its settings, such as ``"softmax"`` or ``"deep-mcdd:nu=0.1"``; see `mcdd.methods`.
    detector : str, default=None
        The score with its settings, such as ``"knn:k=10"`` or ``"mahalanobis"``; see `mcdd.detectors`.
    tpr : float, default=0.95
        The fraction of known rows to keep as known (true positive rate).
    random_state : int, RandomState instance or None, default=0
        The seed of all random numbers. The same seed gives the same model, to the bit.
    n_jobs : int, default=None
        The number of threads; None and -1 for all cores. It does not change the results. Set it to 1 where others run in
        parallel, such as the fits of a grid search.
    unknown_label : object, default=None
        The label that `predict` gives to unknown rows. None makes `predict` choose a class for every row, as
        scikit-learn expects.
    per_class : bool, default=False
        Whether one fraction of every predicted class is kept, instead of one of all rows.
    categorical : list of str, default=()
        Columns that are categories although they hold numbers: names, or positions from 1 for an array, as strings. Columns
        of a frame whose type is categorical need not be listed.
    keep : list of str, default=()
        Columns to train on even if they look like an identifier.
    verbose : bool or int, default=False
        Whether to show a progress bar.
    backbone : path-like, default=None
        A frozen ONNX network on whose features the model is trained, which takes the columns of X in their order. See the guide on ONNX.
    layer : str or list of str, default=None
        The layers of the backbone whose values are the features, as ``mcdd layers`` lists them; None for what feeds its last linear
        layer.
    embed : bool, default=True
        Whether a model file contains the backbone, or only its name and SHA-256 sum.
    nu, sigma, hidden, latent, batch_norm, clip, bins, members, epochs, steps, batch, lr, optimizer, momentum, weight_decay, \
schedule, select, patience, calibration_fraction : default=None
        Settings of networks and training; None takes those of the preset. `clip`, `bins` and `steps` may be "off".

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes; none if the method does not classify.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        The names of the columns, if they have names.
    doctor_ : list of str
        What is worth a look about the model and the data, in sentences.
    model_ : object
        The trained model of the library.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mcdd import McddClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = McddClassifier().fit(X, y)
    >>> clf.predict([[5.0, 3.4, 1.5, 0.2]])
    array([0])
    >>> clf.is_known([[5.0, 3.4, 1.5, 0.2], [50.0, 34.0, 15.0, 2.0]])
    array([ True, False])
    """

    classes_: Array
    doctor_: list[str]
    feature_names_in_: Array
    model_: _mcdd.Model
    n_features_in_: int

    def __init__(
        self,
        preset: str = "best",
        method: str | None = None,
        detector: str | None = None,
        *,
        tpr: float = 0.95,
        random_state: Any = 0,
        n_jobs: int | None = None,
        unknown_label: Any = None,
        per_class: bool = False,
        categorical: Any = (),
        keep: Any = (),
        verbose: bool | int = False,
        backbone: str | os.PathLike[str] | None = None,
        layer: Any = None,
        embed: bool = True,
        nu: float | None = None,
        sigma: str | None = None,
        hidden: Any = None,
        latent: int | None = None,
        batch_norm: bool | None = None,
        clip: float | str | None = None,
        bins: int | str | None = None,
        members: int | None = None,
        epochs: int | None = None,
        steps: int | str | None = None,
        batch: int | None = None,
        lr: float | None = None,
        optimizer: str | None = None,
        momentum: float | None = None,
        weight_decay: float | None = None,
        schedule: str | None = None,
        select: str | None = None,
        patience: int | None = None,
        calibration_fraction: float | None = None,
    ) -> None:
        self.preset = preset
        self.method = method
        self.detector = detector
        self.tpr = tpr
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.unknown_label = unknown_label
        self.per_class = per_class
        self.categorical = categorical
        self.keep = keep
        self.verbose = verbose
        self.backbone = backbone
        self.layer = layer
        self.embed = embed
        self.nu = nu
        self.sigma = sigma
        self.hidden = hidden
        self.latent = latent
        self.batch_norm = batch_norm
        self.clip = clip
        self.bins = bins
        self.members = members
        self.epochs = epochs
        self.steps = steps
        self.batch = batch
        self.lr = lr
        self.optimizer = optimizer
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.select = select
        self.patience = patience
        self.calibration_fraction = calibration_fraction

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> McddClassifier:
        """Train on rows and their classes.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            Numbers, or a frame of pandas, polars or Arrow with numbers, categories, booleans, dates and texts. NaN and
            null are missing values.
        y : array-like of shape (n_samples,)
            The classes: strings, integers or booleans. None for a method that does not classify, such as "deep-svdd".
        groups : array-like of shape (n_samples,), default=None
            Rows of one group, such as one patient or machine, are never divided between training and calibration.

        Returns
        -------
        self : McddClassifier
        """
        settings = {name: getattr(self, name) for name in _SETTINGS}
        settings["seed"] = seed(self.random_state)
        if y is None and _mcdd.needs_labels(settings):
            name = type(self).__name__
            raise ValueError(f"This {name} estimator requires y to be passed, but the target y is None.")
        data, classes = self._training_data(X, y, groups)
        backbone = _data.backbone(self.backbone, self.layer, self.embed)
        threads, bar = _data.threads(self.n_jobs), _progress.bar(self.verbose)
        try:
            self.model_, notices = _mcdd.fit(data, settings, threads, bar, backbone=backbone)
        finally:
            _progress.close(bar)
        self.classes_ = classes if self.model_.classifies else classes[:0]
        self._n_features_out = len(self.classes_)
        self.doctor_ = list(dict.fromkeys([*notices, *self.model_.findings]))
        warn(self.doctor_)
        return self

    def refit(
        self,
        X: Any,
        y: Any = None,
        groups: Any = None,
        *,
        detector: str | None = None,
        tpr: float | None = None,
        per_class: bool | None = None,
    ) -> McddClassifier:
        """Another detector or threshold on the trained networks, without training them again.

        The result is the classifier that `fit` would have made with these parameters.

        Parameters
        ----------
        X, y, groups
            What `fit` was called with.
        detector : str, default=None
            The score; see `mcdd.detectors`. None keeps that of the classifier, and so for the others.
        tpr : float, default=None
            The fraction of known rows to keep as known.
        per_class : bool, default=None
            Whether one fraction of every predicted class is kept.

        Returns
        -------
        clf : McddClassifier
            A new classifier; this one stays as it is.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from mcdd import McddClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = McddClassifier("fast").fit(X, y)
        >>> clf.refit(X, y, detector="mahalanobis").detector
        'mahalanobis'
        """
        check_is_fitted(self)
        data, _ = copy.copy(self)._training_data(X, y, groups)
        return self._refitted(data, detector, tpr, per_class)

    def calibrate(self, X: Any, y: Any = None) -> McddClassifier:
        """Set the threshold and the p-values by new known rows, which were not used for training.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), default=None
            Their classes, for `predict_set` and the validation accuracy.

        Returns
        -------
        clf : McddClassifier
            A new classifier; this one stays as it is.
        """
        check_is_fitted(self)
        data, _ = copy.copy(self)._training_data(X, y, None)
        return self._with_model(self.model_.calibrate(data, _data.threads(self.n_jobs)))

    def _training_data(self, X: Any, y: Any, groups: Any) -> tuple[_mcdd.Table, Array]:
        """The table with its labels and groups, and the classes."""
        data = self._table(self._read(X, reset=True))
        classes = np.array([], dtype=str)
        if y is not None:
            classes, codes = encode_labels(y)
            check_consistent_length(range(len(data)), codes)
            if self.unknown_label is not None and self.unknown_label in classes.tolist():
                raise _mcdd.SettingError(f"unknown_label= is {self.unknown_label!r}, which is a class (give another label)")
            data = data.with_labels(codes, _data.class_names(classes))
        if groups is not None:
            _, numbers = np.unique(column_or_1d(groups), return_inverse=True)
            data = data.with_groups(numbers.astype(np.uint32))
        return data, classes

    @there_if(_has_distances)
    def transform(self, X: Any) -> npt.NDArray[np.float64]:
        """The distance of each row to each class, in the latent space.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)

        Returns
        -------
        distances : ndarray of shape (n_samples, n_classes)
        """
        distances = self._predict(X, distances=True)["distance"]
        # `there_if` has looked.
        assert distances is not None
        return distances

    def explain(self, X: Any, n: int = 5) -> Any:
        """The columns that explain the confidence of each row, in the units of the data.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
        n : int, default=5
            The number of columns for each row.

        Returns
        -------
        frame : pandas.DataFrame, or dict of lists without pandas
            `row` (from 0), `column`, `value`, `expected` (the mean of the class), `deviations` (the distance from it in
            standard deviations), `gain` (the confidence if the column had its expected value, less that of the row) and
            `note`.
        """
        data = self._read(X, reset=False)
        rows = self.model_.explain(data, n, _data.threads(self.n_jobs))
        names = ["row", "column", "value", "expected", "deviations", "gain", "note"]
        columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
        try:
            import pandas
        except ImportError:
            return columns
        return pandas.DataFrame(columns)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], classes: Any = None, backbone: str | os.PathLike[str] | None = None
    ) -> McddClassifier:
        """Read a model from a file of `save` or of the command ``mcdd train``.

        Parameters
        ----------
        path : path-like
        classes : array-like of shape (n_classes,), default=None
            The classes in their own type, in the order of the file, which has them as texts. None for integers if all of
            them are written as integers, else strings.
        backbone : path-like, default=None
            The ONNX file of a model that does not contain its backbone; None for the one beside it.

        Returns
        -------
        clf : McddClassifier
        """
        model = _mcdd.Model.load(os.fspath(path), None if backbone is None else os.fspath(backbone))
        return cls._of_model(model, classes)

    @classmethod
    def _of_model(cls, model: _mcdd.Model, classes: Any = None) -> McddClassifier:
        if model.image_shape is not None:
            raise _mcdd.FormatError("the model reads images (load it with ImageClassifier.load)")
        settings = json.loads(model.settings)
        clf = cls(preset=settings["preset"], tpr=settings["tpr"], random_state=settings["seed"])
        # What training again would need; the others are those of the preset.
        clf.set_params(method=_spec(settings["head"]), detector=_spec(settings["detector"]))
        same = ("hidden", "latent", "batch_norm", "members", "epochs", "batch", "lr", "weight_decay", "patience")
        clf.set_params(**{name: settings.get(name) for name in (*same, "calibration_fraction", "select")})
        clf.set_params(per_class=settings.get("per_class", False))
        clf.set_params(**{name: "off" if settings.get(name) is None else settings[name] for name in ("clip", "bins", "steps")})
        clf.model_ = model
        clf.classes_ = _data.classes_from_names(model.classes) if classes is None else np.asarray(classes)
        if _data.class_names(clf.classes_) != model.classes:
            raise ValueError(f"classes= are not those of the file: {', '.join(model.classes)}")
        clf._n_features_out = len(clf.classes_)
        clf.n_features_in_ = len(model.columns)
        if model.named:
            clf.feature_names_in_ = np.array(model.columns, dtype=object)
        clf.doctor_ = model.findings
        return clf

    def _read(self, X: Any, reset: bool) -> Any:
        """What the library reads: a table or a frame with Arrow's interface for a frame, a matrix for an array."""
        if not reset:
            check_is_fitted(self)
        if _data.is_frame(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            if reset:
                return _data.table(X, self.categorical, self.keep)
            return _data.frame(X, self.categorical)
        X = validate_data(
            self, X, reset=reset, dtype=None, ensure_all_finite="allow-nan", ensure_min_samples=2 if reset else 1
        )
        names = getattr(self, "feature_names_in_", None)
        # Texts are read as in training, whatever the other rows of the array hold.
        plain = len(self.categorical) == 0 if reset else X.dtype.kind not in "OSUT" or self.model_.numeric
        matrix = _data.matrix(X) if plain else None
        if matrix is None:
            return _data.text_table(X, names, self.categorical, self.keep if reset else ())
        return matrix

    def _table(self, data: Any) -> _mcdd.Table:
        if isinstance(data, _mcdd.Table):
            return data
        return _mcdd.Table.from_matrix(data, list(self.keep))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
