#!/usr/bin/env python3
"""How much the networks of an ensemble agree on new rows.

    python3 scripts/agreement.py TABLE.csv ...

A TABLE has a column `label`. Five models of the preset fast, with seeds 0 to 4, are trained on four fifths of its rows and score the
others. Prints the mean correlation of two networks' scores, and the standard deviation of the mean of five, where each has 1. Needs
pandas and the wheel of mcdd.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
import pandas
from sklearn.model_selection import train_test_split

from mcdd import McddClassifier

warnings.simplefilter("ignore")
for path in sys.argv[1:]:
    frame = pandas.read_csv(path)
    y = frame.pop("label").astype(str)
    for name in frame.select_dtypes(exclude="number"):
        frame[name] = frame[name].astype("category")
    train, new, classes, _ = train_test_split(frame, y, test_size=0.2, random_state=0, stratify=y)
    scores = np.array([McddClassifier("fast", random_state=seed).fit(train, classes).score_samples(new) for seed in range(5)])
    scores = (scores - scores.mean(1, keepdims=True)) / scores.std(1, keepdims=True)
    pairs = np.corrcoef(scores)[np.triu_indices(5, 1)]
    print(f"{Path(path).stem}: correlation {pairs.mean():.2f}, deviation of the mean {scores.mean(0).std():.2f}")
