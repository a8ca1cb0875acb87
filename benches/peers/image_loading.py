#!/usr/bin/env python3
"""Compares the loading of a folder of large JPEGs, resized to 224 x 224, with PyTorch's DataLoader in one interleaved run.

    python3 benches/peers/image_loading.py [--rounds 5] [--images 200] [--size 1600x1200]

PyTorch and torchvision are installed in benches/peers/.venv (created if absent). Two threads here, two workers there. The JPEGs are made
from random numbers with a fixed seed. See README.md next to this file.
"""

import argparse
import json
import statistics
import subprocess
import tempfile

from mlp_step import build_ours, ensure_venv, say, venv_python

MAKE = """
import sys, pathlib, numpy as np
from PIL import Image
folder, count, width, height = pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:])
random = np.random.default_rng(0)
for i in range(count):
    # Smooth colors, and some detail.
    coarse = Image.fromarray(random.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((width, height), Image.BICUBIC)
    pixels = np.asarray(coarse, dtype=np.int16) + random.integers(-12, 13, (height, width, 1), dtype=np.int16)
    to = folder / ["a", "b"][i % 2]
    to.mkdir(exist_ok=True)
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(to / f"{i:04}.jpg", quality=90)
"""

PEER = """
import sys, time, json, torch
from torchvision import datasets, transforms
start = time.monotonic()
change = transforms.Compose([transforms.Resize((224, 224)), transforms.PILToTensor()])
data = datasets.ImageFolder(sys.argv[1], change)
count = sum(len(x) for x, _ in torch.utils.data.DataLoader(data, batch_size=32, num_workers=2))
print(json.dumps({"images": count, "seconds": time.monotonic() - start}))
"""


def measure(command):
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = json.loads(out.strip().splitlines()[-1])
    return found["images"] / found["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--size", default="1600x1200")
    options = parser.parse_args()
    ensure_venv()
    ours, python = build_ours("image_loading"), str(venv_python())
    with tempfile.TemporaryDirectory() as folder:
        say(f"making {options.images} JPEGs of {options.size}")
        subprocess.run([python, "-c", MAKE, folder, str(options.images), *options.size.split("x")], check=True)
        speeds = {"mcdd": [], "PyTorch DataLoader": []}
        for _ in range(options.rounds):
            speeds["mcdd"].append(measure([ours, folder, "2"]))
            speeds["PyTorch DataLoader"].append(measure([python, "-c", PEER, folder]))
    print("| loader | images/s, median | each round |\n|---|---|---|")
    for name, values in speeds.items():
        print(f"| {name} | {statistics.median(values):.0f} | {', '.join(f'{v:.0f}' for v in values)} |")
    ratios = [a / b for a, b in zip(*speeds.values())]
    print(f"\nratio, median of the rounds: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
