#!/usr/bin/env python3
"""Writes crates/mcdd/tests/fixtures/batchnorm.json: what PyTorch does with a small network that has BatchNorm.

    python3 scripts/batchnorm_fixture.py [--venv FOLDER] [--out FILE]

Makes a virtual environment with torch 2.15.0 and NumPy 2.4.6 in FOLDER (a temporary folder if not given), runs itself
there and writes the file. On Linux pip takes torch with CUDA, which is gigabytes; nothing here needs it, so it saves
much to put the small one in first:

    python3 -m venv FOLDER
    FOLDER/bin/pip install torch==2.15.0 --index-url https://download.pytorch.org/whl/cpu
    python3 scripts/batchnorm_fixture.py --venv FOLDER

The network is 5 -> 7 -> BatchNorm -> ReLU -> 6 -> BatchNorm -> ReLU -> 3; only the last layer has a bias. Everything is
computed in 64 bits. Every number that is fed in is a binary fraction, so 32-bit and 64-bit floats and the text hold the
same number, and in training mode no value comes so close to 0 before a ReLU that rounding could decide its side.

    batches     three batches of 11 rows
    parameters  in PyTorch's names and layout: weights [out, in]; the running values are those before the first step
    matrix      the loss is sum(latents * matrix)
    expected    in training mode on the first batch: latents, loss, gradients (of "input" too); running values after
                the forward passes in training mode of the first batch and of all three, in order, the weights as they
                are; after these, the latents of the first batch in evaluation mode

PyTorch normalizes a batch with the variance divided by its rows n, and moves the running variance towards that divided
by n - 1: running = (1 - momentum) running + momentum new. Both are checked here against NumPy, the gradients against
finite differences.
"""

import json
from pathlib import Path

import inside

PINNED = ["torch==2.15.0", "numpy==2.4.6"]
OUT = Path(__file__).resolve().parent.parent / "crates/mcdd/tests/fixtures/batchnorm.json"
SEED = 20150211
INPUTS, WIDTHS, LATENT, ROWS, BATCHES = 5, (7, 6), 3, 11, 3
MOMENTUM, EPS = 0.1, 1e-5
# How far from 0 every value before a ReLU must be, where there are gradients: far more than rounding in 32 bits.
CLEAR = 1e-3


def network():
    import torch
    from torch import nn

    first, second = WIDTHS
    layers = {
        "fc1": nn.Linear(INPUTS, first, bias=False),
        "bn1": nn.BatchNorm1d(first, eps=EPS, momentum=MOMENTUM),
        "relu1": nn.ReLU(),
        "fc2": nn.Linear(first, second, bias=False),
        "bn2": nn.BatchNorm1d(second, eps=EPS, momentum=MOMENTUM),
        "relu2": nn.ReLU(),
        "fc3": nn.Linear(second, LATENT),
    }
    net = nn.Sequential()
    for name, layer in layers.items():
        net.add_module(name, layer)
    return net.to(torch.float64)


def data():
    """(batches, parameters, matrix), all on a grid of binary fractions."""
    import numpy as np

    rng = np.random.default_rng(SEED)

    def grid(values):
        return np.round(np.asarray(values) * 256) / 256

    # Features of different place and scale, and batches that differ, or running values would say little.
    place, scale = rng.normal(size=INPUTS), rng.uniform(0.5, 3, size=INPUTS)
    batches = grid(place + 0.5 * np.arange(BATCHES)[:, None, None] + scale * rng.normal(size=(BATCHES, ROWS, INPUTS)))
    parameters, inputs = {}, INPUTS
    for i, width in enumerate(WIDTHS, 1):
        parameters[f"fc{i}.weight"] = grid(rng.normal(size=(width, inputs)) / inputs**0.5)
        parameters[f"bn{i}.weight"] = grid(rng.uniform(0.5, 1.5, size=width) * rng.choice([1, 1, 1, -1], size=width))
        parameters[f"bn{i}.bias"] = grid(0.5 * rng.normal(size=width))
        parameters[f"bn{i}.running_mean"] = np.zeros(width)
        parameters[f"bn{i}.running_var"] = np.ones(width)
        inputs = width
    parameters["fc3.weight"] = grid(rng.normal(size=(LATENT, inputs)) / inputs**0.5)
    parameters["fc3.bias"] = grid(rng.normal(size=LATENT))
    return batches, parameters, grid(rng.normal(size=(ROWS, LATENT)))


class Definition:
    """The same network as it is defined, in NumPy."""

    def __init__(self, parameters):
        self.p = dict(parameters)

    def forward(self, x, training):
        import numpy as np

        for i in range(1, len(WIDTHS) + 1):
            h = x @ self.p[f"fc{i}.weight"].T
            mean, var = f"bn{i}.running_mean", f"bn{i}.running_var"
            if training:
                used = h.mean(axis=0), h.var(axis=0)
                self.p[mean] = (1 - MOMENTUM) * self.p[mean] + MOMENTUM * used[0]
                self.p[var] = (1 - MOMENTUM) * self.p[var] + MOMENTUM * h.var(axis=0, ddof=1)
            else:
                used = self.p[mean], self.p[var]
            h = (h - used[0]) / np.sqrt(used[1] + EPS) * self.p[f"bn{i}.weight"] + self.p[f"bn{i}.bias"]
            if training:
                assert np.abs(h).min() > CLEAR, "another seed is needed: a value before a ReLU is next to 0"
                assert ((h > 0).any(axis=0) & (h < 0).any(axis=0)).all(), "another seed is needed: a ReLU never bends"
            x = np.maximum(h, 0)
        return x @ self.p["fc3.weight"].T + self.p["fc3.bias"]


def difference_quotients(parameters, x, matrix, step=1e-6):
    """Gradients of the loss by central differences."""
    import numpy as np

    def loss(values):
        return (Definition(values).forward(values["input"], True) * matrix).sum()

    at = {"input": x, **parameters}
    out = {}
    for name in at:
        if "running" not in name:
            out[name] = np.zeros_like(at[name])
            for i in np.ndindex(at[name].shape):
                moved = []
                for sign in (1, -1):
                    there = {**at, name: at[name].copy()}
                    there[name][i] += sign * step
                    moved.append(loss(there))
                out[name][i] = (moved[0] - moved[1]) / (2 * step)
    return out


def run(batches, parameters, matrix):
    """What PyTorch gives."""
    import torch

    net = network()
    missing = net.load_state_dict({k: torch.tensor(v) for k, v in parameters.items()}, strict=False)
    assert not missing.unexpected_keys and all("num_batches" in k for k in missing.missing_keys), missing

    def running():
        return {k: v.numpy().copy() for k, v in net.named_buffers() if "running" in k}

    net.train()
    first = torch.tensor(batches[0], requires_grad=True)
    latents = net(first)
    loss = (latents * torch.tensor(matrix)).sum()
    loss.backward()
    gradients = {"input": first.grad, **{k: p.grad for k, p in net.named_parameters()}}
    expected = {
        "latents": latents.detach().numpy(),
        "loss": loss.item(),
        "gradients": {k: g.numpy() for k, g in gradients.items()},
        "running_after_1": running(),
    }
    with torch.no_grad():
        for batch in batches[1:]:
            net(torch.tensor(batch))
        expected[f"running_after_{len(batches)}"] = running()
        net.eval()
        expected["evaluation_latents"] = net(torch.tensor(batches[0])).numpy()
    return expected


def check(batches, parameters, matrix, expected):
    import numpy as np

    for a in (batches, matrix, *parameters.values()):
        assert (a.astype(np.float32) == a).all()
    definition = Definition(parameters)
    worst = 0.0

    def same(found, wanted):
        nonlocal worst
        worst = max(worst, np.abs(np.asarray(found) - wanted).max())

    for i, batch in enumerate(batches, 1):
        latents = definition.forward(batch, True)
        if i == 1:
            same(expected["latents"], latents)
        for name, value in expected.get(f"running_after_{i}", {}).items():
            same(value, definition.p[name])
    same(expected["evaluation_latents"], definition.forward(batches[0], False))
    assert worst < 1e-12, worst
    quotients = difference_quotients(parameters, batches[0], matrix)
    assert quotients.keys() == expected["gradients"].keys()
    slope = max(np.abs(expected["gradients"][k] - q).max() for k, q in quotients.items())
    assert slope < 1e-6, slope
    print(f"{worst:.1e} from the definition, gradients {slope:.1e} from difference quotients")


def text(value):
    """JSON with one row of a matrix in a line; numbers in full."""
    import numpy as np

    if isinstance(value, dict):
        return "{\n" + ",\n".join(f"{json.dumps(k)}: {text(v)}" for k, v in value.items()) + "\n}"
    if isinstance(value, np.ndarray) and value.ndim > 1:
        return "[\n" + ",\n".join(text(row) for row in value) + "\n]"
    return json.dumps(value.tolist() if isinstance(value, np.ndarray) else value)


def write(out):
    import numpy as np
    import torch

    versions = {f"torch=={torch.__version__.split('+')[0]}", f"numpy=={np.__version__}"}
    assert versions == set(PINNED), versions
    batches, parameters, matrix = data()
    expected = run(batches, parameters, matrix)
    check(batches, parameters, matrix, expected)
    out.write_text(text({
        "made_by": f"scripts/batchnorm_fixture.py with {', '.join(PINNED).replace('==', ' ')}",
        "command": "python3 scripts/batchnorm_fixture.py",
        "momentum": MOMENTUM,
        "eps": EPS,
        "batches": batches,
        "parameters": parameters,
        "matrix": matrix,
        "expected": expected,
    }) + "\n")
    print(f"{out}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    inside.main(__file__, __doc__, PINNED, OUT, write)
