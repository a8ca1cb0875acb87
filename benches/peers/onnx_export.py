#!/usr/bin/env python3
"""Runs exported models in onnxruntime and compares every row with `mcdd predict`.

    python3 benches/peers/onnx_export.py --data DIR [--tables FILE ...] [--cases TEXT ...] [--rows N] [--json FILE]

DIR has the data sets as published (see CONTRIBUTING.md). A table is a CSV or Parquet file with a column `label`. The first run creates
benches/peers/.venv-onnx with the packages of requirements-onnx.txt. Cases are

    grid        all methods x all detectors, trained on the first rows of Shuttle
    default     the default, with --per-class, --tpr and --core and without, on Shuttle and MNIST, with sizes and times
    tables      the default on each of the tables, with --core and without: names, categories, and 3% of the cells missing
    names       as tables, with names of columns and classes that are hard to read, on the first table
    images      all methods x all detectors on CIFAR-10 with a small network
    networks    larger networks for images on CIFAR-10, with detectors on latents and layers
    memory      the memory that a run takes at its peak, for the distance to stored rows, by the number of rows in one batch

Rows that are scored are those of the data, and the same with each column shuffled, so that many are unknown, again and again up to --rows.
Each model is checked by onnx's checker and by strict shape inference. A relative difference of scores is |a - b| / max(|b|, s), where
s is the standard deviation of all scores of `mcdd predict`. A verdict is close if the score is within 1e-5 (relative as
above) of the threshold. Times are processor time: of onnxruntime without loading, of `mcdd predict` with reading and writing. With
--tract the files run in tract instead of onnxruntime. Exits with 1 if a
verdict differs that is not close, or a class whose probability is not tied.
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
HOSTILE = ["score", "label (2)", "threshold", "x", "tab\tand\nnewline", "\u202e\"quoted\\", "a,b;c", " ", "v3", "probabilities", "class", "\U0001f600/../"]


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
        head, *rows = csv.reader(file)
    return {name: np.array(column) for name, column in zip(head, zip(*rows))}


def in_tract(command: str, exported: Path, inputs: dict, names: list[str], work: Path) -> dict:
    """The outputs of a file in tract."""
    import numpy as np
    import onnx

    folder = work / "tract"
    folder.mkdir(exist_ok=True)
    model, lines = onnx.load(exported), []
    # tract has IsNaN for 32 bits only: what is not a number is not equal to itself.
    nodes = []
    for node in model.graph.node:
        if node.op_type == "IsNaN":
            same = node.output[0] + "/same"
            nodes.append(onnx.helper.make_node("Equal", [node.input[0], node.input[0]], [same]))
            nodes.append(onnx.helper.make_node("Not", [same], list(node.output)))
        else:
            nodes.append(node)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    exported = folder / "m.onnx"
    onnx.save(model, exported)
    # A fixed threshold is no input; constants are not given.
    for i, port in enumerate(model.graph.input):
        values = inputs[port.name]
        lines.append(" ".join([{"float64": "f64", "int64": "i64", "uint8": "u8"}[str(values.dtype)], *map(str, values.shape)]))
        (folder / f"{i}.in").write_bytes(np.ascontiguousarray(values).tobytes())
    (folder / "inputs").write_text("\n".join(lines))
    done = subprocess.run([command, exported, folder], capture_output=True, text=True)
    if done.returncode:
        raise Refused("tract: " + " ".join(done.stderr.split())[:200])
    rows = len(next(iter(inputs.values())))
    found = {name: np.frombuffer((folder / f"{i}.out").read_bytes()) for i, name in enumerate(names)}
    for name in ("class", "known"):
        if name in found:
            found[name] = found[name].astype(bool if name == "known" else int)
    if "probabilities" in found:
        found["probabilities"] = found["probabilities"].reshape(rows, -1)
    return found


def compare(mcdd: Mcdd, model: Path, feed, rows: Path, work: Path, core: bool = False, tpr: str | None = None, tract: str = "") -> dict:
    """Exports a model, runs it on rows, and compares every one with `mcdd predict`."""
    import numpy as np
    import onnx
    import onnxruntime

    exported, predicted = work / "m.onnx", work / "predicted.csv"
    if tract:
        core, tpr = True, tpr or "0.95"
    fixed = ["--tpr", tpr] if tpr else []
    mcdd("export", model, "-o", exported, *(["--core"] if core else []), *fixed)
    loaded = onnx.load(exported)
    onnx.checker.check_model(loaded, full_check=True)
    onnx.shape_inference.infer_shapes(loaded, strict_mode=True, data_prop=True)
    about = {entry.key: entry.value for entry in loaded.metadata_props}
    # Operators on texts only where there are texts.
    texts = not core and any(described["takes"] == "text" for described in json.loads(about["mcdd.inputs"]))
    assert loaded.ir_version == 10 and {o.domain: o.version for o in loaded.opset_import}[""] == 21
    assert ("ai.onnx.ml" in {node.domain for node in loaded.graph.node}) == texts
    probabilities = ["--probs"] if json.loads(about["mcdd.classes"]) else []
    seconds = mcdd("predict", model, rows, *probabilities, *fixed, "-o", predicted)
    want = expected(predicted)
    inputs = feed(json.loads(about["mcdd.inputs"]), core)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = os.cpu_count() or 1
    options.log_severity_level = 3
    # Threads that wait would count as processor time.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(exported, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    count = len(next(iter(inputs.values())))
    if tract:
        begin = processor_seconds()
        got = in_tract(tract, exported, inputs, names, work)
        onnx_seconds = processor_seconds() - begin
    else:
        begin, parts = time.process_time(), []
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
        self.args, self.work, self.mcdd, self.tract = args, work, Mcdd(args.mcdd), ""
        if args.tract:
            manifest = HERE.parent / "tract" / "Cargo.toml"
            subprocess.run(["cargo", "build", "--release", "--quiet", "--manifest-path", manifest, "--target-dir", manifest.parent / "target"], check=True)
            self.tract = str(manifest.parent / "target" / "release" / "mcdd-tract")
        written = args.json and Path(args.json).exists()
        self.results: dict[str, dict] = json.loads(Path(args.json).read_text()) if written else {}

    def check(self, name: str, model: Path, feed, rows: Path, core: bool = False, tpr: str | None = None) -> None:
        if (self.args.only and self.args.only not in name) or name in self.results:
            return
        try:
            self.results[name] = compare(self.mcdd, model, feed, rows, self.work, core, tpr, self.tract)
            line(name, self.results[name])
        except Refused as error:
            print(f"| {name} | refused: {error} |", flush=True)
            self.results[name] = {"refused": str(error)}
        if self.args.json:
            Path(self.args.json).write_text(json.dumps(self.results, indent=1))

    def matrix(self, values, name: str):
        """Rows of numbers as a file, and as inputs."""
        import numpy as np

        path = self.work / f"{name}.npy"
        np.save(path, np.ascontiguousarray(values, dtype=np.float64))
        return path, lambda inputs, core: {"x": np.ascontiguousarray(values, dtype=np.float64)}

    def with_shuffled(self, values, count: int | None = None):
        """The rows, and the same with each column shuffled (most of these are unknown), again and again."""
        import numpy as np

        rng = np.random.default_rng(0)
        count, found, parts = count or self.args.rows, 0, []
        while found < count:
            parts.append(np.stack([rng.permutation(column) for column in values.T], axis=1) if parts else values)
            found += len(values)
        return np.concatenate(parts)[:count]

    def shuttle(self):
        import numpy as np

        files = [Path(self.args.data) / "shuttle" / name for name in ("shuttle.trn", "shuttle.tst")]
        return files, self.with_shuffled(np.concatenate([np.loadtxt(f) for f in files])[:, :-1])

    def grid(self) -> None:
        files, values = self.shuttle()
        rows, feed = self.matrix(values, "shuttle")
        first = self.work / "first.tst"
        first.write_text("".join(files[1].open().readlines()[: self.args.train_rows]))
        head()
        for method in self.args.methods:
            settings = ["--preset", "paper"]
            if method != "gda":
                settings += ["--epochs", "3"]
            if method not in ("gda", "alad"):
                settings += ["--latent", "16"]
            self.detectors("", method, [first, *LAST], settings, feed, rows)

    def detectors(self, name: str, method: str, data: list, settings: list, feed, rows: Path) -> None:
        """A method with all detectors."""
        model, refitted = self.work / f"{method}.mcdd", self.work / "refitted.mcdd"
        self.mcdd("train", *data, "--method", method, *settings, "-o", model)
        self.check(f"{name}{method}", model, feed, rows)
        for detector in DETECTORS:
            if (self.args.only and self.args.only not in f"{name}{method} {detector}") or f"{name}{method} {detector}" in self.results:
                continue
            try:
                self.mcdd("refit", model, *data, "--detector", detector, "-o", refitted)
            except Refused:
                continue  # This method and this detector do not go together.
            self.check(f"{name}{method} {detector}", refitted, feed, rows)

    def default(self) -> None:
        import gzip

        import numpy as np

        files, values = self.shuttle()
        rows, feed = self.matrix(values, "shuttle")
        head()
        model, by_class = self.work / "best.mcdd", self.work / "by_class.mcdd"
        if not model.exists():
            self.mcdd("train", files[0], *LAST, "-o", model)
        self.check("Shuttle, default", model, feed, rows)
        fewer, feed = self.matrix(self.with_shuffled(values, min(self.args.rows, 10_000)), "fewer")
        self.check("Shuttle, default, --core", model, feed, fewer, core=True)
        self.check("Shuttle, default, --tpr 0.99", model, feed, fewer, tpr="0.99")
        self.mcdd("refit", model, files[0], *LAST, "--per-class", "-o", by_class)
        self.check("Shuttle, default, --per-class", by_class, feed, fewer)
        if self.args.only and self.args.only not in "MNIST as a table, default":
            return
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

    def read_table(self, table: str):
        """The names of the columns, the cells as texts, and the labels."""
        import numpy as np

        if table.endswith(".parquet"):
            import pyarrow.parquet

            columns = {name: [str(cell) for cell in cells] for name, cells in pyarrow.parquet.read_table(table).to_pydict().items()}
        else:
            columns = expected(Path(table))
        labels = columns.pop("label")
        return list(columns), np.stack([np.array(cells, dtype=object) for cells in columns.values()], axis=1), list(labels)

    def tables(self, hostile: bool = False) -> None:
        import numpy as np

        head()
        for table in self.args.tables[: 1 if hostile else None]:
            names, cells, labels = self.read_table(table)
            if hostile:
                names = (HOSTILE + names)[: len(names)]
                classes = {label: new for label, new in zip(sorted(set(labels)), ["unknown", "b\t\n", "\u202e,\"c\""])}
                labels = [classes.get(label, label) for label in labels]
            rng = np.random.default_rng(1)
            cells[rng.random(cells.shape) < 0.03] = ""
            model, train, rows = self.work / "table.mcdd", self.work / "table.csv", self.work / "rows.csv"
            scored = self.with_shuffled(cells)
            # Categories that the model has not seen.
            scored[rng.random(len(scored)) < 0.01, 0] = "7" if scored[0, 0].replace(".", "").replace("-", "").isdigit() else "new"
            for path, header, content in ((train, [*names, "the label"], np.column_stack([cells, labels])), (rows, names, scored)):
                with path.open("w", newline="") as file:
                    writer = csv.writer(file)
                    writer.writerow(header)
                    writer.writerows(content)
            self.mcdd("train", train, "--label", "the label", "--quiet", "-o", model)

            def feed(inputs, core, names=names, scored=scored):
                found = {}
                for described in inputs:
                    # A column without a name is called by its number.
                    name = described["column"]
                    place = names.index(name) if name in names else int(name.removeprefix("column ")) - 1
                    column = [cell.strip() for cell in scored[:, place]]
                    if described["takes"] == "text":
                        # As the command reads numbers that are categories: 1.0 is 1.
                        values = np.array([cell.removesuffix(".0") for cell in column], dtype=object)
                    elif described["takes"] == "code":
                        codes = {text: code for code, text in enumerate(described["categories"])}
                        values = np.array([-1 if not t else codes.get(t.removesuffix(".0"), 1 << 40) for t in column])
                    else:
                        words = {word: str(i) for i, word in enumerate(described.get("words", []))}
                        column = [words.get(text, text) for text in column]
                        values = np.array([float(text) if text else np.nan for text in column])
                    found[described["input"]] = values.reshape(-1, 1)
                return found

            for core in (False, True):
                what = f"{Path(table).stem}{', names' if hostile else ''}{', --core' if core else ''}"
                self.check(what, model, feed, rows, core)

    def names(self) -> None:
        self.tables(hostile=True)

    def cifar(self):
        """Images to train on, images to score, and these as inputs: half of them CIFAR-10's, half with each pixel shuffled among images."""
        import numpy as np

        data = Path(self.args.data) / "cifar-10-batches-bin"
        count = self.args.images

        def read(name: str):
            return np.frombuffer((data / name).read_bytes(), dtype=np.uint8).reshape(-1, 3073)

        part, scored = self.work / "cifar" / "data_batch_1.bin", self.work / "scored" / "test_batch.bin"
        for path in (part, scored):
            path.parent.mkdir(exist_ok=True)
        part.write_bytes(read("data_batch_1.bin")[: self.args.train_images].tobytes())
        known = read("test_batch.bin")[: (count + 1) // 2].copy()
        noise = known[: count // 2].copy()
        noise[:, 1:] = np.random.default_rng(0).permuted(noise[:, 1:], axis=0)
        both = np.concatenate([known, noise])
        scored.write_bytes(both.tobytes())
        pixels = both[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return part.parent, scored, lambda inputs, core: {"image": np.ascontiguousarray(pixels)}

    def images(self) -> None:
        part, scored, feed = self.cifar()
        head()
        for method in self.args.methods:
            settings = ["--net", "cnn8", "--preset", "fast", "--epochs", "2", "--quiet"]
            try:
                self.detectors("CIFAR-10, ", method, [part], settings, feed, scored)
            except Refused as error:
                print(f"| CIFAR-10, {method} | not trained: {error} |", flush=True)

    def networks(self) -> None:
        part, scored, feed = self.cifar()
        head()
        model, refitted = self.work / "images.mcdd", self.work / "refitted.mcdd"
        for net in ("cnn32", "resnet20", "densenet40"):
            settings = ["--net", net, "--epochs", "1", "--quiet", "-o", model]
            self.mcdd("train", part, *settings)
            self.check(f"CIFAR-10, {net}", model, feed, scored)
            for detector in ("knn", "mahalanobis"):
                self.mcdd("refit", model, part, "--detector", detector, "--quiet", "-o", refitted)
                self.check(f"CIFAR-10, {net}, {detector}", refitted, feed, scored)


    def memory(self) -> None:
        files, values = self.shuttle()
        model, exported, rows = self.work / "memory.mcdd", self.work / "memory.onnx", self.work / "memory.npy"
        import numpy as np

        np.save(rows, values)
        self.mcdd("train", files[1], *LAST, "--preset", "paper", "--epochs", "3", "--detector", "knn", "-o", model)
        self.mcdd("export", model, "-o", exported)
        for count in (1_000, 10_000, 50_000):
            done = subprocess.run([sys.executable, "-c", MEMORY, exported, rows, str(count)], capture_output=True, text=True, check=True)
            print(f"{count:,} rows and 14,500 stored ones: {done.stdout.strip()} MB")


# Runs in a process of its own, as the peak is that of a process.
MEMORY = """
import sys, numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
x = numpy.load(sys.argv[2])[: int(sys.argv[3])]
peak = lambda: next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1e3
before = peak()
session.run(["score"], {"x": x})
print(round(peak() - before))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("MCDD_DATA", ""), help="the folder of data sets [MCDD_DATA]")
    parser.add_argument("--tables", nargs="*", default=[], help="CSV or Parquet files with a column label")
    parser.add_argument("--cases", nargs="*", default=["grid", "default", "tables", "names", "images", "networks", "memory"])
    parser.add_argument("--methods", nargs="*", default=METHODS, help="the methods of the grid")
    parser.add_argument("--rows", type=int, default=100_000, help="the rows that are scored")
    parser.add_argument("--train-rows", type=int, default=14_500, help="the rows that the models of the grid are trained on")
    parser.add_argument("--images", type=int, default=2_000, help="the images that are scored")
    parser.add_argument("--train-images", type=int, default=2_000, help="the images that are trained on")
    parser.add_argument("--tract", action="store_true", help="runs the files in tract (benches/tract), as --core with a fixed threshold")
    parser.add_argument("--only", help="only models whose name contains this")
    parser.add_argument("--mcdd", default=str(ROOT / "target" / "release" / "mcdd"), help="the command")
    parser.add_argument("--work", help="a folder for the models; the default's is used again if it is there")
    parser.add_argument("--json", help="also writes every number to this file; what is in it already is not run again")
    args = parser.parse_args()
    environment()
    with tempfile.TemporaryDirectory() as folder:
        run = Run(args, Path(args.work or folder))
        for case in args.cases:
            getattr(run, case)()
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
