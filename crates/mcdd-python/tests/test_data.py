"""Arrays and frames: the same table gives the same model, however it comes."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

import mcdd
from mcdd import McddClassifier

from conftest import customers

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")


def fit(X, y, **settings):
    return McddClassifier(preset="fast", epochs=10, **settings).fit(X, y)


def by_row(model, X):
    """The scores of rows that come one by one."""
    one = (lambda i: X.iloc[i : i + 1]) if hasattr(X, "iloc") else lambda i: X[i : i + 1]
    return np.concatenate([model.score_samples(one(i)) for i in range(len(X))])


def test_a_row_is_read_as_in_training_whatever_comes_with_it():
    """Types are those of the column, not of the batch: True, dates and numbers among texts."""
    y = np.arange(60) % 2
    n = np.where(y == 1, 1.0, 5.0) + np.arange(60) % 7 / 10
    stamp = pandas.Timestamp("2024-02-03")
    for values in (["a", True, "b"], ["a", stamp, "b"], ["1_0", "a", "2"], [None, "a", 3]):
        column = [values[i % 3] for i in range(60)]
        frame = pandas.DataFrame({"m": pandas.Series(column, dtype=object), "n": n})
        model = fit(frame, y, categorical=["m"])
        assert np.array_equal(by_row(model, frame), model.score_samples(frame)), values
        array = np.array(list(zip(column, n, strict=True)), dtype=object)
        model = fit(array, y, categorical=["1"])
        assert np.array_equal(by_row(model, array), model.score_samples(array)), values


def test_declared_categories_are_categories():
    y = np.arange(80) % 2
    codes = [["01234", "10115", "99999"][i % 3] for i in range(80)]
    n = np.arange(80) % 5 + 3.0 * y
    frame = pandas.DataFrame({"zip": pandas.Categorical(codes), "n": n})
    data = polars.DataFrame({"zip": polars.Series(codes, dtype=polars.Categorical), "n": n})
    for X in (frame, data):
        model = fit(X, y)
        assert not model.model_.numeric and "01234" in set(model.explain(X[:1], n=2)["value"])
    numbers = np.column_stack([np.arange(80) % 3, n])
    assert not fit(numbers, y, categorical=["1"]).model_.numeric and fit(numbers, y).model_.numeric


def test_polars_rows_of_nulls():
    y = np.arange(40) % 2
    model = fit(polars.DataFrame({"a": np.arange(40) % 9 + y, "b": [["x", "y", None][i % 3] for i in range(40)]}), y)
    assert model.predict(polars.DataFrame({"a": [1.0], "b": [None]})).shape == (1,)


def test_labels_that_are_missing_are_named(iris):
    X = iris[0][:40]
    for y in (["a", None] * 20, pandas.Series(["a", None] * 20), polars.Series(["a", None] * 20)):
        with pytest.raises(mcdd.DataError, match="row 2: y is missing"):
            fit(X, y)


def test_dates_in_arrays_are_refused(iris):
    with pytest.raises(TypeError, match="data frame"):
        fit(np.array([["2024-05-01", "NaT"]] * 20, dtype="M8[D]"), np.arange(20) % 2)
    masked = np.ma.masked_greater(iris[0], 7.0)
    assert np.isfinite(fit(masked, iris[2]).score_samples(masked)).all()


def test_single_and_double_precision_and_layouts(iris):
    X_train, X_test, y_train, _ = iris
    X_train, X_test = X_train.astype(np.float32), X_test.astype(np.float32)
    expected = fit(X_train, y_train).score_samples(X_test)
    for convert in (np.float64, np.asfortranarray, lambda x: x.tolist(), lambda x: np.repeat(x, 2, axis=0)[::2]):
        assert np.array_equal(fit(convert(X_train), y_train).score_samples(convert(X_test)), expected)
    whole = np.arange(60).reshape(20, 3) % 7
    labels = np.repeat([0, 1], 10)
    for kind in (np.int8, np.uint16, np.int64, np.float16):
        assert np.array_equal(fit(whole.astype(kind), labels).p_values(whole), fit(whole, labels).p_values(whole))


def test_frames_of_every_library_are_one_table(tmp_path):
    columns, y = customers()
    frame = pandas.DataFrame(columns)
    table = pyarrow.table(columns)
    many = pyarrow.Table.from_batches(table.to_batches(max_chunksize=37))
    frames = [frame, table, many, polars.from_arrow(table), frame.set_index(np.arange(len(frame)) * 3)]
    models = [fit(x, y) for x in frames]
    expected = models[0].score_samples(frame)
    bytes_ = models[0].model_.to_bytes()
    for model, x in zip(models, frames, strict=True):
        assert model.model_.to_bytes() == bytes_
        for new in frames:
            assert np.array_equal(model.score_samples(new), expected)
    assert list(models[0].feature_names_in_) == list(columns)
    explained = models[0].explain(frame[:3], n=2)
    assert set(explained["column"]) <= set(columns) and list(explained["row"]) == [0, 0, 1, 1, 2, 2]


def test_pandas_without_pyarrow(monkeypatch):
    columns, y = customers()
    frame = pandas.DataFrame(columns).drop(columns="since").astype({"country": "category"})
    expected = fit(frame, y).score_samples(frame)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert np.array_equal(fit(frame, y).score_samples(frame), expected)


def test_dates_missing_values_and_new_categories():
    columns, y = customers()
    frame = pandas.DataFrame(columns)
    model = fit(frame, y)
    one = frame[:1].assign(country="atlantis")
    explained = model.explain(one, n=5)
    assert "atlantis" in set(explained["value"])
    gone = frame[:5].assign(spend=np.nan, country=None)
    assert np.isfinite(model.score_samples(gone)).all()
    assert model.is_known(frame[:200].assign(spend=1e6)).mean() < 0.2


def test_text_arrays_and_mixed_columns():
    X = np.array([["a", 1.0], ["b", 2.0], ["a", 1.5], ["b", 2.5]] * 10, dtype=object)
    y = np.array(["x", "y"] * 20)
    model = fit(X, y)
    assert model.predict(X[:2]).tolist() == ["x", "y"]
    mixed = pandas.DataFrame({"m": [1, "two", 3.0, "two"] * 10, "n": range(40)})
    with pytest.raises(mcdd.DataError, match="row 2, column m: \"two\" is not a number"):
        fit(mixed, y, keep=["n"])
    model = fit(mixed, y, keep=["n"], categorical=["m"])
    assert np.array_equal(by_row(model, mixed), model.score_samples(mixed))
    with pytest.raises(TypeError, match="number"):
        fit(np.array([[{}, 1.0]] * 10, dtype=object), np.arange(10) % 2)


def test_columns_without_string_names_are_matched_by_position(iris):
    X_train, X_test, y_train, _ = iris
    model = fit(pandas.DataFrame(X_train), y_train)
    assert not hasattr(model, "feature_names_in_")
    assert np.array_equal(model.score_samples(pandas.DataFrame(X_test)), model.score_samples(X_test))


def test_labels_of_every_kind(iris):
    X_train, X_test, y_train, _ = iris
    for classes in (["a", "b", "c"], [-5, 3, 1000], [1.0, 2.0, 4.0], ["NA", "", "None"]):
        y = np.array(classes)[y_train]
        model = fit(X_train, y)
        assert np.array_equal(model.classes_, np.unique(y))
        assert set(model.predict(X_test)) <= set(classes)
    categories = pandas.Series(np.array(["x", "y", "z"])[y_train], dtype="category")
    assert fit(X_train, categories).classes_.tolist() == ["x", "y", "z"]
    with pytest.raises(ValueError):
        fit(X_train, np.random.default_rng(0).normal(size=len(X_train)))


def test_groups_stay_together():
    random = np.random.default_rng(0)

    def rows(n):
        y = random.integers(3, size=n)
        return random.normal(size=(n, 6)) + 4 * np.eye(6)[y], y

    (X, y), (new, _) = rows(150), rows(500)
    # Every row four times, almost: calibration rows whose copies are trained on would make all others look strange.
    groups = np.repeat(np.arange(150), 4)
    X, y = np.repeat(X, 4, axis=0) + random.normal(scale=0.01, size=(600, 6)), np.repeat(y, 4)
    kept = [McddClassifier("fast", tpr=0.9).fit(X, y, groups=g).is_known(new).mean() for g in (groups, None)]
    # Only fifteen groups calibrate, so the fraction varies.
    assert kept[0] > 0.7 and kept[1] < 0.5


def test_errors_name_the_place(iris, clf):
    X_train, X_test, y_train, _ = iris
    wrong = X_test.copy()
    wrong[3, 2] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        clf.predict(wrong)
    frame = pandas.DataFrame(X_train, columns=["a", "b", "c", "d"])
    model = fit(frame, y_train)
    infinite = frame.astype(float).copy()
    infinite.iloc[6, 1] = np.inf
    with pytest.raises(mcdd.DataError, match="row 7, column b") as caught:
        model.predict(infinite)
    assert (caught.value.row, caught.value.column) == (7, "b") and caught.value.hint
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"a": "z"}))
    with pytest.raises(mcdd.SettingError, match="lr="):
        fit(X_train, y_train, lr=-1.0)
    with pytest.raises(mcdd.SettingError, match='"best"'):
        McddClassifier(preset="good").fit(X_train, y_train)
    with pytest.raises(mcdd.SettingError, match="epochs="):
        McddClassifier(epochs=True).fit(X_train, y_train)
    with pytest.raises(mcdd.SettingError, match="detector"):
        McddClassifier(detector="nonsense").fit(X_train, y_train)
    with pytest.raises(FileNotFoundError):
        McddClassifier.load("not there.mcdd")
    with pytest.raises(mcdd.DataError, match="not a number"):
        model.predict(frame.assign(b="text"))


def test_no_rows_give_no_predictions(iris):
    frame = pandas.DataFrame(iris[0], columns=["a", "b", "c", "d"])
    model = fit(frame, iris[2])
    assert model.predict(frame[:0]).shape == (0,) and model.predict_proba(frame[:0]).shape == (0, 3)
    assert model.predict_open(frame[:0]).shape == (0,) and model.p_values(frame[:0]).shape == (0,)


def test_no_copy_of_large_arrays():
    """Predicting a matrix needs less memory than a copy of it."""
    resource = pytest.importorskip("resource")
    script = """
import resource, sys
import numpy as np
from mcdd import McddClassifier
X = np.random.default_rng(0).normal(size=(300_000, 100))
clf = McddClassifier(preset="fast", epochs=2, detector="distance").fit(X[:500], np.arange(500) % 2)
clf.p_values(X[:40_000])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
clf.p_values(X)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / X.nbytes)
"""
    assert resource
    out = subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, capture_output=True, text=True)
    assert float(out.stdout) < 0.3


def test_threads_share_a_model(iris, clf):
    X = np.tile(iris[1], (200, 1))
    expected = clf.p_values(X)
    found = [None] * 8

    def work(i):
        found[i] = clf.p_values(X)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(f, expected) for f in found)


def test_the_interpreter_runs_while_training(iris):
    """Another thread counts while a model is trained: the GIL is released."""
    X_train, _, y_train, _ = iris
    ticks, done = [0], threading.Event()

    def count():
        while not done.wait(0.001):
            ticks[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    McddClassifier(preset="fast", epochs=2000).fit(X_train, y_train)
    done.set()
    thread.join()
    assert ticks[0] > 20
