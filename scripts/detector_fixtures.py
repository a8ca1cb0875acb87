#!/usr/bin/env python3
"""Writes crates/mcdd/tests/fixtures/detectors.json: reference scores of other libraries on fixed features.

    python3 scripts/detector_fixtures.py [--venv FOLDER] [--out FILE]

Creates a virtual environment with the pinned scikit-learn, pytorch-ood and PyOD in FOLDER (a temporary folder if not
given), runs itself there and writes the file. On Linux pip installs torch with CUDA, which is several GB and not needed
here. To install the CPU build first:

    python3 -m venv FOLDER
    FOLDER/bin/pip install torch==2.15.0 torchvision==0.29.2 --index-url https://download.pytorch.org/whl/cpu
    python3 scripts/detector_fixtures.py --venv FOLDER

Every input is a binary fraction: 32-bit floats, 64-bit floats and the text represent the same number. The logits are
exact too. An expected value is a confidence, higher for more in-distribution rows, with ten digits.

How values are compared in crates/mcdd/tests/detector_oracles.rs:

    value     the same number
    affine    the same number up to a positive factor and a constant, which the definition does not fix
    spearman  a rank correlation of at least "least", for random scores or if only the order is defined

An entry may have "parts", the widths of the layers that the features come from, and "columns", if it uses only some of
the features. Errors are relative to the value, or to scale() below if the value is smaller.

The scores of a peer are also compared with the definition, written here in NumPy. They are never adjusted to match mcdd.
If they are rescaled, "why" states how.
"""

import json
import warnings
from pathlib import Path

import inside

PINNED = [
    "numpy==2.4.6",
    "scipy==1.17.1",
    "scikit-learn==1.9.1",
    "torch==2.15.0",
    "torchvision==0.29.2",
    "pytorch-ood==0.4.0",
    "pyod==3.6.7",
]
OUT = Path(__file__).resolve().parent.parent / "crates/mcdd/tests/fixtures/detectors.json"
TRAIN_SIZES = (90, 70, 50, 30)
CLASSES = len(TRAIN_SIZES)
WIDTH = 8


class Data:
    """Four correlated Gaussian classes of unequal size and shape behind a ReLU, a linear layer that misclassifies some
    rows, and out-of-distribution rows."""

    def __init__(self):
        import numpy as np

        rng = np.random.default_rng(20180712)
        means = 1.3 * np.array([
            [5, 1, 2, 4, 1, 2, 6, 1],
            [1, 5, 2, 1, 4, 2, 1, 6],
            [4, 4, 6, 1, 1, 1, 2, 1.5],
            [1, 1, 1, 5, 5, 6, 2, 3],
        ])
        shapes = [s * (0.7 * np.eye(WIDTH) + 0.4 * rng.normal(size=(WIDTH, WIDTH))) for s in (1.0, 0.8, 0.6, 1.2)]

        def grid(values, steps):
            return np.round(np.asarray(values) * steps) / steps

        def relu(values):
            return grid(np.maximum(values, 0), 256)

        def blob(k, n):
            return means[k] + rng.normal(size=(n, WIDTH)) @ shapes[k].T

        def blobs(sizes):
            return np.concatenate([blob(k, n) for k, n in enumerate(sizes)])

        order = rng.permutation(sum(TRAIN_SIZES))
        self.labels = np.repeat(np.arange(CLASSES), TRAIN_SIZES)[order]
        self.train = relu(blobs(TRAIN_SIZES)[order])

        self.weight = grid(0.07 * (means - means.mean(axis=0)) + 0.11 * rng.normal(size=means.shape), 64)
        self.bias = np.array([1.5, 1.0, 0.5, 1.0])
        self.train_logits = self.train @ self.weight.T + self.bias

        pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (0, 1), (1, 2)]
        self.test = relu(np.concatenate([
            blobs((9, 8, 7, 6)),  # in-distribution
            blobs((2, 2, 2, 2)) + 3 * rng.choice([-1, 1], size=(8, WIDTH)),  # shifted
            rng.uniform(0, 20, size=(6, WIDTH)),  # far
            np.array([(means[a] + means[b]) / 2 for a, b in pairs]) + 0.3 * rng.normal(size=(8, WIDTH)),  # between
            0.5 * rng.normal(size=(4, WIDTH)),  # near zero
            1.7 * blob(2, 3),  # scaled up
            self.train[:1],  # training rows
        ]))
        self.test_logits = self.test @ self.weight.T + self.bias
        self.check()

    def check(self):
        """Checks that the data contain the cases that the comparisons need, and none that would make them meaningless."""
        import numpy as np

        predicted = self.train_logits.argmax(axis=1)
        assert set(predicted) == set(range(CLASSES)) and 0.9 < (predicted == self.labels).mean() < 0.99
        # pytorch-ood clips probabilities at 1e-7. The formulas do not.
        assert softmax(self.test_logits).min() > 2e-7
        for a in (self.train, self.test, self.weight, self.train_logits, self.test_logits):
            assert (a.astype(np.float32) == a).all()
        # With neighbors at the same distance LOF is not unique.
        for rows, skip in [(self.train, 1), (self.test, 0)]:
            distances = np.sort(((rows[:, None] - self.train[None]) ** 2).sum(axis=2), axis=1)
            for k in (5, 20):
                assert (distances[:, skip + k - 1] < distances[:, skip + k]).all()


# The definitions.


def softmax(logits):
    import numpy as np

    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def log_sum_exp(logits):
    import numpy as np

    top = logits.max(axis=1)
    return top + np.log(np.exp(logits - top[:, None]).sum(axis=1))


def log_odds(p):
    import numpy as np

    return np.log(p) - np.log1p(-p)


def unit(rows):
    import numpy as np

    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def class_moments(train, labels):
    """Means, covariances (divided by the rows of the class) and sizes of the classes."""
    import numpy as np

    of = [train[labels == k] for k in range(CLASSES)]
    means, covariances = [x.mean(axis=0) for x in of], [np.cov(x.T, bias=True) for x in of]
    return np.array(means), np.array(covariances), np.bincount(labels)


def squared_mahalanobis(rows, mean, covariance):
    import numpy as np

    centerd = rows - mean
    return np.einsum("ij,ij->i", centerd, np.linalg.solve(covariance, centerd.T).T)


def tied_covariance(train, labels):
    """The scatter within classes, divided by the number of rows."""
    import numpy as np

    _, covariances, sizes = class_moments(train, labels)
    return np.einsum("k,kij->ij", sizes / sizes.sum(), covariances)


def nearest_class(train, labels, rows):
    """The smallest squared Mahalanobis distance under the tied covariance."""
    import numpy as np

    means, tied = class_moments(train, labels)[0], tied_covariance(train, labels)
    return np.min([squared_mahalanobis(rows, m, tied) for m in means], axis=0)


def best_density(rows, means, covariances):
    """The largest Gaussian log-density over classes, without the constant."""
    import numpy as np

    return np.max(
        [-0.5 * (squared_mahalanobis(rows, m, c) + np.linalg.slogdet(c)[1]) for m, c in zip(means, covariances)], axis=0
    )


def ledoit_wolf(x):
    """The covariance shrunk towards a multiple of the identity, as in the paper of 2004 (Lemma 3.2 onwards)."""
    import numpy as np

    n, d = x.shape
    x = x - x.mean(axis=0)
    s = x.T @ x / n
    mu = np.trace(s) / d
    spread = ((s - mu * np.eye(d)) ** 2).sum() / d
    noise = sum(((np.outer(r, r) - s) ** 2).sum() for r in x) / n**2 / d
    share = min(noise, spread) / spread
    return (1 - share) * s + share * mu * np.eye(d)


def kth_distance(train, rows, k):
    import numpy as np

    return np.sort(np.sqrt(((rows[:, None] - train[None]) ** 2).sum(axis=2)), axis=1)[:, k - 1]


def local_outlier_factor(train, rows, k):
    """Breunig et al. 2000, for new rows."""
    import numpy as np

    def neighbors(rows, skip):
        distances = np.sqrt(((rows[:, None] - train[None]) ** 2).sum(axis=2))
        order = np.argsort(distances, axis=1)[:, skip : skip + k]
        return order, np.take_along_axis(distances, order, axis=1)

    def density(order, distances):
        return 1 / np.maximum(distances, k_distance[order]).mean(axis=1)

    own = neighbors(train, 1)
    k_distance = own[1][:, -1]
    own_density = density(*own)
    order, distances = neighbors(rows, 0)
    return own_density[order].mean(axis=1) / density(order, distances)


def mixture(train, labels, rows, kind, ridge):
    """Expectation-maximization, started from the labels, until convergence; returns the log-density."""
    import numpy as np

    share, identity = np.eye(CLASSES)[labels], np.eye(train.shape[1])
    before = -np.inf
    for _ in range(10_000):
        weight = share.sum(axis=0)
        means = share.T @ train / weight[:, None]
        covariances = np.array([
            (share[:, k, None] * (train - means[k])).T @ (train - means[k]) / weight[k] for k in range(CLASSES)
        ])
        if kind == "tied":
            covariances[:] = np.einsum("k,kij->ij", weight / len(train), covariances)
        if kind == "diagonal":
            covariances *= identity
        covariances = covariances + ridge * identity

        def joint(rows):
            return np.array([
                np.log(weight[k] / len(train))
                - 0.5 * (squared_mahalanobis(rows, means[k], covariances[k]) + np.linalg.slogdet(covariances[k])[1])
                - 0.5 * train.shape[1] * np.log(2 * np.pi)
                for k in range(CLASSES)
            ]).T

        terms = joint(train)
        now = log_sum_exp(terms).mean()
        share = softmax(terms)
        if abs(now - before) < 1e-13:
            return log_sum_exp(joint(rows))
        before = now
    raise AssertionError("the mixture does not converge")


def one_class(train, rows, nu, gamma):
    """Decision values of the one-class SVM (Schoelkopf et al. 2001) by its dual, with weights that add up to 1."""
    import numpy as np
    from scipy.optimize import minimize

    def kernel(a, b):
        return np.exp(-gamma * ((a[:, None] - b[None]) ** 2).sum(axis=2))

    n, k = len(train), kernel(train, train)
    bound = 1 / (nu * n)
    found = minimize(
        lambda a: 0.5 * a @ k @ a * n,
        np.full(n, 1 / n),
        jac=lambda a: k @ a * n,
        bounds=[(0, bound)] * n,
        constraints={"type": "eq", "fun": lambda a: a.sum() - 1, "jac": lambda a: np.ones(n)},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    # On the margin the decision value is 0. Solve this and the sum exactly, with the other weights at their bounds.
    a = found.x
    free = (a > 1e-6 * bound) & (a < (1 - 1e-6) * bound)
    top = a >= (1 - 1e-6) * bound
    m = free.sum()
    system = np.block([[k[np.ix_(free, free)], -np.ones((m, 1))], [np.ones((1, m)), np.zeros((1, 1))]])
    right = np.r_[-bound * k[np.ix_(free, top)].sum(axis=1), 1 - bound * top.sum()]
    solved = np.linalg.solve(system, right)
    a = np.where(top, bound, 0.0)
    a[free], rho = solved[:-1], solved[-1]
    f = k @ a - rho
    assert (a >= 0).all() and (a <= bound).all() and f[top].max() < 1e-9 and f[~free & ~top].min() > -1e-9
    return kernel(rows, train) @ a - rho


# The peers.


class Entries:
    """The expected values. Each is checked against the definition when it is added."""

    def __init__(self):
        self.list = []

    def add(self, spec, peer, confidence, why, definition=None, agree="value", tolerance=1e-4, **more):
        """`definition` is the value of the formula on the same scale; `None` if the confidence is computed by it."""
        import numpy as np

        confidence = np.asarray(confidence, np.float64)
        assert confidence.shape == (60,) and np.isfinite(confidence).all(), spec
        if definition is not None:
            error = errors(confidence, definition).max()
            print(f"{spec} | {peer} | {agree} | {error:.1e} from the definition")
            assert error < 0.25 * tolerance, spec
        else:
            print(f"{spec} | {peer} | {agree}")
        entry = {"spec": spec, "peer": peer, "agree": agree}
        if agree != "spearman":
            entry["tolerance"] = tolerance
        entry |= more
        entry["why"] = why
        entry["confidence"] = [float(f"{c:.10g}") for c in confidence]
        self.list.append(entry)


def scale(expected):
    """The lower bound of the value that an error is relative to: a tenth of the median absolute deviation. Outliers do not
    change it, and errors of confidences near 0 stay reasonable."""
    import numpy as np

    return 0.1 * np.median(np.abs(expected - np.median(expected)))


def errors(found, expected):
    """Relative errors, as in the test."""
    import numpy as np

    return np.abs(found - expected) / np.maximum(np.abs(expected), scale(expected))


def on_logits(entries, data):
    import numpy as np
    import pytorch_ood
    import torch
    from pytorch_ood import detector as ood

    peer = f"pytorch-ood {pytorch_ood.__version__} "
    logits = torch.tensor(data.test_logits)
    # 64 bits on both sides.
    fine = dict(tolerance=1e-8)
    train_logits = torch.tensor(data.train_logits)
    p = softmax(data.test_logits)

    found = -ood.MaxSoftmax(None).predict_logits(logits).numpy()
    why = "log p - log(1 - p) of the peer's largest probability p"
    entries.add("msp", peer + "MaxSoftmax", log_odds(found), why, log_odds(p.max(axis=1)), **fine)

    found = -ood.MaxLogit(None).predict_logits(logits).numpy()
    entries.add("max-logit", peer + "MaxLogit", found, "the largest logit", data.test_logits.max(axis=1), **fine)

    for t, spec in [(1.0, "energy:temperature=1"), (2.5, "energy:temperature=2.5")]:
        found = -ood.EnergyBased(None, t=t).predict_logits(logits).numpy()
        definition = t * log_sum_exp(data.test_logits / t)
        entries.add(spec, peer + "EnergyBased", found, "T log sum exp(l / T)", definition, **fine)

    found = -ood.Entropy(None).predict_logits(logits).numpy()
    entries.add("entropy", peer + "Entropy", found, "minus the entropy in nats", (p * np.log(p)).sum(axis=1), **fine)

    for gamma, top in [(0.1, 100), (0.5, 2)]:
        used = min(top, CLASSES)
        found = -used * ood.GEN(None, gamma=gamma, M=top).predict_logits(logits).numpy()
        largest = np.sort(p, axis=1)[:, ::-1][:, :used]
        definition = -(largest**gamma * (1 - largest) ** gamma).sum(axis=1)
        why = f"minus the sum of p^g (1 - p)^g as in the paper; the peer takes the mean, so times {used}"
        entries.add(f"gen:gamma={gamma}:top={top}", peer + "GEN", found, why, definition, **fine)

    found = -ood.KLMatching(None).fit_logits(train_logits).predict_logits(logits).numpy()
    p_train = softmax(data.train_logits)
    typical = [p_train[p_train.argmax(axis=1) == k].mean(axis=0) for k in range(CLASSES)]
    definition = -np.min([(p * np.log(p / d)).sum(axis=1) for d in typical], axis=0)
    why = "minus the smallest divergence from x's posterior to the mean posterior of the rows predicted as a class"
    entries.add("kl-matching", peer + "KLMatching", found, why, definition, **fine)

    layer = linear(data)
    for t in (1000, 5):
        found = -ood.ODIN(layer, eps=0.0, temperature=float(t)).predict(torch.tensor(data.test)).numpy()
        why = "log p - log(1 - p) of the peer's largest probability p at the temperature, the input not moved"
        definition = log_odds(softmax(data.test_logits / t).max(axis=1))
        entries.add(f"odin:temperature={t}:epsilon=0", peer + "ODIN", log_odds(found), why, definition, **fine)


def linear(data, kind="float64"):
    """The last layer as a module."""
    import torch

    dtype = getattr(torch, kind)
    layer = torch.nn.Linear(WIDTH, CLASSES, dtype=dtype)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(data.weight, dtype=dtype))
        layer.bias.copy_(torch.tensor(data.bias, dtype=dtype))
    return layer


def on_classes(entries, data):
    """Gaussians of the classes."""
    import numpy as np
    import pytorch_ood
    import sklearn
    import torch
    from pytorch_ood import detector as ood
    from scipy.stats import multivariate_normal
    from sklearn.covariance import EmpiricalCovariance, LedoitWolf
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import NearestCentroid

    peer, learn = f"pytorch-ood {pytorch_ood.__version__} ", f"scikit-learn {sklearn.__version__} "
    n, labels = len(data.train), torch.tensor(data.labels)
    uniform = np.full(CLASSES, 1 / CLASSES)
    constant = 0.5 * WIDTH * np.log(2 * np.pi)

    def tensors(normalized):
        rows = (unit(data.train), unit(data.test)) if normalized else (data.train, data.test)
        return *rows, *map(torch.tensor, rows)

    scaled = f"the peer's half distance under the scatter that is not divided by N: times -2 N, N = {n}"
    for normalized, spec in [(False, "mahalanobis"), (True, "mahalanobis++")]:
        train, test, train_t, test_t = tensors(normalized)
        # Its ridge of 1e-6 on the scatter is negligible.
        found = -2 * n * ood.Mahalanobis(None).fit_features(train_t, labels).predict_features(test_t).numpy()
        definition = -nearest_class(train, data.labels, test)
        why = scaled + ("; features of unit length" if normalized else "")
        entries.add(spec, peer + "Mahalanobis", found, why, definition)

        means = NearestCentroid().fit(train, data.labels).centroids_
        shared = EmpiricalCovariance(assume_centered=True).fit(train - means[data.labels])
        found = -np.min([shared.mahalanobis(test - m) for m in means], axis=0)
        why = "minus the smallest squared distance to a class mean under the shared covariance, divided by N"
        entries.add(spec, learn + "EmpiricalCovariance", found, why, definition)

    train, test, train_t, test_t = tensors(False)
    found = -n * ood.RMD(None).fit_features(train_t, labels).predict_features(test_t).numpy()
    background = squared_mahalanobis(test, train.mean(axis=0), np.cov(train.T, bias=True))
    definition = background - nearest_class(train, data.labels, test)
    why = f"the peer's scatters are not divided by N: times -N, N = {n}"
    entries.add("rmd", peer + "RMD", found, why, definition)
    found = -ood.Mahalanobis(None).fit_features(train_t, labels).predict_features(test_t).numpy()
    why = "one layer: nothing but the order of the distance is left to agree on"
    more = dict(agree="spearman", least=0.99999, parts=[WIDTH])
    entries.add("mahalanobis-ensemble", peer + "Mahalanobis", found, why, **more)
    # The paper fits the weights of the layers on out-of-distribution rows. mcdd weights all layers equally, which no peer
    # does. The peer's distances are combined here by the formula of mcdd.
    split = 3
    layers = []
    for columns in (slice(0, split), slice(split, None)):
        mahalanobis = ood.Mahalanobis(None).fit_features(train_t[:, columns], labels)
        own, new = (-np.log1p(2 * n * mahalanobis.predict_features(x[:, columns]).numpy()) for x in (train_t, test_t))
        layers.append((new - own.mean()) / own.std())
    why = (
        "two layers: mean over layers of -log(1 + d), standardized on the training rows; d is the peer's distance "
        "times 2 N, the rest is mcdd's own rule; the factor is open as a deviation may be divided by N or N - 1"
    )
    more = dict(agree="affine", parts=[split, WIDTH - split])
    entries.add("mahalanobis-ensemble", peer + "Mahalanobis, put together here", np.mean(layers, axis=0), why, **more)

    means, covariances, _ = class_moments(train, data.labels)
    tied = tied_covariance(train, data.labels)
    lda = LinearDiscriminantAnalysis(solver="lsqr", store_covariance=True).fit(train, data.labels)
    found = np.max([multivariate_normal(m, lda.covariance_).logpdf(test) for m in lda.means_], axis=0) + constant
    why = "largest log-density over classes with the moments of LDA, by SciPy, without -d/2 log 2 pi; no priors"
    definition = best_density(test, means, [tied] * CLASSES)
    entries.add("gda:covariance=tied:shrinkage=0", learn + "LinearDiscriminantAnalysis", found, why, definition)

    shrunk = LedoitWolf(assume_centered=True).fit(train - lda.means_[data.labels]).covariance_
    found = np.max([multivariate_normal(m, shrunk).logpdf(test) for m in lda.means_], axis=0) + constant
    why = "the same with the shared covariance by Ledoit and Wolf, from the rows less the means of their classes"
    definition = best_density(test, means, [ledoit_wolf(train - means[data.labels])] * CLASSES)
    entries.add("gda:covariance=tied:shrinkage=auto", learn + "LedoitWolf", found, why, definition)

    bayes = GaussianNB(priors=uniform, var_smoothing=0.0).fit(train, data.labels)
    found = bayes.predict_joint_log_proba(test).max(axis=1) + np.log(CLASSES) + constant
    why = "largest joint log-probability over classes, without the equal priors and -d/2 log 2 pi"
    definition = best_density(test, means, covariances * np.eye(WIDTH))
    entries.add("gda:covariance=diagonal:shrinkage=0", learn + "GaussianNB", found, why, definition)

    qda = QuadraticDiscriminantAnalysis(priors=uniform).fit(train, data.labels)
    found = qda.decision_function(test).max(axis=1) + np.log(CLASSES)
    why = "largest quadratic discriminant over classes, without the equal priors; covariances divided by the class size"
    definition = best_density(test, means, covariances)
    peer_qda = learn + "QuadraticDiscriminantAnalysis"
    entries.add("gda:covariance=full:shrinkage=0", peer_qda, found, why, definition)

    # Its own shrinkage="auto" standardizes the features first, which is another estimate.
    qda = QuadraticDiscriminantAnalysis(solver="eigen", priors=uniform, covariance_estimator=LedoitWolf())
    found = qda.fit(train, data.labels).decision_function(test).max(axis=1) + np.log(CLASSES)
    why = "the same with each class's covariance by Ledoit and Wolf, on the features as they are"
    definition = best_density(test, means, [ledoit_wolf(train[data.labels == k]) for k in range(CLASSES)])
    entries.add("gda:covariance=full:shrinkage=auto", peer_qda + ", LedoitWolf", found, why, definition)


def on_last_layer(entries, data):
    """Features together with the last layer."""
    import numpy as np
    import pytorch_ood
    import torch
    from pytorch_ood import detector as ood

    peer = f"pytorch-ood {pytorch_ood.__version__} "
    train, test, labels = torch.tensor(data.train), torch.tensor(data.test), torch.tensor(data.labels)
    single = torch.float32
    energy, train_energy = log_sum_exp(data.test_logits), log_sum_exp(data.train_logits)

    # The peer computes these three in 32 bits.
    vim = ood.ViM(None, d=4, w=torch.tensor(data.weight), b=torch.tensor(data.bias))
    found = -vim.fit_features(train, labels).predict_features(test).numpy()
    origin = -np.linalg.pinv(data.weight) @ data.bias
    centerd = data.train - origin
    vectors = np.linalg.svd(centerd, full_matrices=False)[2][4:]
    virtual, train_virtual = (np.linalg.norm((x - origin) @ vectors.T, axis=1) for x in (data.test, data.train))
    alpha = data.train_logits.max(axis=1).mean() / train_virtual.mean()
    why = "energy less alpha times the part outside the 4 main directions about -W^+ b; 32 bits"
    entries.add("vim:dim=4", peer + "ViM", found, why, energy - alpha * virtual)

    fdbd = ood.fDBD(None, linear(data, "float32")).fit_features(train.to(single))
    found = -fdbd.predict_features(test.to(single)).numpy()
    definition = []
    for x, l in zip(data.test, data.test_logits):
        top = l.argmax()
        others = [c for c in range(CLASSES) if c != top]
        to_boundary = [(l[top] - l[c]) / np.linalg.norm(data.weight[top] - data.weight[c]) for c in others]
        definition.append(np.mean(to_boundary) / np.linalg.norm(x - data.train.mean(axis=0)))
    why = "mean distance to the other classes' decision boundaries, over the distance to the training mean; 32 bits"
    entries.add("fdbd", peer + "fDBD", found, why, np.array(definition))

    guide = ood.NNGuide(None, linear(data, "float32"), k=10).fit_features(train.to(single), labels)
    found = -guide.predict_features(test.to(single)).numpy()
    similar = np.sort(unit(data.test) @ (unit(data.train) * train_energy[:, None]).T, axis=1)[:, -10:]
    why = "energy times the mean of the 10 largest products with the training rows, weighed by their energy; 32 bits"
    entries.add("nnguide:k=10", peer + "NNGuide", found, why, similar.mean(axis=1) * energy)

    for percentile in (0.9, 0.75):
        react = ood.ReAct(None, linear(data), percentile=percentile).fit_feature_maps(train, labels)
        found = -react.predict_feature_maps(test).numpy()
        limit = np.quantile(data.train, percentile)
        definition = log_sum_exp(np.minimum(data.test, limit) @ data.weight.T + data.bias)
        why = "energy of the features cut off at the quantile (between two values linearly) of all training activations"
        entries.add(f"react:percentile={percentile}", peer + "ReAct", found, why, definition, tolerance=1e-5)

    with torch.no_grad():
        found = -ood.SHE(None, linear(data)).fit_features(train, labels).predict_features(test).numpy()
    right = data.train_logits.argmax(axis=1) == data.labels
    patterns = np.array([data.train[right & (data.labels == k)].mean(axis=0) for k in range(CLASSES)])
    why = "product with the mean of the rightly classified training rows of the predicted class"
    definition = (data.test * patterns[data.test_logits.argmax(axis=1)]).sum(axis=1)
    entries.add("she", peer + "SHE", found, why, definition)


def on_features(entries, data):
    """Detectors that use features only."""
    import numpy as np
    import pyod
    import pytorch_ood
    import sklearn
    import torch
    from pyod.models.gmm import GMM
    from pyod.models.knn import KNN
    from pyod.models.lof import LOF
    from pyod.models.ocsvm import OCSVM
    from pytorch_ood import detector as ood
    from sklearn.mixture import GaussianMixture
    from sklearn.neighbors import LocalOutlierFactor, NearestNeighbors
    from sklearn.svm import OneClassSVM

    learn, py = f"scikit-learn {sklearn.__version__} ", f"PyOD {pyod.__version__} "
    labels = torch.tensor(data.labels)

    for normalize, spec in [(False, "knn:k=5:normalize=no"), (True, "knn:k=5:normalize=yes")]:
        train, test = (unit(data.train), unit(data.test)) if normalize else (data.train, data.test)
        definition = -kth_distance(train, test, 5)
        why = "minus the distance to the 5th neighbor" + (", features of unit length" if normalize else "")
        found = -NearestNeighbors(n_neighbors=5).fit(train).kneighbors(test)[0][:, -1]
        entries.add(spec, learn + "NearestNeighbors", found, why, definition)
        found = -KNN(n_neighbors=5, method="largest").fit(train).decision_function(test)
        entries.add(spec, py + "KNN", found, why, definition)
        knn = ood.KNN(None, k=5, normalize=normalize).fit_features(torch.tensor(data.train), labels)
        found = -knn.predict_features(torch.tensor(data.test)).numpy()
        entries.add(spec, f"pytorch-ood {pytorch_ood.__version__} KNN", found, why, definition)

    found = LocalOutlierFactor(n_neighbors=20, novelty=True).fit(data.train).score_samples(data.test)
    why = "minus the local outlier factor of new rows; the peer adds 1e-10 to a mean distance"
    definition = -local_outlier_factor(data.train, data.test, 20)
    entries.add("lof:k=20", learn + "LocalOutlierFactor", found, why, definition)
    found = -LOF(n_neighbors=20).fit(data.train).decision_function(data.test)
    entries.add("lof:k=20", py + "LOF", found, why, definition)

    # The classes are separate in all columns. In three columns some rows belong to two components. Every start must end in
    # the same optimum, or the result would depend on the start.
    for columns in (None, [0, 3, 7]):
        for ours, theirs in [("full", "full"), ("diagonal", "diag"), ("tied", "tied")]:
            train, test = (x if columns is None else x[:, columns] for x in (data.train, data.test))
            settings = dict(covariance_type=theirs, tol=1e-12, max_iter=10_000, reg_covar=1e-6)
            definition = mixture(train, data.labels, test, ours, 1e-6)
            for seed in range(20):
                for start in ("kmeans", "k-means++"):
                    mix = GaussianMixture(CLASSES, random_state=seed, init_params=start, **settings).fit(train)
                    found = mix.score_samples(test)
                    assert np.allclose(found, definition, rtol=1e-4), (ours, seed, start)
            soft = (mix.predict_proba(train).max(axis=1) < 0.95).sum()
            why = f"log-density with all constants; 40 starts of the peer end here; {soft} rows belong to no blob alone"
            spec = f"gmm:components={CLASSES}:covariance={ours}:regularization=1e-6:iterations=10000:tolerance=1e-12"
            more = dict(tolerance=1e-3) | ({} if columns is None else {"columns": columns})
            entries.add(spec, learn + "GaussianMixture", found, why, definition, **more)
            if ours == "full":
                found = -GMM(n_components=CLASSES, random_state=0, **settings).fit(train).decision_function(test)
                entries.add(spec, py + "GMM", found, why, definition, **more)

    for nu, gamma, setting in [(0.1, 0.05, "0.05"), (0.3, 1 / (WIDTH * data.train.var()), "auto")]:
        spec, total = f"nu={nu}:gamma={setting}", nu * len(data.train)
        theirs = dict(nu=nu, gamma="scale" if setting == "auto" else gamma)
        exact = one_class(data.train, data.test, nu, gamma)
        usual = OneClassSVM(**theirs).fit(data.train).decision_function(data.test)
        off = f"at its usual tolerance of 1e-3 the peer is {errors(usual, total * exact).max():.1g} off, here at 1e-8"
        why = f"sum of a K less rho, with weights a that add up to nu N = {total:g}, as in LIBSVM; {off}"
        found = OneClassSVM(tol=1e-8, **theirs).fit(data.train).decision_function(data.test)
        entries.add("ocsvm:" + spec, learn + "OneClassSVM", found, why, total * exact, tolerance=1e-2)
        why = (
            "R^2 less the squared distance to the center: as K(x, x) = 1, the dual is that of the one-class SVM, and "
            f"this is twice its decision with weights that add up to 1, so times 2 / {total:g}; {off}"
        )
        entries.add("svdd:" + spec, learn + "OneClassSVM", 2 * found / total, why, 2 * exact, tolerance=1e-2)
        found = -OCSVM(tol=1e-8, nu=nu, gamma=gamma).fit(data.train).decision_function(data.test)
        why = "the same through PyOD"
        entries.add("ocsvm:" + spec, py + "OCSVM", found, why, total * exact, tolerance=1e-2)


def on_forests(entries, data):
    """Random trees: the required agreement is that of two forests of the peer."""
    import pyod
    import sklearn
    from pyod.models.iforest import IForest
    from scipy.stats import spearmanr
    from sklearn.ensemble import IsolationForest

    many = IsolationForest(n_estimators=3000, random_state=0).fit(data.train).score_samples(data.test)
    own = [
        spearmanr(many, IsolationForest(random_state=1 + s).fit(data.train).score_samples(data.test)).statistic
        for s in range(30)
    ]
    least = round(min(own) - 0.01, 3)
    why = f"random; forests of 100 trees of the peer have {min(own):.4f} to {max(own):.4f} with its forest of 3000"
    peer = f"scikit-learn {sklearn.__version__} IsolationForest"
    entries.add("isolation-forest", peer, many, why, agree="spearman", least=least)
    found = -IForest(n_estimators=3000, random_state=7).fit(data.train).decision_function(data.test)
    entries.add("isolation-forest", f"PyOD {pyod.__version__} IForest", found, why, agree="spearman", least=least)


def write(out):
    import logging

    import numpy as np
    import torch

    warnings.filterwarnings("ignore", category=FutureWarning)
    logging.disable(logging.WARNING)
    # pytorch-ood creates tensors with the default type.
    torch.set_default_dtype(torch.float64)

    data, entries = Data(), Entries()
    for part in (on_logits, on_classes, on_last_layer, on_features, on_forests):
        part(entries, data)

    def rows(name, values):
        return f'"{name}": [\n' + ",\n".join(json.dumps(row) for row in np.asarray(values).tolist()) + "\n]"

    versions = ", ".join(PINNED).replace("==", " ")
    parts = [
        '"made_by": ' + json.dumps(f"scripts/detector_fixtures.py with {versions}"),
        f'"classes": {CLASSES}',
        f'"width": {WIDTH}',
        rows("weight", data.weight),
        '"bias": ' + json.dumps(data.bias.tolist()),
        '"labels": ' + json.dumps(data.labels.tolist()),
        rows("train", data.train),
        rows("train_logits", data.train_logits),
        rows("test", data.test),
        rows("test_logits", data.test_logits),
        '"expectations": [\n' + ",\n".join(json.dumps(e) for e in entries.list) + "\n]",
    ]
    out.write_text("{" + ",\n".join(parts) + "}\n")
    print(f"{out}: {len(entries.list)} expectations, {out.stat().st_size} bytes")


if __name__ == "__main__":
    inside.main(__file__, __doc__, PINNED, OUT, write)
