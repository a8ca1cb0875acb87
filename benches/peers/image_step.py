#!/usr/bin/env python3
"""Compares training steps and predictions of images with PyTorch in one interleaved run.

    python3 benches/peers/image_step.py [--rounds 5] [--seconds 4] [--cases resnet34,densenet100] [--python PYTHON]

Needs only the standard library. PyTorch is installed in benches/peers/.venv (created if absent) unless --python names an
interpreter that has it. See README.md next to this file.
"""

import argparse
import json
import statistics
import subprocess

from mlp_step import Failed, Torch, build_ours, ensure_venv, measure_quietly, run_ours, say

# Network, batch size, and the target ratio to PyTorch's images per second.
CASES = [("cnn", 500, 1.3), ("resnet34", 64, 1.0), ("resnet18", 32, 1.0), ("densenet100", 32, 1.3)]
FORMATS = {"channels last": True, "contiguous": False}


class Ours:
    name = "mcdd"

    def __init__(self, executable, net, batch, task, threads):
        self.command = [executable, "--net", net, "--batch", str(batch), "--threads", str(threads)]
        self.command += ["--predict"] if task == "predict" else []

    def measure(self, seconds):
        stdout, _, cpu = run_ours(self.command + ["--seconds", str(seconds)], 600 + 20 * seconds)
        return json.loads(stdout.strip().splitlines()[-1]), cpu

    def close(self):
        pass


def torch(variant, net, batch, task, options):
    spec = {"net": net, "batch": batch, "task": task, "threads": options.threads, "channels_last": FORMATS[variant]}
    return Torch(f"PyTorch, {variant}", spec, 600, "image_worker.py", options.python)


def case(net, batch, task, executable, options):
    """{contender: [(answer, quiet) of each round]}"""
    contenders = [Ours(executable, net, batch, task, options.threads)]
    contenders += [torch(variant, net, batch, task, options) for variant in FORMATS if variant in options.formats]
    results = {c.name: [] for c in contenders}
    try:
        for r in range(options.rounds):
            shift = r % len(contenders)
            for contender in contenders[shift:] + contenders[:shift]:
                results[contender.name].append(measure_quietly(contender, options.seconds, options))
            say(f"  round {r + 1}: " + ", ".join(f"{n} {v[-1][0]['ms']:.0f} ms" for n, v in results.items()))
    finally:
        for contender in contenders:
            contender.close()
    return results


def table(rows, options):
    print(f"\n{options.threads} threads; median of {options.rounds} rounds, ratios within a round (min-max)\n")
    print("| network | batch | task | contender | images/s | mcdd is faster | peak MB | quiet rounds |")
    print("|---|---|---|---|---|---|---|---|")
    for (net, batch, task, goal), results in rows:
        ours = [answer["ms"] for answer, _ in results["mcdd"]]
        for name, values in results.items():
            times = [answer["ms"] for answer, _ in values]
            quiet = sum(q for _, q in values)
            ratios = [t / o for t, o in zip(times, ours)]
            faster = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
            faster = f"(goal {goal})" if name == "mcdd" else faster
            peak = max(answer["peak_mb"] for answer, _ in values)
            speed = 1e3 * batch / statistics.median(times)
            print(f"| {net} | {batch} | {task} | {name} | {speed:.1f} | {faster} | {peak:.0f} | {quiet}/{len(values)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement; at least one step is done")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cases", default="", help="networks, e.g. resnet34,resnet18; all if not given")
    parser.add_argument("--tasks", default="train,predict")
    parser.add_argument("--formats", default="channels last,contiguous")
    parser.add_argument("--retries", type=int, default=3, help="of a measurement that was disturbed")
    parser.add_argument("--patience", type=float, default=10.0, help="seconds to wait for a quiet machine")
    parser.add_argument("--python", help="an interpreter with the packages of requirements.txt")
    parser.add_argument("--executable", help="our program, if already built")
    options = parser.parse_args()
    options.formats = options.formats.split(",")
    if not options.python:
        ensure_venv()
    executable = options.executable or build_ours("image_step")
    wanted = options.cases.split(",") if options.cases else [net for net, _, _ in CASES]
    rows = []
    for net, batch, goal in CASES:
        for task in options.tasks.split(","):
            if net in wanted:
                say(f"{net}, batch {batch}, {task}")
                try:
                    rows.append(((net, batch, task, goal), case(net, batch, task, executable, options)))
                except (Failed, OSError, subprocess.TimeoutExpired) as error:
                    say(f"  failed: {error}")
    table(rows, options)


if __name__ == "__main__":
    main()
