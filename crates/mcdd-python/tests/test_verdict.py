"""Known and unknown rows, p-values and sets of classes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import train_test_split

import mcdd
from mcdd import Detector, Guard, McddClassifier, metrics


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    known = y != 7
    parts = train_test_split(X[known], y[known], test_size=0.4, random_state=0, stratify=y[known])
    return (*parts, X[~known])


@pytest.fixture(scope="module")
def model(digits):
    return McddClassifier(preset="fast", epochs=30).fit(digits[0], digits[2])


def test_a_left_out_class_is_unknown(digits, model):
    _, X_test, _, y_test, sevens = digits
    kept, rejected = model.is_known(X_test).mean(), 1 - model.is_known(sevens).mean()
    assert kept > 0.9 and rejected > 0.4
    found = metrics.detection(model.score_samples(X_test), model.score_samples(sevens))
    assert found.auroc.value > 0.94 and found.auroc.low < found.auroc.value < found.auroc.high
    labels = model.predict_open(X_test)
    assert set(np.unique(labels[labels != "unknown"])) <= set(range(10)) and "unknown" in labels
    assert (model.predict(X_test) == y_test).mean() > 0.95


def test_thresholds_p_values_and_scores_agree(digits, model):
    X = np.concatenate([digits[1], digits[4]])
    p, score = model.p_values(X), model.score_samples(X)
    assert ((p > 0) & (p <= 1)).all()
    order = np.argsort(score)
    assert (np.diff(p[order]) >= 0).all()
    for tpr in (0.5, 0.8, 0.95):
        known = model.is_known(X, tpr=tpr)
        assert np.array_equal(known, score >= model.model_.threshold(tpr))
        assert np.array_equal(known, p > 1 - tpr + 1e-9)


def test_unknown_labels_of_every_kind(iris):
    X_train, _, y_train, _ = iris
    far = np.full((1, 4), 99.0)
    rows = np.concatenate([X_train[:1], far])
    names = np.array(["a", "b", "c"])[y_train]
    strings = McddClassifier(preset="fast").fit(X_train, names)
    assert strings.predict_open(rows).dtype.kind == "U" and strings.predict_open(rows)[1] == "unknown"
    assert strings.predict(rows)[1] in "abc"
    strings.unknown_label = "?"
    assert strings.predict(rows)[1] == "?" == strings.predict_open(rows)[1]
    numbers = McddClassifier(preset="fast", unknown_label=-1).fit(X_train, y_train)
    assert numbers.predict(rows).dtype.kind == "i" and numbers.predict(rows)[1] == -1
    truth = McddClassifier(preset="fast").fit(X_train, y_train == 0)
    assert list(truth.classes_) == [False, True]
    assert truth.predict_open(rows).tolist() == [bool(y_train[0] == 0), "unknown"]


def test_a_class_is_not_the_unknown_label(iris):
    X_train, _, y_train, _ = iris
    with pytest.raises(mcdd.SettingError, match="unknown_label="):
        McddClassifier(unknown_label=1).fit(X_train, y_train)
    names = np.array(["unknown", "b", "c"])[y_train]
    clf = McddClassifier(preset="fast", epochs=5).fit(X_train, names)
    with pytest.raises(ValueError, match="is a class"):
        clf.predict_open(X_train)
    with pytest.raises(mcdd.SettingError, match="coverage="):
        clf.predict_set(X_train, coverage=2)


def test_sets_of_classes_cover(digits, model):
    _, X_test, _, y_test, sevens = digits
    known = model.is_known(X_test)
    place = np.searchsorted(model.classes_, y_test)
    sizes = []
    for coverage in (0.8, 0.95, 0.99):
        sets = model.predict_set(X_test, coverage=coverage)
        assert sets.dtype == bool and sets.shape == (len(X_test), 9)
        assert not sets[~known].any()
        covered = sets[np.arange(len(place)), place][known].mean()
        assert covered > coverage - 0.04
        sizes.append(sets.sum())
    assert sizes == sorted(sizes)
    assert model.predict_set(sevens).any(axis=1).mean() < 0.5


def test_metrics_against_scikit_learn():
    random = np.random.default_rng(3)
    known, unknown = np.round(random.normal(1, 1, 300), 1), np.round(random.normal(0, 1, 200), 1)
    found = metrics.detection(known, unknown, n_bootstrap=0)
    labels, scores = np.repeat([1, 0], [300, 200]), np.concatenate([known, unknown])
    assert found.auroc.value == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert found.aupr_id.value == pytest.approx(average_precision_score(labels, scores), abs=1e-12)
    assert found.aupr_ood.value == pytest.approx(average_precision_score(1 - labels, -scores), abs=1e-12)
    assert 0 < found.tie_fraction < 1 and found.auroc.low is None
    assert "AUROC" in str(found)
    with pytest.raises(mcdd.DataError, match="NaN"):
        metrics.detection([np.nan], [1.0])


def test_every_detector_on_features():
    random = np.random.default_rng(0)
    y = random.integers(3, size=600)
    centers = 6 * np.eye(8)[:3]
    features = (centers[y] + random.normal(size=(600, 8))).astype(np.float32)
    logits = features[:, :3].astype(np.float64)
    far = np.full((50, 8), -20.0, dtype=np.float32) + random.normal(size=(50, 8)).astype(np.float32)
    from mcdd import _mcdd

    names = [name for name in mcdd.detectors() if name not in ("distance", "odin")]
    assert len(names) > 15
    for name in names:
        needs_features, needs_logits, needs_labels = _mcdd.detector_needs(name)
        use = {"logits": logits} if needs_logits else {}
        given = features if needs_features else None
        try:
            detector = Detector(name).fit(given, y if needs_labels else None, **use)
        except mcdd.McddError as error:
            # Some need a network: their message says so.
            assert error.hint, name
            continue
        more = {"logits": far[:, :3].astype(np.float64)} if needs_logits else {}
        scores = detector.score_samples(far if needs_features else None, **more)
        assert scores.shape == (50,) and np.isfinite(scores).all(), name
        if name in ("knn", "mahalanobis", "gmm", "lof", "gda", "copod", "hbos"):
            assert detector.predict(far).tolist() == [-1] * 50, name
            assert detector.is_known(features).mean() > 0.85, name


def test_detector_files_and_pickles(tmp_path):
    import pickle

    features = np.random.default_rng(0).normal(size=(300, 5))
    # Settings of 1 and 0 are numbers, not words.
    for spec in ("knn:k=3", "knn:k=1:cover=0:log=true"):
        detector = Detector(spec, tpr=0.5).fit(features)
        detector.save(tmp_path / "d.mcdd")
        for again in (Detector.load(tmp_path / "d.mcdd"), pickle.loads(pickle.dumps(detector))):
            assert np.array_equal(again.p_values(features), detector.p_values(features))
            assert np.array_equal(again.is_known(features), detector.is_known(features)) and again.tpr == 0.5
            assert np.array_equal(again.fit(features).p_values(features), detector.p_values(features))
    with pytest.raises(mcdd.FormatError):
        McddClassifier.load(tmp_path / "d.mcdd")


def test_a_detector_decides_as_outlier_detectors_of_scikit_learn_do():
    random = np.random.default_rng(0)
    features, new = random.normal(size=(300, 5)), random.normal(scale=2, size=(200, 5))
    detector = Detector("knn:k=3").fit(features)
    scores = detector.decision_function(new)
    assert np.array_equal(scores, detector.score_samples(new) - detector.offset_)
    assert np.array_equal(scores >= 0, detector.predict(new) == 1) and 0 < (scores < 0).mean() < 1
    with pytest.raises(mcdd.DataError, match="expecting 5 features"):
        detector.predict(new[:, :4])


def test_a_method_without_classes_needs_no_labels(digits):
    X_train, X_test, y_train, *_ = digits
    clf = McddClassifier(method="deep-svdd", epochs=5).fit(X_train)
    assert clf.classes_.size == 0 and 0.8 < clf.is_known(X_test).mean() < 1
    for name in ("predict", "predict_open", "predict_proba", "predict_set", "decision_function"):
        assert hasattr(McddClassifier(), name) and not hasattr(clf, name)
    with pytest.raises(AttributeError) as caught:
        clf.predict(X_test)
    assert "does not classify" in str(caught.value.__cause__)
    assert "classes" not in clf.verdict()
    assert McddClassifier(method="deep-svdd", epochs=1).fit(X_train, y_train).classes_.size == 0
    with pytest.raises(ValueError, match="requires y"):
        McddClassifier(method="deep-svdd", detector="mahalanobis").fit(X_train)


def test_metrics_refuse_what_is_no_score():
    for known, unknown in (([[1.0, 2.0]], [1.0]), (5.0, [1.0]), ([], [1.0]), ([1.0], [np.nan])):
        with pytest.raises(mcdd.DataError):
            metrics.detection(known, unknown)
    for wrong in ({"n_bootstrap": -1}, {"random_state": -1}):
        with pytest.raises(mcdd.SettingError, match=next(iter(wrong))):
            metrics.detection([1.0], [0.0], **wrong)


def test_a_guard_keeps_the_labels_of_the_classifier(wine):
    lightgbm = pytest.importorskip("lightgbm")
    X_train, X_test, y_train, y_test, unknown = wine
    booster = lightgbm.LGBMClassifier(n_estimators=20, verbose=-1)
    guard = Guard(booster, McddClassifier(preset="fast")).fit(X_train, y_train)
    alone = lightgbm.LGBMClassifier(n_estimators=20, verbose=-1).fit(X_train, y_train)
    assert np.array_equal(guard.predict(X_test), alone.predict(X_test))
    assert np.array_equal(guard.predict_proba(X_test), alone.predict_proba(X_test))
    labels = guard.predict_open(X_test)
    known = guard.is_known(X_test)
    assert np.array_equal(labels[known].astype(int), alone.predict(X_test)[known])
    assert set(labels[~known]) <= {"unknown"}
    assert known.mean() > 0.8 and guard.is_known(unknown).mean() < 0.6
    assert len(guard.explain(unknown[:2], n=3)) == 6
    assert not hasattr(Guard(RandomForestClassifier()), "decision_function")
    assert guard.doctor_ == guard.detector_.doctor_
    forest = Guard(RandomForestClassifier(n_estimators=5), McddClassifier("fast", epochs=2)).fit(X_train, y_train)
    with np.errstate(divide="ignore"):
        assert np.array_equal(forest.predict_log_proba(X_test), np.log(forest.predict_proba(X_test)))


def test_a_trained_estimator_is_not_trained_again(wine):
    from sklearn.frozen import FrozenEstimator
    from sklearn.linear_model import LogisticRegression

    X_train, X_test, y_train, *_ = wine
    fitted = LogisticRegression(max_iter=5000).fit(X_train[:40], y_train[:40])
    guard = Guard(FrozenEstimator(fitted), McddClassifier(preset="fast")).fit(X_train, y_train)
    assert np.array_equal(guard.predict(X_test), fitted.predict(X_test))
    assert guard.decision_function(X_test).shape == (len(X_test),)


def test_findings_are_warnings():
    random = np.random.default_rng(0)
    X = np.column_stack([np.arange(300), random.normal(size=300)])
    y = np.repeat([0, 1, 2], 100)
    with pytest.warns(mcdd.McddWarning, match="1 identifier left out: 1"):
        clf = McddClassifier(preset="fast").fit(X, y)
    assert any("identifier" in finding for finding in clf.doctor_)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mcdd.McddWarning)
        kept = McddClassifier(preset="fast", keep=["1"]).fit(X, y)
    assert kept.score(X, y) > clf.score(X, y)


def test_the_notebook_view(clf):
    page = clf._repr_mimebundle_()["text/html"]
    assert "Trained on 84 rows of 3 classes" in page and "95%" in page
    assert "<" in McddClassifier()._repr_mimebundle_()["text/html"]


def test_refit_is_what_fit_would_have_made(digits, model):
    X_train, X_test, y_train, y_test, sevens = digits
    other = model.refit(X_train, y_train, detector="mahalanobis", tpr=0.9)
    want = McddClassifier(preset="fast", epochs=30, detector="mahalanobis", tpr=0.9).fit(X_train, y_train)
    assert other.get_params() == want.get_params()
    assert other.model_.to_bytes() == want.model_.to_bytes() != model.model_.to_bytes()
    assert np.array_equal(other.is_known(sevens), want.is_known(sevens))
    with pytest.raises(mcdd.DataError, match="not the rows that the model was trained on"):
        model.refit(X_test, y_test, detector="mahalanobis")
    with pytest.raises(mcdd.SettingError):
        model.refit(X_train, y_train, detector="nonsense")


def test_calibration_on_other_rows(digits, model):
    _, X_test, _, y_test, _ = digits
    other = model.calibrate(X_test, y_test)
    assert np.array_equal(np.sort(model.score_samples(X_test)), other.model_.calibration_scores)
    assert other.model_.validation_accuracy == (model.predict(X_test) == y_test).mean()
    assert not np.array_equal(model.model_.calibration_scores, other.model_.calibration_scores)
    assert np.array_equal(other.score_samples(X_test), model.score_samples(X_test))
