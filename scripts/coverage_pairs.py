#!/usr/bin/env python3
"""Cross-fitting less one split, on the splits that both have: accuracy and AUROC in points, with standard errors.

    python3 scripts/coverage_pairs.py docs/results/coverage.tsv
"""

import statistics
import sys
from pathlib import Path

ACCURACY, AUROC = 5, 6
found: dict[str, dict[str, dict[str, list[str]]]] = {}
for line in Path(sys.argv[1]).read_text().splitlines():
    fields = line.split("\t")
    found.setdefault(fields[1], {}).setdefault(fields[0], {})[fields[2]] = fields
for table, ways in found.items():
    splits = [split for split in ways.get("former", {}) if split in ways.get("cross", {})]
    for name, column in (("accuracy", ACCURACY), ("AUROC", AUROC)):
        values = [100 * (float(ways["cross"][s][column]) - float(ways["former"][s][column])) for s in splits]
        values = [value for value in values if value == value]
        if values:
            error = statistics.stdev(values) / len(values) ** 0.5
            print(f"{table}, {name}, {len(values)} splits: {statistics.mean(values):+.2f} ± {error:.2f}")
