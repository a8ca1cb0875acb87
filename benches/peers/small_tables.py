#!/usr/bin/env python3
"""The default's confidence and the former one on scikit-learn's small tables: AUROC with each class left out.

    python3 benches/peers/small_tables.py        in an environment with the package `mcdd` and scikit-learn

Of the known classes 60% of the rows train, the others are tested. Prints the means, and the paired difference with its standard error.
"""

import numpy as np
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.model_selection import train_test_split

from mcdd import McddClassifier, metrics

FORMER = "knn:k=1:log=true:rows=50000:cover=0.015:round=true"


def main() -> None:
    for name, load, seeds in (("wine", load_wine, 4), ("iris", load_iris, 4), ("digits", load_digits, 1)):
        X, y = load(return_X_y=True)
        found = []
        for out in np.unique(y):
            for seed in range(seeds):
                known = y != out
                split = train_test_split(X[known], y[known], test_size=0.4, random_state=seed, stratify=y[known])
                X_train, X_test, y_train, _ = split
                models = [McddClassifier(random_state=seed), McddClassifier(random_state=seed, detector=FORMER)]
                for model in models:
                    model.fit(X_train, y_train)
                scores = [metrics.detection(m.score_samples(X_test), m.score_samples(X[~known])) for m in models]
                found.append([100 * s.auroc.value for s in scores])
        default, former = np.array(found).T
        error = (default - former).std(ddof=1) / np.sqrt(len(found))
        print(f"{name}: default {default.mean():.2f}, former {former.mean():.2f}, {(default - former).mean():+.2f} ± {error:.2f}")


main()
