#!/usr/bin/env python3
"""Writes crates/mcdd/tests/fixtures/batchnorm.json: reference values of PyTorch for a small network with BatchNorm.

    python3 scripts/batchnorm_fixture.py [--venv FOLDER] [--out FILE]

Creates a virtual environment with torch 2.15.0 and NumPy 2.4.6 in FOLDER (a temporary folder if not given), runs itself
there and writes the file. On Linux pip installs torch with CUDA, which is several GB and not needed here. To install the
CPU build first:

    python3 -m venv FOLDER
    FOLDER/bin/pip install torch==2.15.0 --index-url https://download.pytorch.org/whl/cpu
    python3 scripts/batchnorm_fixture.py --venv FOLDER

The network is 5 -> 7 -> BatchNorm -> ReLU -> 6 -> BatchNorm -> ReLU -> 3; only the last layer has a bias. Everything is
computed in 64 bits. Every input is a binary fraction, so 32-bit floats, 64-bit floats and the text represent the same number. In training
mode no value before a ReLU is so close to 0 that rounding could change its sign.

    batches     three batches of 11 rows
    parameters  in PyTorch's names and layout: weights [out, in]; the running values are those before the first step
    matrix      the loss is sum(latents * matrix)
    expected    in training mode on the first batch: latents, loss, gradients (also of "input"); running values after
                the forward passes in training mode of the first batch and of all three, in order, with unchanged
                weights; then the latents of the first batch in evaluation mode

PyTorch normalizes a batch with the variance divided by its number of rows n, and updates the running variance with the
variance divided by n - 1: running = (1 - momentum) running + momentum new. Both are checked against NumPy, and the
gradients against finite differences.
"""

import json
from pathlib import Path

import inside

PINNED = ["torch==2.15.0", "numpy==2.4.6"]
OUT = Path(__file__).resolve().parent.parent / "crates/mcdd/tests/fixtures/batchnorm.json"
SEED = 20150211
INPUTS, WIDTHS, LATENT, ROWS, BATCHES = 5, (7, 6), 3, 11, 3
MOMENTUM, EPS = 0.1, 1e-5
# Minimum absolute value before a ReLU where gradients are computed: far more than 32-bit rounding errors.
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

    # Features of different location and scale, and different batches, so that the running values are a real test.
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
    """The same network by its definition, in NumPy."""

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
                assert np.abs(h).min() > CLEAR, "choose another seed: a value before a ReLU is too close to 0"
                assert ((h > 0).any(axis=0) & (h < 0).any(axis=0)).all(), "choose another seed: a ReLU is always active or never"
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
    """The reference values of PyTorch."""
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
    print(f"{worst:.1e} from the definition, gradients {slope:.1e} from finite differences")


def text(value):
    """JSON with one matrix row per line and all digits."""
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
