#!/usr/bin/env python3
"""Writes crates/mcdd/tests/fixtures/classic_resnet.safetensors: latent vectors of a narrow ResNet in the form for large images.

    scripts/classic_resnet_fixture.py [--venv FOLDER]

Creates a virtual environment with torch 2.15.0, NumPy 2.4.6 and safetensors 0.7.0 (with packaging) in FOLDER (a temporary folder if not
given), runs itself there and writes the file. `batchnorm_fixture.py` describes how to install torch without CUDA. The network has
torchvision's structure and names (a window of 7 x 7, a maximum of 3 x 3, basic blocks), 4 to 32 channels, and blocks of 1, 2, 1 and 1.
Weights and running statistics are random. The file has them under torchvision's names, and

    fixture.images     3 images, [images, height, width, channels]
    fixture.latents    their means before `fc`, computed in 64 bits
"""

from pathlib import Path

import inside

PINNED = ["torch==2.15.0", "numpy==2.4.6", "safetensors==0.7.0", "packaging"]
OUT = Path(__file__).resolve().parent.parent / "crates" / "mcdd" / "tests" / "fixtures" / "classic_resnet.safetensors"


def write(out: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from torch import nn

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outputs)
            self.downsample = None
            if stride != 1 or inputs != outputs:
                self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
            return torch.relu(y + (x if self.downsample is None else self.downsample(x)))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(3, 4, 7, 2, 3, bias=False)
            self.bn1 = nn.BatchNorm2d(4)
            self.maxpool = nn.MaxPool2d(3, 2, 1)
            width = 4
            for stage, count in enumerate([1, 2, 1, 1]):
                blocks = []
                for i in range(count):
                    outputs = width * 2 if stage > 0 and i == 0 else width
                    blocks.append(Block(width, outputs, 2 if stage > 0 and i == 0 else 1))
                    width = outputs
                setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
            self.fc = nn.Linear(width, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
            for stage in range(4):
                x = getattr(self, f"layer{stage + 1}")(x)
            return x.mean((2, 3))

    torch.manual_seed(0)
    net = Net().eval()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_(0, 0.3)
            module.running_mean.normal_(0, 0.3)
            module.running_var.uniform_(0.5, 1.5)
    images = torch.randn(3, 37, 50, 3)
    state = {name: value.clone() for name, value in net.state_dict().items() if value.dtype == torch.float32}
    with torch.no_grad():
        latents = net.double()(images.permute(0, 3, 1, 2).double()).float()
    save_file({**state, "fixture.images": images.contiguous(), "fixture.latents": latents.contiguous()}, out)
    print(f"{out}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    inside.main(__file__, __doc__, PINNED, OUT, write)
