#!/usr/bin/env python3
"""Accuracy, calibration and detection of `mcdd train` on many tables, beside LightGBM, a random forest and an SVM.

    python3 benches/peers/accuracy.py run RESULTS.tsv --data DIR --shared DIR [--tables NAME ...] [--seeds 5] [--rows 6000]
                                      [--ours 'NAME=OPTIONS OF mcdd train' ...] [--peers] [--classes 5] [--jobs 2] [--mcdd PROGRAM]
    python3 benches/peers/accuracy.py table RESULTS.tsv [--base NAME] [--tables NAME ...]

`--data` has the paper's tables as published, `--shared` the folders `more` and `text`. The first run creates
benches/peers/.venv-accuracy with the packages of requirements-accuracy.txt.

Seed `s` tests one fold of five, stratified by class, the same for everybody; `--rows` takes a random part of larger tables. With
`--classes N`, up to N classes of a table with three or more are left out in turn, other ones for each seed (for the 77 intents: seven at a
time), and their rows are scored against the test rows of the others. Results are appended as they come, and a run that was stopped goes
on where it was. The peers have their defaults: LightGBM with its categories, the others with one-hot codes, the SVM on standardized
columns, its probabilities by Platt's method.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import venv
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VENV = HERE / ".venv-accuracy"
MCDD = ROOT / "target" / "release" / "mcdd"

# Decided before anything was run: of the names in alphabetical order every third one, and the last. They are scored once, at the end.
TABLES = [
    *("banking77", "contraceptive", "crx", "drive", "drybean", "gas", "german", "ionosphere", "led7digit", "letter", "mnist"),
    *("movement_libras", "optdigits", "phoneme", "shuttle", "sonar", "spambase", "splice", "vehicle", "vowel"),
]
ASIDE = [*TABLES[2::3], "vowel"]
GROUPS = {"banking77": 7}
PEERS = ["LightGBM", "random forest", "SVM"]


def environment() -> None:
    """Goes on in the environment of this script."""
    if Path(sys.prefix) == VENV:
        return
    python = VENV / "bin" / "python"
    if not python.exists():
        venv.create(VENV, with_pip=True)
        requirements = str(HERE / "requirements-accuracy.txt")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", requirements], check=True)
    os.execv(python, [str(python), *sys.argv])


def read(name: str, data: Path, shared: Path):
    """A table's columns, and its labels as text."""
    import numpy as np
    import pandas as pd

    def numbers(array, labels):
        frame = pd.DataFrame(array, columns=[f"x{i}" for i in range(array.shape[1])])
        return frame, np.asarray(labels).astype(int).astype(str)

    if name == "shuttle":
        both = np.concatenate([np.loadtxt(data / "shuttle" / f"shuttle.{part}") for part in ("trn", "tst")])
        return numbers(both[:, :-1], both[:, -1])
    if name == "drive":
        table = np.loadtxt(data / "drive" / "Sensorless_drive_diagnosis.txt")
        return numbers(table[:, :-1], table[:, -1])
    if name == "gas":
        from sklearn.datasets import load_svmlight_files

        parts = load_svmlight_files(sorted(map(str, (data / "gas").glob("batch*.dat"))))
        return numbers(np.concatenate([part.toarray() for part in parts[::2]]), np.concatenate(parts[1::2]))
    if name == "mnist":
        import gzip

        def idx(part, header):
            file = next((data / "mnist").glob(f"{part}*-ubyte.gz"))
            return np.frombuffer(gzip.decompress(file.read_bytes()), np.uint8, offset=header)

        images = np.concatenate([idx(f"{part}-images", 16) for part in ("train", "t10k")]).reshape(-1, 784)
        return numbers(images.astype(float), np.concatenate([idx(f"{part}-labels", 8) for part in ("train", "t10k")]))
    if name == "banking77":
        both = [np.load(shared / "text" / f"banking77_{part}.npy").astype(float) for part in ("train", "test")]
        files = [shared / "text" / f"banking77_{part}.labels.txt" for part in ("train", "test")]
        labels = [line for file in files for line in file.read_text().splitlines()]
        frame, _ = numbers(np.concatenate(both), np.zeros(len(labels)))
        return frame, np.array(labels)
    if name in ("letter", "optdigits", "drybean"):
        frame = pd.read_parquet(shared / "more" / f"{name}.parquet")
    else:
        frame = pd.read_csv(shared / "more" / "keel" / f"{name}.csv")
    return frame.drop(columns="label"), frame["label"].astype(str).to_numpy()


def read_part(name: str, data: Path, shared: Path, rows: int):
    """The same; of a larger table a random part of that many rows, without classes that have fewer than ten there."""
    import numpy as np

    X, y = read(name, data, shared)
    if len(y) > rows:
        part = np.random.default_rng(0).permutation(len(y))[:rows]
        part = part[np.isin(y[part], [c for c in np.unique(y) if (y[part] == c).sum() >= 10])]
        X, y = X.iloc[part].reset_index(drop=True), y[part]
    return X, y


def measure(classes, known, labels, probabilities) -> dict:
    """Accuracy, log loss and expected calibration error (15 bins of the largest probability) in percent, of rows with a class."""
    import numpy as np

    index = {name: i for i, name in enumerate(classes)}
    truth = np.array([index[label] for label in labels[known]])
    p = probabilities[known]
    top, right = p.max(axis=1), p.argmax(axis=1) == truth
    loss = -np.log(np.clip(p[np.arange(len(p)), truth], 1e-15, 1)).mean()
    bins = np.minimum((top * 15).astype(int), 14)
    error = sum(abs(right[bins == b].mean() - top[bins == b].mean()) * (bins == b).mean() for b in np.unique(bins))
    return {"accuracy": 100 * right.mean(), "log loss": loss, "ECE": 100 * error}


def ours(program: Path, options: str, train, test, labels, known, seed: int, threads: int) -> dict:
    import pandas as pd
    from sklearn.metrics import roc_auc_score

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train.to_parquet(folder / "train.parquet", index=False)
        test.to_parquet(folder / "test.parquet", index=False)
        common = ["--quiet", "--threads", str(threads)]
        start = time.perf_counter()
        command = [program, "train", folder / "train.parquet", "--label", "label", "-o", folder / "m.mcdd", "--seed", str(seed)]
        subprocess.run([*command, *shlex.split(options), *common], check=True)
        seconds = time.perf_counter() - start
        command = [program, "predict", folder / "m.mcdd", folder / "test.parquet", "--probs", "-o", folder / "out.csv"]
        subprocess.run([*command, *common], check=True)
        out = pd.read_csv(folder / "out.csv")
        size = (folder / "m.mcdd").stat().st_size
    columns = [column for column in out.columns if column.startswith("prob:")]
    found = measure([c[len("prob:") :] for c in columns], known, labels, out[columns].to_numpy())
    if not known.all():
        found["AUROC"] = 100 * roc_auc_score(known, out["confidence"])
    return {**found, "seconds": seconds, "bytes": size}


def peer(name: str, train, test, labels, known, seed: int, threads: int) -> dict:
    import pandas as pd
    from lightgbm import LGBMClassifier
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler
    from sklearn.svm import SVC

    X, y = train.drop(columns="label"), train["label"]
    words = make_column_selector(dtype_exclude="number")(X)
    start = time.perf_counter()
    if name == "LightGBM":
        kinds = {c: pd.CategoricalDtype(sorted(X[c].astype(str).unique())) for c in words}
        X, test = X.astype(kinds), test.astype({c: str for c in words}).astype(kinds)
        model = LGBMClassifier(random_state=seed, n_jobs=threads, verbose=-1).fit(X, y)
    else:
        codes = make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore"), words), remainder="passthrough", sparse_threshold=0
        )
        if name == "SVM":
            last = make_pipeline(StandardScaler(), SVC(probability=True, random_state=seed))
        else:
            last = RandomForestClassifier(random_state=seed, n_jobs=threads)
        model = make_pipeline(codes, last).fit(X, y)
    seconds = time.perf_counter() - start
    return {**measure(list(model.classes_), known, labels, model.predict_proba(test)), "seconds": seconds}


def scenarios(name: str, y, seeds: int, most: int):
    """Pairs of a seed and the classes left out."""
    import numpy as np

    for seed in range(seeds):
        yield seed, ()
        classes = np.unique(y)
        if most and len(classes) >= 3:
            order = np.random.default_rng(1000 + seed).permutation(classes)
            size = GROUPS.get(name, 1)
            for i in range(min(most, len(classes) // size)):
                yield seed, tuple(order[i * size : (i + 1) * size])


def run(args: argparse.Namespace) -> None:
    import numpy as np
    from sklearn.model_selection import StratifiedKFold

    warnings.simplefilter("ignore")
    done = {tuple(line.split("\t")[:4]) for line in args.results.read_text().splitlines()} if args.results.exists() else set()
    given = dict(pair.split("=", 1) for pair in args.ours)
    threads = max(1, (os.cpu_count() or 1) // args.jobs)
    out = args.results.open("a")

    def job(name, X, y, contender, seed, left):
        folds = StratifiedKFold(5, shuffle=True, random_state=seed).split(X, y)
        rows, held = list(folds)[seed % 5]
        known_train = rows[~np.isin(y[rows], left)]
        tested = np.concatenate([held[~np.isin(y[held], left)], np.flatnonzero(np.isin(y, left))])
        train = X.iloc[known_train].assign(label=y[known_train])
        labels, test = y[tested], X.iloc[tested]
        known = ~np.isin(labels, left)
        if contender in PEERS:
            found = peer(contender, train, test, labels, known, seed, threads)
        else:
            found = ours(args.mcdd, given[contender], train, test, labels, known, seed, threads)
        key = (name, contender, str(seed), ",".join(left))
        print(*key, json.dumps({k: round(v, 4) for k, v in found.items()}), sep="\t", file=out, flush=True)

    with ThreadPoolExecutor(args.jobs) as pool:
        tasks = []
        for name in args.tables:
            X, y = read_part(name, args.data, args.shared, args.rows)
            for seed, left in scenarios(name, y, args.seeds, args.classes):
                for contender in [*(PEERS if args.peers and not left else []), *given]:
                    if (name, contender, str(seed), ",".join(left)) not in done:
                        tasks.append(pool.submit(job, name, X, y, contender, seed, left))
        for i, task in enumerate(tasks):
            task.result()
            if args.verbose:
                print(f"{i + 1} of {len(tasks)}", file=sys.stderr)


def table(args: argparse.Namespace) -> None:
    import numpy as np

    cells = {}
    for line in args.results.read_text().splitlines():
        name, contender, seed, left, found = line.split("\t")
        if name in args.tables:
            cells.setdefault(contender, {})[name, seed, left] = json.loads(found)
    base = args.base or next(c for c in cells if c not in PEERS)
    names = sorted({key[0] for c in cells.values() for key in c})

    def mean(contender, name, what, left_out):
        found = [v[what] for k, v in cells[contender].items() if k[0] == name and bool(k[2]) == left_out and what in v]
        return np.mean(found) if found else np.nan

    for what, left_out in (("accuracy", False), ("AUROC", True), ("log loss", False), ("ECE", False), ("seconds", False)):
        print(f"\n{what}\n\n| table | {' | '.join(cells)} |\n|---|{'---|' * len(cells)}")
        rows = {name: [mean(c, name, what, left_out) for c in cells] for name in names}
        rows = {name: row for name, row in rows.items() if not np.isnan(row).all()}
        for name, row in rows.items():
            print(f"| {name} | {' | '.join('' if np.isnan(v) else f'{v:.2f}' for v in row)} |")
        if rows:
            print(f"| mean | {' | '.join(f'{v:.2f}' for v in np.array(list(rows.values())).mean(axis=0))} |")
    others = [c for c in cells if c != base]
    print(f"\n{base} minus others: accuracy, paired, with standard errors over seeds\n")
    print(f"| table | {' | '.join(others)} |\n|---|{'---|' * len(others)}")
    for name in names:
        row = []
        for c in others:
            both = [k for k in cells[base] if k in cells[c] and k[0] == name and not k[2]]
            found = [cells[base][k]["accuracy"] - cells[c][k]["accuracy"] for k in both]
            error = np.std(found, ddof=1) / np.sqrt(len(found)) if len(found) > 1 else np.nan
            row.append(f"{np.mean(found):+.2f} ± {error:.2f}" if found else "")
        print(f"| {name} | {' | '.join(row)} |")
    print(f"\nPaired differences to {base}: mean over tables, and standard error from the scenarios of each\n")
    print("| contender | accuracy | AUROC | worst table |\n|---|---|---|---|")
    for contender in cells:
        row, worst = [], ""
        for what, left_out in (("accuracy", False), ("AUROC", True)):
            means, errors, which = [], [], []
            for name in names:
                pairs = [
                    v[what] - cells[base][k][what]
                    for k, v in cells[contender].items()
                    if k[0] == name and bool(k[2]) == left_out and what in v and k in cells[base]
                ]
                if pairs:
                    means.append(np.mean(pairs))
                    errors.append(np.std(pairs, ddof=1) / np.sqrt(len(pairs)) if len(pairs) > 1 else np.nan)
                    which.append(name)
            if means:
                row.append(f"{np.mean(means):+.2f} ± {np.sqrt(np.sum(np.square(errors))) / len(means):.2f}")
                worst += f"{what} {which[int(np.argmin(means))]} {min(means):+.2f} "
            else:
                row.append("")
        print(f"| {contender} | {' | '.join(row)} | {worst.strip()} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "table"])
    parser.add_argument("results", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--shared", type=Path)
    parser.add_argument("--tables", nargs="+", default=[name for name in TABLES if name not in ASIDE], choices=TABLES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--classes", type=int, default=0)
    parser.add_argument("--ours", nargs="*", default=["default="])
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--mcdd", type=Path, default=MCDD)
    parser.add_argument("--base")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    environment()
    run(args) if args.what == "run" else table(args)


if __name__ == "__main__":
    main()
