#!/usr/bin/env python3
"""Writes crates/mcdd/tests/fixtures/resize.json: small pictures resized by Pillow's bilinear filter.

    python3 scripts/resize_fixture.py [--venv FOLDER] [--out FILE]

Creates a virtual environment with Pillow 12.2.0 in FOLDER (a temporary folder if not given), runs itself there and writes the file.
"""

import json
from pathlib import Path

import inside

PINNED = ["pillow==12.2.0"]
OUT = Path(__file__).resolve().parent.parent / "crates/mcdd/tests/fixtures/resize.json"
CASES = [
    # channels, (height, width) before and after
    (3, (9, 13), (4, 5)),
    (3, (5, 7), (11, 16)),
    (1, (3, 40), (3, 7)),
    (3, (48, 64), (8, 8)),
    (1, (200, 3), (9, 2)),
    (3, (31, 17), (32, 9)),
    (3, (150, 220), (7, 11)),
]


def write(out):
    from PIL import Image

    found = []
    for channels, (h, w), (to_h, to_w) in CASES:
        values = bytes(
            (x * 37 + y * 101 + c * 53 + x * y * 7) % 256 for y in range(h) for x in range(w) for c in range(channels)
        )
        image = Image.frombytes("RGB" if channels == 3 else "L", (w, h), values)
        pixels = list(image.resize((to_w, to_h), Image.Resampling.BILINEAR).tobytes())
        found.append({"channels": channels, "from": [h, w], "to": [to_h, to_w], "pixels": pixels})
    out.write_text("[\n" + ",\n".join(json.dumps(case) for case in found) + "\n]\n")


if __name__ == "__main__":
    inside.main(__file__, __doc__, PINNED, OUT, write)
