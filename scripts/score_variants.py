#!/usr/bin/env python3
"""Scores on the same networks, compared: the second half of the study of scores in docs/default.md.

    cargo run --release -p mcdd --example latents -- STUDY/gas first batch*.dat
    python3 scripts/score_variants.py STUDY/gas STUDY/drive ...

Needs NumPy and scikit-learn. Every score is fitted on training rows and standardised on held-out rows; test and left-out
rows are scored and nothing else. Prints the mean and the worst AUROC of each score for each table, and its mean paired
difference to the first score with the standard error over scenarios.
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
    distance, _ = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(fit).kneighbors(rows)
    return distance[:, -1]


def minus_log(distance, fit_distance=None):
    return -np.log(np.maximum(distance, 1e-9))


def variants(d):
    """Score name -> one score for every row (higher is more known)."""
    fit, held, _, _ = d["parts"]
    x, members = d["x"].astype(np.float64), d["z"].astype(np.float64)
    standard = lambda s: (s - s[held].mean()) / max(s[held].std(), 1e-12)
    log = lambda distance: -np.log(np.maximum(distance, floor(distance)))
    floor = lambda distance: 1e-3 * np.median(distance[held][distance[held] > 0]) if (distance[held] > 0).any() else 1e-9
    mean = lambda f: np.mean([standard(f(z)) for z in members], axis=0)
    excess = np.linalg.norm(x - np.clip(x, -5, 5), axis=1)
    out = {}
    out["recipe: log nearest, 5 members"] = mean(lambda z: log(nearest(z[fit], z)))
    out["one member"] = log(nearest(members[0][fit], members[0]))
    out["min class distance"] = -d["d"].min(axis=1)
    join = lambda z, e, w: np.concatenate([z, w * e[:, None]], axis=1)
    for w in (0.3, 1.0, 3.0):
        out[f"excess as a coordinate x{w}"] = mean(lambda z: log(nearest(join(z, excess, w)[fit], join(z, excess, w))))
    out["excess log penalty"] = out["recipe: log nearest, 5 members"] - np.log1p(excess)
    most = np.maximum(5.0, np.abs(x[fit]).max(axis=0))
    beyond = np.linalg.norm(np.maximum(np.abs(x) - most, 0), axis=1)
    for w in (0.3, 1.0, 3.0):
        out[f"beyond training, coordinate x{w}"] = mean(lambda z: log(np.hypot(nearest(z[fit], z), w * beyond)))
    out["beyond training, log penalty"] = out["recipe: log nearest, 5 members"] - np.log1p(beyond)
    ratio = np.maximum((np.abs(x) / most).max(axis=1), 1)
    out["beyond training, log ratio"] = out["recipe: log nearest, 5 members"] - np.log(ratio)
    beyond2 = np.linalg.norm(np.maximum(np.abs(x) - 2 * most, 0), axis=1)
    out["beyond twice training, log penalty"] = out["recipe: log nearest, 5 members"] - np.log1p(beyond2)
    out["plain distance"] = mean(lambda z: -nearest(z[fit], z))
    out["k=5"] = mean(lambda z: log(nearest(z[fit], z, 5)))
    y = d["y"]
    winner = d["p"].argmax(axis=1)
    def conditional(z):
        s = np.full(len(z), 0.0)
        for c in range(d["p"].shape[1]):
            rows = np.flatnonzero(winner == c)
            own = np.flatnonzero(y[fit] == c)
            if len(rows) and len(own):
                s[rows] = nearest(z[fit][own], z[rows])
        return log(s)
    out["nearest of the predicted class"] = mean(conditional)
    raw = standard(log(nearest(x[fit], x)))
    clipped = np.clip(x, -5, 5)
    out["raw 1-NN"] = raw
    out["raw 1-NN clipped"] = log(nearest(clipped[fit], clipped))
    recipe = standard(out["recipe: log nearest, 5 members"])
    out["recipe + 0.25 raw"] = recipe + 0.25 * raw
    out["recipe + 0.5 raw"] = recipe + 0.5 * raw
    spread = np.std([standard(log(nearest(z[fit], z))) for z in members], axis=0)
    out["recipe - spread"] = recipe - spread
    out["min over members"] = np.min([standard(log(nearest(z[fit], z))) for z in members], axis=0)
    out["recipe + posterior"] = recipe + 0.25 * standard(np.log(np.maximum(d["p"].max(axis=1), 1e-12)))
    joint = np.concatenate(list(members), axis=1)
    out["joint latent"] = log(nearest(joint[fit], joint))
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
