#!/usr/bin/env python3
"""Speed from Python: training and scoring beside the same calls in Rust, and beside other outlier detectors.

    cargo build --release -p mcdd-benches --bin door_speed
    python3 benches/peers/python_speed.py target/release/door_speed [--rows 1000000] [--rounds 3]

The table has seven classes of unequal size with Gaussian clusters in nine columns, as Shuttle has; 20,000 rows to train on. Rounds
are interleaved, and medians are printed as Markdown. Needs numpy, scikit-learn, pyod and the wheel of mcdd.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

warnings.simplefilter("ignore")


def table(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    y = random.choice(7, rows, p=[0.55, 0.15, 0.1, 0.1, 0.05, 0.03, 0.02])
    centers = np.random.default_rng(0).normal(0, 3, (7, 9))
    return centers[y] + random.normal(size=(rows, 9)), y


def timed(call):
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def import_seconds(code: str) -> float:
    """The time of a statement in a new interpreter, without that of the interpreter and of numpy."""
    timer = f"import time, numpy; t = time.perf_counter(); {code}; print(time.perf_counter() - t)"
    runs = [float(subprocess.check_output([sys.executable, "-c", timer])) for _ in range(5)]
    return statistics.median(runs)


def processor() -> str:
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    name = next((line.split(":")[1].strip() for line in info.splitlines() if line.startswith("model name")), "?")
    return f"{name}, {os.cpu_count()} cores, AVX-512: {'yes' if 'avx512f' in info else 'no'}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("rust", help="the program door_speed")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()

    from mcdd import McddClassifier

    X, y = table(20_000, 0)
    new, _ = table(args.rows, 1)
    new[::10] += 4
    print(f"{processor()}\n\nimport mcdd: {1000 * import_seconds('import mcdd'):.0f} ms\n")
    print("| preset | | Rust | Python | Python / Rust |\n|---|---|---|---|---|")
    speeds = {}
    with tempfile.TemporaryDirectory() as folder:
        train, rows = Path(folder) / "train.csv", Path(folder) / "rows.npy"
        header = ",".join([*(f"x{i}" for i in range(9)), "label"])
        np.savetxt(train, np.column_stack([X, y]), delimiter=",", header=header, comments="", fmt="%.17g")
        np.save(rows, new)
        import pandas

        frame = pandas.DataFrame(X, columns=[f"x{i}" for i in range(9)])
        for preset in ("fast", "best"):
            rust, python = [], []
            for _ in range(args.rounds):
                out = subprocess.check_output([args.rust, str(train), str(rows), preset], text=True).split()
                rust.append((float(out[0]), float(out[1])))
                training, clf = timed(lambda: McddClassifier(preset=preset).fit(frame, y))
                scoring, found = timed(lambda: clf.score_samples(new))
                python.append((training, scoring))
                assert abs(found.sum() - float(out[2])) <= 1e-6 * abs(float(out[2])), "the scores differ"
            for i, what in enumerate(["training, 20,000 rows", f"scoring, {args.rows:,} rows"]):
                a, b = statistics.median(r[i] for r in rust), statistics.median(p[i] for p in python)
                print(f"| {preset} | {what} | {a:.2f} s | {b:.2f} s | {b / a:.3f} |", flush=True)
            speeds[f"mcdd, preset {preset}"] = statistics.median(p[1] for p in python)

    from pyod.models.ecod import ECOD
    from pyod.models.iforest import IForest
    from pyod.models.knn import KNN
    from sklearn.ensemble import IsolationForest
    from sklearn.neighbors import LocalOutlierFactor

    few = min(args.rows, 100_000)
    peers = {
        "scikit-learn IsolationForest": (IsolationForest(n_jobs=-1, random_state=0), "score_samples", args.rows),
        "scikit-learn LocalOutlierFactor": (LocalOutlierFactor(novelty=True, n_jobs=-1), "score_samples", few),
        "PyOD IForest": (IForest(n_jobs=-1, random_state=0), "decision_function", args.rows),
        "PyOD KNN": (KNN(n_jobs=-1), "decision_function", few),
        "PyOD ECOD": (ECOD(n_jobs=-1), "decision_function", few),
    }
    print("\n| scoring, 20,000 training rows | rows scored | rows a second |\n|---|---|---|")
    for name, seconds in speeds.items():
        print(f"| {name} (class, p-value and verdict) | {args.rows:,} | {args.rows / seconds:,.0f} |")
    for name, (model, method, count) in peers.items():
        model.fit(X)
        seconds, _ = timed(lambda: getattr(model, method)(new[:count]))
        print(f"| {name} | {count:,} | {count / seconds:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
