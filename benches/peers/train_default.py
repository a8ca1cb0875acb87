#!/usr/bin/env python3
"""Compares the whole training of mcdd's default with PyTorch in one interleaved run.

    python3 benches/peers/train_default.py FOLDER

FOLDER has GasSensor's batch*.dat. Needs only the standard library. PyTorch is installed in benches/peers/.venv (created
if absent, as for mlp_step.py) and runs in worker processes. See README.md next to this file.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import mlp_step
from mlp_step import CPUS, Failed, mark, say, times

OURS = "train {data} --label first --preset best -o {model}"
PLAIN = "eager, broadcast, Adam default"
VARIANTS = [
    (PLAIN, "eager", "broadcast", "default"),
    ("eager, broadcast, Adam fused", "eager", "broadcast", "fused"),
    ("eager, matmul, Adam fused", "eager", "matmul", "fused"),
    ("compile, matmul, Adam fused", "compile", "matmul", "fused"),
    ("fullgraph-cpp, matmul, Adam in graph", "fullgraph-cpp", "matmul", "in graph"),
]


class Network(mlp_step.Torch):
    """One network in PyTorch. Its worker trains it from the start for every measurement."""

    def __init__(self, name, spec, options, worker="train_worker.py"):
        super().__init__(name, spec, options.timeout, worker, options.python)
        self.about, self.timeout = self.trace, options.timeout
        self.trace = self.about.pop("losses")

    def measure(self, _):
        answer = self.ask({"seconds": 0}, self.timeout)
        return answer, answer["cpu"]


class Ours:
    """Our command, one process per measurement."""

    name = "mcdd"

    def __init__(self, executable, files, model, options):
        self.timeout = options.timeout
        self.command = [executable]
        for word in shlex.split(options.ours):
            self.command += files if word == "{data}" else [word.replace("{model}", str(model))]

    def measure(self, _):
        start = time.monotonic()
        _, stderr, cpu = mlp_step.run_ours(self.command, self.timeout)
        wall = time.monotonic() - start
        # The progress lines before the summary contain accuracies too. The last one counts.
        seconds = re.findall(r"\bin ([\d.]+) s\b", stderr)
        accuracy = re.findall(r"(?:held-out|calibration|validation) accuracy ([\d.]+)%", stderr)
        if not seconds:
            raise Failed("the time of training was not reported")
        answer = {"seconds": float(seconds[-1]), "wall": wall, "cpu": cpu}
        return answer | ({"accuracy": float(accuracy[-1]) / 100} if accuracy else {}), cpu

    def close(self):
        pass


def start_networks(files, options, failures):
    started = []
    for threads in options.threads:
        for variant, kind, distance, adam in VARIANTS:
            if variant != PLAIN and not re.search(options.variants, variant):
                continue
            name = f"{variant}, {threads} thread{'s' * (threads > 1)}"
            spec = {"task": "train", "files": files, "threads": threads, "kind": kind, "distance": distance,
                    "adam": adam}
            try:
                started.append(Network(name, spec, options))
                say(f"started {name}")
            except Failed as error:
                failures.append(f"{name}: {error}")
                say(f"{name} does not start: {error}")
    return started


def interleave(contenders, options, failures, first=-1):
    """{name: [(answer, quiet) per round]}; contenders that fail are dropped. Round -1 is a warm-up and not counted."""
    results = {c.name: [] for c in contenders}
    for r in range(first, options.rounds):
        # Rotate the order every round, so that no contender always follows the same one.
        shift = r % len(contenders)
        for c in contenders[shift:] + contenders[:shift]:
            if c.name not in results:
                continue
            try:
                if r < 0:
                    c.measure(0)
                    continue
                answer, quiet = mlp_step.measure_quietly(c, 0, options)
                results[c.name].append((answer, quiet))
                say(f"round {r + 1}/{options.rounds}, {c.name}: {answer['seconds']:.2f} s{'' if quiet else ' !'}")
            except (Failed, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
                failures.append(f"{c.name}: {error}")
                say(f"{c.name} failed: {error}")
                del results[c.name]
                # It may still be running.
                c.close()
    return results


def run(executable, files, scratch, options):
    failures = []
    ours = Ours(executable, files, scratch / "model.mcdd", options)
    say(f"mcdd {options.ours}: {ours.measure(0)[0]['seconds']} s")
    opened = start_networks(files, options, failures)
    try:
        networks, gap = mlp_step.compare_traces(opened, failures, "training")
        results = interleave([ours, *networks], options, failures)
    finally:
        for c in opened:
            c.close()
    if "mcdd" not in results:
        sys.exit(f"mcdd failed: {failures[-1]}")
    group = mlp_step.compared({n: [(a["seconds"], q) for a, q in rounds] for n, rounds in results.items()})
    group["process"] = mlp_step.summary([(a["wall"], q) for a, q in results["mcdd"]])
    for name, rounds in results.items():
        group["contenders"][name] |= {
            "accuracy": rounds[-1][0].get("accuracy"), "cpu": mlp_step.summary([(a["cpu"], q) for a, q in rounds]),
        }
    return group | {
        "ours": options.ours, "torch": networks[0].version, "files": len(files), "cores": CPUS, "trace_gap": gap,
        "about": {c.name: c.about for c in networks}, "failures": failures,
    }


def print_group(group):
    about = next(iter(group["about"].values()))
    compiled = {name: a for name, a in group["about"].items() if not name.startswith("eager")}
    process = group["process"]
    print(f"\n### Training: GasSensor, {group['files']} files, {about['rows']:,} training and {about['held']} validation rows, "
          f"{group['cores']} cores\n")
    print(f"mcdd: `mcdd {group['ours']}`; the whole process with reading takes {process['median']:.2f} s "
          f"({process['min']:.2f}-{process['max']:.2f}){mark(process)}. PyTorch {group['torch']}: one network, "
          f"{about['steps']:,} steps.\n")
    print("| contender | s | min-max | PyTorch's time over mcdd's (min-max) | CPU s | validation accuracy "
          "| quiet rounds |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, s in sorted(group["contenders"].items(), key=lambda item: item[1]["median"]):
        note = " (best PyTorch)" if name == group["best_torch"] else ""
        note += " (plain eager)" if name.startswith(PLAIN) else ""
        ratio = times(s["times_faster"]) if "times_faster" in s else "-"
        accuracy = "-" if s["accuracy"] is None else f"{100 * s['accuracy']:.1f}%"
        print(f"| {name}{note} | {s['median']:.2f}{mark(s)} | {s['min']:.2f}-{s['max']:.2f} | {ratio} "
              f"| {s['cpu']['median']:.2f} | {accuracy} | {s['quiet_rounds']}/{s['rounds']} |")
    if group["best_undecided"]:
        print("\nSome variants of PyTorch had fewer than two quiet rounds, so which is its best is not decided.")
    if compiled:
        seconds = "; ".join(f"{name}: {a['compiling']:.0f} s" for name, a in compiled.items())
        print(f"\nCompiling, not counted above: {seconds}.")
    for failure in group["failures"]:
        print(f"\n- left out: {failure}")


def common_arguments(about, rounds):
    """Options of every comparison on GasSensor."""
    p = argparse.ArgumentParser(description=about.splitlines()[0])
    p.add_argument("folder", type=Path, help='with batch*.dat in "label index:value" format')
    p.add_argument("--rounds", type=int, default=rounds)
    p.add_argument("--variants", default="", metavar="REGEX",
                   help="only PyTorch variants whose name matches (plain eager always runs)")
    p.add_argument("--retries", type=int, default=3, help="of a measurement that was disturbed")
    p.add_argument("--patience", type=float, default=10.0, help="seconds to wait for a quiet machine before each retry")
    p.add_argument("--timeout", type=float, default=600.0, help="seconds per training, and to compile")
    p.add_argument("--python", type=Path, help="an interpreter with the packages of requirements.txt")
    p.add_argument("--executable", help="the program mcdd, if already built")
    p.add_argument("--json", type=Path, metavar="FILE", help="also write every number to this file")
    return p


def parse(p):
    options = p.parse_args()
    options.files = sorted(str(f) for f in options.folder.glob("batch*.dat"))
    if not options.files or options.rounds < 1:
        p.error("--rounds must be positive" if options.files else f"there is no batch*.dat in {options.folder}")
    return options


def arguments():
    p = common_arguments(__doc__, 5)
    p.add_argument("--ours", default=OURS, metavar="COMMAND",
                   help="arguments of mcdd; {data} is replaced by the files, {model} by the model [%(default)s]")
    p.add_argument("--threads", type=int, nargs="+", default=sorted({1, CPUS}, reverse=True),
                   help="of PyTorch; those of mcdd are in its arguments [%(default)s]")
    return parse(p)


def main(options, run, print_group):
    sys.stdout.reconfigure(line_buffering=True)
    if options.python is None:
        mlp_step.ensure_venv()
    executable = options.executable or mlp_step.build_ours("mcdd", "mcdd-cli")
    with tempfile.TemporaryDirectory() as scratch:
        # A separate cache, so that the time of compiling does not depend on earlier runs.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(scratch) / "inductor-cache")
        try:
            group = run(executable, options.files, Path(scratch), options)
        except Failed as error:
            sys.exit(f"mcdd failed: {error}")
    print_group(group)
    if options.json:
        options.json.write_text(json.dumps(group, indent=1) + "\n")


if __name__ == "__main__":
    main(arguments(), run, print_group)
