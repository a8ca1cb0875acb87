#!/usr/bin/env python3
"""Deep-MCDD with other ways to learn the deviation of each class, in PyTorch.

    python3 scripts/sigma.py NAME SEEDS FILE ...

NAME is csv (label last, with a header), text (label last), or libsvm. Each class is left out in turn. A fifth of the other
rows is tested, a tenth of the rest validates. The network and training are those of the preset paper: 128, 128, 128,
Adam with 0.001, batches of 200, 100 epochs, nu 1. Needs numpy, scikit-learn and torch.

    one         sigma is 1
    projection  log sigma >= 0 by projection after each step (mcdd's sigma=learned)
    softplus    log sigma = softplus(s), which starts at 0.1; its gradient is never 0
    smallest    estimated after each epoch from the latents, divided by the smallest: log sigma >= 0
    average     the same, divided by the geometric mean over the classes
    effective   the distance counts as many dimensions as the variance has (participation ratio), divided as in `smallest`
"""

import sys

import numpy as np
import torch
from sklearn.datasets import load_svmlight_files
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

FORMS = ["one", "projection", "softplus", "smallest", "average", "effective"]
LATENT = 128


def read(kind: str, files: list[str]) -> tuple[np.ndarray, np.ndarray]:
    if kind == "libsvm":
        parts = load_svmlight_files(files)
        return np.concatenate([p.toarray() for p in parts[::2]]), np.concatenate(parts[1::2])
    skip, separator = (1, ",") if kind == "csv" else (0, None)
    rows = np.concatenate([np.loadtxt(f, skiprows=skip, delimiter=separator, dtype=str) for f in files])
    return rows[:, :-1].astype(float), rows[:, -1]


def network(inputs: int) -> torch.nn.Sequential:
    layers = [torch.nn.Linear(inputs, 128), torch.nn.Linear(128, 128), torch.nn.Linear(128, LATENT)]
    for layer in layers:
        torch.nn.init.xavier_uniform_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    return torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2])


def estimate(form: str, z: torch.Tensor, y: torch.Tensor, mu: torch.Tensor) -> tuple[torch.Tensor, float]:
    """log sigma of each class, and the number of dimensions that the distance counts."""
    variance = torch.stack([((z[y == k] - mu[k]) ** 2).mean() for k in range(len(mu))]).clamp_min(1e-12)
    log_sigma, dimensions = 0.5 * variance.log(), float(LATENT)
    if form == "effective":
        values = torch.linalg.eigvalsh((z - mu[y]).T @ (z - mu[y]) / len(z)).clamp_min(0)
        dimensions = float(values.sum() ** 2 / (values**2).sum())
    return log_sigma - (log_sigma.mean() if form == "average" else log_sigma.min()), dimensions


def train(form: str, x: torch.Tensor, y: torch.Tensor, classes: int, seed: int):
    torch.manual_seed(seed)
    net, mu = network(x.shape[1]), torch.empty(classes, LATENT)
    torch.nn.init.xavier_uniform_(mu)
    bias, raw = torch.zeros(classes), torch.zeros(classes)
    if form == "softplus":
        raw += np.log(np.expm1(0.1))
    learned = form in ("projection", "softplus")
    raw.requires_grad_(learned)
    parameters = [*net.parameters(), mu.requires_grad_(), bias.requires_grad_(), *([raw] if learned else [])]
    optimizer, dimensions = torch.optim.Adam(parameters, lr=0.001), float(LATENT)

    def distances(x):
        log_sigma = torch.nn.functional.softplus(raw) if form == "softplus" else raw
        z = net(x)
        square = ((z[:, None] - mu) ** 2).sum(2)
        return square / 2 * torch.exp(-2 * log_sigma) + dimensions * log_sigma

    for _ in range(100):
        for rows in torch.randperm(len(x)).split(200):
            d = distances(x[rows])
            loss = d.gather(1, y[rows, None]).mean() + torch.nn.functional.cross_entropy(bias - d, y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if form == "projection":
                raw.data.clamp_(min=0)
        if form in ("smallest", "average", "effective"):
            with torch.no_grad():
                raw.data, dimensions = estimate(form, net(x), y, mu)
    with torch.no_grad():
        sigma = torch.nn.functional.softplus(raw) if form == "softplus" else raw
        return lambda x: distances(x).detach(), bias.detach(), sigma.exp()


def main() -> None:
    torch.set_num_threads(1)
    kind, seeds, files = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    x, names = read(kind, files)
    classes, labels = np.unique(names, return_inverse=True)
    print("form        validation accuracy   accuracy   AUROC   smallest and largest sigma; mean over classes, by seed")
    for form in FORMS:
        lines = []
        for seed in range(seeds):
            results = []
            for left_out in range(len(classes)):
                known = labels != left_out
                y = labels[known] - (labels[known] > left_out)
                split = train_test_split(x[known], y, test_size=0.2, random_state=seed, stratify=y)
                fit_x, validation_x, fit_y, validation_y = train_test_split(
                    split[0], split[2], test_size=0.1, random_state=seed, stratify=split[2]
                )
                mean, deviation = fit_x.mean(0), fit_x.std(0)
                scaled = lambda a: torch.tensor((a - mean) / np.where(deviation > 0, deviation, 1), dtype=torch.float32)
                score, bias, sigma = train(form, scaled(fit_x), torch.tensor(fit_y), len(classes) - 1, seed)
                accuracy = lambda a, b: float((torch.argmax(bias - score(scaled(a)), 1).numpy() == b).mean())
                confidence = [-score(scaled(a)).min(1).values.numpy() for a in (split[1], x[~known])]
                truth = np.repeat([1, 0], [len(c) for c in confidence])
                auroc = roc_auc_score(truth, np.nan_to_num(np.concatenate(confidence)))
                results.append([
                    100 * accuracy(validation_x, validation_y), 100 * accuracy(split[1], split[3]), 100 * auroc,
                    float(sigma.min()), float(sigma.max()),
                ])
            lines.append(np.mean(results, 0))
        columns = ["  ".join(f"{line[i]:.2f}" for line in lines) for i in range(5)]
        print(f"{form:<12}{'  |  '.join(columns)}", flush=True)


if __name__ == "__main__":
    main()
