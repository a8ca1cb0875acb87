"""Features and logits of a PyTorch network, for `mcdd.Detector`."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Outputs", "features"]


class Outputs(NamedTuple):
    """What `features` collects: a row for each input."""

    features: npt.NDArray[np.float32]
    logits: npt.NDArray[np.float64]
    labels: npt.NDArray[Any] | None


def features(model: Any, loader: Iterable[Any], layer: str | Any | None = None, *, device: Any = None) -> Outputs:
    """Run a network over batches, and collect the features of a layer and the logits.

    Parameters
    ----------
    model : torch.nn.Module
        A network whose output are logits. It is run in evaluation mode and without gradients, and left as it was.
    loader : iterable
        Batches: tensors, or tuples of inputs and labels as a DataLoader gives them.
    layer : str or torch.nn.Module, default=None
        The layer whose output is taken, by its name in ``model.named_modules()`` or itself; None for the input of the last
        linear layer.
    device : torch.device or str, default=None
        Where inputs are moved to; None for the device of the model's first parameter.

    Returns
    -------
    Outputs
        `features` of shape (n, d), of which all but the first axis are flattened; `logits` of shape (n, k); `labels` of
        shape (n,), or None if the batches have none.
    """
    torch: Any = importlib.import_module("torch")
    module, takes_input = _find(model, layer, torch)
    if device is None:
        first = next(model.parameters(), None)
        device = "cpu" if first is None else first.device
    caught: list[Any] = []

    def hook(_module: Any, inputs: Any, output: Any) -> None:
        caught.append(inputs[0] if takes_input else output)

    handle = module.register_forward_hook(hook)
    modes = [(part, part.training) for part in model.modules()]
    rows: list[npt.NDArray[np.float32]] = []
    outputs: list[npt.NDArray[np.float64]] = []
    labels: list[npt.NDArray[Any]] = []
    try:
        model.eval()
        with torch.no_grad():
            for batch in loader:
                parts = list(batch) if isinstance(batch, tuple | list) else [batch]
                x, y = parts[0], parts[1] if len(parts) > 1 else None
                caught.clear()
                logits = model(x.to(device))
                if len(caught) != 1:
                    raise ValueError(f"the layer ran {len(caught)} times for one batch, and it must run once")
                rows.append(caught[0].flatten(1).float().cpu().numpy())
                outputs.append(logits.double().cpu().numpy())
                if y is not None:
                    labels.append(np.asarray(y.cpu() if hasattr(y, "cpu") else y))
    finally:
        handle.remove()
        for part, training in modes:
            part.training = training
    if not rows:
        raise ValueError("the loader has no batches")
    found = np.concatenate(labels) if labels else None
    return Outputs(np.concatenate(rows), np.concatenate(outputs), found)


def _find(model: Any, layer: Any, torch: Any) -> tuple[Any, bool]:
    """The module to listen to, and whether its input is taken instead of its output."""
    if layer is None:
        linear = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
        if not linear:
            raise ValueError("the model has no linear layer: give layer=")
        return linear[-1], True
    if isinstance(layer, str):
        named = dict(model.named_modules())
        if layer not in named:
            raise ValueError(f"the model has no layer {layer!r}; it has {', '.join(name for name in named if name)}")
        return named[layer], False
    return layer, False
