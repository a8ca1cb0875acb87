"""Keep your LightGBM for the labels, and let mcdd say which rows it should not be asked about.

    python keep_your_lightgbm.py [TABLE.parquet]

TABLE has a column `label`, for example the UCI set "Dry Bean". Without it, scikit-learn's wines are used.
"""

from __future__ import annotations

import sys

import lightgbm
import pandas
from picture import confidences
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

from mcdd import Guard, metrics

if len(sys.argv) > 1:
    frame = pandas.read_parquet(sys.argv[1])
    y, X = frame.pop("label").astype(str), frame
else:
    X, y = load_wine(return_X_y=True, as_frame=True)
    y = y.astype(str)

strange = sorted(y.unique())[-1]
known = y != strange
X_train, X_test, y_train, y_test = train_test_split(X[known], y[known], random_state=0, stratify=y[known])

guard = Guard(lightgbm.LGBMClassifier(verbose=-1)).fit(X_train, y_train)
labels, sure = guard.predict_open(X_test), guard.predict_proba(X[~known]).max(axis=1)
kept = labels != "unknown"
print(f"LightGBM alone: accuracy {(guard.predict(X_test) == y_test).mean():.1%}")
print(f"guarded: {kept.mean():.1%} of known rows kept, accuracy on them {(labels[kept] == y_test[kept]).mean():.1%}")
print(f"rows of the class {strange}, which training did not have:")
print(f"  LightGBM gives a class at a mean probability of {sure.mean():.1%}")
print(f"  the guard rejects {(guard.predict_open(X[~known]) == 'unknown').mean():.1%}")
print(f"  AUROC of LightGBM's largest probability: "
      f"{metrics.detection(guard.predict_proba(X_test).max(axis=1), sure, n_bootstrap=0).auroc.value:.3f}")
print(f"  AUROC of the guard: "
      f"{metrics.detection(guard.score_samples(X_test), guard.score_samples(X[~known]), n_bootstrap=0).auroc.value:.3f}")
print(guard.explain(X[~known][:1], n=3))

confidences(
    "keep_your_lightgbm.png", f"LightGBM with a guard, class {strange} left out", guard.score_samples(X_test),
    guard.score_samples(X[~known]), guard.detector_.model_.threshold(),
)
