#!/usr/bin/env python3
"""Scores a large table with Spark and with Ray, kills a worker in the middle, and compares every row with local scoring.

    python3 benches/distributed/score.py spark|ray [--rows 2000000] [--workers 1 2] [--no-kill]

The table has 16 columns: five numbers from Gaussian classes, which are also rotated and scaled, with noise. Each row has an id,
so that lost and repeated rows are found. Prints one line for each number of workers: seconds, rows a second, beside local
scoring on one thread and on all cores. Needs the packages of requirements.txt and the wheel of mcdd.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mcdd import McddClassifier


def table(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    y = random.integers(5, size=rows)
    centers = np.random.default_rng(0).normal(0, 3, (5, 16))
    X = centers[y] + random.normal(size=(rows, 16))
    X[random.random(rows) < 0.1] += 8
    return X, y


def write(path: Path, rows: int, parts: int) -> pa.Table:
    X, _ = table(rows, 1)
    columns = {"id": np.arange(rows)} | {f"x{i}": X[:, i] for i in range(16)}
    whole = pa.table(columns)
    for part in range(parts):
        first, last = part * rows // parts, (part + 1) * rows // parts
        pq.write_table(whole.slice(first, last - first), path / f"part-{part:03}.parquet")
    return whole


def descendants() -> dict[int, str]:
    """The processes that this script has started, and those that they have started, with their command lines."""
    parents, lines = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                lines[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
    found: dict[int, str] = {}
    for pid in parents:
        above = parents[pid]
        while above > 1 and above != os.getpid():
            above = parents.get(above, 0)
        if above == os.getpid():
            found[pid] = lines[pid]
    return found


def kill_one(pattern: str, after: float, killed: list[int]) -> None:
    """Kills the newest worker after some seconds: a process of this script whose command line has the pattern."""

    def work() -> None:
        time.sleep(after)
        for _ in range(100):
            found = [pid for pid, line in descendants().items() if pattern in line]
            if found:
                os.kill(max(found), signal.SIGKILL)
                killed.append(max(found))
                return
            time.sleep(0.1)

    threading.Thread(target=work, daemon=True).start()


def check(scored: pa.Table, whole: pa.Table, expected: dict[str, np.ndarray]) -> None:
    order = np.argsort(scored.column("id").to_numpy())
    ids = scored.column("id").to_numpy()[order]
    assert np.array_equal(ids, whole.column("id").to_numpy()), "rows are missing, or there twice"
    for name, values in expected.items():
        found = scored.column(name).to_numpy(zero_copy_only=False)[order]
        assert np.array_equal(found, values), f"{name} differs from local scoring"


def by_spark(folder: Path, model: McddClassifier, workers: int, out: Path) -> pa.Table:
    from pyspark.sql import SparkSession

    import mcdd.spark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{workers},4]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "20000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    try:
        df = spark.read.parquet(str(folder))
        mcdd.spark.score(df, model, columns=["id"]).write.mode("overwrite").parquet(str(out))
    finally:
        spark.stop()
    return pq.read_table(out)


def by_ray(folder: Path, model: McddClassifier, workers: int, out: Path) -> pa.Table:
    import ray

    import mcdd.ray

    ray.init(num_cpus=workers + 1, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
    try:
        ds = ray.data.read_parquet(str(folder)).map_batches(
            mcdd.ray.Scorer,
            fn_constructor_args=(model.model_.to_bytes(), ["id"]),
            concurrency=workers,
            batch_size=20_000,
            batch_format="pyarrow",
        )
        ds.write_parquet(str(out))
    finally:
        ray.shutdown()
    return pq.read_table(out)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=["spark", "ray"])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--no-kill", action="store_true")
    args = parser.parse_args()

    X, y = table(20_000, 0)
    frame = pa.table({f"x{i}": X[:, i] for i in range(16)})
    model = McddClassifier(preset="fast").fit(frame, y)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "table"
        folder.mkdir()
        whole = write(folder, args.rows, 16)
        features = whole.drop_columns(["id"])
        times = {}
        for threads in (1, None):
            start = time.monotonic()
            found = model.model_.predict(features, threads)
            times[threads] = time.monotonic() - start
        expected = {"confidence": found["confidence"], "p_value": found["p_value"]}
        expected["known"] = model.model_.known(found["confidence"])
        expected["prediction"] = np.array(model.model_.classes, dtype=object)[found["class"]]
        print(f"local, 1 thread: {times[1]:.1f} s, {args.rows / times[1]:,.0f} rows/s")
        print(f"local, all cores: {times[None]:.1f} s, {args.rows / times[None]:,.0f} rows/s", flush=True)
        run = by_spark if args.engine == "spark" else by_ray
        pattern = "pyspark.daemon" if args.engine == "spark" else "ray::MapWorker"
        for workers in args.workers:
            for kill in [False] if args.no_kill else [False, True]:
                killed: list[int] = []
                out = Path(temporary) / f"out-{workers}-{kill}"
                start = time.monotonic()
                if kill:
                    kill_one(pattern, max(5.0, took / 2), killed)
                scored = run(folder, model, workers, out)
                took = time.monotonic() - start
                check(scored, whole, expected)
                assert len(killed) == kill, "no worker was found to kill"
                what = ", one killed in the middle" if kill else ""
                print(
                    f"{args.engine}, {workers} {'worker' if workers == 1 else 'workers'}{what}: {took:.1f} s, {args.rows / took:,.0f} rows/s, "
                    f"all {args.rows:,} rows once and equal to local scoring",
                    flush=True,
                )


if __name__ == "__main__":
    main()
