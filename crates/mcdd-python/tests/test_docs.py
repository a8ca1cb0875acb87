"""Every Python block of the documentation runs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

import mcdd

ROOT = Path(__file__).parents[3]
PAGES = ["README.md", "docs/python.md", "docs/monitoring.md", "docs/guide/onnx.md", "crates/mcdd-python/README.md"]


def blocks():
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        found = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        assert found, page
        yield from ((page, i, code) for i, code in enumerate(found))


@pytest.mark.parametrize("page, i, code", list(blocks()), ids=lambda v: str(v) if not isinstance(v, str) or "/" in v else "")
def test_block(page, i, code, tmp_path, monkeypatch):
    """Names that a reader has are made up here: tables, a classifier, images."""
    if "mcdd.spark" in code:
        pytest.skip("needs a cluster; test_distributed.py makes these calls")
    for name in ("torch", "lightgbm", "onnxruntime"):
        if f"{name}." in code:
            pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    X, y = load_iris(return_X_y=True)
    names = {"X": X, "y": y, "X_new": X[:5], "X_test": X, "y_test": y, "X_other": X + 9, "mcdd": mcdd}
    if "ImageClassifier" in code:
        pillow = pytest.importorskip("PIL.Image")
        random = np.random.default_rng(0)
        for label in ("cat", "dog"):
            (tmp_path / "photos" / label).mkdir(parents=True)
            for n in range(20):
                pixels = random.integers(0, 255, (8, 8, 3), dtype=np.uint8)
                pillow.fromarray(pixels).save(tmp_path / "photos" / label / f"{n}.png")
        code = code.replace("ImageClassifier()", "ImageClassifier(epochs=1)")
        names["table_clf"] = mcdd.McddClassifier(preset="fast", epochs=5).fit(X, y)
        names["known"] = names["unknown"] = random.integers(0, 255, (5, 8, 8, 3), dtype=np.uint8)
    if "Monitor" in code:
        names |= {"X_reference": X, "X_today": X[:50], "X_tomorrow": X[50:]}
        names["clf"] = mcdd.McddClassifier(preset="fast", epochs=5).fit(X, y)
    if "lightgbm" in code:
        names["lightgbm"] = sys.modules["lightgbm"]
    if "network" in code:
        torch = pytest.importorskip("torch")
        names["network"] = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        batch = (torch.from_numpy(X.astype(np.float32)), torch.from_numpy(y))
        names["train_loader"] = names["new_loader"] = [batch]
    exec(compile(code, f"{page}, block {i + 1}", "exec"), names)
