"""Data that several tests use."""

from __future__ import annotations

import os
import shutil
import warnings
from datetime import datetime, timedelta

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import train_test_split

import mcdd

# Findings about small tables are expected here; tests of warnings turn them on again.
warnings.simplefilter("ignore", mcdd.McddWarning)


@pytest.fixture(scope="session")
def command():
    found = os.environ.get("MCDD_COMMAND") or shutil.which("mcdd")
    if not found:
        pytest.skip("the command is not there: set MCDD_COMMAND to its path")
    return found


@pytest.fixture(scope="session")
def iris():
    X, y = load_iris(return_X_y=True)
    return train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)


@pytest.fixture(scope="session")
def wine():
    """Two classes of wine to train on, and a third that is unknown."""
    X, y = load_wine(return_X_y=True)
    known = y != 2
    X_train, X_test, y_train, y_test = train_test_split(
        X[known], y[known], test_size=0.3, random_state=0, stratify=y[known]
    )
    return X_train, X_test, y_train, y_test, X[~known]


@pytest.fixture(scope="session")
def clf(iris):
    X_train, _, y_train, _ = iris
    return mcdd.McddClassifier(preset="fast").fit(X_train, y_train)


def customers(rows: int = 400, seed: int = 0) -> tuple[dict[str, list], np.ndarray]:
    """A business table with numbers, categories, booleans, dates and missing cells, and its classes."""
    random = np.random.default_rng(seed)
    plan = random.choice(["free", "pro", "team"], rows)
    spend = np.where(plan == "free", 0.0, np.where(plan == "pro", 20.0, 90.0)) + random.normal(0, 2, rows)
    seats = np.where(plan == "team", random.integers(5, 50, rows), 1)
    days = random.integers(0, 700, rows)
    columns = {
        "spend": [None if random.random() < 0.05 else float(v) for v in spend],
        "seats": [int(v) for v in seats],
        "country": [None if random.random() < 0.05 else str(v) for v in random.choice(["de", "fr", "jp"], rows)],
        "trial": [bool(v) for v in random.random(rows) < 0.2],
        "since": [datetime(2024, 1, 1) + timedelta(days=int(d)) for d in days],
    }
    return columns, plan
