#!/usr/bin/env python3
"""LightGBM with a guard on real tables: each class is left out in turn and must be rejected.

    python3 benches/peers/guard.py TABLE ... [--classes 10]

A TABLE is a CSV or Parquet file with a column `label`. Of the other classes, 70% of the rows train LightGBM and the guard, both with
their defaults; 30% are the known test rows. Prints means over the left-out classes as Markdown. At most `--classes` of them are left
out, evenly spread over the sorted names. Needs pandas, pyarrow, lightgbm and the wheel of mcdd.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import lightgbm
import numpy as np
import pandas
from sklearn.model_selection import train_test_split

from mcdd import Guard, metrics

warnings.simplefilter("ignore")


def cell(X: pandas.DataFrame, y: pandas.Series, left_out: str) -> list[float]:
    known = y != left_out
    X_train, X_test, y_train, y_test = train_test_split(X[known], y[known], test_size=0.3, random_state=0, stratify=y[known])
    guard = Guard(lightgbm.LGBMClassifier(verbose=-1)).fit(X_train, y_train)
    labels, right = guard.predict_open(X_test), guard.predict(X_test) == y_test.to_numpy()
    kept = labels != "unknown"

    def auroc(score):
        return metrics.detection(score(X_test), score(X[~known]), n_bootstrap=0).auroc.value

    return [
        right.mean(),
        kept.mean(),
        right[kept].mean(),
        1 - guard.is_known(X[~known]).mean(),
        auroc(guard.score_samples),
        auroc(lambda rows: guard.predict_proba(rows).max(axis=1)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--classes", type=int, default=10)
    args = parser.parse_args()
    print("| table, rows | classes left out | LightGBM's accuracy | kept | accuracy on kept | unknown rejected | AUROC | of LightGBM's probability |")
    print("|---|---|---|---|---|---|---|---|")
    for path in args.tables:
        frame = pandas.read_parquet(path) if path.suffix == ".parquet" else pandas.read_csv(path)
        y = frame.pop("label").astype(str)
        for name in frame.select_dtypes(include=["object", "string"]):
            frame[name] = frame[name].astype("category")
        classes = sorted(y.unique())
        chosen = [classes[i] for i in np.unique(np.linspace(0, len(classes) - 1, min(args.classes, len(classes))).astype(int))]
        means = np.mean([cell(frame, y, left_out) for left_out in chosen], axis=0)
        numbers = " | ".join([*(f"{value:.1%}" for value in means[:4]), *(f"{value:.3f}" for value in means[4:])])
        print(f"| {path.stem}, {len(y):,} | {len(chosen)} of {len(classes)} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
