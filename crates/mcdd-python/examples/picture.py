"""The picture at the end of each example: confidences of known and unknown rows, and the threshold."""

from __future__ import annotations

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np


def confidences(path: str, title: str, known: np.ndarray, unknown: np.ndarray, threshold: float) -> None:
    figure, axes = plt.subplots(figsize=(7, 3))
    low = np.quantile(np.concatenate([known, unknown]), 0.005)
    bins = np.linspace(low, max(known.max(), unknown.max()), 60)
    axes.hist(np.clip(known, low, None), bins, alpha=0.7, label="known", density=True)
    axes.hist(np.clip(unknown, low, None), bins, alpha=0.7, label="unknown", density=True)
    axes.axvline(threshold, color="black", linestyle="--", label="threshold")
    axes.set(title=title, xlabel="confidence", yticks=[])
    axes.legend(frameon=False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    print(f"picture: {path}")
