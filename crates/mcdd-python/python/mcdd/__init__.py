"""Classifiers that put a class on what they know and say "unknown" to what they don't.

Examples
--------
>>> from sklearn.datasets import load_iris
>>> from mcdd import McddClassifier
>>> X, y = load_iris(return_X_y=True)
>>> clf = McddClassifier().fit(X, y)
>>> clf.predict_open([[5.0, 3.4, 1.5, 0.2], [50.0, 34.0, 15.0, 2.0]])
array([0, 'unknown'], dtype=object)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._mcdd import (
    DataError,
    DivergedError,
    FormatError,
    McddError,
    SettingError,
    __version__,
)
from ._warnings import McddWarning

if TYPE_CHECKING:
    from . import metrics
    from ._bench import BenchResult, bench
    from ._catalog import detectors, methods
    from ._classifier import McddClassifier
    from ._detector import Detector
    from ._guard import Guard
    from ._images import ImageClassifier
    from ._monitor import Monitor
    from ._report import Report, report

# scikit-learn is imported with the first name that needs it, so that `import mcdd` is fast.
_LAZY = {
    "BenchResult": "_bench",
    "Detector": "_detector",
    "Guard": "_guard",
    "ImageClassifier": "_images",
    "McddClassifier": "_classifier",
    "Monitor": "_monitor",
    "Report": "_report",
    "bench": "_bench",
    "detectors": "_catalog",
    "methods": "_catalog",
    "report": "_report",
}
_MODULES = ("dask", "metrics", "ray", "spark", "torch")

__all__ = [
    "BenchResult",
    "DataError",
    "Detector",
    "DivergedError",
    "FormatError",
    "Guard",
    "ImageClassifier",
    "McddClassifier",
    "McddError",
    "McddWarning",
    "Monitor",
    "Report",
    "SettingError",
    "__version__",
    "bench",
    "detectors",
    "methods",
    "metrics",
    "report",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _LAZY:
        value = getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY, *_MODULES])
