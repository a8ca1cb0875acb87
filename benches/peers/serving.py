#!/usr/bin/env python3
"""Requests a second and latency of `mcdd serve`, of MLServer and of furnace-server, by wrk on loopback, in turn.

    python3 -m venv FOLDER
    FOLDER/bin/pip install mlserver mlserver-sklearn scikit-learn joblib 'uvloop<0.22'      # MLServer 1.7.1 does not start with later ones
    FOLDER/bin/python benches/peers/serving.py target/release/mcdd [--seconds 10] [--rounds 3] [--clients 1,8,64] [--furnace FILE]

    cargo build --release --manifest-path benches/peers/furnace/Cargo.toml                      # FILE: furnace-peer, for --furnace

Needs wrk (a Debian package). Without MLServer it is left out. Each request has one row of 16 numbers, as one matrix in the Open
Inference Protocol, in JSON. mcdd serves its `fast` preset, MLServer an MLPClassifier of scikit-learn with the same layers,
furnace-server a network of these layers in plain Rust (it runs no model itself). These two have the network alone, mcdd also the distances, the p-value and the monitor. Every round measures each server at
each number of clients; the table has the medians. wrk has its own threads on the same machine.

With --overload SECONDS mcdd also gets ten times as many clients as the last of --clients for that long, and then the normal load again.
"""

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

COLUMNS = 16


def table(path, rows):
    made = random.Random(1)
    lines = [",".join([*(f"c{i}" for i in range(COLUMNS)), "label"])]
    for _ in range(rows):
        kind = made.randrange(3)
        values = [made.gauss(kind if i % 3 == 0 else 0, 1) for i in range(COLUMNS)]
        lines.append(",".join([*(f"{v:.6f}" for v in values), "abc"[kind]]))
    path.write_text("\n".join(lines) + "\n")


def wait(address, path):
    end = time.time() + 120
    while time.time() < end:
        try:
            urllib.request.urlopen(f"http://{address}{path}", timeout=2).read()
            return
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"nothing answers at {address}{path}")


def memory(pid):
    """Resident megabytes of a process and its children."""
    total = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "status").read_text()
            except OSError:
                continue
            parent = re.search(r"PPid:\s+(\d+)", status)
            size = re.search(r"VmRSS:\s+(\d+)", status)
            if size and (entry.name == str(pid) or (parent and parent[1] == str(pid))):
                total += int(size[1])
    return total / 1024


def load(address, path, script, clients, seconds):
    """Requests a second that were answered with 200, p50 and p99 in milliseconds, and other answers."""
    threads = min(2, clients)
    words = ["wrk", "-t", str(threads), "-c", str(clients), "-d", f"{seconds}s", "--latency", "--timeout", "10s", "-s", script]
    text = subprocess.run([*words, f"http://{address}{path}"], check=True, capture_output=True, text=True).stdout

    def milliseconds(percent):
        number, unit = re.search(rf"{percent}%\s+([\d.]+)(us|ms|s)", text).groups()
        return float(number) * {"us": 1e-3, "ms": 1, "s": 1e3}[unit]

    every = int(re.search(r"(\d+) requests in", text)[1])
    duration = float(re.search(r"requests in ([\d.]+)s", text)[1])
    other = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    other = int(other[1]) if other else 0
    return (every - other) / duration, milliseconds(50), milliseconds(99), other


def mcdd(command, folder):
    table(folder / "train.csv", 3000)
    train = ["train", "train.csv", "--preset", "fast", "--epochs", "5", "-q", "-o", "m.mcdd"]
    subprocess.run([command, *train], cwd=folder, check=True)
    server = subprocess.Popen([command, "serve", "m.mcdd", "--listen", "127.0.0.1:0"], cwd=folder, stderr=subprocess.PIPE, text=True)
    address = next(line.split("http://")[1].strip() for line in server.stderr if "http://" in line)
    threading.Thread(target=server.stderr.read, daemon=True).start()
    return server, address, "/v2/models/m/infer"


def mlserver(folder):
    try:
        import joblib
        import mlserver  # noqa: F401
        from sklearn.neural_network import MLPClassifier
    except ImportError:
        return None
    rows = [line.split(",") for line in (folder / "train.csv").read_text().splitlines()[1:]]
    model = MLPClassifier((128, 128), max_iter=5).fit([[float(v) for v in r[:-1]] for r in rows], [r[-1] for r in rows])
    place = folder / "peer"
    place.mkdir()
    joblib.dump(model, place / "model.joblib")
    settings = {"name": "m", "implementation": "mlserver_sklearn.SKLearnModel", "parameters": {"uri": "./model.joblib"}}
    (place / "model-settings.json").write_text(json.dumps(settings))
    ports = {"host": "127.0.0.1", "http_port": 18080, "grpc_port": 18081, "metrics_port": 18082, "debug": False}
    (place / "settings.json").write_text(json.dumps(ports))
    command = Path(sys.executable).with_name("mlserver")
    with open(place / "log", "w") as log:
        server = subprocess.Popen([command, "start", "."], cwd=place, stdout=log, stderr=log)
    wait("127.0.0.1:18080", "/v2/models/m/ready")
    return server, "127.0.0.1:18080", "/v2/models/m/infer"


def furnace(command):
    server = subprocess.Popen([command, "18090"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait("127.0.0.1:18090", "/v2/models/m")
    return server, "127.0.0.1:18090", "/v2/models/m/infer"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mcdd", type=Path)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", default="1,8,64")
    parser.add_argument("--furnace", type=Path)
    parser.add_argument("--overload", type=int, default=0)
    args = parser.parse_args()
    if not shutil.which("wrk"):
        raise SystemExit("wrk is missing: apt-get install wrk")
    clients = [int(c) for c in args.clients.split(",")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = [round(random.Random(2).gauss(0, 1), 6) for _ in range(COLUMNS)]

        def posts(name, kind):
            body = json.dumps({"inputs": [{"name": name, "shape": [1, COLUMNS], "datatype": kind, "data": data}]})
            script = folder / f"{kind}.lua"
            script.write_text(f"wrk.method = 'POST'\nwrk.headers['Content-Type'] = 'application/json'\nwrk.body = '{body}'\n")
            return script

        script = posts("rows", "FP64")
        # furnace-server takes FP32 alone, and names the only input itself.
        scripts = {"mcdd": script, "MLServer": script, "furnace-server": posts("input", "FP32")}
        servers = {"mcdd": mcdd(args.mcdd.resolve(), folder)}
        try:
            peer = mlserver(folder)
            if peer:
                servers["MLServer"] = peer
            if args.furnace:
                servers["furnace-server"] = furnace(args.furnace.resolve())
            found = {(server, c): [] for server in servers for c in clients}
            for _ in range(args.rounds):
                for (server, c), results in found.items():
                    results.append(load(*servers[server][1:], scripts[server], c, args.seconds))
            print("| server | clients | requests a second | p50 | p99 | not answered |\n|---|---|---|---|---|---|")
            for (server, c), results in found.items():
                rate, p50, p99, other = (statistics.median(r[i] for r in results) for i in range(4))
                print(f"| {server} | {c} | {rate:.0f} | {p50:.2f} ms | {p99:.2f} ms | {other:.0f} |")
            if args.overload:
                process, address, path = servers["mcdd"]
                before = memory(process.pid)
                rate, _, p99, other = load(address, path, script, clients[-1] * 10, args.overload)
                print(f"overload: {rate:.0f} answered a second, p99 {p99:.0f} ms, {other} refused; memory {before:.0f} to {memory(process.pid):.0f} MB")
                time.sleep(2)
                rate, _, p99, other = load(address, path, script, clients[-1], args.seconds)
                print(f"two seconds later: {rate:.0f} a second, p99 {p99:.2f} ms, {other} refused; memory {memory(process.pid):.0f} MB")
        finally:
            for process, *_ in servers.values():
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
    print(f"{os.cpu_count()} cores")


if __name__ == "__main__":
    main()
