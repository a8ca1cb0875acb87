#!/usr/bin/env python3
"""Recreates crates/mcdd/src/data/digits/digits.csv.gz from the scikit-learn package on PyPI.

Needs Python 3.9 or later with pip. Nothing is installed. The wheel is downloaded to a temporary folder. The file is
extracted from it, checked and written.
"""

import csv
import gzip
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

VERSION = "1.9.1"
MEMBER = "sklearn/datasets/data/digits.csv.gz"
TARGET = Path(__file__).resolve().parent.parent / "crates/mcdd/src/data/digits/digits.csv.gz"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
             "--dest", folder, f"scikit-learn=={VERSION}"],
            check=True,
        )
        wheel = next(Path(folder).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            packed = archive.read(MEMBER)
    rows = list(csv.reader(io.StringIO(gzip.decompress(packed).decode("ascii"))))
    if len(rows) != 1797 or any(len(row) != 65 for row in rows):
        sys.exit(f"unexpected shape: {len(rows)} rows")
    if {row[64] for row in rows} != {str(digit) for digit in range(10)}:
        sys.exit("unexpected labels")
    TARGET.write_bytes(packed)
    print(f"{TARGET}: {len(packed)} bytes, {len(rows)} rows")


if __name__ == "__main__":
    main()
