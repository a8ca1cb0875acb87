"""One library's detector in a process of its own.

Started by detectors.py with a JSON description as the only argument. It loads the data, writes one line
{"ready": ...}, and then answers every line on standard input with one line of JSON: the seconds of one fit and of
scoring all test rows, and the CPU time of both. It ends when standard input does.
"""

import gc
import json
import os
import sys
import time

spec = json.loads(sys.argv[1])
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LOKY_MAX_CPU_COUNT"):
    os.environ[name] = str(spec["threads"])

# Answers go to the original standard output; anything a library prints goes to standard error.
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)

import numpy as np  # noqa: E402

data = spec["data"]
train, test = np.load(f"{data}/train.npy"), np.load(f"{data}/test.npy")
labels = np.load(f"{data}/labels.npy").astype(np.int64)
classes = int(labels.max()) + 1
K = spec["k"]


# Each maker returns (versions, fit, score). fit() returns a fitted object. score(object) returns the confidence of each test
# row, higher for more in-distribution rows.


def versions(*modules):
    return ", ".join(f"{m.__name__} {m.__version__}" for m in modules)


def torch_data():
    import torch

    torch.set_num_threads(spec["threads"])
    torch.set_grad_enabled(False)
    return torch, torch.from_numpy(train), torch.from_numpy(test), torch.from_numpy(labels)


def pytorch_ood(make):
    torch, x, q, y = torch_data()
    import pytorch_ood
    from pytorch_ood import detector

    def score(fitted):
        return -fitted.predict_features(q).numpy()

    return versions(pytorch_ood, torch), lambda: make(detector).fit_features(x, y), score


def knn_pytorch_ood():
    return pytorch_ood(lambda d: d.KNN(encoder=None, k=K, normalize=False))


def knn_sklearn():
    import sklearn
    from sklearn.neighbors import NearestNeighbors

    def fit():
        return NearestNeighbors(n_neighbors=K, algorithm="brute").fit(train)

    return versions(sklearn), fit, lambda fitted: -fitted.kneighbors(test)[0][:, -1]


def knn_torch():
    """Blocks of cdist and topk, the straightforward way."""
    torch, x, q, _ = torch_data()

    def score(x):
        blocks = [torch.cdist(block, x).topk(K, largest=False).values[:, -1] for block in q.split(1024)]
        return -torch.cat(blocks).numpy()

    return versions(torch), lambda: x, score


def mahalanobis_pytorch_ood():
    return pytorch_ood(lambda d: d.Mahalanobis(encoder=None))


def rmd_pytorch_ood():
    return pytorch_ood(lambda d: d.RMD(encoder=None))


def class_means():
    return np.stack([train[labels == c].mean(axis=0) for c in range(classes)])


def mahalanobis_sklearn():
    """scikit-learn has no such detector. Its covariance of the rows minus their class means, evaluated once per class."""
    import sklearn
    from sklearn.covariance import EmpiricalCovariance

    def fit():
        means = class_means()
        return means, EmpiricalCovariance(assume_centered=True).fit(train - means[labels])

    def score(fitted):
        means, covariance = fitted
        return -np.min([covariance.mahalanobis(test - m) for m in means], axis=0)

    return versions(sklearn, np), fit, score


def rmd_sklearn():
    import sklearn
    from sklearn.covariance import EmpiricalCovariance

    def fit():
        means = class_means()
        return means, EmpiricalCovariance(assume_centered=True).fit(train - means[labels]), EmpiricalCovariance().fit(train)

    def score(fitted):
        means, within, all_rows = fitted
        return all_rows.mahalanobis(test) - np.min([within.mahalanobis(test - m) for m in means], axis=0)

    return versions(sklearn, np), fit, score


def whitener(rows):
    """W with |W x|^2 = x^T S^-1 x."""
    from scipy.linalg import cholesky, solve_triangular

    s = rows.T @ rows / len(rows)
    lower = cholesky(s.astype(np.float64), lower=True)
    return solve_triangular(lower, np.eye(len(s)), lower=True).T.astype(np.float32)


def nearest_mean(z, means):
    """The smallest squared distance to a mean, by one matrix product."""
    return (z**2).sum(axis=1) + ((means**2).sum(axis=1) - 2 * z @ means.T).min(axis=1)


def mahalanobis_numpy():
    """Whiten once, then compute distances to the whitened means: the fast way."""
    import scipy

    def fit():
        means = class_means()
        white = whitener(train - means[labels])
        return white, means @ white

    def score(fitted):
        white, means = fitted
        return -nearest_mean(test @ white, means)

    return versions(np, scipy), fit, score


def rmd_numpy():
    import scipy

    def fit():
        means, center = class_means(), train.mean(axis=0)
        white, background = whitener(train - means[labels]), whitener(train - center)
        return white, means @ white, background, center @ background

    def score(fitted):
        white, means, background, center = fitted
        return ((test @ background - center) ** 2).sum(axis=1) - nearest_mean(test @ white, means)

    return versions(np, scipy), fit, score


def lof_sklearn():
    import sklearn
    from sklearn.neighbors import LocalOutlierFactor

    def fit():
        return LocalOutlierFactor(n_neighbors=20, novelty=True, n_jobs=spec["threads"]).fit(train)

    return versions(sklearn), fit, lambda fitted: fitted.score_samples(test)


def ocsvm_sklearn():
    """libsvm, which uses one thread; with a cache of 1 GB instead of 200 MB, in its favor."""
    import sklearn
    from sklearn.svm import OneClassSVM

    def fit():
        return OneClassSVM(kernel="rbf", nu=0.1, gamma="scale", cache_size=1000).fit(train)

    return versions(sklearn), fit, lambda fitted: fitted.decision_function(test)


version, fit, score = globals()[spec["maker"]]()
gc.disable()
print(json.dumps({"ready": version}), file=answers)
for line in sys.stdin:
    cpu, start = time.process_time(), time.perf_counter()
    fitted = fit()
    middle = time.perf_counter()
    scores = score(fitted)
    end = time.perf_counter()
    cpu = time.process_time() - cpu
    file = json.loads(line).get("scores")
    if file:
        np.ascontiguousarray(scores, dtype="<f8").tofile(file)
    del fitted, scores
    gc.collect()
    print(json.dumps({"fit": middle - start, "score": end - middle, "cpu": cpu}), file=answers)
