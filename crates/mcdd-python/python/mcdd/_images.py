"""Classifiers of images."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from . import _data, _mcdd, _progress
from ._classifier import encode_labels, seed
from ._verdict import VerdictMixin
from ._warnings import warn

_SETTINGS = (
    "net",
    "preset",
    "method",
    "detector",
    "tpr",
    "per_class",
    "nu",
    "latent",
    "epochs",
    "batch",
    "lr",
    "optimizer",
    "weight_decay",
    "schedule",
    "calibration_fraction",
    "augment",
    "test_flips",
)


def _pixels(X: Any) -> npt.NDArray[np.uint8]:
    """An array of images with its channels."""
    X = np.asarray(X)
    if X.ndim == 3:
        X = X[..., np.newaxis]
    if X.ndim != 4 or X.dtype != np.uint8:
        raise ValueError(
            f"expected bytes (uint8) of shape (n_images, height, width) or (n_images, height, width, channels), "
            f"and got {X.dtype} of shape {X.shape}"
        )
    return np.ascontiguousarray(X)


class ImageClassifier(VerdictMixin, ClassifierMixin, BaseEstimator):
    """A classifier of images that can answer "unknown".

    Parameters
    ----------
    net : str, default=None
        The network: "cnn", "cnn32", "resnet20", "resnet34", "densenet100" and others; None takes that of the preset, "cnn" for
        "best" and "fast".
    preset : {"best", "fast", "paper"}, default=None
        The base configuration; None is "best".
    method : str, default=None
        The training objective; see `mcdd.methods`.
    detector : str, default=None
        The score; see `mcdd.detectors`.
    tpr : float, default=0.95
        The fraction of known images to keep as known.
    random_state : int, RandomState instance or None, default=0
        The seed of all random numbers.
    n_jobs : int, default=None
        The number of threads; None and -1 for all cores.
    unknown_label : object, default=None
        The label that `predict` gives to unknown images; None makes it choose a class for every image.
    skip_bad : bool, default=False
        Whether files that cannot be read are left out, with a warning, instead of an error.
    verbose : bool or int, default=False
        Whether to show a progress bar.
    backbone : path-like, default=None
        A frozen ONNX network on whose features the model is trained; `net`, `augment` and `test_flips` have no meaning then. See the guide on ONNX.
    layer : str or list of str, default=None
        The layers of the backbone whose values are the features, as ``mcdd layers`` lists them; None for what feeds its last linear
        layer.
    embed : bool, default=True
        Whether a model file contains the backbone, or only its name and SHA-256 sum.
    mean, std : list of float, default=None
        Mean and deviation of each channel of the backbone's images, of values from 0 to 1; None for those of the file's metadata, or
        else ImageNet's.
    channel_order : {"rgb", "bgr"}, default=None
        The order of the channels of the backbone's images; None for that of the file's metadata, or else "rgb".
    per_class, nu, latent, epochs, batch, lr, optimizer, weight_decay, schedule, calibration_fraction : default=None
        Settings of the network and of training; None takes the defaults.
    augment : bool or {"on", "move", "off"}, default=None
        Whether training images are moved and flipped at random, only moved (for digits and text), or neither; None is "on".
    test_flips : bool, default=None
        Whether predictions are the mean over an image and its mirror image; None takes the preset's.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes.
    image_shape_ : tuple of int
        Height, width and channels.
    doctor_ : list of str
        What is worth a look about the model and the data.

    Examples
    --------
    >>> import numpy as np
    >>> from mcdd import ImageClassifier
    >>> random = np.random.default_rng(0)
    >>> dark, light = random.integers(0, 80, (60, 8, 8)), random.integers(170, 250, (60, 8, 8))
    >>> X, y = np.concatenate([dark, light]).astype(np.uint8), np.repeat(["dark", "light"], 60)
    >>> clf = ImageClassifier("resnet8", epochs=2).fit(X, y)
    >>> clf.predict(X[:2]).shape
    (2,)
    """

    def __init__(
        self,
        net: str | None = None,
        method: str | None = None,
        detector: str | None = None,
        *,
        preset: str | None = None,
        tpr: float = 0.95,
        random_state: Any = 0,
        n_jobs: int | None = None,
        unknown_label: Any = None,
        skip_bad: bool = False,
        verbose: bool | int = False,
        backbone: str | os.PathLike[str] | None = None,
        layer: Any = None,
        embed: bool = True,
        mean: Any = None,
        std: Any = None,
        channel_order: str | None = None,
        per_class: bool | None = None,
        nu: float | None = None,
        latent: int | None = None,
        epochs: int | None = None,
        batch: int | None = None,
        lr: float | None = None,
        optimizer: str | None = None,
        weight_decay: float | None = None,
        schedule: str | None = None,
        calibration_fraction: float | None = None,
        augment: bool | str | None = None,
        test_flips: bool | None = None,
    ) -> None:
        self.net = net
        self.preset = preset
        self.method = method
        self.detector = detector
        self.tpr = tpr
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.unknown_label = unknown_label
        self.skip_bad = skip_bad
        self.verbose = verbose
        self.backbone = backbone
        self.layer = layer
        self.embed = embed
        self.mean = mean
        self.std = std
        self.channel_order = channel_order
        self.per_class = per_class
        self.nu = nu
        self.latent = latent
        self.epochs = epochs
        self.batch = batch
        self.lr = lr
        self.optimizer = optimizer
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.calibration_fraction = calibration_fraction
        self.augment = augment
        self.test_flips = test_flips

    def fit(self, X: Any, y: Any = None) -> ImageClassifier:
        """Train on images.

        Parameters
        ----------
        X : ndarray of uint8 of shape (n_images, height, width) or (n_images, height, width, channels), or path-like
            Pixels, or a folder with a folder for each class.
        y : array-like of shape (n_images,), default=None
            The classes; those of a folder are the names of its folders.

        Returns
        -------
        self : ImageClassifier
        """
        backbone = self._backbone()
        images, self.classes_, notices = self._training_images(X, y, None)
        settings = {name: getattr(self, name) for name in _SETTINGS}
        settings["seed"] = seed(self.random_state)
        threads, bar = _data.threads(self.n_jobs), _progress.bar(self.verbose)
        try:
            self.model_, more = _mcdd.fit(images, settings, threads, bar, backbone=backbone)
        finally:
            _progress.close(bar)
        self.image_shape_ = images.shape
        self.doctor_ = list(dict.fromkeys([*notices, *more, *self.model_.findings]))
        warn(self.doctor_)
        return self

    def refit(
        self,
        X: Any,
        y: Any = None,
        *,
        detector: str | None = None,
        tpr: float | None = None,
        per_class: bool | None = None,
    ) -> ImageClassifier:
        """Another detector or threshold on the trained network, without training it again.

        The result is the classifier that `fit` would have made with these parameters.

        Parameters
        ----------
        X, y
            What `fit` was called with.
        detector : str, default=None
            The score; see `mcdd.detectors`. None keeps that of the classifier, and so for the others.
        tpr : float, default=None
            The fraction of known images to keep as known.
        per_class : bool, default=None
            Whether one fraction of every predicted class is kept.

        Returns
        -------
        clf : ImageClassifier
            A new classifier; this one stays as it is.
        """
        check_is_fitted(self)
        images, _, notices = self._training_images(X, y, self.image_shape_)
        warn(notices)
        return self._refitted(images, detector, tpr, per_class)

    def calibrate(self, X: Any, y: Any = None) -> ImageClassifier:
        """Set the threshold and the p-values by new known images, which were not used for training.

        Parameters
        ----------
        X : images, as for `predict`
        y : array-like of shape (n_images,), default=None
            Their classes, for `predict_set` and the validation accuracy.

        Returns
        -------
        clf : ImageClassifier
            A new classifier; this one stays as it is.
        """
        images = self._read(X, reset=False)
        if y is not None:
            classes, codes = encode_labels(y)
            check_consistent_length(range(len(images)), codes)
            images = images.with_labels(codes, _data.class_names(classes))
        return self._with_model(self.model_.calibrate(images, _data.threads(self.n_jobs)))

    def _backbone(self) -> Any:
        options = (self.layer, self.embed, self.mean, self.std, self.channel_order)
        return _data.backbone(self.backbone, *options)

    def _training_images(
        self, X: Any, y: Any, shape: tuple[int, int, int] | None
    ) -> tuple[_mcdd.Images, npt.NDArray[Any], list[str]]:
        """The images with their labels, the classes, and notices about the files."""
        notices: list[str] = []
        if isinstance(X, str | os.PathLike):
            if y is not None:
                raise ValueError("the classes of a folder are the names of its folders: leave out y")
            backbone = self._backbone()
            file = backbone[0] if backbone else None
            images, notices = _mcdd.Images.read([os.fspath(X)], True, shape, self.skip_bad, file)
            classes = _data.classes_from_names(images.classes)
        else:
            if y is None:
                raise ValueError("This ImageClassifier estimator requires y to be passed, but the target y is None.")
            pixels = _pixels(X)
            classes, codes = encode_labels(y)
            check_consistent_length(pixels, codes)
            images = _mcdd.Images.from_array(pixels).with_labels(codes, _data.class_names(classes))
        return images, classes, notices

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], backbone: str | os.PathLike[str] | None = None
    ) -> ImageClassifier:
        """Read a model from a file of `save` or of the command ``mcdd train``.

        Parameters
        ----------
        path : path-like
        backbone : path-like, default=None
            The ONNX file of a model that does not contain its backbone; None for the one beside it.

        Returns
        -------
        clf : ImageClassifier
        """
        model = _mcdd.Model.load(os.fspath(path), None if backbone is None else os.fspath(backbone))
        if model.image_shape is None:
            raise _mcdd.FormatError("the model reads tables (load it with McddClassifier.load)")
        settings = json.loads(model.settings)
        clf = cls(net=(settings.get("image") or {}).get("net"), tpr=settings["tpr"], random_state=settings["seed"])
        clf.model_, clf.image_shape_ = model, model.image_shape
        clf.classes_ = _data.classes_from_names(model.classes)
        clf.doctor_ = model.findings
        return clf

    def _read(self, X: Any, reset: bool) -> Any:
        check_is_fitted(self)
        if isinstance(X, str | os.PathLike):
            X = [X]
        if isinstance(X, Sequence) and X and all(isinstance(path, str | os.PathLike) for path in X):
            paths = [os.fspath(path) for path in X]
            images, notices = _mcdd.Images.read(paths, False, self.image_shape_, self.skip_bad)
            warn(notices)
            return images
        return _mcdd.Images.from_array(_pixels(X))
