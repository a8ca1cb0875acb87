#!/usr/bin/env python3
"""Compares detectors on features with scikit-learn, pytorch-ood and others in one interleaved run.

    python3 benches/peers/detectors.py

Needs only the standard library. The other libraries are installed in benches/peers/.venv (created if absent, as for
mlp_step.py) and run in worker processes. See README.md next to this file.
"""

import argparse
import array
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import mlp_step
from mlp_step import Failed, say

HERE = Path(__file__).resolve().parent
K = 5

# (rows in training and to score, features, classes)
DEEP = (50_000, 128, 10)
TABLE = (10_000, 20, 5)
SHUTTLE = (58_000, 9, 7)

# Our name with settings, the data, the peers, and the tolerance of the scores: the largest difference relative to the
# spread of the scores, or None if the definitions differ by more than rounding and only the order can be compared.
COMPARISONS = {
    "knn": (f"knn:k={K}", DEEP, ["knn_sklearn", "knn_pytorch_ood", "knn_torch"], 1e-3),
    "knn-narrow": (f"knn:k={K}", SHUTTLE, ["knn_sklearn", "knn_pytorch_ood"], 1e-3),
    "mahalanobis": ("mahalanobis", DEEP, ["mahalanobis_sklearn", "mahalanobis_pytorch_ood", "mahalanobis_numpy"], None),
    "rmd": ("rmd", DEEP, ["rmd_sklearn", "rmd_pytorch_ood", "rmd_numpy"], None),
    "lof": ("lof", TABLE, ["lof_sklearn"], 1e-3),
    "ocsvm": ("ocsvm:nu=0.1", TABLE, ["ocsvm_sklearn"], None),
}

MAKE_DATA = """
import sys
import numpy as np

rows, width, classes = map(int, sys.argv[2:5])
rng = np.random.default_rng(1)
means = rng.normal(size=(classes, width))
mix = rng.normal(size=(width, width)) / width**0.5 + np.eye(width)
for name in ("train", "test"):
    labels = rng.integers(classes, size=rows).astype("<u4")
    x = means[labels] + rng.normal(size=(rows, width)) @ mix
    if name == "test":
        x[::10] *= 3
    else:
        np.save(f"{sys.argv[1]}/labels.npy", labels)
    np.save(f"{sys.argv[1]}/{name}.npy", x.astype("<f4"))
"""


class Peer:
    """A worker process that runs until close()."""

    def __init__(self, maker, data, options):
        self.name = maker
        self.log = tempfile.TemporaryFile(mode="w+")
        spec = {"maker": maker, "data": str(data), "threads": options.threads, "k": K}
        self.process = subprocess.Popen(
            [str(options.python), str(HERE / "detector_worker.py"), json.dumps(spec)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
        )
        self.timeout = options.timeout
        try:
            self.version = self.receive()["ready"]
        except BaseException:
            self.close()
            raise

    def receive(self):
        if not select.select([self.process.stdout], [], [], self.timeout)[0]:
            raise Failed(f"no answer within {self.timeout:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            raise Failed(self.log.read().strip()[-200:] or "the worker ended")
        return json.loads(line)

    def measure(self, scores):
        self.process.stdin.write(json.dumps({"scores": str(scores)}) + "\n")
        self.process.stdin.flush()
        return self.receive()

    def close(self):
        try:
            self.process.stdin.close()
            self.process.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


class Ours:
    """Our program, one process per measurement."""

    def __init__(self, executable, detector, data, options):
        self.name, self.version, self.timeout = "mcdd", detector, options.timeout
        self.command = [executable, "--detector", detector, "--data", str(data), "--threads", str(options.threads)]

    def measure(self, scores):
        before = os.times()
        run = subprocess.run(
            self.command + ["--scores", str(scores)], capture_output=True, text=True, timeout=self.timeout
        )
        if run.returncode:
            raise Failed(run.stderr.strip()[-200:])
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        return dict(json.loads(run.stdout), cpu=cpu)

    def close(self):
        pass


def quietly(contender, scores, options):
    """A measurement with "quiet", repeated while other processes disturb it, up to the allowed number of times."""
    for attempt in range(options.retries + 1):
        before, own, start = mlp_step.machine_cpu(), mlp_step.own_cpu(), time.monotonic()
        answer = contender.measure(scores)
        wall = time.monotonic() - start
        foreign = 0 if before is None else mlp_step.machine_cpu() - before - (mlp_step.own_cpu() - own) - answer["cpu"]
        # Reading data and writing scores are not counted in "cpu": a tenth of a second is allowed for them.
        answer["quiet"] = foreign <= mlp_step.DISTURBED * wall + 0.1
        if answer["quiet"] or attempt == options.retries:
            return answer
        mlp_step.wait_for_quiet(options.patience)


def read_scores(file):
    values = array.array("d")
    values.frombytes(Path(file).read_bytes())
    return values


def ranks(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    out = [0] * len(values)
    for rank, i in enumerate(order):
        out[i] = rank
    return out


def agreement(ours, theirs):
    """(largest difference relative to the spread of theirs, rank correlation)."""
    spread = statistics.pstdev(theirs) or 1.0
    gap = max(abs(a - b) for a, b in zip(ours, theirs)) / spread
    n = len(ours)
    squares = sum((a - b) ** 2 for a, b in zip(ranks(ours), ranks(theirs)))
    return gap, 1 - 6 * squares / (n * (n * n - 1))


def compare(name, executable, directory, options):
    detector, shape, peers, tolerance = COMPARISONS[name]
    data = directory / "-".join(map(str, shape))
    if not data.exists():
        data.mkdir()
        make = [str(options.python), "-c", MAKE_DATA, str(data), *map(str, shape)]
        subprocess.run(make, check=True)
    contenders, notes = [], []
    for maker in peers:
        try:
            contenders.append(Peer(maker, data, options))
        except Failed as error:
            notes.append(f"{maker} does not start: {error}")
    contenders.append(Ours(executable, detector, data, options))
    results = {c.name: [] for c in contenders}
    try:
        for r in range(-1, options.rounds):
            # Rotate the order every round. Round -1 is a warm-up and not counted.
            shift = r % len(contenders)
            for c in contenders[shift:] + contenders[:shift]:
                if c.name not in results:
                    continue
                try:
                    if r < 0:
                        c.measure(data / f"{c.name}.scores")
                    else:
                        results[c.name].append(quietly(c, data / f"{c.name}.scores", options))
                        last = results[c.name][-1]
                        say(f"{name}: round {r + 1}/{options.rounds}, {c.name}: fit {last['fit']:.3f} s, "
                            f"score {last['score']:.3f} s{'' if last['quiet'] else ' !'}")
                except (Failed, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
                    notes.append(f"{c.name} failed: {error}")
                    say(f"{name}: {notes[-1]}")
                    del results[c.name]
    finally:
        for c in contenders:
            c.close()
    group = {"name": name, "detector": detector, "shape": shape, "threads": options.threads, "notes": notes,
             "versions": {c.name: c.version for c in contenders}, "rounds": results}
    group["table"] = tabulate(results)
    if "mcdd" in results:
        ours = read_scores(data / "mcdd.scores")
        group["agreement"] = {}
        for peer in results:
            if peer == "mcdd":
                continue
            gap, rank = agreement(ours, read_scores(data / f"{peer}.scores"))
            group["agreement"][peer] = {"gap": gap, "rank": rank}
            if tolerance is not None and not gap <= tolerance:
                notes.append(f"scores of {peer} differ from ours by {gap:.1e} of their spread")
    return group


def tabulate(results):
    ours = results.get("mcdd")
    table = {}
    for name, rounds in results.items():
        row = {"quiet_rounds": sum(a["quiet"] for a in rounds)}
        for part in ("fit", "score", "both"):
            seconds = [(a["fit"] + a["score"] if part == "both" else a[part], a["quiet"]) for a in rounds]
            row[part] = mlp_step.summary(seconds)
            if ours and name != "mcdd":
                mine = [(a["fit"] + a["score"] if part == "both" else a[part], a["quiet"]) for a in ours]
                row[part + "_ratio"] = mlp_step.ratios(seconds, mine)
        table[name] = row
    return table


def print_group(group):
    rows, width, classes = group["shape"]
    print(f"\n### {group['name']}: {group['detector']}, {rows:,} x {width} in training and to score, "
          f"{classes} classes, {group['threads']} threads\n")
    print("| contender | fit s | score s | mcdd is faster: fit | score | both | rank correlation | quiet rounds |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, row in sorted(group["table"].items(), key=lambda item: item[1]["both"]["median"]):
        cells = [f"{row[p]['median']:.3f}{mlp_step.mark(row[p])}" for p in ("fit", "score")]
        cells += [mlp_step.times(row[p + "_ratio"]) if p + "_ratio" in row else "-" for p in ("fit", "score", "both")]
        rank = group.get("agreement", {}).get(name)
        cells.append(f"{rank['rank']:.6f}" if rank else "-")
        total = row["fit"]["rounds"]
        print(f"| {name} ({group['versions'][name]}) | {' | '.join(cells)} | {row['quiet_rounds']}/{total} |")
    for note in group["notes"]:
        print(f"\n- {note}")


def arguments():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("detectors", nargs="*", metavar="DETECTOR", help=f"of {', '.join(COMPARISONS)}; all by default")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--retries", type=int, default=3, help="of a measurement that was disturbed")
    p.add_argument("--patience", type=float, default=10.0, help="seconds to wait for a quiet machine before each retry")
    p.add_argument("--timeout", type=float, default=600.0, help="seconds per measurement")
    p.add_argument("--python", type=Path, help="an interpreter with the packages of requirements.txt")
    p.add_argument("--executable", help="the program detector_speed, if already built")
    p.add_argument("--json", type=Path, metavar="FILE", help="also write every number to this file")
    options = p.parse_args()
    unknown = [d for d in options.detectors if d not in COMPARISONS]
    if unknown or options.rounds < 1:
        p.error(f"there is no comparison {', '.join(unknown)}" if unknown else "--rounds must be positive")
    return options


def main():
    options = arguments()
    sys.stdout.reconfigure(line_buffering=True)
    if options.python is None:
        mlp_step.ensure_venv()
        options.python = mlp_step.venv_python()
    executable = options.executable or mlp_step.build_ours("detector_speed")
    groups = []
    with tempfile.TemporaryDirectory() as directory:
        for name in options.detectors or COMPARISONS:
            groups.append(compare(name, executable, Path(directory), options))
            print_group(groups[-1])
            if options.json:
                options.json.write_text(json.dumps(groups, indent=1) + "\n")


if __name__ == "__main__":
    main()
