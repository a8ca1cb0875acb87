"""A table of sensors: train, reject a class that training did not have, and see why.

    python sensor_table.py [FOLDER]

FOLDER holds gas/batch*.dat of the UCI set "Gas Sensor Array Drift". Without it, scikit-learn's handwritten digits take the
place of the sensors.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from picture import confidences
from sklearn.datasets import load_digits, load_svmlight_files
from sklearn.model_selection import train_test_split

from mcdd import McddClassifier, metrics

files = sorted(Path(sys.argv[1]).glob("gas/batch*.dat")) if len(sys.argv) > 1 else []
if files:
    parts = load_svmlight_files([str(file) for file in files], n_features=128)
    X = np.concatenate([part.toarray() for part in parts[::2]])
    y, strange, name = np.concatenate(parts[1::2]).astype(int), 6, "gas sensors"
else:
    X, y = load_digits(return_X_y=True)
    strange, name = 7, "digits"

known = y != strange
X_train, X_test, y_train, y_test = train_test_split(X[known], y[known], random_state=0, stratify=y[known])

clf = McddClassifier().fit(X_train, y_train)
print(clf.verdict())

labels = clf.predict_open(X_test)
kept = labels != "unknown"
print(f"known rows kept: {kept.mean():.1%}; accuracy on them: {(labels[kept] == y_test[kept]).mean():.1%}")
print(f"rows of the left-out class rejected: {(clf.predict_open(X[~known]) == 'unknown').mean():.1%}")
print(metrics.detection(clf.score_samples(X_test), clf.score_samples(X[~known])))
print(clf.explain(X[~known][:1], n=3))

confidences(
    "sensor_table.png", f"{name}, class {strange} left out", clf.score_samples(X_test), clf.score_samples(X[~known]),
    clf.model_.threshold(),
)
