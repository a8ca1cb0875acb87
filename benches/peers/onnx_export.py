#!/usr/bin/env python3
"""Runs exported models in onnxruntime and compares every row with `mcdd predict`.

    python3 benches/peers/onnx_export.py --data DIR [--tables FILE ...] [--cases TEXT ...] [--rows N] [--json FILE]

DIR has the data sets as published (see CONTRIBUTING.md). A table is a CSV with a column `label`. The first run creates
benches/peers/.venv-onnx with the packages of requirements-onnx.txt. Cases are

    grid        all methods x all detectors, on Shuttle
    default     the default, with --per-class and without, on Shuttle and MNIST, with sizes and times
    tables      the default on each of the tables: names, categories, missing cells
    images      networks for images on CIFAR-10, with detectors on latents, inputs and layers

Each model is checked by onnx's checker and by strict shape inference. A relative difference of scores is |a - b| / max(|b|, s), where
s is the standard deviation of all scores of `mcdd predict`. A verdict is close if the score is within 1e-5 (relative as
above) of the threshold. Times are processor time: of onnxruntime without loading, of `mcdd predict` with reading and writing. Exits with 1 if a verdict differs that is not close, or a class whose probability is not tied.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VENV = HERE / ".venv-onnx"
METHODS = ["deep-mcdd", "soft-mcdd", "softmax", "protonet", "deep-ncm", "deep-svdd", "alad", "gda"]
DETECTORS = [
    "distance", "msp", "max-logit", "energy", "entropy", "gen", "gen:top=3", "kl-matching", "odin", "odin:epsilon=0",
    "mahalanobis", "mahalanobis-ensemble", "mahalanobis-ensemble:epsilon=0", "rmd", "mahalanobis++", "gda",
    "gda:covariance=full", "gda:covariance=diagonal", "knn", "knn:k=1:log=true", "knn:normalize=true", "knn:on=inputs", "knn:on=layers",
    "vim", "react", "she", "fdbd", "nnguide", "gmm", "gmm:covariance=diagonal", "ocsvm", "svdd", "isolation-forest", "lof",
]  # fmt: skip
CLOSE = 1e-5
LAST = ["--label", "last", "--min-class", "5", "--quiet"]


def environment() -> None:
    """Goes on in the environment of this script."""
    if Path(sys.prefix) == VENV:
        return
    python = VENV / "bin" / "python"
    if not python.exists():
        venv.create(VENV, with_pip=True)
        requirements = str(HERE / "requirements-onnx.txt")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", requirements], check=True)
    os.execv(python, [str(python), *sys.argv])


class Refused(Exception):
    """The command has refused, with its reason."""


class Mcdd:
    def __init__(self, command: str):
        self.command = command

    def __call__(self, *args: object) -> float:
        """Runs the command and returns the processor time that it took."""
        begin = processor_seconds()
        done = subprocess.run([self.command, *map(str, args)], capture_output=True, text=True)
        if done.returncode:
            raise Refused(done.stderr.strip().splitlines()[0] if done.stderr else "")
        return processor_seconds() - begin


def processor_seconds() -> float:
    """Of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def expected(path: Path):
    """The columns of a file of predictions."""
    import numpy as np

    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return columns


def compare(mcdd: Mcdd, model: Path, feed, rows: Path, work: Path, core: bool = False) -> dict:
    """Exports a model, runs it on rows, and compares every one with `mcdd predict`."""
    import numpy as np
    import onnx
    import onnxruntime

    exported, predicted = work / "m.onnx", work / "predicted.csv"
    mcdd("export", model, "-o", exported, *(["--core"] if core else []))
    loaded = onnx.load(exported)
    onnx.checker.check_model(loaded, full_check=True)
    onnx.shape_inference.infer_shapes(loaded, strict_mode=True, data_prop=True)
    about = {entry.key: entry.value for entry in loaded.metadata_props}
    probabilities = ["--probs"] if json.loads(about["mcdd.classes"]) else []
    seconds = mcdd("predict", model, rows, *probabilities, "-o", predicted)
    want = expected(predicted)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = os.cpu_count() or 1
    options.log_severity_level = 3
    # Threads that wait would count as processor time.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(exported, options, providers=["CPUExecutionProvider"])
    inputs = feed(json.loads(about["mcdd.inputs"]), core)
    names = [output.name for output in session.get_outputs()]
    begin = time.process_time()
    parts = []
    count = len(next(iter(inputs.values())))
    for at in range(0, count, 4096):
        parts.append(session.run(None, {name: values[at : at + 4096] for name, values in inputs.items()}))
    onnx_seconds = time.process_time() - begin
    got = {name: np.concatenate([part[i] for part in parts]) for i, name in enumerate(names)}

    score = want["confidence"].astype(float)
    spread = score[np.abs(score) < 1e300].std() or 1.0
    difference = np.abs(got["score"] - score) / np.maximum(np.abs(score), spread)
    threshold = json.loads(about["mcdd.threshold"])["confidence"]
    close = np.abs(score - threshold) <= CLOSE * np.maximum(abs(threshold), spread)
    differs = got["known"] != (want["verdict"] == "known")
    result = {
        "rows": count,
        "difference": float(difference.max()),
        "typical": float(np.quantile(difference, 0.99)),
        "close": int(close.sum()),
        "verdicts": int(differs.sum()),
        "wrong": int((differs & ~close).sum()),
        "p_values": float(np.abs(got["p_value"] - want["p_value"].astype(float)).max()),
        "megabytes": exported.stat().st_size / 1e6,
        "model_megabytes": model.stat().st_size / 1e6,
        "seconds": onnx_seconds,
        "mcdd_seconds": seconds,
    }
    classes = json.loads(about["mcdd.classes"])
    if "class" in got:
        labels = np.array(classes)[got["class"]]
        top = np.sort(got["probabilities"], axis=1)
        tied = top[:, -1] - top[:, -2] <= 1e-6
        result["classes"] = int(((labels != want["label"]) & ~tied).sum())
        if "label" in got:
            shown = np.where(got["known"], labels, "unknown")
            assert (got["label"] == shown).all()
        columns = [name for name in want if name not in ("image", "label", "verdict", "confidence", "p_value")]
        found = np.stack([want[name].astype(float) for name in columns], axis=1)
        result["probabilities"] = float(np.abs(found - got["probabilities"]).max())
    return result


def line(name: str, r: dict) -> None:
    classes = f", {r['classes']} classes differ" if r.get("classes") else ""
    print(
        f"| {name} | {r['rows']:,} | {r['difference']:.1e} | {r['typical']:.1e} | {r['verdicts']} | {r['close']} | {r['wrong']}{classes} "
        f"| {r['megabytes']:.2f} | {r['seconds']:.2f} | {r['mcdd_seconds']:.2f} |",
        flush=True,
    )


def head() -> None:
    print("| model | rows | largest difference | 99% of rows below | verdicts that differ | close | wrong | MB | onnxruntime, CPU s | mcdd predict, CPU s |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|", flush=True)


class Run:
    def __init__(self, args, work: Path):
        self.args, self.work, self.mcdd = args, work, Mcdd(args.mcdd)
        self.results: dict[str, dict] = {}

    def check(self, name: str, model: Path, feed, rows: Path, core: bool = False) -> None:
        if self.args.only and self.args.only not in name:
            return
        try:
            self.results[name] = compare(self.mcdd, model, feed, rows, self.work, core)
            line(name, self.results[name])
        except Refused as error:
            print(f"| {name} | refused: {error} |", flush=True)
            self.results[name] = {"refused": str(error)}

    def matrix(self, values, name: str):
        """Rows of numbers as a file, and as inputs."""
        import numpy as np

        path = self.work / f"{name}.csv"
        np.savetxt(path, values, fmt="%.17g", delimiter=",")
        return path, lambda inputs, core: {"x": np.ascontiguousarray(values, dtype=np.float64)}

    def with_shuffled(self, values):
        """The rows, and as many whose columns are shuffled: most of these are unknown."""
        import numpy as np

        rng = np.random.default_rng(0)
        shuffled = np.stack([rng.permutation(column) for column in values.T], axis=1)
        return np.concatenate([values, shuffled])[: self.args.rows]

    def shuttle(self):
        import numpy as np

        files = [Path(self.args.data) / "shuttle" / name for name in ("shuttle.trn", "shuttle.tst")]
        return files, self.with_shuffled(np.concatenate([np.loadtxt(f) for f in files])[:, :-1])

    def grid(self) -> None:
        files, values = self.shuttle()
        rows, feed = self.matrix(values, "shuttle")
        head()
        for method in self.args.methods:
            model = self.work / f"{method}.mcdd"
            settings = ["--preset", "paper", "--latent", "16", "--epochs", "3"]
            if method in ("gda",):
                settings = ["--preset", "paper"]
            if method == "alad":
                settings = ["--preset", "paper", "--epochs", "3"]
            self.mcdd("train", files[1], *LAST, "--method", method, *settings, "-o", model)
            for detector in DETECTORS:
                if self.args.only and self.args.only not in f"{method} {detector}":
                    continue
                refitted = self.work / "refitted.mcdd"
                try:
                    self.mcdd("refit", model, files[1], *LAST, "--detector", detector, "-o", refitted)
                except Refused:
                    continue  # This method and this detector do not go together.
                self.check(f"{method} {detector}", refitted, feed, rows)

    def default(self) -> None:
        import gzip

        import numpy as np

        files, values = self.shuttle()
        rows, feed = self.matrix(values, "shuttle")
        head()
        model, by_class = self.work / "best.mcdd", self.work / "by_class.mcdd"
        self.mcdd("train", files[0], *LAST, "-o", model)
        self.check("Shuttle, default", model, feed, rows)
        self.check("Shuttle, default, --core", model, feed, rows, core=True)
        self.mcdd("refit", model, files[0], *LAST, "--per-class", "-o", by_class)
        self.check("Shuttle, default, --per-class", by_class, feed, rows)
        folder = Path(self.args.data) / "mnist"

        def idx(name: str, offset: int):
            return np.frombuffer(gzip.decompress((folder / name).read_bytes())[offset:], dtype=np.uint8)

        pixels = np.concatenate([idx(f"{part}-images-idx3-ubyte.gz", 16) for part in ("train", "t10k")]).reshape(-1, 784)
        labels = idx("t10k-labels-idx1-ubyte.gz", 8)
        trained = self.work / "mnist_train.csv"
        np.savetxt(trained, np.column_stack([pixels[-10_000:], labels]), fmt="%d", delimiter=",")
        self.mcdd("train", trained, *LAST, "-o", model)
        rows, feed = self.matrix(pixels[: self.args.rows].astype(float), "mnist")
        self.check("MNIST as a table, default", model, feed, rows)

    def tables(self) -> None:
        import numpy as np

        head()
        for table in self.args.tables:
            model = self.work / "table.mcdd"
            self.mcdd("train", table, "--label", "label", "--preset", "fast", "--quiet", "-o", model)
            with open(table, newline="") as file:
                cells = list(csv.DictReader(file))

            def feed(inputs, core, cells=cells):
                found = {}
                for described in inputs:
                    column = [row[described["column"]].strip() for row in cells]
                    if described["takes"] == "text":
                        values = np.array(column, dtype=object)
                    elif described["takes"] == "code":
                        codes = {text: code for code, text in enumerate(described["categories"])}
                        missing = {"", "?", "NA"}
                        values = np.array([-1 if t in missing and t not in codes else codes.get(t, 1 << 40) for t in column])
                    else:
                        words = {word: str(i) for i, word in enumerate(described.get("words", []))}
                        column = [words.get(text, text) for text in column]
                        values = np.array([float(text) if text not in ("", "?", "NA") else np.nan for text in column])
                    found[described["input"]] = values.reshape(-1, 1)
                return found

            for core in (False, True):
                self.check(f"{Path(table).stem}{', --core' if core else ''}", model, feed, table, core)

    def images(self) -> None:
        import numpy as np

        data = Path(self.args.data)
        head()
        count = min(self.args.rows, self.args.images)
        raw = np.frombuffer((data / "cifar-10-batches-bin" / "test_batch.bin").read_bytes(), dtype=np.uint8).reshape(-1, 3073)
        known = raw[:count]
        part = self.work / "cifar"
        part.mkdir(exist_ok=True)
        batch = np.frombuffer((data / "cifar-10-batches-bin" / "data_batch_1.bin").read_bytes(), dtype=np.uint8).reshape(-1, 3073)
        (part / "data_batch_1.bin").write_bytes(batch[: self.args.images].tobytes())
        (self.work / "scored").mkdir(exist_ok=True)
        scored = self.work / "scored" / "test_batch.bin"
        scored.write_bytes(known.tobytes())
        pixels = known[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)

        def feed(inputs, core):
            return {"image": np.ascontiguousarray(pixels)}

        model, refitted = self.work / "images.mcdd", self.work / "refitted.mcdd"
        for net in ("cnn32", "resnet20", "densenet40"):
            settings = ["--net", net, "--epochs", "1", "--quiet", "-o", model]
            self.mcdd("train", part, *settings)
            self.check(f"CIFAR-10, {net}", model, feed, scored)
            detectors = ["knn", "mahalanobis", "distance", "energy"] if net == "cnn32" else ["knn"]
            for detector in detectors:
                self.mcdd("refit", model, part, "--detector", detector, "--quiet", "-o", refitted)
                self.check(f"CIFAR-10, {net}, {detector}", refitted, feed, scored)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("MCDD_DATA", ""), help="the folder of data sets [MCDD_DATA]")
    parser.add_argument("--tables", nargs="*", default=[], help="CSV files with a column label")
    parser.add_argument("--cases", nargs="*", default=["grid", "default", "tables", "images"])
    parser.add_argument("--methods", nargs="*", default=METHODS, help="the methods of the grid")
    parser.add_argument("--rows", type=int, default=116_000, help="the most rows that are scored")
    parser.add_argument("--images", type=int, default=2_000, help="the most images that are trained on, and scored")
    parser.add_argument("--only", help="only models whose name contains this")
    parser.add_argument("--mcdd", default=str(ROOT / "target" / "release" / "mcdd"), help="the command")
    parser.add_argument("--json", help="also writes every number to this file")
    args = parser.parse_args()
    environment()
    with tempfile.TemporaryDirectory() as folder:
        run = Run(args, Path(folder))
        for case in args.cases:
            getattr(run, case)()
    if args.json:
        Path(args.json).write_text(json.dumps(run.results, indent=1))
    compared = [r for r in run.results.values() if "refused" not in r]
    wrong = sum(r["wrong"] + r.get("classes", 0) for r in compared)
    print(
        f"\n{len(compared)} models, {sum(r['rows'] for r in compared):,} rows; largest difference "
        f"{max((r['difference'] for r in compared), default=0):.1e}; {sum(r['verdicts'] for r in compared)} verdicts differ, "
        f"{sum(r['close'] for r in compared)} are close to the threshold, {wrong} wrong; {len(run.results) - len(compared)} refused"
    )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
