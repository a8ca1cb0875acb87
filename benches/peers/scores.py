#!/usr/bin/env python3
"""Other confidences from the networks of the default: what each would change in AUROC.

    python3 benches/peers/scores.py train FOLDER --data DIR --shared DIR [--tables NAME ...] [--seeds 5] [--classes 5] [--rows 3000]
                                    [--mcdd PROGRAM]
    python3 benches/peers/scores.py score FOLDER RESULTS.tsv
    python3 benches/peers/scores.py table RESULTS.tsv [--tables NAME ...] [--only SEED ...]

`train` trains the default on the folds of accuracy.py, with up to `--classes` classes of a table of numbers left out in turn, and keeps the
model and the rows of each scenario in FOLDER. `score` computes the networks from the model files with NumPy, and the AUROC of every score.
A score is fitted on the rows that a network was trained on, standardized on those that it left out, and averaged over the networks. Test rows
and left-out classes are only scored.
"""

from __future__ import annotations

import argparse
import json
import struct
import subprocess
from pathlib import Path

from accuracy import ASIDE, MCDD, TABLES, environment, read_part, scenarios

HIDDEN, COMPONENTS, RELATIVE, NORM, LEAST, AROUND = 0.7, 32, 0.3, 0.2, 0.5, 3


def train(args: argparse.Namespace) -> None:
    import numpy as np
    from sklearn.model_selection import StratifiedKFold

    for name in args.tables:
        X, y = read_part(name, args.data, args.shared, args.rows)
        for seed, left in scenarios(name, y, args.seeds, args.classes):
            place = args.folder / f"{name}-{seed}-{'+'.join(left)[:60]}"
            if not left or (place / "rows.npz").exists():
                continue
            place.mkdir(parents=True, exist_ok=True)
            rows, held = list(StratifiedKFold(5, shuffle=True, random_state=seed).split(X, y))[seed % 5]
            trained = rows[~np.isin(y[rows], left)]
            tested = np.concatenate([held[~np.isin(y[held], left)], np.flatnonzero(np.isin(y, left))])
            X.iloc[trained].assign(label=y[trained]).to_parquet(place / "train.parquet", index=False)
            command = [args.mcdd, "train", place / "train.parquet", "--label", "label", "-o", place / "m.mcdd"]
            # All rows as they are, in their order: that shows which rows a network left out.
            command += ["--detector", "knn:k=1:log=true:rows=50000", "--seed", str(seed), "--threads", "1", "--quiet"]
            subprocess.run(command, check=True)
            (place / "train.parquet").unlink()
            arrays = {"train": X.iloc[trained].to_numpy(float), "test": X.iloc[tested].to_numpy(float)}
            np.savez(place / "rows.npz", **arrays, y=y[trained].astype(str), known=~np.isin(y[tested], left))


class Scenario:
    """The networks of a model, and what they make of its training rows and of test rows."""

    def __init__(self, place: Path):
        import numpy as np

        data = (place / "m.mcdd").read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8 : 8 + size])
        meta = json.loads(header.pop("__metadata__")["mcdd"])
        kinds = {"F32": "<f4", "F64": "<f8", "U16": "<u2"}

        def tensor(name):
            about = header[name]
            start, end = (8 + size + at for at in about["data_offsets"])
            return np.frombuffer(data[start:end], kinds[about["dtype"]]).reshape(about["shape"])

        rows = np.load(place / "rows.npz", allow_pickle=True)
        columns = [(i, c) for i, c in enumerate(meta["schema"]["columns"]) if c["kind"] != "dropped"]
        both = np.concatenate([rows["train"], rows["test"]])
        self.x = np.stack([(both[:, i] - c["mean"]) / c["std"] for i, c in columns], 1).astype(np.float32)
        self.count, self.known, self.classes = len(rows["train"]), rows["known"], len(meta["classes"])
        self.y = np.array([meta["classes"].index(str(label)) for label in rows["y"]])
        ratio = (np.abs(self.x) / tensor("clip.limits")).max(axis=1)
        self.penalty = 3 * np.log(np.maximum(ratio, 1))[self.count :]
        self.h1, self.h2, self.z, self.distances, self.posterior, self.trained = [], [], [], [], [], []
        for m, member in enumerate(meta["members"]):
            graph = meta["binned"] if member.get("role", {}).get("binned") else meta["graph"]
            (h1, h2), z = forward(graph, lambda name, m=m: tensor(f"members.{m}.{name}"), self.x)
            mu, log_sigma = tensor(f"members.{m}.head.mu"), tensor(f"members.{m}.head.log_sigma").astype(float)
            distances = squares(z.astype(float), mu.astype(float)) / (2 * np.exp(2 * log_sigma)) + z.shape[1] * log_sigma
            logits = tensor(f"members.{m}.head.bias") - distances
            posterior = np.exp(logits - logits.max(axis=1, keepdims=True))
            self.posterior.append(posterior / posterior.sum(axis=1, keepdims=True))
            self.h1.append(h1), self.h2.append(h2), self.z.append(z.astype(float)), self.distances.append(distances)
            if f"members.{m}.detector.rows" in header:
                self.trained.append(among(z[: self.count], tensor(f"members.{m}.detector.rows")))
            else:
                self.trained.append(self.trained[member["fold"]])

    def queries(self, m: int):
        """The rows that are scored: those that the network left out, then the test rows."""
        import numpy as np

        return np.r_[np.flatnonzero(~self.trained[m]), np.arange(self.count, len(self.x))]

    def mean(self, scores, weights=None, combine=None):
        """Standardized scores of networks for the test rows, and their mean. `scores` has those of each network's queries."""
        import numpy as np

        left_out = [s[: (~t).sum()] for s, t in zip(scores, self.trained)]
        few = any(len(s) < 30 for s in left_out)
        pooled = np.sqrt(np.mean([s.var() for s in left_out]))
        sizes = [max(pooled if few else s.std(), 1e-9) for s in left_out]
        each = [(s[len(own) :] - own.mean()) / size for s, own, size in zip(scores, left_out, sizes)]
        return (combine(np.array(each)) if combine else np.average(each, axis=0, weights=weights)) - self.penalty


def forward(graph, tensor, x):
    import numpy as np

    values, hidden = [x], []
    for node in graph["nodes"]:
        a, name = values[node["from"][0]], node["name"]
        if node["op"] == "clip":
            a = np.clip(a, -node["limit"], node["limit"])
        elif node["op"] == "linear":
            a = a @ tensor(f"{name}.weight").T + (tensor(f"{name}.bias") if node["bias"] else 0)
        elif node["op"] == "batch-norm":
            a = (a - tensor(f"{name}.running_mean")) / np.sqrt(tensor(f"{name}.running_var") + 1e-5)
            a = tensor(f"{name}.weight") * a + tensor(f"{name}.bias")
        elif node["op"] == "relu":
            a = np.maximum(a, 0)
            hidden.append(a)
        elif node["op"] == "bins":
            feature, low, high = np.array(node["bins"]).T
            a = np.concatenate([a, np.clip((a[:, feature.astype(int)] - low) / (high - low), 0, 1)], 1)
        values.append(a.astype(np.float32))
    return hidden, values[-1]


def squares(a, b):
    import numpy as np

    return np.maximum((a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T, 0)


def among(rows, stored):
    """Which of the rows are those that were stored, in the same order."""
    import numpy as np

    found, at = np.zeros(len(rows), bool), 0
    for i, row in enumerate(rows):
        if at < len(stored) and np.abs(row - stored[at]).max() < 1e-3 * np.abs(stored).max():
            found[i], at = True, at + 1
    assert at == len(stored)
    return found


class Near:
    """The nearest training rows of each network's queries by some features, as logarithms of distances, and what is around these."""

    def __init__(self, s: Scenario, features, members=range(5), most=1, around=True):
        import numpy as np

        self.log, self.around, self.of_class, self.label = [], [], [], []
        for m in members:
            f = features(m).astype(np.float32)
            fit, rows = f[: s.count][s.trained[m]], s.queries(m)
            some = slice(None) if around else slice(None, None, len(fit) // 300 + 1)
            own = squares(fit[some], fit)
            own[np.arange(len(own)), np.arange(len(fit))[some]] = np.inf
            own = np.sqrt(np.sort(np.partition(own, AROUND, axis=1)[:, :AROUND], axis=1))
            least = 0.1 * np.median(own[own[:, 0] > 0, 0]) if (own[:, 0] > 0).any() else 1e-6
            far = squares(f[rows], fit)
            if most == 1:
                nearest = far.argmin(axis=1)[:, None]
            else:
                nearest = np.argpartition(far, most, axis=1)[:, :most]
                order = np.argsort(np.take_along_axis(far, nearest, 1), axis=1, kind="stable")
                nearest = np.take_along_axis(nearest, order, 1)
            exact = np.square(f[rows][:, None].astype(float) - fit[nearest]).sum(axis=2)
            self.log.append(np.log(np.maximum(np.sqrt(exact), least)))
            if not around:
                continue
            size, y = np.log(np.maximum(own.mean(axis=1), least)), s.y[s.trained[m]]
            mean = np.array([size[y == c].mean() if (y == c).any() else 0 for c in range(s.classes)])
            self.around.append(size[nearest[:, 0]])
            self.of_class.append(mean[y[nearest[:, 0]]])
            self.label.append(y[nearest[:, 0]])

    def score(self, relative=0.0, by_class=0.0, least=0.0, k=1):
        import numpy as np

        if not self.around:
            return [-d[:, 0] for d in self.log]
        bound = np.log(least) if least else -np.inf
        each = zip(self.log, self.around, self.of_class)
        return [-np.maximum(d[:, k - 1], bound + a) + relative * a + by_class * c for d, a, c in each]


def last_two(s: Scenario, m: int, components: int = COMPONENTS):
    import numpy as np

    parts = []
    for part, weight in ((s.h2[m], HIDDEN), (s.z[m], 1.0)):
        fit = part[: s.count][s.trained[m]]
        parts.append(weight * part / np.sqrt(np.square(fit - fit.mean(axis=0)).sum(axis=1).mean()))
    both = np.concatenate(parts, axis=1)
    fit = both[: s.count][s.trained[m]]
    vectors = np.linalg.eigh((fit - fit.mean(axis=0)).T @ (fit - fit.mean(axis=0)))[1][:, ::-1]
    return (both - fit.mean(axis=0)) @ vectors[:, :components]


def variants(s: Scenario) -> dict:
    import numpy as np

    five, seven, test = range(5), range(7), slice(s.count, None)
    z, reduced = Near(s, lambda m: s.z[m], seven, most=5), [last_two(s, m) for m in five]
    near = Near(s, lambda m: reduced[m])
    base = z.score()

    def plus(scores, others, weight=1.0):
        return [a + weight * b for a, b in zip(scores, others)]

    def standard(scores):
        return [(v - v[: (~t).sum()].mean()) / max(v[: (~t).sum()].std(), 1e-9) for v, t in zip(scores, s.trained)]

    def norms(features):
        return [np.log(np.linalg.norm(features(m)[s.queries(m)], axis=1) + 1e-9) for m in five]

    centered = norms(lambda m: s.z[m] - s.z[m][: s.count][s.trained[m]].mean(axis=0))
    reduced_norms = norms(lambda m: reduced[m])
    out = {"former": s.mean(base[:5])}
    out["seven networks"] = s.mean(base)
    out["two for the class with weight 0.5"] = s.mean(base, weights=[1] * 5 + [0.5] * 2)
    out["median of networks"] = s.mean(base[:5], combine=lambda e: np.median(e, axis=0))
    out["least confident network"] = s.mean(base[:5], combine=lambda e: e.min(axis=0))
    out["2nd neighbor"] = s.mean(z.score(k=2)[:5])
    out["5th neighbor"] = s.mean(z.score(k=5)[:5])
    out["mean of three neighbors"] = s.mean([-d[:, :3].mean(axis=1) for d in z.log[:5]])
    for name, features in {
        "inputs": lambda m: np.clip(s.x, -5, 5),
        "first hidden layer": lambda m: s.h1[m],
        "last hidden layer": lambda m: s.h2[m],
        "normalized latents": lambda m: s.z[m] / (np.linalg.norm(s.z[m], axis=1, keepdims=True) + 1e-9),
    }.items():
        other = standard(Near(s, features, around=False).score())
        for weight in (0.1, 0.25, 0.5):
            out[f"and {weight} {name}"] = s.mean(plus(standard(base[:5]), other, weight))
    far = [s.distances[m].min(axis=1)[s.queries(m)] - s.distances[m].min() for m in five]
    distance = [-np.log(np.maximum(d + 1e-3, 1e-3)) for d in far]
    out["and 0.1 distance to the nearest class"] = s.mean(plus(standard(base[:5]), standard(distance), 0.1))
    p = np.average([s.posterior[m][test] for m in seven], axis=0, weights=[1] * 5 + [2] * 2)
    entropy = -(p * np.log(np.maximum(p, 1e-12))).sum(axis=1)
    own = [-(s.posterior[m][test] * np.log(np.maximum(s.posterior[m][test], 1e-12))).sum(axis=1) for m in seven]
    out["less entropy of the posterior"] = out["former"] - entropy
    out["less mutual information"] = out["former"] - (entropy - np.average(own, axis=0, weights=[1] * 5 + [2] * 2))
    other_class = np.mean([z.label[m][-len(s.known) :] != p.argmax(axis=1) for m in five], axis=0)
    out["less 0.5 neighbors of another class"] = out["former"] - 0.5 * other_class
    out["relative"] = s.mean(z.score(RELATIVE, RELATIVE, LEAST)[:5])
    out["norm"] = s.mean(plus(base[:5], centered, NORM))
    out["relative and norm"] = s.mean(plus(z.score(RELATIVE, RELATIVE, LEAST)[:5], centered, NORM))
    out["last two layers"] = s.mean(near.score())
    out["last two layers, relative"] = s.mean(near.score(RELATIVE, RELATIVE, LEAST))
    chosen = s.mean(plus(near.score(RELATIVE, RELATIVE, LEAST), reduced_norms, NORM))
    out["last two layers, relative and norm"] = chosen
    out["the same, no lower bound of distances"] = s.mean(plus(near.score(RELATIVE, RELATIVE), reduced_norms, NORM))
    out["the same, no mean over the class"] = s.mean(plus(near.score(RELATIVE, 0, LEAST), reduced_norms, NORM))
    everything = Near(s, lambda m: last_two(s, m, 1000))
    out["the same, all components"] = s.mean(plus(everything.score(RELATIVE, RELATIVE, LEAST), reduced_norms, NORM))
    wider = [last_two(s, m, 2 * COMPONENTS) for m in five]
    wide = Near(s, lambda m: wider[m]).score(RELATIVE, RELATIVE, LEAST)
    out["the same, 64 components"] = s.mean(plus(wide, norms(lambda m: wider[m]), NORM))
    return out


def score(args: argparse.Namespace) -> None:
    from sklearn.metrics import roc_auc_score

    done = {line.split("\t")[0] for line in args.results.read_text().splitlines()} if args.results.exists() else set()
    with args.results.open("a") as out:
        for rows in sorted(args.folder.glob("*/rows.npz")):
            if rows.parent.name not in done:
                s = Scenario(rows.parent)
                found = {name: round(100 * roc_auc_score(s.known, c), 3) for name, c in variants(s).items()}
                print(rows.parent.name, json.dumps(found), sep="\t", file=out, flush=True)


def table(args: argparse.Namespace) -> None:
    import numpy as np

    cells = {}
    for line in args.results.read_text().splitlines():
        scenario, found = line.split("\t")
        name, seed, _ = scenario.split("-", 2)
        if name in args.tables and int(seed) in (args.only or [int(seed)]):
            cells.setdefault(name, []).append(list((found := json.loads(found)).values()))
    differences = {name: np.array(rows) - np.array(rows)[:, :1] for name, rows in cells.items()}
    print(f"| score | {' | '.join(cells)} | mean | worst |\n|---|{'---:|' * (len(cells) + 2)}")
    print(f"| former | {' | '.join(f'{np.mean(rows, axis=0)[0]:.2f}' for rows in cells.values())} | | |")
    for i, score in enumerate(found):
        each = [d[:, i] for d in differences.values()]
        means = [d.mean() for d in each]
        error = np.sqrt(sum(d.var(ddof=1) / len(d) for d in each)) / len(each)
        if i:
            row = " | ".join(f"{v:+.2f}" for v in means)
            print(f"| {score} | {row} | {np.mean(means):+.2f} ± {error:.2f} | {min(means):+.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    parts = {name: commands.add_parser(name) for name in ("train", "score", "table")}
    for name in ("train", "score"):
        parts[name].add_argument("folder", type=Path)
    for name in ("score", "table"):
        parts[name].add_argument("results", type=Path)
    for name in ("train", "table"):
        parts[name].add_argument("--tables", nargs="+", default=[t for t in TABLES if t not in ASIDE], choices=TABLES)
    parts["train"].add_argument("--data", type=Path)
    parts["train"].add_argument("--shared", type=Path)
    parts["train"].add_argument("--seeds", type=int, default=5)
    parts["train"].add_argument("--rows", type=int, default=3000)
    parts["train"].add_argument("--classes", type=int, default=5)
    parts["train"].add_argument("--mcdd", type=Path, default=MCDD)
    parts["table"].add_argument("--only", nargs="+", type=int, metavar="SEED")
    args = parser.parse_args()
    environment()
    {"train": train, "score": score, "table": table}[args.what](args)


if __name__ == "__main__":
    main()
