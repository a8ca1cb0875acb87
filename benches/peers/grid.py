#!/usr/bin/env python3
"""Compares cells of `mcdd bench` with PyTorch in one interleaved run.

    python3 benches/peers/grid.py FOLDER

FOLDER is called gas and has GasSensor's batch*.dat. Needs only the standard library. PyTorch is installed in
benches/peers/.venv (created if absent, as for mlp_step.py) and runs in worker processes. See README.md next to this file.
"""

import json
import os
import re
import shutil
import statistics
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mlp_step
import train_default
from mlp_step import CPUS, Failed, mark, say, times

METHODS = ["softmax+msp", "deep-mcdd"]
FOLDS = 5
WANTED = 3.0
PLAIN = "eager, Adam default"
VARIANTS = [
    (PLAIN, "eager", "default"),
    ("eager, Adam fused", "eager", "fused"),
    ("fullgraph, Adam in graph", "fullgraph", "in graph"),
    ("fullgraph-cpp, Adam in graph", "fullgraph-cpp", "in graph"),
]


class Ours:
    """The command, one process per measurement. It also reads the table and writes its results and tables."""

    name = "mcdd"

    def __init__(self, executable, folder, scratch, options):
        self.timeout, self.output = options.grid_timeout, scratch / "bench"
        self.command = [
            executable, "bench", folder.name, "--data", str(folder.parent), "--methods", ",".join(METHODS),
            "--ood", *options.classes[:options.left_out], "--folds", str(FOLDS), "--test-folds", str(options.folds),
            "--epochs", str(options.epochs), "--jobs", str(CPUS), "-q", "-o", str(self.output),
        ]

    def measure(self, _):
        # Otherwise it would continue from these results, with nothing left to do.
        shutil.rmtree(self.output, ignore_errors=True)
        start = time.monotonic()
        _, _, cpu = mlp_step.run_ours(self.command, self.timeout)
        seconds = time.monotonic() - start
        lines = (self.output / "results.jsonl").read_text().splitlines()[1:]
        return {"seconds": seconds, "cpu": cpu, "cells": [self.cell(json.loads(line)) for line in lines]}, cpu

    def cell(self, line):
        found = line["measured"]["detection"]
        return {"method": line["method"], "accuracy": line["measured"]["accuracy"], "auroc": found["auroc"],
                "tested": [line["ood"], line["fold"], found["n_id"], found["n_ood"]], "seconds": sum(line["seconds"])}

    def close(self):
        pass


class Torch:
    """One or more PyTorch processes that share the cells. A process that is done takes the next cell."""

    def __init__(self, name, spec, processes, options):
        self.name, self.options = name, options
        # In parallel, as they would compile at the start of a grid.
        with ThreadPoolExecutor(processes) as pool:
            starts = [pool.submit(train_default.Network, name, spec, options, "grid_worker.py")
                      for _ in range(processes)]
        self.workers = [s.result() for s in starts if not s.exception()]
        failed = [s.exception() for s in starts if s.exception()]
        if failed:
            self.close()
            raise failed[0]
        self.version, self.trace = self.workers[0].version, self.workers[0].trace
        self.compiling = max(w.about["compiling"] for w in self.workers) if spec["kind"] != "eager" else 0.0

    def work(self, worker, queue):
        done = []
        while True:
            try:
                method, unknown, fold = queue.popleft()
            except IndexError:
                return done
            try:
                answer = worker.ask({"cell": [method, unknown, fold]}, self.options.timeout)
            except BaseException:
                queue.clear()
                raise
            tested = [self.options.classes[unknown], fold, *answer["rows"][1:]]
            done.append(answer | {"method": method, "tested": tested})

    def measure(self, _):
        queue = deque(self.options.cells_to_do)
        start = time.monotonic()
        with ThreadPoolExecutor(len(self.workers)) as pool:
            parts = [pool.submit(self.work, w, queue) for w in self.workers]
        seconds = time.monotonic() - start
        done = [cell for part in parts for cell in part.result()]
        cpu = sum(cell["cpu"] for cell in done)
        return {"seconds": seconds, "cpu": cpu, "cells": done}, cpu

    def close(self):
        for w in self.workers:
            w.close()


def start_torch(files, scratch, options, failures):
    started = []
    for processes, threads in sorted({(CPUS, 1), (1, CPUS)}, reverse=True):
        for variant, kind, adam in VARIANTS:
            name = f"{variant}, {processes} x {threads}"
            # Plain eager is the reference and runs once.
            if (started or variant != PLAIN) and not re.search(options.variants, name):
                continue
            spec = {"task": "grid", "files": files, "threads": threads, "kind": kind, "adam": adam,
                    "epochs": options.epochs}
            # An empty cache, so that no variant reuses what another has compiled.
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(scratch / f"inductor-cache-{len(started)}")
            try:
                started.append(Torch(name, spec, processes, options))
                say(f"started {name}")
            except Failed as error:
                failures.append(f"{name}: {error}")
                say(f"{name} does not start: {error}")
    return started


def quality(cells):
    """{method: (mean accuracy, mean AUROC)}"""
    mean = statistics.fmean
    return {m: [mean(c[key] for c in cells if c["method"] == m) for key in ("accuracy", "auroc")] for m in METHODS}


def run(executable, files, scratch, options):
    failures = []
    ours = Ours(executable, options.folder.resolve(), scratch, options)
    opened = start_torch(files, scratch, options, failures)
    try:
        torch, gap = mlp_step.compare_traces(opened, failures, "grid")
        results = train_default.interleave([ours, *torch], options, failures, first=0)
    finally:
        for c in opened:
            c.close()
    if "mcdd" not in results:
        raise Failed(failures[-1])
    rows = {n: sorted((c["method"], c["tested"]) for c in r[-1][0]["cells"]) for n, r in results.items()}
    for name in [n for n in rows if rows[n] != rows["mcdd"]]:
        failures.append(f"{name}: it tested another number of rows in the same cells")
        del results[name]
    group = mlp_step.compared({n: [(a["seconds"], q) for a, q in rounds] for n, rounds in results.items()})
    for name, rounds in results.items():
        group["contenders"][name] |= {
            "quality": quality([c for a, _ in rounds for c in a["cells"]]),
            "cpu": mlp_step.summary([(a["cpu"], q) for a, q in rounds]),
        }
    return group | {
        "cells": len(options.cells_to_do), "whole": len(options.classes) * FOLDS * len(METHODS),
        "left_out": options.left_out, "folds": options.folds, "epochs": options.epochs, "cores": CPUS,
        "torch": torch[0].version, "trace_gap": gap, "compiling": {c.name: c.compiling for c in torch},
        "failures": failures,
    }


def rate(group, seconds):
    return 60 * group["cells"] / seconds


def rate_of_whole(group, name, seconds):
    """Throughput of a whole grid that compiles once."""
    whole = group["whole"]
    return 60 * whole / (seconds * whole / group["cells"] + group["compiling"].get(name, 0.0))


def print_speed(group):
    print("| contender | cells/min | min-max | mcdd is faster (min-max) | CPU s a cell | compiling, s "
          "| cells/min of a whole grid with it | mcdd is faster | quiet rounds |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    ours = group["contenders"]["mcdd"]["median"]
    for name, s in sorted(group["contenders"].items(), key=lambda item: item[1]["median"]):
        note = " (best PyTorch)" if name == group["best_torch"] else ""
        note += " (plain eager)" if name.startswith(PLAIN) else ""
        compiling = group["compiling"].get(name, 0.0)
        whole = rate_of_whole(group, name, s["median"])
        ratio = times(s["times_faster"]) if "times_faster" in s else "-"
        of_whole = f"{rate(group, ours) / whole:.2f}{mark(s)}" if "times_faster" in s else "-"
        print(f"| {name}{note} | {rate(group, s['median']):.1f}{mark(s)} "
              f"| {rate(group, s['max']):.1f}-{rate(group, s['min']):.1f} | {ratio} "
              f"| {s['cpu']['median'] / group['cells']:.2f} | {f'{compiling:.0f}' if compiling else '-'} "
              f"| {whole:.1f} | {of_whole} | {s['quiet_rounds']}/{s['rounds']} |")


def print_quality(group):
    print("\n| contender | " + " | ".join(f"{m} accuracy | {m} AUROC" for m in METHODS) + " |")
    print("|---|" + "---:|" * 2 * len(METHODS))
    for name, s in group["contenders"].items():
        print(f"| {name} | " + " | ".join(f"{100 * v:.2f}" for m in METHODS for v in s["quality"][m]) + " |")


def print_group(group):
    print(f"\n### Grid: GasSensor, {group['left_out']} classes left out one by one x {group['folds']} of {FOLDS} folds "
          f"x {len(METHODS)} methods = {group['cells']} cells of {group['epochs']} epochs, {group['cores']} cores\n")
    print(f"PyTorch {group['torch']}; 2 x 1 is two processes with one thread each. The first losses of all its "
          f"variants agree to {group['trace_gap']:.0e}.\n")
    print_speed(group)
    if group["best_torch"]:
        best = group["contenders"][group["best_torch"]]["times_faster"]
        undecided = group["best_undecided"] or best["marked"]
        verdict = "not decided: disturbed" if undecided else "yes" if best["median"] >= WANTED else "no"
        print(f"\nAt least {WANTED:g} times the best PyTorch, compiling not counted: {verdict}; {times(best)}.")
    print_quality(group)
    for failure in group["failures"]:
        print(f"\n- left out: {failure}")


def arguments():
    p = train_default.common_arguments(__doc__, 3)
    p.add_argument("--cells", type=int, default=12, metavar="N",
                   help="two methods for each class: 2 to 12 on one fold, then 12 a fold up to 60 [%(default)s]")
    p.add_argument("--epochs", type=int, default=100)
    options = train_default.parse(p)
    labels = {line.split()[0] for file in options.files for line in Path(file).read_text().splitlines() if line.strip()}
    options.classes = sorted(labels, key=float)
    each, a_fold = len(METHODS), len(METHODS) * len(options.classes)
    options.folds = max(1, options.cells // a_fold)
    options.left_out = min(options.cells, a_fold) // each
    if options.left_out < 1 or options.folds > FOLDS or each * options.left_out * options.folds != options.cells:
        p.error(f"--cells must be a multiple of {each} up to {a_fold}, or of {a_fold} up to {a_fold * FOLDS}")
    options.cells_to_do = [
        (method, k, fold) for fold in range(options.folds) for k in range(options.left_out) for method in METHODS
    ]
    options.grid_timeout = options.timeout * options.cells
    return options


if __name__ == "__main__":
    train_default.main(arguments(), run, print_group)
