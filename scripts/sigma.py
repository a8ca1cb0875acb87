#!/usr/bin/env python3
"""Deep-MCDD with other ways to learn the deviation of each class, in PyTorch.

    python3 scripts/sigma.py RESULTS.tsv NAME KIND SEEDS ROWS FILE ...
    python3 scripts/sigma.py RESULTS.tsv

KIND is csv (label last, with a header), text (label last), libsvm, or idx (images and labels of MNIST). ROWS is the number of rows
that are drawn, in proportion to the classes but at least 50 of each; 0 for all. Lines are appended to the results, and a run that was
stopped goes on. Without data the table is printed. Each class is left out in turn. A fifth of the other
rows is tested, a tenth of the rest validates. The network and training are those of the preset paper: 128, 128, 128,
Adam with 0.001, batches of 200, 100 epochs, nu 1. Needs numpy, scikit-learn and torch.

    one         sigma is 1
    projection  log sigma >= 0 by projection after each step (mcdd's sigma=learned)
    softplus    log sigma = softplus(s), which starts at 0.1; its gradient is never 0
    smallest    estimated after each epoch from the latents, divided by the smallest: log sigma >= 0
    average     the same, divided by the geometric mean over the classes
    bounded     as `average`, at most 2 and at least 1/2, moving a tenth of the way after each epoch
    effective   the distance counts as many dimensions as the variance has (participation ratio), divided as in `smallest`
"""

import gzip
import sys
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_svmlight_files
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

FORMS = ["one", "projection", "softplus", "average", "bounded"]  # of the others, "smallest" and "effective" failed on vowel
LATENT = 128


def read(kind: str, files: list[str]) -> tuple[np.ndarray, np.ndarray]:
    if kind == "libsvm":
        parts = load_svmlight_files(files)
        return np.concatenate([p.toarray() for p in parts[::2]]), np.concatenate(parts[1::2])
    if kind == "idx":
        arrays = [np.frombuffer(gzip.open(f).read(), np.uint8) for f in files]
        images = np.concatenate([a[16:] for a in arrays if a[3] == 3]).reshape(-1, 784).astype(float)
        return images, np.concatenate([a[8:] for a in arrays if a[3] == 1])
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
    return log_sigma - (log_sigma.mean() if form in ("average", "bounded") else log_sigma.min()), dimensions


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
        if form in ("smallest", "average", "bounded", "effective"):
            with torch.no_grad():
                found, dimensions = estimate(form, net(x), y, mu)
                raw.data = found if form != "bounded" else 0.9 * raw.data + 0.1 * found.clamp(-np.log(2), np.log(2))
    with torch.no_grad():
        sigma = torch.nn.functional.softplus(raw) if form == "softplus" else raw
        return lambda x: distances(x).detach(), bias.detach(), sigma.exp()


def measure(form: str, x: np.ndarray, labels: np.ndarray, seed: int) -> np.ndarray:
    """Means over left-out classes: validation accuracy, accuracy, AUROC, smallest and largest sigma."""
    results = []
    for left_out in range(labels.max() + 1):
        known = labels != left_out
        y = labels[known] - (labels[known] > left_out)
        split = train_test_split(x[known], y, test_size=0.2, random_state=seed, stratify=y)
        fit_x, validation_x, fit_y, validation_y = train_test_split(
            split[0], split[2], test_size=0.1, random_state=seed, stratify=split[2]
        )
        mean, deviation = fit_x.mean(0), fit_x.std(0)
        scaled = lambda a: torch.tensor((a - mean) / np.where(deviation > 0, deviation, 1), dtype=torch.float32)
        score, bias, sigma = train(form, scaled(fit_x), torch.tensor(fit_y), labels.max(), seed)
        accuracy = lambda a, b: float((torch.argmax(bias - score(scaled(a)), 1).numpy() == b).mean())
        confidence = [-score(scaled(a)).min(1).values.numpy() for a in (split[1], x[~known])]
        truth = np.repeat([1, 0], [len(c) for c in confidence])
        auroc = roc_auc_score(truth, np.nan_to_num(np.concatenate(confidence)))
        numbers = [accuracy(validation_x, validation_y), accuracy(split[1], split[3]), auroc]
        results.append([100 * v for v in numbers] + [float(sigma.min()), float(sigma.max())])
    return np.mean(results, 0)


def show(path: Path) -> None:
    found: dict[tuple[str, str], dict[int, list[float]]] = {}
    for line in path.read_text().splitlines():
        name, form, seed, *numbers = line.split("\t")
        found.setdefault((name, form), {})[int(seed)] = [float(v) for v in numbers]
    print("| data | sigma | seeds | validation accuracy | accuracy | AUROC | difference | smallest, largest sigma |")
    print("|---|---|---|---|---|---|---|---|")
    for (name, form), runs in found.items():
        mean = np.mean(list(runs.values()), 0)
        first = found[name, "one"]
        paired = [run[2] - first[seed][2] for seed, run in runs.items() if seed in first]
        error = np.std(paired, ddof=1) / np.sqrt(len(paired)) if len(paired) > 1 else float("nan")
        difference = "" if form == "one" else f"{np.mean(paired):+.2f} ± {error:.2f}"
        print(f"| {name} | {form} | {len(runs)} | {mean[0]:.2f} | {mean[1]:.2f} | {mean[2]:.2f} | {difference} | "
              f"{mean[3]:.2f}, {mean[4]:.2f} |")


def main() -> None:
    torch.set_num_threads(1)
    path = Path(sys.argv[1])
    if len(sys.argv) > 2:
        name, kind, seeds, rows, files = sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6:]
        x, names = read(kind, files)
        _, labels = np.unique(names, return_inverse=True)
        if rows:
            random, fraction = np.random.default_rng(0), rows / len(x)
            of = lambda k: random.permutation(np.flatnonzero(labels == k))
            drawn = [of(k)[: max(50, round(fraction * (labels == k).sum()))] for k in range(labels.max() + 1)]
            kept = np.sort(np.concatenate(drawn))
            x, labels = x[kept], labels[kept]
        done = path.read_text() if path.exists() else ""
        for seed in range(seeds):
            for form in FORMS:
                key = f"{name}\t{form}\t{seed}\t"
                if key not in done:
                    numbers = measure(form, x, labels, seed)
                    with path.open("a") as out:
                        out.write(key + "\t".join(f"{v:.4f}" for v in numbers) + "\n")
    show(path)


if __name__ == "__main__":
    main()
