#!/usr/bin/env python3
"""Writes crates/mcdd/tests/fixtures/metrics.json: reference values of scikit-learn for fixed cases.

    python3 scripts/metrics_fixtures.py [--venv FOLDER] [--out FILE]

Creates a virtual environment with the pinned scikit-learn and NumPy in FOLDER (a temporary folder if not given), runs
itself there and writes the file. Numbers are written with repr, which reads back to the same bits. The scores of a
side are one string, separated by spaces, because JSON has no infinities.
"""

import json
from pathlib import Path

import inside

PINNED = ["scikit-learn==1.7.2", "numpy==2.3.4"]
OUT = Path(__file__).resolve().parent.parent / "crates/mcdd/tests/fixtures/metrics.json"


def cases():
    """Yields (name, ID scores, OOD scores)."""
    import numpy as np

    rng = np.random.default_rng(20200823)
    f32 = np.float32

    for n_id, n_ood in [(20, 20), (40, 10), (7, 33), (100, 20), (19, 21), (60, 60), (13, 17), (80, 40)]:
        yield f"continuous {n_id} {n_ood}", rng.normal(1, 1, n_id), rng.normal(0, 1, n_ood)
    for shift in [-2.0, 0.0, 3.0]:
        yield f"shifted by {shift}", rng.normal(shift, 1, 41), rng.normal(0, 1, 37)

    for levels in [2, 3, 4, 5, 7, 10, 20]:
        for n_id, n_ood in [(40, 40), (61, 23)]:
            yield (
                f"ties on {levels} levels {n_id} {n_ood}",
                np.minimum(rng.integers(0, levels, n_id) + 1, levels - 1),
                rng.integers(0, levels, n_ood),
            )
    for digits in [0, 1, 2]:
        yield (
            f"rounded to {digits} digits",
            np.round(rng.normal(1, 1, 70), digits),
            np.round(rng.normal(0, 1, 50), digits),
        )
    line = np.arange(20)
    yield "each score once on both sides", line, line
    yield "each score once on both sides, and more", np.r_[line, 20, 21], np.r_[line, -1, 3, 3]
    yield "each score twice on both sides", np.repeat(line, 2), np.repeat(line, 2)

    for n_id, n_ood in [(1, 1), (5, 9), (40, 3)]:
        yield f"all equal {n_id} {n_ood}", np.full(n_id, 0.5), np.full(n_ood, 0.5)
    yield "one side equal", np.full(12, 0.5), rng.uniform(0, 1, 15)
    yield "other side equal", rng.uniform(0, 1, 15), np.full(12, 0.5)
    yield "zeros of both signs", np.array([0.0, -0.0, 1.0]), np.array([-0.0, 0.0, -1.0])

    yield "separated", rng.uniform(1, 2, 30), rng.uniform(-1, 0, 25)
    yield "separated the wrong way", rng.uniform(-1, 0, 30), rng.uniform(1, 2, 25)
    yield "separated but for one tie", np.r_[rng.uniform(1, 2, 29), 0.0], np.r_[rng.uniform(-1, 0, 24), 0.0]
    yield "touching", np.r_[np.full(10, 1.0), np.full(10, 2.0)], np.r_[np.full(10, 0.0), np.full(10, 1.0)]

    yield "one against one", np.array([2.0]), np.array([1.0])
    yield "one against one, wrong", np.array([1.0]), np.array([2.0])
    yield "one against many", np.array([0.3]), rng.normal(0, 1, 30)
    yield "many against one", rng.normal(0, 1, 30), np.array([0.3])
    yield "one against many, tied", np.array([1.0]), rng.integers(0, 3, 30)
    yield "many against one, tied", rng.integers(0, 3, 30), np.array([1.0])

    yield "unbalanced 200 4", rng.normal(1, 1, 200), rng.normal(0, 1, 4)
    yield "unbalanced 4 200", rng.normal(1, 1, 4), rng.normal(0, 1, 200)
    yield "unbalanced 200 4, tied", rng.integers(1, 9, 200), rng.integers(0, 8, 4)
    yield "unbalanced 4 200, tied", rng.integers(1, 9, 4), rng.integers(0, 8, 200)
    # Rates of exactly 85 and 95%.
    for n in [20, 40, 100]:
        yield f"rates met exactly {n}", rng.permutation(n) + 0.5, rng.integers(-3, n, n)

    yield "huge", rng.normal(1, 1, 30) * 1e307, rng.normal(0, 1, 30) * 1e307
    yield "small", rng.normal(1, 1, 30) * 1e-310, rng.normal(0, 1, 30) * 1e-310
    yield "many magnitudes", 10.0 ** rng.uniform(-300, 300, 30), -(10.0 ** rng.uniform(-300, 300, 30))
    yield "mixed magnitudes", 10.0 ** rng.uniform(-20, 22, 30), 10.0 ** rng.uniform(-22, 20, 30)
    yield "neighboring doubles", 1 + rng.integers(1, 9, 30) * 2.0**-52, 1 + rng.integers(0, 8, 30) * 2.0**-52
    yield "log-densities", -rng.chisquare(128, 40) / 2, -rng.chisquare(128, 40) * 0.8

    for scale, classes in [(4, 3), (12, 5), (30, 10), (60, 10)]:
        def confidence(n, scale):
            logits = rng.normal(0, scale, (n, classes)).astype(f32)
            e = np.exp(logits - logits.max(axis=1, keepdims=True))
            return (e / e.sum(axis=1, keepdims=True)).max(axis=1).astype(np.float64)

        yield f"float32 softmax, logits of {scale}", confidence(60, scale), confidence(45, scale / 2)
    yield "infinite below", np.r_[rng.normal(1, 1, 20), -np.inf], np.r_[rng.normal(0, 1, 20), -np.inf, -np.inf]
    yield "infinite both ways", np.r_[np.inf, np.inf, 1, 0, -np.inf], np.r_[np.inf, 1, 0.5, -np.inf, -np.inf]


def expected(id_scores, ood_scores):
    import numpy as np
    from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

    # Ranks preserve order and ties exactly. scikit-learn does not accept infinities.
    both = np.r_[id_scores, ood_scores]
    if not np.isfinite(both).all():
        both = np.unique(both, return_inverse=True)[1].astype(np.float64)
    is_id = np.r_[np.ones(len(id_scores), int), np.zeros(len(ood_scores), int)]

    fpr, tpr, _ = roc_curve(is_id, both, drop_intermediate=False)
    fpr_ood, tpr_ood, _ = roc_curve(1 - is_id, -both, drop_intermediate=False)
    # As OpenOOD calls it: points may be dropped.
    fpr_open, tpr_open, _ = roc_curve(1 - is_id, -both)
    precision_in, recall_in, _ = precision_recall_curve(is_id, both)
    precision_out, recall_out, _ = precision_recall_curve(1 - is_id, -both)
    tied = (np.asarray(id_scores)[:, None] == np.asarray(ood_scores)[None, :]).mean()
    return {
        "tie_fraction": tied,
        "auroc": roc_auc_score(is_id, both),
        "aupr_id": average_precision_score(is_id, both),
        "aupr_ood": average_precision_score(1 - is_id, -both),
        "tnr85": 1 - fpr[tpr >= 0.85].min(),
        "tnr95": 1 - fpr[tpr >= 0.95].min(),
        "fpr95_id": fpr[tpr >= 0.95].min(),
        "fpr95_ood": fpr_ood[tpr_ood >= 0.95].min(),
        "detection_accuracy": ((tpr + 1 - fpr) / 2).max(),
        "openood_fpr95": fpr_open[np.argmax(tpr_open >= 0.95)],
        "openood_auroc": auc(fpr_open, tpr_open),
        "openood_aupr_in": auc(recall_in, precision_in),
        "openood_aupr_out": auc(recall_out, precision_out),
    }


def write(out):
    import numpy as np
    import sklearn

    lines = []
    for name, id_scores, ood_scores in cases():
        id_scores = np.asarray(id_scores, np.float64)
        ood_scores = np.asarray(ood_scores, np.float64)
        case = {
            "name": name,
            "id": " ".join(repr(float(s)) for s in id_scores),
            "ood": " ".join(repr(float(s)) for s in ood_scores),
            "expected": {key: float(value) for key, value in expected(id_scores, ood_scores).items()},
        }
        lines.append(json.dumps(case))
    head = json.dumps(f"scikit-learn {sklearn.__version__}, NumPy {np.__version__}, by scripts/metrics_fixtures.py")
    out.write_text('{"made_by": ' + head + ',\n"cases": [\n' + ",\n".join(lines) + "\n]}\n")
    print(f"{out}: {len(lines)} cases, {out.stat().st_size} bytes")


if __name__ == "__main__":
    inside.main(__file__, __doc__, PINNED, OUT, write)
