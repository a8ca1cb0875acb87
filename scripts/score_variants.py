#!/usr/bin/env python3
"""Compares scores on the same networks, for docs/default.md.

    cargo run --release -p mcdd-studies --bin latents -- STUDY/gas first batch*.dat
    python3 scripts/score_variants.py STUDY/gas STUDY/drive ...

Needs NumPy and scikit-learn. Every score is fitted on training rows and standardized on calibration rows. Test and left-out
rows are only scored. Prints the mean and the worst AUROC of each score for each table, and its mean paired difference to the
first score with the standard error over scenarios. The fraction of clipped test rows goes to stderr.
"""

import json
import sys
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors


def load(place):
    meta = json.loads((place / "meta.json").read_text())
    n = sum(meta["rows"])
    read = lambda name, kind: np.fromfile(place / name, dtype=kind)
    d = {
        "x": read("x.f32", "<f4").reshape(n, -1),
        "z": read("z.f32", "<f4").reshape(meta["members"], n, meta["latent"]),
        "p": read("p.f64", "<f8").reshape(n, -1),
        "d": read("d.f64", "<f8").reshape(n, -1),
        "y": read("y.u32", "<u4"),
    }
    ends = np.cumsum(meta["rows"])
    d["parts"] = [slice(a, b) for a, b in zip([0, *ends[:-1]], ends)]
    d["seconds"] = meta["seconds"]
    return d


def nearest(fit, rows, k=1):
    """The distances to the k nearest rows of fit, nearest first."""
    return NearestNeighbors(n_neighbors=k, algorithm="brute").fit(fit).kneighbors(rows)[0]


def variants(d):
    """Score name -> one score per row; higher is more in-distribution."""
    fit, held, _, _ = d["parts"]
    x, members, y, p = d["x"], d["z"], d["y"], d["p"]

    def standard(s):
        return (s - s[held].mean()) / max(s[held].std(), 1e-12)

    def log(distance):
        usual = distance[held][distance[held] > 0]
        return -np.log(np.maximum(distance, 1e-3 * np.median(usual) if len(usual) else 1e-9))

    def mean(scores):
        return np.mean([standard(s) for s in scores], axis=0)

    near = [nearest(z[fit], z, 5) for z in members]
    each = [standard(log(n[:, 0])) for n in near]
    recipe = np.mean(each, axis=0)
    raw = standard(log(nearest(x[fit], x)[:, 0]))
    out = {"recipe": recipe}

    # The clipped part: all of it, or the part beyond the range of the training rows.
    most = np.maximum(5.0, np.abs(x[fit]).max(axis=0))
    excess = np.linalg.norm(x - np.clip(x, -5, 5), axis=1)
    beyond = np.linalg.norm(np.maximum(np.abs(x) - most, 0), axis=1)
    test = d["parts"][2]
    print(f"test rows clipped {np.mean(excess[test] > 0):.4f}, beyond training {np.mean(beyond[test] > 0):.4f}", file=sys.stderr)
    ratio = np.log(np.maximum((np.abs(x) / most).max(axis=1), 1))
    out["excess as one more coordinate"] = mean(
        log(nearest(np.c_[z[fit], excess[fit]], np.c_[z, excess])[:, 0]) for z in members
    )
    out["less log(1 + excess)"] = recipe - np.log1p(excess)
    out["beyond training as a coordinate"] = mean(log(np.hypot(n[:, 0], beyond)) for n in near)
    out["less log(1 + beyond training)"] = recipe - np.log1p(beyond)
    for weight in (1, 3, 10):
        out[f"less {weight} log ratio to training"] = recipe - weight * ratio

    # Other scores on the same networks.
    out["first network alone"] = each[0]
    out["distance without logarithm"] = mean(-n[:, 0] for n in near)
    out["5th neighbor"] = mean(log(n[:, 4]) for n in near)
    out["distance to the nearest class"] = -d["d"].min(axis=1)
    winner = p.argmax(axis=1)
    own = []
    for z in members:
        s = np.zeros(len(z))
        for c in np.unique(winner):
            rows = winner == c
            s[rows] = nearest(z[fit][y[fit] == c], z[rows])[:, 0]
        own.append(log(s))
    out["nearest of the predicted class"] = mean(own)
    joint = np.concatenate(list(members), axis=1)
    out["all networks' latents together"] = log(nearest(joint[fit], joint)[:, 0])
    out["least confident network"] = np.min(each, axis=0)
    out["less the spread of networks"] = recipe - np.std(each, axis=0)
    out["and 0.25 log posterior"] = standard(recipe) + 0.25 * standard(np.log(np.maximum(p.max(axis=1), 1e-12)))
    out["nearest raw input"] = raw
    for weight in (0.25, 0.5):
        out[f"and {weight} nearest raw input"] = standard(recipe) + weight * raw
    return out


def main():
    print("| table | score | scenarios | mean AUROC | worst | difference | standard error |")
    print("|---|---|---|---|---|---|---|")
    totals = {}
    for folder in map(Path, sys.argv[1:]):
        places = sorted(p.parent for p in folder.glob("*/meta.json"))
        rows = {}
        for place in places:
            d = load(place)
            _, _, test, ood = d["parts"]
            truth = np.r_[np.ones(test.stop - test.start), np.zeros(ood.stop - ood.start)]
            for name, s in variants(d).items():
                rows.setdefault(name, []).append(100 * roc_auc_score(truth, np.r_[s[test], s[ood]]))
        base = np.array(next(iter(rows.values())))
        for name, values in rows.items():
            v = np.array(values)
            diff = v - base
            error = diff.std(ddof=1) / len(v) ** 0.5 if len(v) > 1 else float("nan")
            totals.setdefault(name, []).append((v.mean(), v.min(), diff.mean()))
            print(f"| {folder.name} | {name} | {len(v)} | {v.mean():.2f} | {v.min():.2f} | {diff.mean():+.2f} | {error:.2f} |")
    if len(sys.argv) > 2:
        for name, t in totals.items():
            t = np.array(t)
            print(f"| all | {name} | | {t[:, 0].mean():.2f} | {t[:, 1].min():.2f} | {t[:, 2].mean():+.2f} | |")


if __name__ == "__main__":
    main()
