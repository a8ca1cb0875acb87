"""The contract of scikit-learn."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

from mcdd import Guard, McddClassifier

# These checks compare or count predicted labels, and a text among integers is no label of theirs.
CLOSED_SET = {
    name: "predict answers a text that is not among the classes"
    for name in [
        "check_classifier_data_not_an_array",
        "check_classifiers_classes",
        "check_classifiers_train",
        "check_estimators_pickle",
        "check_fit_idempotent",
        "check_fit_score_takes_y",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
        "check_pipeline_consistency",
        "check_supervised_y_2d",
    ]
}


def test_every_check_passes_by_default():
    results = check_estimator(McddClassifier(), on_fail=None)
    failed = {r["check_name"]: str(r["exception"]) for r in results if r["status"] == "failed"}
    assert not failed
    assert len([r for r in results if r["status"] == "passed"]) > 40


def test_a_number_as_rejection_label_passes_every_check():
    results = check_estimator(McddClassifier(unknown_label=-99), on_fail=None)
    assert not [r["check_name"] for r in results if r["status"] == "failed"]


def test_with_a_text_as_rejection_label_only_the_closed_set_fails():
    strict = McddClassifier(unknown_label="unknown", tpr=0.5)
    results = check_estimator(strict, on_fail=None, expected_failed_checks=CLOSED_SET)
    assert not [r["check_name"] for r in results if r["status"] == "failed"]
    # Each of them does fail.
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(CLOSED_SET)


def test_clone_and_parameters():
    clf = McddClassifier(preset="fast", tpr=0.9, nu=0.5, unknown_label="?")
    assert clone(clf).get_params() == clf.get_params()
    assert clf.set_params(tpr=0.8).tpr == 0.8


def test_pipelines_grid_search_and_cross_validation(iris):
    X_train, X_test, y_train, y_test = iris
    pipe = make_pipeline(StandardScaler(), McddClassifier(preset="fast"))
    assert pipe.fit(X_train, y_train).score(X_test, y_test) > 0.85
    assert cross_val_score(pipe, X_train, y_train, cv=3).mean() > 0.85
    search = GridSearchCV(McddClassifier(preset="fast", epochs=20), {"nu": [0.1, 1.0]}, cv=3).fit(X_train, y_train)
    assert search.best_params_["nu"] in (0.1, 1.0)


def test_set_output(iris, clf):
    pandas = pytest.importorskip("pandas")
    frame = clone(clf).fit(iris[0], iris[2]).set_output(transform="pandas").transform(iris[1])
    assert isinstance(frame, pandas.DataFrame) and frame.shape == (45, 3)
    assert list(frame.columns) == ["mcddclassifier0", "mcddclassifier1", "mcddclassifier2"]


def test_the_order_of_rows_does_not_matter(iris, clf):
    X = iris[1]
    order = np.random.default_rng(0).permutation(len(X))
    assert np.array_equal(clf.predict_proba(X)[order], clf.predict_proba(X[order]))
    one = np.concatenate([clf.score_samples(X[i : i + 1]) for i in range(len(X))])
    assert np.array_equal(one, clf.score_samples(X))


def test_seeds(iris):
    X_train, X_test, y_train, _ = iris
    scores = [
        McddClassifier(preset="fast", random_state=seed, n_jobs=jobs).fit(X_train, y_train).score_samples(X_test)
        for seed, jobs in [(0, 1), (0, 2), (1, 1), (np.random.RandomState(5), None), (np.random.RandomState(5), 1)]
    ]
    assert np.array_equal(scores[0], scores[1]) and np.array_equal(scores[3], scores[4])
    assert not np.array_equal(scores[0], scores[2])


def test_pickling_holds_the_bytes_of_the_file(iris, clf):
    state = clf.__getstate__()
    assert isinstance(state["model_"], bytes) and state["model_"] == clf.model_.to_bytes()
    again = pickle.loads(pickle.dumps(clf))
    assert np.array_equal(again.predict_proba(iris[1]), clf.predict_proba(iris[1]))
    assert np.array_equal(again.classes_, clf.classes_) and again.classes_.dtype == clf.classes_.dtype
    unfitted = pickle.loads(pickle.dumps(McddClassifier(tpr=0.9)))
    assert unfitted.tpr == 0.9


def test_guard_passes_the_checks_of_its_estimator():
    guard = Guard(RandomForestClassifier(n_estimators=5, random_state=0), McddClassifier(preset="fast"))
    names = {check.func.__name__ for _, check in estimator_checks_generator(guard)}
    assert "check_classifiers_train" in names
    results = check_estimator(guard, on_fail=None)
    failed = {r["check_name"]: str(r["exception"])[:300] for r in results if r["status"] == "failed"}
    assert not failed
