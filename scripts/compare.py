#!/usr/bin/env python3
"""Prints the tables of docs/default.md from results of `mcdd bench`.

    python3 scripts/compare.py FOLDER [--against best]

FOLDER has a results.jsonl or results.jsonl.gz. The columns are means over all cells in percent; the AUROC of the worst cell and of
the worst class (mean over its cells); and the mean paired difference in AUROC to a method, with its standard error over the
cells that both have.
"""

import argparse
import gzip
import json
import statistics
from collections import defaultdict
from pathlib import Path

METRICS = [("accuracy", "accuracy"), ("tnr85", "TNR85"), ("tnr95", "TNR95"), ("auroc", "AUROC"), ("aupr_id", "AUPR")]
METRICS += [("detection_accuracy", "det. acc.")]


def read(folder):
    """{method: {(class, fold, seed): numbers}}"""
    path = folder / "results.jsonl"
    lines = path.open() if path.exists() else gzip.open(folder / "results.jsonl.gz", "rt")
    cells = defaultdict(dict)
    with lines:
        for cell in map(json.loads, lines):
            if cell.get("measured"):
                numbers = cell["measured"]["detection"] | {"accuracy": cell["measured"]["accuracy"]}
                cells[cell["method"]][cell["ood"], cell["fold"], cell["seed"]] = numbers
    return cells


def row(method, cells, against):
    def mean(values):
        return f"{100 * statistics.mean(values):.2f}" if values else "n/a"

    columns = [mean([c[key] for c in cells.values() if c[key] is not None]) for key, _ in METRICS]
    classes = defaultdict(list)
    for (ood, _, _), c in cells.items():
        classes[ood].append(c["auroc"])
    columns.append(f"{100 * min(c['auroc'] for c in cells.values()):.2f}")
    columns.append(f"{100 * min(map(statistics.mean, classes.values())):.2f}")
    pairs = [100 * (c["auroc"] - against[at]["auroc"]) for at, c in cells.items() if at in against]
    spread = statistics.stdev(pairs) / len(pairs) ** 0.5 if len(pairs) > 1 else 0.0
    columns.append(f"{statistics.mean(pairs):+.2f} ± {spread:.2f}" if pairs else "")
    return f"| {method} | {' | '.join(columns)} | {len(cells)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--against", default="best")
    parser.add_argument("--methods", help="comma-separated, in this order [all]")
    options = parser.parse_args()
    cells = read(options.folder)
    names = options.methods.split(",") if options.methods else list(cells)
    titles = [title for _, title in METRICS] + ["worst AUROC", "worst class", "difference", "cells"]
    print(f"| method | {' | '.join(titles)} |\n|---{'|---' * len(titles)}|")
    for name in names:
        print(row(name, cells[name], cells[options.against]))


if __name__ == "__main__":
    main()
