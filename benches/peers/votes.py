#!/usr/bin/env python3
"""Whose votes give the class: accuracy of the default with other weights of its networks.

    python3 benches/peers/votes.py RESULTS.tsv --data DIR --shared DIR [--tables NAME ...] [--seeds 5] [--rows 6000] [--mcdd PROGRAM]

Trains the default on the folds of accuracy.py, for tables of numbers, and computes its networks from the model file with NumPy. Results are
appended as they come, and a run that was stopped goes on where it was. Prints the means: accuracy by table, and over tables the mean, the worst
difference to LightGBM in docs/results/accuracy.tsv, and the mean log loss of the probabilities as they are.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

from accuracy import MCDD, ROOT, environment, read_part
from scores import Scenario

NUMBERS = "contraceptive drive drybean ionosphere letter optdigits phoneme sonar spambase vehicle".split()
# Weights of each of the five networks, of the one for the class, and of the one for the class with bins.
WEIGHTS = [
    *((1, 2, 2), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1), (0, 1, 1.5), (0, 1, 2), (0, 1, 3)),
    *((0.1, 1, 1.5), (0.2, 1, 1.5), (0.2, 1, 3)),
]


def measure(name: str, seed: int, args: argparse.Namespace) -> dict:
    import numpy as np
    from sklearn.model_selection import StratifiedKFold

    X, y = read_part(name, args.data, args.shared, args.rows)
    rows, held = list(StratifiedKFold(5, shuffle=True, random_state=seed).split(X, y))[seed % 5]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        X.iloc[rows].assign(label=y[rows]).to_parquet(place / "train.parquet", index=False)
        command = [args.mcdd, "train", place / "train.parquet", "--label", "label", "-o", place / "m.mcdd", "--threads", "1"]
        command += ["--detector", "knn:k=1:log=true:rows=50000", "--seed", str(seed), "--quiet"]
        subprocess.run(command, check=True)
        both = {"train": X.iloc[rows].to_numpy(float), "test": X.iloc[held].to_numpy(float)}
        np.savez(place / "rows.npz", **both, y=y[rows].astype(str), known=np.ones(len(held), bool))
        s = Scenario(place)
    code = dict(zip(y[rows].astype(str), s.y))
    truth = np.array([code[label] for label in y[held].astype(str)])
    found = {}
    for five, plain, binned in WEIGHTS:
        weights = [five] * 5 + [plain, binned]
        p = np.average([posterior[s.count :] for posterior in s.posterior], axis=0, weights=weights)
        loss = -np.log(np.clip(p[np.arange(len(p)), truth], 1e-9, 1)).mean()
        found[f"{five} {plain} {binned}"] = [round(100 * (p.argmax(axis=1) == truth).mean(), 4), round(loss, 5)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--tables", nargs="+", default=NUMBERS, choices=NUMBERS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--mcdd", type=Path, default=MCDD)
    args = parser.parse_args()
    environment()

    import numpy as np

    cells = {}
    if args.results.exists():
        for line in args.results.read_text().splitlines():
            name, seed, found = line.split("\t")
            cells[name, int(seed)] = json.loads(found)
    with args.results.open("a") as out:
        for name in args.tables:
            for seed in range(args.seeds):
                if (name, seed) not in cells:
                    cells[name, seed] = measure(name, seed, args)
                    print(name, seed, json.dumps(cells[name, seed]), sep="\t", file=out, flush=True)
    peer = {}
    for line in (ROOT / "docs" / "results" / "accuracy.tsv").read_text().splitlines():
        name, contender, _, _, found = line.split("\t")
        if contender == "LightGBM":
            peer.setdefault(name, []).append(json.loads(found)["accuracy"])
    print(f"| five, for the class, with bins | {' | '.join(args.tables)} | mean | worst | log loss |")
    print(f"|---|{'---:|' * (len(args.tables) + 3)}")
    for key in next(iter(cells.values())):
        means = [np.mean([found[key] for (n, _), found in cells.items() if n == name], axis=0) for name in args.tables]
        accuracy, loss = np.array(means).T
        worst = min(a - np.mean(peer[name]) for a, name in zip(accuracy, args.tables))
        row = " | ".join(f"{a:.2f}" for a in accuracy)
        print(f"| {key.replace(' ', ', ')} | {row} | {accuracy.mean():.2f} | {worst:+.2f} | {loss.mean():.4f} |")


if __name__ == "__main__":
    main()
