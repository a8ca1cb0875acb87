"""Would a model detect a class that it has never seen? Each class left out in turn."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from . import _data, _mcdd, _progress


class BenchResult:
    """The means of every method over left-out classes, folds and seeds.

    Attributes
    ----------
    folder : str or None
        The folder with tables, page and all results; None if nothing was to be kept.
    means : dict of str to dict of str to float
        For each method its metrics: `accuracy`, `auroc`, `tnr95` and others, between 0 and 1.
    deviations : dict of str to dict of str to float or None
        The standard deviations over folds and seeds.
    failures : list of str
        Cells that failed, with their errors.
    page : str
        The page with all tables and figures, which notebooks show.
    """

    def __init__(self, folder: str | None, lines: Iterable[Any], failures: list[str], page: str) -> None:
        self.folder, self.failures, self.page = folder, failures, page
        self.means: dict[str, dict[str, float]] = {}
        self.deviations: dict[str, dict[str, float | None]] = {}
        for method, metric, mean, deviation in lines:
            self.means.setdefault(method, {})[metric] = mean
            self.deviations.setdefault(method, {})[metric] = deviation

    def __repr__(self) -> str:
        head = f"{'method':<28} {'accuracy':>8} {'AUROC':>8} {'TNR95':>8}"
        rows = []
        for method, found in self.means.items():
            numbers = [found.get(key) for key in ("accuracy", "auroc", "tnr95")]
            rows.append(f"{method:<28} " + " ".join(f"{'n/a' if v is None else f'{v:.4f}':>8}" for v in numbers))
        return "\n".join([head, *rows])

    def _repr_html_(self) -> str:
        from ._report import Report

        return Report(self.page)._repr_html_()


def bench(
    X: Any,
    y: Any,
    methods: Sequence[str] | None = None,
    *,
    ood: Sequence[Any] | None = None,
    folds: int = 5,
    test_folds: int | None = None,
    seeds: int = 1,
    output: str | os.PathLike[str] | None = None,
    title: str = "table",
    n_jobs: int | None = None,
    backend: str = "threads",
    verbose: bool | int = False,
) -> BenchResult:
    """Leave each class out of training in turn, and measure how well it is detected.

    Parameters
    ----------
    X : array-like or data frame of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    methods : list of str, default=None
        Such as ``["best", "paper", "softmax+msp", "softmax+knn:k=10"]``; None for the default, the paper's method, softmax
        and Mahalanobis.
    ood : list, default=None
        The classes to leave out; None for all of them.
    folds : int, default=5
        The number of folds of the other classes' rows.
    test_folds : int, default=None
        How many of the folds are tested; None for all.
    seeds : int, default=1
        The number of seeds.
    output : path-like, default=None
        A folder for results, tables and page, as of ``mcdd bench``. A run that was stopped is resumed there.
    title : str, default="table"
        The title of the page.
    n_jobs : int, default=None
        The number of cells in parallel; None and -1 for all cores.
    backend : {"threads", "joblib", "ray"}, default="threads"
        Who runs the cells: threads of this process, joblib's current backend, or Ray. Results do not depend on it.
    verbose : bool or int, default=False
        Whether to show progress.

    Returns
    -------
    BenchResult

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import mcdd
    >>> X, y = load_iris(return_X_y=True)
    >>> found = mcdd.bench(X, y, ["fast"], test_folds=1)
    >>> sorted(found.means)
    ['fast']
    """
    from ._classifier import encode_labels

    classes, _ = encode_labels(y)
    place = dict(zip(classes.tolist(), _data.class_names(classes), strict=True))
    left_out = None if ood is None else [place.get(label, str(label)) for label in ood]
    arguments = (title, None if methods is None else list(methods), left_out, folds, test_folds, seeds)

    plan = _plan(X, y, arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = temporary if output is None else os.fspath(output)
        if backend == "threads":
            bar = _progress.bar(verbose, "cell", "AUROC")
            try:
                plan.run(folder, _data.threads(n_jobs), bar)
            finally:
                _progress.close(bar)
        elif backend in ("joblib", "ray"):
            run = _by_joblib if backend == "joblib" else _by_ray
            bar = _progress.bar(verbose, "cell", "AUROC")
            missing = plan.missing(folder)
            # The rows as they came: a table of the library does not travel.
            task = _Task((X, y), arguments)
            for done, cell in enumerate(run(task, missing, n_jobs), 1):
                plan.add(folder, cell)
                if bar is not None:
                    bar(done, len(missing), float("nan"))
            _progress.close(bar)
        else:
            raise ValueError(f'backend= is {backend!r} (give "threads", "joblib" or "ray")')
        lines, failures = plan.finish(folder)
        with open(os.path.join(folder, "index.html"), encoding="utf-8") as file:
            page = file.read()
    return BenchResult(None if output is None else folder, lines, failures, page)


def _plan(X: Any, y: Any, arguments: tuple[Any, ...]) -> _mcdd.Bench:
    """The benchmark of a table."""
    from ._classifier import McddClassifier, encode_labels

    reader = McddClassifier()
    table = reader._table(reader._read(X, reset=True))
    classes, codes = encode_labels(y)
    return _mcdd.Bench(table.with_labels(codes, _data.class_names(classes)), *arguments)


class _Task:
    """Computes cells from the rows as the user gave them."""

    def __init__(self, data: tuple[Any, Any], arguments: tuple[Any, ...]) -> None:
        self.data, self.arguments = data, arguments
        self.plan: _mcdd.Bench | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"data": self.data, "arguments": self.arguments, "plan": None}

    def __call__(self, key: str) -> str:
        if self.plan is None:
            self.plan = _plan(*self.data, self.arguments)
        return self.plan.cell(key)


def _by_joblib(task: Callable[[str], str], keys: list[str], n_jobs: int | None) -> Iterator[str]:
    from joblib import Parallel, delayed

    yield from Parallel(n_jobs=-1 if n_jobs is None else n_jobs, return_as="generator")(delayed(task)(k) for k in keys)


def _by_ray(task: Callable[[str], str], keys: list[str], n_jobs: int | None) -> Iterator[str]:
    ray: Any = importlib.import_module("ray")
    shared = ray.put(task)

    @ray.remote(num_cpus=1)
    def compute(task: Callable[[str], str], key: str) -> str:
        return task(key)

    waiting = list(keys)
    limit = int(ray.cluster_resources().get("CPU", 1)) if n_jobs in (None, -1) else int(n_jobs or 1)
    running: list[Any] = []
    while waiting or running:
        while waiting and len(running) < limit:
            running.append(compute.remote(shared, waiting.pop(0)))
        done, running = ray.wait(running)
        yield from ray.get(done)
