#!/usr/bin/env python3
"""The effect of ties on softmax: the same networks with three ways of scoring and counting.

    python3 scripts/ties.py MCDD DATA gas|shuttle|mnist [CLASS ...]

MCDD is the executable, DATA the folder of the data sets. For each left-out class a fifth of the other rows is the test set,
softmax is trained on the rest with the paper's network, and the maximum softmax probability is scored as log-odds (no
ties), as a float32 probability (1 for many rows), and as such with ties counted as errors, as in the authors' published
code. Needs numpy.
"""

import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np


def read(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The rows and the labels of a data set in the published files."""
    if name == "shuttle":
        rows = np.concatenate([np.loadtxt(folder / "shuttle" / f"shuttle.{part}") for part in ("trn", "tst")])
        return rows[:, :-1].astype(np.float32), rows[:, -1].astype(int)
    if name == "gas":
        lines = [line.split() for file in sorted((folder / "gas").glob("batch*.dat")) for line in open(file)]
        labels = np.array([int(line[0].split(";")[0]) for line in lines])
        values = [[float(cell.split(":")[1]) for cell in line[1:] if ":" in cell] for line in lines]
        return np.array(values, dtype=np.float32), labels
    parts = []
    for part in ("train", "t10k"):
        for kind, head in (("images-idx3", 16), ("labels-idx1", 8)):
            with gzip.open(folder / "mnist" / f"{part}-{kind}-ubyte.gz") as file:
                parts.append(np.frombuffer(file.read(), np.uint8, offset=head))
    pixels = np.concatenate([parts[0], parts[2]]).reshape(-1, 784)
    return pixels.astype(np.float32), np.concatenate([parts[1], parts[3]]).astype(int)


def run(*command: object) -> str:
    return subprocess.run([str(c) for c in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def auroc(mcdd: str, here: Path, known: np.ndarray, unknown: np.ndarray, *options: str) -> float:
    files = [here / "id.npy", here / "ood.npy"]
    for file, scores in zip(files, (known, unknown)):
        np.save(file, scores)
    found = json.loads(run(mcdd, "metrics", *files, "--json", *(options or ("--bootstrap", 0))))
    return 100 * found["metrics"]["auroc"]["value"]


def scenario(mcdd: str, x: np.ndarray, y: np.ndarray, out: int, here: Path) -> list[float]:
    rest = np.flatnonzero(y != out)
    np.random.default_rng(0).shuffle(rest)
    test, train = np.split(rest, [len(rest) // 5])
    np.save(here / "x.npy", x[train])
    np.save(here / "y.npy", y[train])
    model = here / "softmax.mcdd"
    run(mcdd, "train", here / "x.npy", "--label", here / "y.npy", "--preset", "paper", "--method", "softmax", "-q", "-o", model)
    scores = []
    for rows in (test, np.flatnonzero(y == out)):
        np.save(here / "rows.npy", x[rows])
        lines = run(mcdd, "predict", model, here / "rows.npy", "--label", "none", "-q").splitlines()
        column = lines[0].split(",").index("confidence")
        scores.append(np.array([float(line.split(",")[column]) for line in lines[1:]]))
    # Log-odds to a probability, in the precision of the authors' code.
    saturated = [(1 / (1 + np.exp(-s))).astype(np.float32) for s in scores]
    ones = 100 * float(np.mean(saturated[0] == 1))
    return [
        auroc(mcdd, here, *scores),
        auroc(mcdd, here, *saturated),
        auroc(mcdd, here, *saturated, "--compat", "authors"),
        ones,
    ]


def main() -> None:
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    mcdd, folder, name = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    x, y = read(folder, name)
    chosen = [int(c) for c in sys.argv[4:]] or sorted(set(y.tolist()))
    print("| left out | log-odds | float32, a tie counts one half | float32, a tie is an error | known rows at exactly 1 |")
    print("|---|---|---|---|---|", flush=True)
    rows = []
    for out in chosen:
        with tempfile.TemporaryDirectory() as here:
            rows.append(scenario(mcdd, x, y, out, Path(here)))
        print(f"| {out} | " + " | ".join(f"{v:.2f}" for v in rows[-1]) + " |", flush=True)
    if len(rows) > 1:
        print("| mean | " + " | ".join(f"{v:.2f}" for v in np.mean(rows, axis=0)) + " |")


if __name__ == "__main__":
    main()
