"""Monitors: the numbers and the file of the command."""

from __future__ import annotations

import json
import subprocess
import threading

import numpy as np
import pytest

import mcdd
from mcdd import Detector, Guard, McddClassifier, Monitor

from conftest import customers

pandas = pytest.importorskip("pandas")


def frames(rows, seed):
    columns, y = customers(rows, seed)
    return pandas.DataFrame(columns), y


@pytest.fixture(scope="module")
def watched():
    """A classifier, reference rows, rows like those of training, and rows with another spend and country."""
    frame, y = frames(600, 0)
    clf = McddClassifier(preset="fast", epochs=10).fit(frame, y)
    other = frames(200, 3)[0].assign(spend=lambda f: f.spend * 30 + 4000, country="br")
    return clf, frames(300, 1)[0], frames(300, 2)[0], other


def run(*args):
    return subprocess.run([str(a) for a in args], check=True, capture_output=True, text=True).stdout


def test_the_numbers_are_those_of_the_command(command, watched, tmp_path):
    clf, reference, same, other = watched
    clf.save(tmp_path / "m.mcdd")
    for name, rows in (("reference", reference), ("same", same), ("other", other)):
        rows.to_csv(tmp_path / f"{name}.csv", index=False)
    model, state = tmp_path / "m.mcdd", tmp_path / "s.json"

    monitor = Monitor(clf, alpha=0.001, reference=reference)
    words = ("--alpha", "0.001", "--reference", tmp_path / "reference.csv")
    for rows in ("same", "other"):
        printed = json.loads(run(command, "monitor", model, tmp_path / f"{rows}.csv", "--state", state, "--json", "-q", *words))
        words = ()
        monitor.add(same if rows == "same" else other)
        assert monitor.about() == printed and monitor.evidence == printed["evidence"]
    assert monitor.alarm == printed["alarm"] > 300 and monitor.rows == 500
    assert {"column spend", "column country"} <= set(monitor.changed)
    assert not {"column seats", "column trial", "column since"} & set(monitor.changed)
    # The file is the same, too, and each continues that of the other.
    monitor.save(tmp_path / "p.json")
    assert (tmp_path / "p.json").read_bytes() == state.read_bytes()
    again = Monitor.load(state, McddClassifier.load(model))
    assert again.about() == monitor.about()
    assert again.restart().alarm is None and again.evidence == 1.0 and again.about()["restarts"] == 1
    again.add(same)
    again.save(tmp_path / "p.json")
    printed = run(command, "monitor", model, tmp_path / "same.csv", "--state", state, "--restart", "--json", "-q")
    assert json.loads(printed) == again.about() and (tmp_path / "p.json").read_bytes() == state.read_bytes()


def test_rows_scores_and_p_values_are_the_same(watched):
    clf, _, same, other = watched
    rows = pandas.concat([same, other])
    by_rows, by_scores, by_p_values, piecewise = (Monitor(clf) for _ in range(4))
    by_rows.add(rows)
    by_scores.add_scores(clf.score_samples(rows))
    by_p_values.add_p_values(clf.p_values(rows))
    for start in range(0, len(rows), 7):
        piecewise.add(rows[start : start + 7])
    assert by_rows.about() == by_scores.about() == by_p_values.about() == piecewise.about()
    at, log10 = by_rows.history
    assert len(at) == len(log10) <= 512 and at[-1] == len(rows) and log10.max() >= 2
    page = by_rows.report("customers")
    assert "customers" in page.html and f"Alarm at row {by_rows.alarm}" in page.html and "<svg" in page.figures["evidence"]
    assert repr(by_rows).startswith("<Monitor: 500 rows")


def test_guards_and_detectors_are_watched(iris):
    X_train, X_test, y_train, _ = iris
    from sklearn.tree import DecisionTreeClassifier

    guard = Guard(DecisionTreeClassifier()).fit(X_train, y_train)
    assert Monitor(guard).add(X_test).about() == Monitor(guard.detector_).add(X_test).about()
    detector = Detector("knn").fit(X_train)
    monitor = Monitor(detector).add_scores(detector.score_samples(X_test))
    assert monitor.rows == len(X_test)
    with pytest.raises(TypeError, match="add_scores"):
        monitor.add(X_test)


def test_wrong_input_is_an_error_and_adds_nothing(watched, tmp_path, clf):
    ours, _, same, _ = watched
    monitor = Monitor(ours).add(same)
    before = monitor.about()
    with pytest.raises(mcdd.SettingError, match="alpha="):
        Monitor(ours, alpha=1.5)
    with pytest.raises(mcdd.DataError, match="row 2"):
        monitor.add_scores([1.0, np.nan])
    with pytest.raises(mcdd.DataError, match="row 3"):
        monitor.add_p_values([1.0, 0.5, 0.0])
    with pytest.raises(ValueError):
        monitor.add(same[["spend"]])
    with pytest.raises(TypeError, match="Guard"):
        Monitor(object())
    assert monitor.about() == before
    monitor.save(tmp_path / "s.json")
    with pytest.raises(mcdd.SettingError, match="another model"):
        Monitor.load(tmp_path / "s.json", clf)
    (tmp_path / "s.json").write_text("{}")
    with pytest.raises(mcdd.FormatError):
        Monitor.load(tmp_path / "s.json", ours)
    with pytest.raises(FileNotFoundError):
        Monitor.load(tmp_path / "missing.json", ours)


def test_threads_share_a_monitor(watched):
    clf, _, same, _ = watched
    monitor, scores = Monitor(clf), clf.score_samples(same)
    threads = [threading.Thread(target=lambda: [monitor.add_scores(scores) for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert monitor.rows == 4 * 20 * len(scores)
