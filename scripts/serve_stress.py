#!/usr/bin/env python3
"""Puts `mcdd serve` under pressure on loopback, and checks that it keeps its promises. Bounded in count and time; about two minutes.

    python3 scripts/serve_stress.py target/release/mcdd [--idle 10000] [--overload 30] [--only idle,loris,half,large,single,thousand,rate,kill]

Needs wrk (a Debian package) for the overload. The server has one half of the cores during the overload and wrk the other, so that wrk, which has more to do
under overload, does not take the time of the server. Trains a small model on generated rows, serves it, and checks that

- a single row is answered while 10,000 connections are open and send nothing, and they are closed when their time is over;
- a single row is answered while others send a byte a second (slow loris), and these are cut off;
- a client that closes its side after its request gets its answer;
- a single row is answered soon while one client sends a million rows;
- ten times overload is answered or refused with 503: goodput, memory, recovery. Once with ten times as many clients, each of which sends its next
  request as soon as it has an answer or a refusal; once by clients that wait for a second after each answer, as Retry-After
  asks them to, so many that they send ten times the requests a second that the server can answer if a refusal takes a second;
- after kill -9 the next server has the state of the monitor, whole, and at most a second older.
"""

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

COLUMNS = 16


def rows(count, seed, labeled):
    made = random.Random(seed)
    lines = [",".join([*(f"c{i}" for i in range(COLUMNS)), *(["label"] if labeled else [])])]
    for _ in range(count):
        kind = made.randrange(3)
        values = [f"{made.gauss(kind if i % 3 == 0 else 0, 1):.4f}" for i in range(COLUMNS)]
        lines.append(",".join([*values, *(["abc"[kind]] if labeled else [])]))
    return "\n".join(lines) + "\n"


CORES = sorted(os.sched_getaffinity(0))
HALVES = CORES[: len(CORES) // 2] or CORES, CORES[len(CORES) // 2 :]


class Server:
    def __init__(self, command, folder, *options, cores=CORES):
        words = [command, "serve", "m.mcdd", "--listen", "127.0.0.1:0", "--state", "watched", *options]
        os.sched_setaffinity(0, cores)
        self.process = subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True)
        os.sched_setaffinity(0, CORES)
        self.address = next(line.split("http://")[1].strip() for line in self.process.stderr if "http://" in line)
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        self.host, port = self.address.rsplit(":", 1)
        self.port = int(port)
        # It prints its address a moment before it listens for signals.
        self.status()

    def connect(self):
        return socket.create_connection((self.host, self.port), timeout=60)

    def post(self, body, path="/predict", kind="text/csv"):
        request = urllib.request.Request(f"http://{self.address}{path}", body, {"Content-Type": kind})
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.read()

    def status(self):
        with urllib.request.urlopen(f"http://{self.address}/status", timeout=60) as response:
            return json.load(response)["models"][0]

    def memory(self):
        """Resident megabytes."""
        return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())[1]) / 1024

    def times(self, body, count):
        """Milliseconds of single requests one after another: the median and the longest."""
        found = []
        for _ in range(count):
            begun = time.monotonic()
            self.post(body)
            found.append(1000 * (time.monotonic() - begun))
        return f"median {statistics.median(found):.1f} ms, longest {max(found):.1f} ms"

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, "SIGTERM ends with code 0"


def closed(connection, seconds):
    connection.settimeout(seconds)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def idle(server, one, count):
    before = server.memory()
    alone = server.times(one, 50)
    connections = [server.connect() for _ in range(count)]
    print(f"idle: {count} connections, {server.memory() - before:.0f} MB more; a row: {server.times(one, 50)} (before: {alone})")
    begun = time.monotonic()
    assert all(closed(c, 30) for c in connections), "idle connections are closed"
    print(f"idle: all closed {time.monotonic() - begun:.1f} s later")


def loris(server, one, count):
    connections = [server.connect() for _ in range(count)]
    for i, c in enumerate(connections):
        head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: text/csv\r\n"
        c.sendall(head if i % 2 else head + b"Content-Length: 1000\r\n\r\n")
    begun, times = time.monotonic(), []
    open_ones = list(connections)
    while open_ones and time.monotonic() < begun + 40:
        left = []
        for c in open_ones:
            try:
                c.sendall(b"x")
                left.append(c)
            except OSError:
                pass
        open_ones = left
        times.append(server.times(one, 5))
        time.sleep(1)
    assert not open_ones, "slow clients are cut off"
    print(f"slow loris: {count} clients, all cut off after {time.monotonic() - begun:.0f} s; a row meanwhile: {times[len(times) // 2]}")


def half_closed(server, one):
    with server.connect() as c:
        head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: text/csv\r\nConnection: close\r\nContent-Length: {len(one)}\r\n\r\n"
        c.sendall(head.encode() + one)
        c.shutdown(socket.SHUT_WR)
        answer = b""
        while part := c.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 200") and b"verdict" in answer
    print("half-closed: answered")


def large(server, one, text):
    lines = text.split("\n", 1)
    body = (lines[0] + "\n" + lines[1] * (1_000_000 // (lines[1].count("\n")))).encode()
    done = []

    def send():
        begun = time.monotonic()
        done.append((server.post(body).count(b"\n") - 1, time.monotonic() - begun))

    thread = threading.Thread(target=send)
    thread.start()
    found = []
    while thread.is_alive():
        begun = time.monotonic()
        server.post(one)
        found.append(1000 * (time.monotonic() - begun))
        time.sleep(0.05)
    thread.join()
    print(
        f"one client's {done[0][0]} rows took {done[0][1]:.1f} s; {len(found)} single rows of another meanwhile: "
        f"median {statistics.median(found):.1f} ms, longest {max(found):.1f} ms"
    )


def wrk(server, script, clients, seconds):
    """Answered requests a second, all requests a second, refused ones, p99, errors of connections."""
    words = ["taskset", "-c", ",".join(map(str, HALVES[1])), "wrk", "-t", str(len(HALVES[1])), "-c", str(clients), "-d", f"{seconds}s", "--latency", "--timeout", "30s", "-s", script]
    text = subprocess.run([*words, f"http://{server.address}/predict"], check=True, capture_output=True, text=True).stdout
    every, duration = int(re.search(r"(\d+) requests in", text)[1]), float(re.search(r"requests in ([\d.]+)s", text)[1])
    other = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    other = int(other[1]) if other else 0
    p99 = re.search(r"99%\s+(\S+)", text)
    return (every - other) / duration, every / duration, other, p99[1] if p99 else "none", re.search(r"Socket errors: (.*)", text)


def overload(server, folder, name, text, clients, seconds, rate=False):
    script, patient = folder / "now.lua", folder / "later.lua"
    script.write_text(f"wrk.method = 'POST'\nwrk.headers['Content-Type'] = 'text/csv'\nwrk.body = [[{text}]]\n")
    patient.write_text(script.read_text() + "function delay() return 1000 end\n")
    peak = max(wrk(server, script, clients, 5)[0] for _ in range(2))
    before, highest, stop = server.memory(), [0.0], threading.Event()

    def watch():
        while not stop.is_set():
            highest[0] = max(highest[0], server.memory())
            time.sleep(0.1)

    thread = threading.Thread(target=watch)
    thread.start()
    # A refusal takes a second, and the client waits for another.
    many = int(20 * peak) if rate else 10 * clients
    good, sent, refused, p99, errors = wrk(server, patient if rate else script, many, seconds)
    time.sleep(2)
    after = wrk(server, script, clients, 5)[0]
    stop.set()
    thread.join()
    print(
        f"overload, {name}: {clients} clients {peak:.0f} requests/s; {many} clients{' that wait' if rate else ''} for {seconds} s send {sent:.0f}/s: "
        f"{good:.0f}/s answered ({100 * good / peak:.0f}%), {refused} refused, p99 {p99}{', ' + errors[1] if errors else ''}; "
        f"memory {before:.0f} to {highest[0]:.0f} MB; two seconds later {after:.0f}/s ({100 * after / peak:.0f}%)",
        flush=True,
    )
    assert server.process.poll() is None


def killed(command, folder, server, text):
    for _ in range(5):
        server.post(text.encode())
        time.sleep(0.5)
    time.sleep(1.5)
    seen = server.status()["monitor"]["rows"]
    stop = threading.Event()

    def load():
        while not stop.is_set():
            try:
                server.post(text.encode())
            except OSError:
                return

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(2)
    server.process.kill()
    server.process.wait()
    stop.set()
    for thread in threads:
        thread.join()
    begun = time.monotonic()
    after = Server(command, folder)
    rows_after = after.status()["monitor"]["rows"]
    assert rows_after >= seen, (rows_after, seen)
    print(f"kill -9 under load: the next server answers after {time.monotonic() - begun:.2f} s, its monitor has {rows_after} rows ({seen} two seconds before the kill)")
    return after


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mcdd", type=Path)
    parser.add_argument("--idle", type=int, default=10_000)
    parser.add_argument("--overload", type=int, default=30)
    parser.add_argument("--only", default="idle,loris,half,large,single,thousand,rate,kill")
    args = parser.parse_args()
    only = args.only.split(",")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < args.idle + 200:
        raise SystemExit(f"only {hard} files may be open (ulimit -n)")
    if not shutil.which("wrk"):
        raise SystemExit("wrk is missing: apt-get install wrk")
    command = args.mcdd.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.csv").write_text(rows(3000, 1, True))
        train = ["train", "train.csv", "--preset", "fast", "--epochs", "5", "-q", "-o", "m.mcdd"]
        subprocess.run([command, *train], cwd=folder, check=True)
        one, thousand = rows(1, 2, False), rows(1000, 3, False)
        server = Server(command, folder, "--max-megabytes", "256")
        try:
            if "idle" in only:
                idle(server, one.encode(), args.idle)
            if "loris" in only:
                loris(server, one.encode(), 200)
            if "half" in only:
                half_closed(server, one.encode())
            if "large" in only:
                large(server, one.encode(), thousand)
            if "single" in only:
                server.stop()
                server = Server(command, folder, cores=HALVES[0])
                overload(server, folder, "single rows", one, 64, args.overload)
            if "thousand" in only or "rate" in only:
                server.stop()
                server = Server(command, folder, "--max-queued-rows", "64000", "--max-rows", "1000", cores=HALVES[0])
            for part in [p for p in ("thousand", "rate") if p in only]:
                name = "1,000 rows each, at most 64,000 rows wait"
                overload(server, folder, name, thousand, 32, args.overload, rate=part == "rate")
            if "kill" in only:
                server = killed(command, folder, server, thousand)
            server.stop()
        finally:
            if server.process.poll() is None:
                server.process.kill()
    print(f"{os.cpu_count()} cores")


if __name__ == "__main__":
    main()
