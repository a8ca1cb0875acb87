"""A network of PyTorch, guarded: its features and logits go to any detector of mcdd.

    python torch_features.py

A small network is trained on scikit-learn's handwritten digits without the sevens. Needs torch.
"""

from __future__ import annotations

import sys

import numpy as np
from picture import confidences
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import mcdd
from mcdd import Detector, metrics

try:
    import torch
except ImportError:
    sys.exit("skipped: torch is not installed")
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
X, y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)
known = y != 7
labels = np.searchsorted(np.unique(y[known]), y)
X_train, X_test, y_train, y_test = train_test_split(X[known], labels[known], random_state=0)

network = torch.nn.Sequential(
    torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64), torch.nn.ReLU(), torch.nn.Linear(64, 9)
)
optimizer = torch.optim.Adam(network.parameters())
train = TensorDataset(torch.from_numpy(X_train), torch.from_numpy(y_train))
for _ in range(30):
    for x, target in DataLoader(train, batch_size=64, shuffle=True):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(x), target).backward()
        optimizer.step()


def outputs(x: np.ndarray) -> mcdd.torch.Outputs:
    return mcdd.torch.features(network, DataLoader(torch.from_numpy(x), batch_size=256))


# The five lines: features and logits of known rows, a detector on them, and its verdict on new rows.
fitted = mcdd.torch.features(network, DataLoader(train, batch_size=256))
new, strange = outputs(X_test), outputs(X[~known])
for name in ["msp", "energy", "mahalanobis", "knn:k=5", "vim"]:
    _, needs_logits, needs_labels = mcdd._mcdd.detector_needs(name)
    given = {"logits": fitted.logits} if needs_logits else {}
    detector = Detector(name).fit(fitted.features, fitted.labels if needs_labels else None, **given)

    def score(rows: mcdd.torch.Outputs) -> np.ndarray:
        return detector.score_samples(rows.features, **({"logits": rows.logits} if needs_logits else {}))

    found = metrics.detection(score(new), score(strange), n_bootstrap=0)
    print(f"{name:<12} AUROC {found.auroc.value:.3f}  TNR at 95% TPR {found.tnr95.value:.3f}")

confidences(
    "torch_features.png", "vim on a PyTorch network, sevens left out", score(new), score(strange),
    detector.scorer_.threshold(),
)
