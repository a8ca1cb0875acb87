#!/usr/bin/env python3
"""Writes crates/mcdd/tests/fixtures/images.safetensors: what PyTorch does with a small ResNet and a small DenseNet.

    python3 scripts/image_fixtures.py [--venv FOLDER] [--out FILE]

Makes a virtual environment with torch 2.15.0 and NumPy 2.4.6 in FOLDER (a temporary folder if not given), runs itself there
and writes the file; `batchnorm_fixture.py` says how to have the small torch without CUDA. The networks are those of
`benches/peers/image_worker.py`: ResNet-8 with 4, 8 and 16 channels and DenseNet-BC-16 with growth 4, images of 8 x 8 pixels
with 3 channels, 5 outputs. Everything is computed in 64 bits from numbers that 32 bits hold, and written in 32.

For each network NET (`resnet`, `densenet`):

    NET.images               4 images, [images, channels, height, width] as in PyTorch
    NET.matrix               the loss is sum(outputs * matrix)
    NET.parameters.NAME      in PyTorch's names and layout, running values included
    NET.outputs              in training mode
    NET.gradients.NAME       of the loss
    NET.running.NAME         running values after one pass in training mode
    NET.after.NAME           all of NET.parameters after five steps of SGD on this batch: rate 0.01, Nesterov momentum 0.9,
                             weight decay 0.001 on what has more than one dimension
    NET.predicted            outputs in evaluation mode after these steps
"""

import json
import sys
from pathlib import Path

import inside

PINNED = ["torch==2.15.0", "numpy==2.4.6"]
ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "crates/mcdd/tests/fixtures/images.safetensors"
IMAGES, SIDE, CHANNELS, OUTPUTS = 4, 8, 3, 5
STEPS, RATE, MOMENTUM, DECAY = 5, 0.01, 0.9, 0.001


def networks():
    sys.path.insert(0, str(ROOT / "benches/peers"))
    from image_worker import Densenet, Resnet

    yield "resnet", Resnet([1, 1, 1], 4, CHANNELS, OUTPUTS)
    yield "densenet", Densenet(16, 4, 0.5, CHANNELS, OUTPUTS)


def run(name, net, tensors):
    import torch

    net.double().train()
    with torch.no_grad():
        for key, value in net.state_dict().items():
            if value.is_floating_point():
                # Nothing is special about any parameter; variances are positive.
                noise = torch.randn_like(value)
                if key.endswith("running_var"):
                    value.copy_(0.5 + noise.abs())
                elif value.dim() == 1:
                    value.copy_(value + 0.3 * noise)
                value.copy_(value.float().double())
    images = torch.randn(IMAGES, CHANNELS, SIDE, SIDE).double()
    matrix = torch.randn(IMAGES, OUTPUTS).double()

    def keep(part, values):
        for key, value in values:
            if value.is_floating_point():
                tensors[f"{name}.{part}.{key}"] = value.detach().float().contiguous().clone()

    keep("parameters", net.state_dict().items())
    decayed = [p for p in net.parameters() if p.dim() > 1]
    others = [p for p in net.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, RATE, MOMENTUM, nesterov=True)
    for step in range(STEPS):
        optimizer.zero_grad()
        outputs = net(images)
        (outputs * matrix).sum().backward()
        if step == 0:
            keep("gradients", ((k, p.grad) for k, p in net.named_parameters()))
            keep("running", ((k, b) for k, b in net.named_buffers()))
            tensors[f"{name}.outputs"] = outputs.detach().float()
        optimizer.step()
    keep("after", net.state_dict().items())
    net.eval()
    tensors |= {f"{name}.images": images.float(), f"{name}.matrix": matrix.float()}
    with torch.no_grad():
        tensors[f"{name}.predicted"] = net(images).float()


def write(out):
    import numpy as np
    import torch

    versions = {f"torch=={torch.__version__.split('+')[0]}", f"numpy=={np.__version__}"}
    assert versions == set(PINNED), versions
    torch.manual_seed(20160627)
    tensors = {}
    for name, net in networks():
        run(name, net, tensors)
    header = {"__metadata__": {"made_by": f"scripts/image_fixtures.py with {', '.join(PINNED).replace('==', ' ')}"}}
    body = b""
    for name, tensor in tensors.items():
        data = tensor.contiguous().numpy().astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    out.write_bytes(len(text).to_bytes(8, "little") + text + body)
    print(f"{out}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    inside.main(__file__, __doc__, PINNED, OUT, write)
