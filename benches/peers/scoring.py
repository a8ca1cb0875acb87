#!/usr/bin/env python3
"""Rows a second of `mcdd predict` with the default, beside other classifiers and detectors.

    python3 benches/peers/scoring.py --data DIR [--rounds 3] [--rows 290000] [--detector SPEC ...] [--mcdd PROGRAM]

DIR has Shuttle as published (`shuttle/shuttle.trn` and `.tst`). The first run creates benches/peers/.venv-scoring with the packages of
requirements-scoring.txt. The default is trained on `shuttle.trn`; the rows of both files, repeated, are scored as they are, and with
normal noise of a tenth of each column's standard deviation and of all of it. A `--detector` is put on the same networks by `mcdd
refit`. `mcdd predict` reads CSV and writes CSV; the others have arrays in memory, and return one number a row. Neighbors of
scikit-learn and PyOD are searched for in the raw rows, for a tenth of the rows. Rounds are interleaved, and medians are printed as
Markdown.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VENV = HERE / ".venv-scoring"
MCDD = ROOT / "target" / "release" / "mcdd"


def environment() -> None:
    """Goes on in the environment of this script."""
    if Path(sys.prefix) == VENV:
        return
    python = VENV / "bin" / "python"
    if not python.exists():
        venv.create(VENV, with_pip=True)
        requirements = str(HERE / "requirements-scoring.txt")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", requirements], check=True)
    os.execv(python, [str(python), *sys.argv])


def processor() -> str:
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    name = next((line.split(":")[1].strip() for line in info.splitlines() if line.startswith("model name")), "?")
    return f"{name}, {os.cpu_count()} cores, AVX-512: {'yes' if 'avx512f' in info else 'no'}"


def seconds(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def run(program: Path, *args: object) -> None:
    subprocess.run([program, *map(str, args), "--quiet"], check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=290_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--detector", nargs="*", default=[])
    parser.add_argument("--mcdd", type=Path, help="a built program; by default it is built first")
    args = parser.parse_args()
    environment()

    import numpy as np
    from lightgbm import LGBMClassifier
    from pyod.models.knn import KNN
    from sklearn.ensemble import IsolationForest
    from sklearn.neighbors import NearestNeighbors

    warnings.simplefilter("ignore")
    if args.mcdd is None:
        subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "mcdd-cli"], cwd=ROOT, check=True)
    mcdd = functools.partial(run, args.mcdd or MCDD)
    train = np.loadtxt(args.data / "shuttle" / "shuttle.trn")
    both = np.concatenate([train, np.loadtxt(args.data / "shuttle" / "shuttle.tst")])
    X, y = train[:, :-1], train[:, -1].astype(int)
    plain = np.tile(both[:, :-1], (args.rows // len(both) + 1, 1))[: args.rows]
    noise = np.random.default_rng(0).normal(size=plain.shape) * plain.std(axis=0)

    booster = LGBMClassifier(verbose=-1).fit(X, y)
    forest = IsolationForest(random_state=0, n_jobs=-1).fit(X)
    nearest = NearestNeighbors(n_neighbors=1, n_jobs=-1).fit(X)
    knn = KNN(n_jobs=-1).fit(X)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        header = ",".join(f"x{i}" for i in range(X.shape[1]))
        table = np.column_stack([X, y])
        np.savetxt(folder / "train.csv", table, delimiter=",", header=header + ",label", comments="", fmt="%g")
        files = {}
        kinds = {"as they are": plain, "noise of a tenth": plain + 0.1 * noise, "noise of one": plain + noise}
        for kind, rows in kinds.items():
            files[kind] = (folder / f"{kind}.csv", rows)
            np.savetxt(files[kind][0], rows, delimiter=",", header=header, comments="", fmt="%.6g")
        mcdd("train", folder / "train.csv", "--label", "label", "-o", folder / "default.mcdd")
        models = {"mcdd predict, the default": folder / "default.mcdd"}
        for i, detector in enumerate(args.detector):
            models[f"mcdd predict, {detector}"] = folder / f"{i}.mcdd"
            options = ("--label", "label", "--detector", detector, "-o", folder / f"{i}.mcdd")
            mcdd("refit", folder / "default.mcdd", folder / "train.csv", *options)

        contenders = {}
        for label, model in models.items():
            contenders[label] = lambda file, rows, model=model: mcdd("predict", model, file, "-o", folder / "out.csv")
        contenders["LightGBM, probabilities"] = lambda _, rows: booster.predict_proba(rows)
        contenders["scikit-learn, isolation forest"] = lambda _, rows: forest.score_samples(rows)
        tenth = {"scikit-learn, nearest neighbor": nearest.kneighbors, "PyOD, kNN": knn.decision_function}
        for label, score in tenth.items():
            contenders[label] = lambda _, rows, score=score: score(rows[: len(rows) // 10])

        rates = {}
        for _ in range(args.rounds):
            for kind, (file, rows) in files.items():
                for label, call in contenders.items():
                    count = len(rows) // 10 if label in tenth else len(rows)
                    rates.setdefault((label, kind), []).append(count / seconds(lambda: call(file, rows)))

    print(f"{processor()}; {args.rows} rows, {args.rounds} rounds\n")
    print(f"| rows a second | {' | '.join(files)} |\n|---|{'---:|' * len(files)}")
    for label in contenders:
        cells = [f"{statistics.median(rates[label, kind]):,.0f}" for kind in files]
        print(f"| {label} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
