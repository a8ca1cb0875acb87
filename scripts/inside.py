"""Runs a fixture script in a virtual environment with the packages that the script pins."""

import argparse
import os
import subprocess
import tempfile
import venv
from pathlib import Path


def main(script, description, pinned, out, write):
    """Calls `write(path)` of `script` in an environment with the packages `pinned`; `out` is the default path."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=Path, help="folder of the virtual environment, created if missing")
    parser.add_argument("--out", type=Path, default=out)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        write(args.out)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.venv or Path(scratch) / "venv"
        python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        if not python.exists():
            venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *pinned], check=True)
        # One thread: sums have the same order everywhere, and small matrices are faster, especially on a busy machine.
        one = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        subprocess.run([python, script, "--inside", "--out", args.out], check=True, env=one)
