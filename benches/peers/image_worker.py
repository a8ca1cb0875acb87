"""One PyTorch contender of image_step.py. Reads a specification, then one request per line, and answers in one line each."""

import gc
import json
import resource
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

SIDE, CLASSES = 32, 10


class Basic(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += self.shortcut(x)
        return F.relu(y, inplace=True)


class Resnet(nn.Module):
    """Names as in the common code for CIFAR-10; `first` channels in the first stage."""

    def __init__(self, blocks, first, channels=3, outputs=CLASSES):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, first, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(first)
        width = first
        for stage, count in enumerate(blocks, 1):
            layers = []
            for i in range(count):
                wider = stage > 1 and i == 0
                layers.append(Basic(width, width * (1 + wider), 1 + wider))
                width *= 1 + wider
            self.add_module(f"layer{stage}", nn.Sequential(*layers))
        self.stages = len(blocks)
        self.linear = nn.Linear(width, outputs)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        for stage in range(1, self.stages + 1):
            x = getattr(self, f"layer{stage}")(x)
        return self.linear(x.mean((2, 3)))


class Bottleneck(nn.Module):
    def __init__(self, inputs, growth):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False)

    def forward(self, x):
        y = self.conv1(F.relu(self.bn1(x), inplace=True))
        y = self.conv2(F.relu(self.bn2(y), inplace=True))
        return torch.cat([x, y], 1)


class Block(nn.Module):
    def __init__(self, count, inputs, growth):
        super().__init__()
        self.layer = nn.Sequential(*[Bottleneck(inputs + i * growth, growth) for i in range(count)])

    def forward(self, x):
        return self.layer(x)


class Transition(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 1, bias=False)

    def forward(self, x):
        return F.avg_pool2d(self.conv1(F.relu(self.bn1(x), inplace=True)), 2)


class Densenet(nn.Module):
    def __init__(self, depth, growth, reduction=0.5, channels=3, outputs=CLASSES):
        super().__init__()
        count, width = (depth - 4) // 6, 2 * growth
        self.conv1 = nn.Conv2d(channels, width, 3, 1, 1, bias=False)
        for stage in (1, 2, 3):
            self.add_module(f"block{stage}", Block(count, width, growth))
            width += count * growth
            if stage < 3:
                self.add_module(f"trans{stage}", Transition(width, int(width * reduction)))
                width = int(width * reduction)
        self.bn1 = nn.BatchNorm2d(width)
        self.fc = nn.Linear(width, outputs)

    def forward(self, x):
        x = self.trans1(self.block1(self.conv1(x)))
        x = self.block3(self.trans2(self.block2(x)))
        return self.fc(F.relu(self.bn1(x), inplace=True).mean((2, 3)))


class Cnn(nn.Module):
    """mcdd's network cnn: whitening that is not trained, three stages, maxima."""

    def __init__(self, widths=(64, 256, 256), channels=3, outputs=CLASSES):
        super().__init__()
        self.whiten = nn.Conv2d(channels, 24, 2)
        self.whiten.weight.requires_grad_(False)
        inputs = 24
        for stage, width in enumerate(widths, 1):
            self.add_module(f"conv{stage}a", nn.Conv2d(inputs, width, 3, padding=1, bias=False))
            self.add_module(f"conv{stage}b", nn.Conv2d(width, width, 3, padding=1, bias=False))
            for part in "ab":
                norm = nn.BatchNorm2d(width, momentum=0.4)
                norm.weight.requires_grad_(False)
                self.add_module(f"norm{stage}{part}", norm)
            inputs = width
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x):
        x = F.gelu(self.whiten(x))
        for stage in (1, 2, 3):
            part = lambda name: getattr(self, name.format(stage))
            x = F.gelu(part("norm{}a")(F.max_pool2d(part("conv{}a")(x), 2)))
            x = F.gelu(part("norm{}b")(part("conv{}b")(x)))
        return self.linear(x.amax((2, 3)) / 9)


def network(name):
    if name == "cnn":
        return Cnn()
    if name.startswith("densenet"):
        return Densenet(int(name[8:]), 12)
    depth = int(name[6:])
    blocks = {18: [2, 2, 2, 2], 34: [3, 4, 6, 3]}.get(depth)
    return Resnet(blocks, 64) if blocks else Resnet([(depth - 2) // 6] * 3, 16)


def main():
    spec = json.loads(sys.argv[1])
    torch.set_num_threads(spec["threads"])
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    gc.disable()
    net = network(spec["net"])
    x = torch.randn(spec["batch"], 3, SIDE, SIDE)
    y = torch.randint(CLASSES, (spec["batch"],))
    if spec.get("channels_last", True):
        net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 1e-3, 0.9, weight_decay=1e-4, nesterov=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    def predict():
        with torch.inference_mode():
            net(x)

    once = step if spec["task"] == "train" else predict
    net.train(spec["task"] == "train")
    once()
    print(json.dumps({"ready": torch.__version__, "trace": []}), flush=True)
    for line in sys.stdin:
        seconds = json.loads(line)["seconds"]
        start, cpu, steps = time.perf_counter(), time.process_time(), 0
        while steps == 0 or time.perf_counter() - start < seconds:
            once()
            steps += 1
        taken = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        answer = {"ms": 1e3 * taken / steps, "peak_mb": peak, "cpu": time.process_time() - cpu}
        answer["cpu_ms"] = 1e3 * answer["cpu"] / steps
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
