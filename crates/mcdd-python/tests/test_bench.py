"""Benchmarks: the same results by every backend and by the command."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.datasets import load_iris

import mcdd


@pytest.fixture(scope="module")
def iris_table():
    return load_iris(return_X_y=True)


def cells(folder):
    """All results without their seconds."""
    found = []
    for line in (folder / "results.jsonl").read_text().splitlines():
        cell = json.loads(line)
        cell.pop("seconds", None)
        found.append(cell)
    return found


def test_backends_agree_and_resume(iris_table, tmp_path):
    X, y = iris_table
    methods = ["fast", "gda+knn:k=1:on=inputs"]
    found = mcdd.bench(X, y, methods, test_folds=1, output=tmp_path / "a", verbose=1)
    assert set(found.means) == set(methods) and 0.8 < found.means["fast"]["auroc"] <= 1 and not found.failures
    assert "fast" in repr(found) and "srcdoc" in found._repr_html_()
    assert {"index.html", "table.md", "results.jsonl"} <= {path.name for path in (tmp_path / "a").iterdir()}
    mcdd.bench(X, y, methods, test_folds=1, output=tmp_path / "b", backend="joblib", n_jobs=2)
    assert cells(tmp_path / "b") == cells(tmp_path / "a")
    # A run that was stopped goes on, also with another backend.
    lines = (tmp_path / "a" / "results.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "results.jsonl").write_text("".join(lines[:4]))
    again = mcdd.bench(X, y, methods, test_folds=1, output=tmp_path / "c", n_jobs=1)
    assert cells(tmp_path / "c") == cells(tmp_path / "a") and again.means == found.means


def test_ray_agrees(iris_table, tmp_path):
    ray = pytest.importorskip("ray")
    X, y = iris_table
    mcdd.bench(X, y, ["fast"], test_folds=1, output=tmp_path / "a")
    ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
    try:
        mcdd.bench(X, y, ["fast"], test_folds=1, output=tmp_path / "b", backend="ray")
    finally:
        ray.shutdown()
    assert cells(tmp_path / "b") == cells(tmp_path / "a")


def test_wrong_arguments(iris_table):
    X, y = iris_table
    with pytest.raises(mcdd.McddError, match="folds="):
        mcdd.bench(X, y, folds=1)
    with pytest.raises(mcdd.McddError):
        mcdd.bench(X, y, ["nonsense"])
    with pytest.raises(mcdd.McddError, match="7"):
        mcdd.bench(X, y, ["fast"], ood=[7])
    with pytest.raises(ValueError, match="backend="):
        mcdd.bench(X, y, ["fast"], backend="magic")
    with pytest.raises(mcdd.McddError):
        mcdd.bench(X, np.zeros(len(X)))
