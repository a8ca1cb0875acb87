#!/usr/bin/env python3
"""Writes crates/mcdd/tests/fixtures/images.safetensors: reference values of PyTorch for a small ResNet and a small
DenseNet; and resnet8.safetensors in the same folder, the state of a ResNet-8 as users of PyTorch save it.

    python3 scripts/image_fixtures.py [--venv FOLDER] [--out FILE]

Creates a virtual environment with torch 2.15.0, NumPy 2.4.6 and safetensors 0.7.0 (with packaging) in FOLDER (a temporary
folder if not given), runs itself there and writes the file. `batchnorm_fixture.py` describes how to install torch without CUDA. The networks are those of
`benches/peers/image_worker.py`: ResNet-8 with 4, 8 and 16 channels, DenseNet-BC-16 with growth 4 and the first block of a
ResNet with 32 channels, images of 8 x 8 pixels with 3 channels, 5 outputs.
Everything is computed in 64 bits from 32-bit numbers and written in 32 bits.

For each network NET (`resnet`, `densenet`, `wide`):

    NET.images               4 images, [images, channels, height, width] as in PyTorch
    NET.matrix               the loss is sum(outputs * matrix)
    NET.parameters.NAME      in PyTorch's names and layout, running values included
    NET.outputs              in training mode
    NET.gradients.NAME       of the loss
    NET.running.NAME         running values after one pass in training mode
    NET.after.NAME           all of NET.parameters after five steps of SGD on this batch: learning rate 0.01, Nesterov momentum 0.9,
                             weight decay 0.001 on parameters with more than one dimension
    NET.predicted            outputs in evaluation mode after these steps

For the ResNet-8 with 16, 32 and 64 channels:

    init.images              12 images of bytes, [images, height, width, channels]; each channel of each image has the same
                             values in another order, so that mean and standard deviation of any subset are the same
    init.latents             of these images, normalized by channel, before the linear layer, in evaluation mode
"""

import json
import sys
from pathlib import Path

import inside

PINNED = ["torch==2.15.0", "numpy==2.4.6", "safetensors==0.7.0", "packaging==25.0"]
ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "crates/mcdd/tests/fixtures/images.safetensors"
IMAGES, SIDE, CHANNELS, OUTPUTS = 4, 8, 3, 5
STEPS, RATE, MOMENTUM, DECAY = 5, 0.01, 0.9, 0.001


def networks():
    sys.path.insert(0, str(ROOT / "benches/peers"))
    from image_worker import Densenet, Resnet

    yield "resnet", Resnet([1, 1, 1], 4, CHANNELS, OUTPUTS)
    yield "densenet", Densenet(16, 4, 0.5, CHANNELS, OUTPUTS)


def scatter(net):
    """Random 32-bit values for all parameters, with positive variances."""
    import torch

    with torch.no_grad():
        for key, value in net.state_dict().items():
            if value.is_floating_point():
                noise = torch.randn_like(value)
                if key.endswith("running_var"):
                    value.copy_(0.5 + noise.abs())
                elif value.dim() == 1:
                    value.copy_(value + 0.3 * noise)
                value.copy_(value.float().double())


def run(name, net, tensors):
    import torch

    net.double().train()
    scatter(net)
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


def save_state(out, tensors):
    import torch
    from image_worker import Resnet
    from safetensors.torch import save_file

    net = Resnet([1, 1, 1], 16, CHANNELS, OUTPUTS).eval()
    scatter(net)
    save_file(net.state_dict(), out)
    values = torch.randint(0, 256, (CHANNELS, SIDE * SIDE))
    planes = [v[torch.randperm(SIDE * SIDE)] for _ in range(12) for v in values]
    images = torch.stack(planes).reshape(-1, CHANNELS, SIDE, SIDE)
    shares = images.double() / 255
    x = shares - shares.mean((0, 2, 3), keepdim=True)
    x /= shares.std((0, 2, 3), correction=0, keepdim=True)
    net.double().linear = torch.nn.Identity()
    with torch.no_grad():
        tensors["init.latents"] = net(x).float()
    tensors["init.images"] = images.permute(0, 2, 3, 1).float()


def write(out):
    from importlib.metadata import version

    import torch

    for pinned in PINNED:
        name = pinned.split("==")[0]
        assert f"{name}=={version(name).split('+')[0]}" == pinned, f"{name} {version(name)}"
    torch.manual_seed(20160627)
    tensors = {}
    for name, net in networks():
        run(name, net, tensors)
    save_state(out.with_name("resnet8.safetensors"), tensors)
    from image_worker import Resnet

    run("wide", Resnet([1], 32, CHANNELS, OUTPUTS), tensors)
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
