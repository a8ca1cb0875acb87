"""Types that users see, checked by mypy and pyright; nothing runs here."""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import mcdd
from mcdd import Detector, Guard, McddClassifier, Monitor, metrics


def check(X: npt.NDArray[np.float64], y: npt.NDArray[np.int64]) -> None:
    clf = McddClassifier(preset="fast", tpr=0.9).fit(X, y)
    assert_type(clf, McddClassifier)
    assert_type(clf.predict_open(X), npt.NDArray[Any])
    assert_type(clf.p_values(X), npt.NDArray[np.float64])
    assert_type(clf.is_known(X), npt.NDArray[np.bool_])
    assert_type(McddClassifier.load("m.mcdd"), McddClassifier)
    assert_type(Guard(clf).fit(X, y), Guard)
    assert_type(Detector("vim").fit(X, y).score_samples(X), npt.NDArray[np.float64])
    assert_type(Monitor(clf, alpha=0.05).add(X).alarm, int | None)
    assert_type(metrics.detection([1.0], [0.0]).auroc.value, float)
    assert_type(mcdd.detectors(), dict[str, str])
