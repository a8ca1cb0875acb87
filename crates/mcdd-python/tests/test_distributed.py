"""Scoring by workers: the columns that are added, and the bits of local scoring."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import mcdd
from mcdd import McddClassifier
from mcdd import _arrow
from mcdd.spark import sample_fractions

from conftest import customers

pandas = pytest.importorskip("pandas")
pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.compute")


@pytest.fixture(scope="module")
def scored():
    columns, y = customers()
    table = pyarrow.table(columns)
    clf = McddClassifier(preset="fast", epochs=10).fit(table, y)
    return table, clf


def same(found, table, clf):
    assert np.array_equal(np.asarray(found["confidence"]), clf.score_samples(table))
    assert np.array_equal(np.asarray(found["p_value"]), clf.p_values(table))
    assert np.array_equal(np.asarray(found["known"]), clf.is_known(table))
    assert list(found["prediction"]) == clf.predict(table).tolist()


def test_batches_of_any_size_are_scored_as_the_whole(scored, tmp_path):
    table, clf = scored
    clf.save(tmp_path / "m.mcdd")
    for model in (clf, clf.model_.to_bytes(), tmp_path / "m.mcdd", str(tmp_path / "m.mcdd")):
        data = _arrow.model_bytes(model)
        assert data == clf.model_.to_bytes()
    for size in (1, 7, 400):
        parts = [_arrow.score(batch, data, ["seats"], None, 1) for batch in table.to_batches(max_chunksize=size)]
        whole = pyarrow.Table.from_batches(parts)
        assert whole.column_names == ["seats", "prediction", "known", "confidence", "p_value"]
        same(whole.to_pydict(), table, clf)
    empty = _arrow.score(table.slice(0, 0), data, None, None, 1)
    assert empty.num_rows == 0 and empty.column_names[-4:] == list(_arrow.ADDED)
    assert _arrow.load(data) is _arrow.load(bytes(data))


def test_time_zones_are_those_of_training(scored):
    table, clf = scored
    at = table.schema.get_field_index("since")
    data = clf.model_.to_bytes()
    assert clf.model_.time_zones == [("since", False)]
    clock = pyarrow.compute.assume_timezone(table.column(at), "America/New_York")
    zoned = table.set_column(at, "since", clock)
    same(_arrow.score(zoned, data, [], None, 1).to_pydict(), table, clf)
    model = McddClassifier(preset="fast", epochs=3).fit(zoned, clf.predict(table))
    assert model.model_.time_zones == [("since", True)]
    utc = clock.cast(pyarrow.timestamp("us", "UTC")).cast(pyarrow.timestamp("us"))
    found = _arrow.score(table.set_column(at, "since", utc), model.model_.to_bytes(), [], None, 1)
    same(found.to_pydict(), zoned, model)


def test_columns_are_not_overwritten():
    with pytest.raises(ValueError, match="known"):
        _arrow.check_names(["id", "known"])


def test_dask(scored):
    dask = pytest.importorskip("dask.dataframe")
    table, clf = scored
    frame = table.to_pandas()
    found = mcdd.dask.score(dask.from_pandas(frame, npartitions=3), clf, columns=["spend"]).compute()
    assert list(found.columns) == ["spend", "prediction", "known", "confidence", "p_value"]
    same(found.to_dict("list"), table, clf)


def test_ray_scorer_without_ray(scored):
    table, clf = scored
    scorer = mcdd.ray.Scorer(clf, ["trial"])
    same(scorer(table).to_pydict(), table, clf)
    with pytest.raises(ValueError, match="known"):
        scorer(table).drop_columns(["trial"]) and mcdd.ray.Scorer(clf)(scorer(table))


def test_workers_use_the_rate_of_the_classifier(scored):
    table, clf = scored
    before = clf.tpr
    clf.set_params(tpr=0.5)
    try:
        same(mcdd.ray.Scorer(clf, [])(table).to_pydict(), table, clf)
    finally:
        clf.set_params(tpr=before)


def test_samples_keep_small_classes():
    assert sample_fractions({"a": 10, "b": 20}, 100) == {"a": 1.0, "b": 1.0}
    found = sample_fractions({"a": 1_000_000, "b": 500_000, "c": 7}, 30_000)
    assert found["c"] == 1.0 and found["a"] == found["b"]
    assert abs(found["a"] * 1_500_000 + 7 - 30_000) < 1


def test_spark(scored, monkeypatch):
    """Two worker processes; about half a minute."""
    pyspark = pytest.importorskip("pyspark.sql")
    table, clf = scored
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    table = table.append_column("id", pyarrow.array(range(table.num_rows)))
    spark = (
        pyspark.SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    try:
        df = spark.createDataFrame(table.to_pandas()).repartition(4)
        found = mcdd.spark.score(df, clf, columns=["id"]).toPandas().sort_values("id")
        same(found.to_dict("list"), table.drop_columns(["id"]), clf)
        labels = spark.createDataFrame(table.append_column("plan", pyarrow.array(customers()[1])).to_pandas())
        trained = mcdd.spark.fit(labels, "plan", rows=300, classifier=McddClassifier(preset="fast", epochs=5))
        assert trained.classes_.tolist() == ["free", "pro", "team"]
    finally:
        spark.stop()
