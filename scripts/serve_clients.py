#!/usr/bin/env python3
"""Calls `mcdd serve` with other people's clients, and compares every answer with `mcdd predict`, bit by bit.

    python3 -m venv FOLDER
    FOLDER/bin/pip install 'tritonclient[http]' schemathesis mlserver
    FOLDER/bin/python scripts/serve_clients.py target/release/mcdd [--rows 100000] [--clients 32] [--contract]

Trains a small model on generated rows, serves it on a free port, and

- asks for metadata and predictions with tritonclient, with JSON and with binary tensors, unchanged;
- sends requests with MLServer's client (`mlserver infer`), if it is installed;
- sends the rows with many clients of mixed sizes at once, as CSV, and compares the bytes;
- keeps replacing the model file meanwhile: no request may fail;
- with --contract runs schemathesis against /openapi.json.
"""

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path


def rows(count, seed):
    made = random.Random(seed)
    for _ in range(count):
        kind = made.randrange(3)
        yield [made.gauss(3 * kind, 1), made.gauss(-kind, 1), made.uniform(0, kind + 1), made.gauss(0, 1)], "abc"[kind]


def write(path, count, seed, labeled):
    lines = ["p,q,r,s" + (",label" if labeled else "")]
    for values, label in rows(count, seed):
        lines.append(",".join(repr(v) for v in values) + (f",{label}" if labeled else ""))
    path.write_text("\n".join(lines) + "\n")
    return lines


def triton(address, expected, count):
    import numpy
    import tritonclient.http as http

    client = http.InferenceServerClient(address)
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("m")
    assert [i["name"] for i in client.get_model_metadata("m")["inputs"]] == ["p", "q", "r", "s"]
    assert client.get_model_repository_index()[0]["name"] == "m"
    data = numpy.array([values for values, _ in rows(count, 2)], dtype=numpy.float64)
    for binary in (False, True):
        for matrix in (False, True):
            if matrix:
                inputs = [http.InferInput("rows", list(data.shape), "FP64")]
                inputs[0].set_data_from_numpy(data, binary_data=binary)
            else:
                inputs = [http.InferInput(name, [count], "FP64") for name in "pqrs"]
                for i, tensor in enumerate(inputs):
                    tensor.set_data_from_numpy(data[:, i].copy(), binary_data=binary)
            names = ["label", "known", "confidence", "p_value", "probabilities"]
            outputs = [http.InferRequestedOutput(name, binary_data=binary) for name in names]
            answer = client.infer("m", inputs, outputs=outputs)
            # JSON gives texts, bytes give bytes.
            labels = [t.decode() if isinstance(t, bytes) else t for t in answer.as_numpy("label").tolist()]
            assert labels == [e[0] for e in expected[:count]]
            assert answer.as_numpy("known").tolist() == [e[1] == "known" for e in expected[:count]]
            assert answer.as_numpy("confidence").tolist() == [float(e[2]) for e in expected[:count]]
            assert answer.as_numpy("p_value").tolist() == [float(e[3]) for e in expected[:count]]
            assert answer.as_numpy("probabilities").shape == (count, 3)
    print(f"tritonclient: {count} rows in four ways, equal to mcdd predict")


def mlserver(address, folder, expected, count):
    tool = Path(sys.executable).with_name("mlserver")
    if not tool.exists():
        print("MLServer's client: skipped, mlserver is not installed")
        return
    data = [values for values, _ in rows(count, 2)]
    requests = []
    for start in range(0, count, 10):
        part = data[start : start + 10]
        tensor = {"name": "rows", "shape": [len(part), 4], "datatype": "FP64", "data": part}
        requests.append(json.dumps({"id": str(start), "inputs": [tensor]}))
    (folder / "requests.jsonl").write_text("\n".join(requests) + "\n")
    words = ["infer", "-u", address, "-m", "m", "-i", "requests.jsonl", "-o", "answers.jsonl", "-w", "4"]
    subprocess.run([tool, *words], cwd=folder, check=True, capture_output=True)
    answers = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    found = {}
    for answer in answers:
        outputs = {o["name"]: o["data"] for o in answer["outputs"]}
        for i, row in enumerate(zip(outputs["label"], outputs["known"], outputs["confidence"], outputs["p_value"], strict=True)):
            found[int(answer["id"]) + i] = row
    for i in range(count):
        label, known, confidence, p_value = expected[i]
        assert found[i] == (label, known == "known", float(confidence), float(p_value)), (i, found[i], expected[i])
    print(f"MLServer's client: {count} rows in {len(requests)} requests, equal to mcdd predict")


def crowd(address, lines, expected, clients, replace):
    parts, at, sizes = [], 1, [1, 2, 7, 60, 500, 3000]
    made = random.Random(3)
    while at < len(lines):
        size = made.choice(sizes)
        parts.append((at, min(at + size, len(lines))))
        at += size
    made.shuffle(parts)
    lock, wrong, done = threading.Lock(), [], []

    def work():
        while True:
            with lock:
                if not parts:
                    return
                begin, end = parts.pop()
            body = "\n".join([lines[0], *lines[begin:end]]).encode() + b"\n"
            request = urllib.request.Request(f"http://{address}/predict", body, {"Content-Type": "text/csv"})
            try:
                with urllib.request.urlopen(request, timeout=120) as response:
                    got = response.read().decode().splitlines()[1:]
            except OSError as error:
                got = [str(error)]
            with lock:
                done.append(end - begin)
                if got != [",".join(e) for e in expected[begin - 1 : end - 1]]:
                    wrong.append((begin, end, got[:1]))

    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        replace()
        time.sleep(0.5)
    assert not wrong, wrong[:3]
    print(f"{clients} clients: {sum(done)} rows in {len(done)} requests, equal to mcdd predict, while the file was replaced")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mcdd", type=Path)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--contract", action="store_true")
    args = parser.parse_args()
    mcdd = args.mcdd.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "train.csv", 2000, 1, True)
        lines = write(folder / "new.csv", args.rows, 2, False)

        def run(*words):
            return subprocess.run([mcdd, *words], cwd=folder, check=True, capture_output=True, text=True).stdout

        run("train", "train.csv", "--preset", "fast", "--epochs", "10", "-q", "-o", "m.mcdd")
        expected = [line.split(",") for line in run("predict", "m.mcdd", "new.csv", "-q").splitlines()[1:]]
        served = folder / "served"
        served.mkdir()
        shutil.copy(folder / "m.mcdd", served)
        server = subprocess.Popen([mcdd, "serve", "served", "--listen", "127.0.0.1:0"], cwd=folder, stderr=subprocess.PIPE, text=True)
        try:
            address = next(line.split("http://")[1].strip() for line in server.stderr if "http://" in line)
            threading.Thread(target=server.stderr.read, daemon=True).start()

            def replace():
                shutil.copy(folder / "m.mcdd", served / "m.part")
                (served / "m.part").rename(served / "m.mcdd")

            triton(address, expected, min(1000, args.rows))
            mlserver(address, folder, expected, min(200, args.rows))
            crowd(address, lines, expected, args.clients, replace)
            if args.contract:
                checks = "not_a_server_error,content_type_conformance,status_code_conformance"
                tool = Path(sys.executable).with_name("st")
                words = ["run", f"http://{address}/openapi.json", "--max-examples", "50", "--checks", checks]
                subprocess.run([tool, *words], cwd=folder, check=True)
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0
        print("SIGTERM: exit code 0")


if __name__ == "__main__":
    main()
