#!/usr/bin/env python3
"""Time, memory and quality of `mcdd train` on tables of 10,000 to 10,000,000 rows x 48 columns.

    cargo build --release && python3 benches/train_large.py [--rows 10000 100000 1000000] [--venv FOLDER]

Needs Linux (/proc), and disk for the largest table (10,000,000 rows: 8 GB). NumPy and pyarrow are installed in FOLDER (a temporary folder
if not given). The tables are CSV, and a folder of Parquet parts. Ten classes, each a mixture of six Gaussians, one of them with one row in
5,000; an eleventh class is unknown. "Reading" is a run that reads everything and trains on 1,000 rows for one epoch.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import venv

PROGRAM = pathlib.Path(__file__).resolve().parent.parent / "target" / "release" / "mcdd"
COLUMNS, CLASSES, PART = 48, 11, 500_000


def make(folder, sizes):
    """Writes test.csv, unknown.csv, and for each size a CSV and a folder of Parquet parts."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    centers = np.random.default_rng(0).normal(0, 1.1, (CLASSES, 6, COLUMNS))
    names = [f"f{i}" for i in range(COLUMNS)]

    def table(seed, rows, unknown=False):
        random = np.random.default_rng(seed)
        kind = random.integers(0, CLASSES - 2, rows)
        kind[random.random(rows) < 1 / 5000] = CLASSES - 2
        if unknown:
            kind[:] = CLASSES - 1
        x = centers[kind, random.integers(0, 6, rows)] + random.normal(0, 1, (rows, COLUMNS))
        arrays = [pa.array(np.round(x[:, i], 4)) for i in range(COLUMNS)]
        return pa.table([*arrays, pa.array([f"class {k}" for k in kind])], names=[*names, "label"])

    pa.csv.write_csv(table(1, 20_000), folder / "test.csv")
    pa.csv.write_csv(table(2, 20_000, unknown=True), folder / "unknown.csv")
    for rows in sizes:
        parts = folder / f"{rows}"
        parts.mkdir()
        writer = None
        for part, start in enumerate(range(0, rows, PART)):
            block = table(100 + part, min(PART, rows - start))
            pa.parquet.write_table(block, parts / f"part-{part:03}.parquet")
            writer = writer or pa.csv.CSVWriter(folder / f"{rows}.csv", block.schema)
            writer.write_table(block)
        writer.close()


def run(command, folder):
    """Seconds, and the peak memory of the program itself in MB: getrusage would include this script."""
    start = time.monotonic()
    child = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    peak = 0
    while child.poll() is None:
        try:
            for line in pathlib.Path(f"/proc/{child.pid}/status").read_text().splitlines():
                if line.startswith("VmHWM"):
                    peak = max(peak, int(line.split()[1]))
        except (FileNotFoundError, ProcessLookupError):
            pass
        time.sleep(0.02)
    if child.returncode:
        sys.exit(f"{command} failed")
    return time.monotonic() - start, peak / 1000


def measure(folder, data, options, reading):
    train = [PROGRAM, "train", data, "-o", "m.mcdd", "--quiet", "--min-class", "5"]
    read = run([*train, "--preset", "fast", "--epochs", "1", "--max-rows", "1000"], folder)[0] if reading else None
    seconds, memory = run([*train, *options], folder)
    command = [PROGRAM, "evaluate", "m.mcdd", "test.csv", "--ood", "unknown.csv", "--json", "--quiet"]
    found = json.loads(subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout)
    accuracy = 100 * found["accuracy"]["value"]
    auroc = 100 * found["ood"][0]["metrics"]["auroc"]["value"]
    shown = f"{read:.1f} s" if reading else ""
    print(f"| {data} {' '.join(options)} | {shown} | {seconds:.1f} s | {memory:.0f} MB | {accuracy:.2f} | {auroc:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000, 10_000_000])
    parser.add_argument("--venv", type=pathlib.Path, help="folder of the virtual environment, created if missing")
    parser.add_argument("--make", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        make(options.make, options.rows)
        return
    if not PROGRAM.exists():
        sys.exit("build it first: cargo build --release")
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        home = options.venv or scratch / "venv"
        python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        if not python.exists():
            venv.create(home, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "numpy==2.4.6", "pyarrow==26.0.1"], check=True)
        subprocess.run([python, __file__, "--make", scratch, "--rows", *map(str, options.rows)], check=True)
        print("| table | reading | training | peak memory | accuracy | AUROC |\n|---|---|---|---|---|---|")
        for rows in options.rows:
            measure(scratch, f"{rows}.csv", [], True)
            measure(scratch, f"{rows}", [], True)
            if rows == 1_000_000:
                measure(scratch, f"{rows}.csv", ["--max-rows", "200000"], False)


main()
