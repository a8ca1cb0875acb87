"""Questions to a bank that are out of scope: sentence embeddings, with some intents left out of training.

    python out_of_scope_questions.py FOLDER

FOLDER holds embeddings of the set Banking77 (PolyAI, CC BY 4.0) by any sentence model, and their intents:
banking77_train.npy, banking77_train.labels.txt, banking77_test.npy, banking77_test.labels.txt; and the questions themselves
as banking77_test.csv, for the output.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
from picture import confidences

from mcdd import McddClassifier, metrics

if len(sys.argv) < 2:
    sys.exit("skipped: give the folder of the embeddings (see the top of this file)")
folder = Path(sys.argv[1])


def read(part: str) -> tuple[np.ndarray, np.ndarray]:
    labels = (folder / f"banking77_{part}.labels.txt").read_text().split("\n")
    return np.load(folder / f"banking77_{part}.npy").astype(np.float32), np.array([x for x in labels if x])


X_train, y_train = read("train")
X_test, y_test = read("test")
intents = np.unique(y_train)
out_of_scope = set(np.random.default_rng(0).choice(intents, 15, replace=False))
inside = ~np.isin(y_train, list(out_of_scope))
known = ~np.isin(y_test, list(out_of_scope))

clf = McddClassifier().fit(X_train[inside], y_train[inside])
print(clf.verdict())
labels = clf.predict_open(X_test)
kept = labels[known] != "unknown"
print(f"questions in scope kept: {kept.mean():.1%}; accuracy on them: "
      f"{(labels[known][kept] == y_test[known][kept]).mean():.1%}")
print(f"questions out of scope rejected: {(labels[~known] == 'unknown').mean():.1%}")
print(f"AUROC: {metrics.detection(clf.score_samples(X_test[known]), clf.score_samples(X_test[~known])).auroc.value:.3f}")
plausible = clf.predict_set(X_test[known])
print(f"plausible intents for a question in scope: {plausible[plausible.any(axis=1)].sum(axis=1).mean():.2f} on average")

with open(folder / "banking77_test.csv", newline="") as file:
    questions = [row[0] for row in csv.reader(file)][1:]
p = clf.p_values(X_test)
for i in np.argsort(p)[:5]:
    print(f"  p = {p[i]:.4f}  {questions[i].strip()[:70]!r} ({'out of scope' if not known[i] else 'in scope'})")

score = clf.score_samples(X_test)
confidences(
    "out_of_scope_questions.png", "Banking77, 15 of 77 intents left out", score[known], score[~known],
    clf.model_.threshold(),
)
