#!/usr/bin/env python3
"""Rows until an alarm when a left-out class begins to appear: mcdd.Monitor, the martingales of nonconform, the detectors of river.

    python3.12 -m venv FOLDER                            # nonconform needs Python 3.12
    FOLDER/bin/pip install nonconform river pyarrow ./crates/mcdd-python
    FOLDER/bin/python benches/peers/monitors.py label optdigits.parquet drybean.parquet [--classes 10] [--seeds 5] [--preset best]

For each class in turn, mcdd is trained without it on half of the known rows. The other half is the stream: 500 known rows, then rows of the
class that was left out are mixed in, at 0, 1, 5 and 20%, until the known rows are used up; --seeds streams in other orders. All detectors get
the same confidences in the same order. Those of mcdd and nonconform also get the calibration confidences, and an alpha of 1%; nonconform ranks
each row among the calibration rows and the rows before (its SequentialRankConformalizer, lower tail), and its restarted e-process is
stopped at 100. Those of river see the stream alone, with their own defaults; they look for any change, and promise no rate of false alarms.

An alarm before the change, or in a stream without one, is a false alarm. Delays are medians over the streams that were found.
"""

import argparse
import statistics
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
from nonconform import martingales
from nonconform.monitoring import SequentialRankConformalizer
from river import drift
from sklearn.model_selection import train_test_split

from mcdd import McddClassifier, Monitor

BEFORE = 500
ALPHA = 0.01


def ours(clf, stream):
    monitor = Monitor(clf, alpha=ALPHA)
    monitor.add_scores(stream)
    return monitor.alarm


def ranked(martingale):
    def alarm(clf, stream):
        ranks = SequentialRankConformalizer(tail="lower", seed=0).prime_many(clf.model_.calibration_scores)
        bets = martingale(martingales.AlarmConfig(restarted_ville_threshold=1 / ALPHA))
        for row, p in enumerate(ranks.update_many(stream), 1):
            if bets.update(float(p)).triggered_alarms:
                return row
        return None

    return alarm


def drifting(detector):
    def alarm(_, stream):
        found = detector()
        for row, confidence in enumerate(stream, 1):
            found.update(float(confidence))
            if found.drift_detected:
                return row
        return None

    return alarm


DETECTORS = {
    "mcdd.Monitor": ours,
    "nonconform, simple jumper": ranked(lambda a: martingales.SimpleJumperMartingale(alarm_config=a)),
    "nonconform, simple mixture": ranked(lambda a: martingales.SimpleMixtureMartingale(alarm_config=a)),
    "nonconform, power 0.5": ranked(lambda a: martingales.PowerMartingale(epsilon=0.5, alarm_config=a)),
    "river, ADWIN": drifting(drift.ADWIN),
    "river, Page-Hinkley": drifting(drift.PageHinkley),
    "river, KSWIN": drifting(lambda: drift.KSWIN(seed=0)),
}
FRACTIONS = (0.0, 0.01, 0.05, 0.2)


def mixed(known, unknown, fraction, seed):
    """Known confidences, and after `BEFORE` of them unknown ones among them."""
    random = np.random.default_rng(seed)
    known, unknown = random.permutation(known).tolist(), random.permutation(unknown).tolist()
    stream = []
    while True:
        source = unknown if len(stream) >= BEFORE and random.random() < fraction else known
        if not source:
            return np.array(stream)
        stream.append(source.pop())


def study(path, label, args):
    table = parquet.read_table(path).to_pandas()
    X, y = table.drop(columns=label).to_numpy(float), table[label].to_numpy()
    delays = {(d, f): [] for d in DETECTORS for f in FRACTIONS}
    false, streams, changed = dict.fromkeys(DETECTORS, 0), 0, 0
    for left in np.unique(y)[: args.classes]:
        known = y != left
        X_train, X_test, y_train, _ = train_test_split(X[known], y[known], test_size=0.5, random_state=1, stratify=y[known])
        clf = McddClassifier(preset=args.preset).fit(X_train, y_train)
        confidences = clf.score_samples(X_test), clf.score_samples(X[~known])
        for seed in range(args.seeds):
            changed += 1
            for fraction in FRACTIONS:
                stream = mixed(*confidences, fraction, seed)
                streams += 1
                for name, alarm in DETECTORS.items():
                    row = alarm(clf, stream)
                    if row is not None and (row <= BEFORE or fraction == 0):
                        false[name] += 1
                    elif row is not None:
                        delays[name, fraction].append(row - BEFORE)
        print(f"{path.stem}: without {left}", flush=True)
    print(f"\n{path.stem}, {changed} streams of each kind\n")
    print("| detector | false alarms | 1%: found, rows | 5%: found, rows | 20%: found, rows |\n|---|---|---|---|---|")
    for name in DETECTORS:
        cells = []
        for fraction in FRACTIONS[1:]:
            found = delays[name, fraction]
            rows = f", {statistics.median(found):.0f}" if found else ""
            cells.append(f"{100 * len(found) / changed:.0f}%{rows}")
        print(f"| {name} | {100 * false[name] / streams:.1f}% | {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("label")
    parser.add_argument("tables", type=Path, nargs="+")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--preset", default="best")
    args = parser.parse_args()
    for path in args.tables:
        study(path, args.label, args)


if __name__ == "__main__":
    main()
