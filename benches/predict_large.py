#!/usr/bin/env python3
"""Time and memory of `mcdd predict` on 1,000,000 rows x 48 columns, and the time of scoring alone.

    cargo build --release --workspace && python3 benches/predict_large.py [PRESET, fast by default]

Scoring alone is `score_speed` on the same rows in memory. Needs Linux (/proc). Creates its files (about 600 MB) in a temporary folder and removes them.
"""
import pathlib
import random
import subprocess
import sys
import tempfile
import time

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "target" / "release" / "mcdd"
PRESET = sys.argv[1] if len(sys.argv) > 1 else "fast"


def row(kind):
    return ",".join("%.6f" % random.gauss(0.7 * kind if i % 3 == kind % 3 else 0, 1) for i in range(48))


def measure(name, command, folder, stdin=None):
    start = time.monotonic()
    child = subprocess.Popen(command, cwd=folder, stdin=stdin, stdout=subprocess.DEVNULL)
    peak = 0
    while child.poll() is None:
        # The peak memory of the program itself. getrusage would include this script.
        try:
            for line in pathlib.Path(f"/proc/{child.pid}/status").read_text().splitlines():
                if line.startswith("VmHWM"):
                    peak = max(peak, int(line.split()[1]))
        except (FileNotFoundError, ProcessLookupError):
            pass
        time.sleep(0.02)
    if child.returncode:
        sys.exit(f"{command} failed")
    print(f"| {name} | {time.monotonic() - start:.2f} s | {peak / 1000:.1f} MB |")


def main():
    if not PROGRAM.exists():
        sys.exit("build it first: cargo build --release")
    random.seed(1)
    names = ",".join(f"f{i}" for i in range(48))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        with open(folder / "train.csv", "w") as f:
            f.write(names + ",label\n")
            f.writelines(f"{row(i % 5)},{'abcde'[i % 5]}\n" for i in range(4000))
        block = [row(i % 5) + "\n" for i in range(20000)]
        with open(folder / "big.csv", "w") as f:
            f.write(names + "\n")
            for _ in range(50):
                f.writelines(block)
        subprocess.run([PROGRAM, "train", "train.csv", "-o", "m", "--preset", PRESET, "--epochs", "10", "--quiet"], cwd=folder, check=True)
        score = [PROGRAM.with_name("score_speed"), "m", "big.csv"]
        print(subprocess.run(score, cwd=folder, check=True, capture_output=True, text=True).stdout)
        print("| output | time | peak memory |\n|---|---|---|")
        for name in ("csv", "jsonl", "parquet"):
            measure(name, [PROGRAM, "predict", "m", "big.csv", "--format", name, "-o", "out", "--quiet"], folder)
        with open(folder / "big.csv") as big:
            measure("csv, stdin to stdout", [PROGRAM, "predict", "m", "-", "--quiet"], folder, big)


main()
