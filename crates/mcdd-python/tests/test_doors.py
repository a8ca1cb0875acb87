"""The command and Python: one file format, the same numbers."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import mcdd
from mcdd import ImageClassifier, McddClassifier, report

from conftest import customers

pandas = pytest.importorskip("pandas")


def run(*args):
    return subprocess.run(args, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    columns, y = customers()
    frame = pandas.DataFrame(columns)
    path = tmp_path_factory.mktemp("table") / "customers.csv"
    frame.assign(plan=y).to_csv(path, index=False)
    return frame, y, path


def test_a_model_of_python_opens_in_the_command(command, table, tmp_path):
    frame, y, path = table
    model = McddClassifier(preset="fast", epochs=10).fit(frame, y)
    file = tmp_path / "m.mcdd"
    model.save(file)
    lines = list(csv.DictReader(io.StringIO(run(command, "predict", str(file), str(path), "--tpr", "0.9"))))
    assert [float(line["confidence"]) for line in lines] == model.score_samples(frame).tolist()
    assert [line["label"] for line in lines] == model.predict(frame).tolist()
    known = model.is_known(frame, tpr=0.9)
    assert [line["verdict"] == "known" for line in lines] == known.tolist()


def test_a_model_of_the_command_opens_in_python(command, table, tmp_path):
    frame, y, path = table
    file = tmp_path / "m.mcdd"
    run(command, "train", str(path), "--label", "plan", "--preset", "fast", "--epochs", "10", "-o", str(file))
    model = McddClassifier.load(file)
    trained = McddClassifier(preset="fast", epochs=10).fit(frame, y)
    assert np.array_equal(model.score_samples(frame), trained.score_samples(frame))
    assert model.classes_.tolist() == ["free", "pro", "team"] and model.n_features_in_ == 5
    assert list(model.feature_names_in_) == list(frame.columns)


def test_numeric_classes_come_back_as_numbers(iris, clf, tmp_path):
    clf.save(tmp_path / "m.mcdd")
    again = McddClassifier.load(tmp_path / "m.mcdd")
    assert np.array_equal(again.predict(iris[1]), clf.predict(iris[1])) and again.classes_.dtype.kind == "i"


def test_a_loaded_classifier_trains_the_same_again(iris, tmp_path):
    from sklearn.base import clone

    X_train, X_test, y_train, _ = iris
    settings = {"preset": "fast", "epochs": 7, "nu": 0.3, "detector": "knn:k=3", "per_class": True, "tpr": 0.8}
    clf = McddClassifier(**settings).fit(X_train, y_train == 1)
    clf.save(tmp_path / "m.mcdd")
    again = McddClassifier.load(tmp_path / "m.mcdd", classes=[False, True])
    assert np.array_equal(again.predict(X_test), clf.predict(X_test)) and again.tpr == 0.8
    trained = clone(again).fit(X_train, y_train == 1)
    assert np.array_equal(trained.score_samples(X_test), clf.score_samples(X_test))
    assert McddClassifier.load(tmp_path / "m.mcdd").classes_.tolist() == ["False", "True"]
    with pytest.raises(ValueError, match="classes="):
        McddClassifier.load(tmp_path / "m.mcdd", classes=["a", "b"])


def test_damaged_files_are_errors(tmp_path, clf):
    clf.save(tmp_path / "m.mcdd")
    data = (tmp_path / "m.mcdd").read_bytes()
    for bad in (b"", b"not a model", data[:-1], data[: len(data) // 2], data.replace(b"mcdd", b"mcdq", 1)):
        (tmp_path / "bad.mcdd").write_bytes(bad)
        with pytest.raises(mcdd.FormatError):
            McddClassifier.load(tmp_path / "bad.mcdd")


def test_reports(wine, tmp_path):
    X_train, X_test, y_train, y_test, unknown = wine
    clf = McddClassifier(preset="fast").fit(X_train, y_train)
    page = report(clf, X_test, y_test, unknown={"third wine": unknown}, title="Wine")
    page.save(tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert text == page.html and "third wine" in text and "<title>" in text
    assert "srcdoc" in page._repr_html_()
    assert {"scores", "roc"} <= set(page.figures) and all("<svg" in svg for svg in page.figures.values())
    with pytest.raises(mcdd.DataError, match="unknown="):
        report(clf, unknown, np.full(len(unknown), 2))


def pictures(n, low, high):
    return np.random.default_rng(n + low).integers(low, high, (n, 8, 8, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def images():
    """Dark and light pictures, their classes, and a classifier of them."""
    X, y = np.concatenate([pictures(60, 0, 90), pictures(60, 160, 255)]), np.repeat(["dark", "light"], 60)
    return X, y, ImageClassifier("resnet8", epochs=20).fit(X, y)


def test_reports_on_images(images):
    X, y, clf = images
    new, strange = np.concatenate([pictures(20, 0, 90), pictures(20, 160, 255)]), pictures(30, 0, 255)
    page = report(clf, new, np.repeat(["dark", "light"], 20), unknown={"mixed": strange})
    assert "mixed" in page.html and "scores" in page.figures
    with pytest.raises(mcdd.DataError, match="8x8x3"):
        report(clf, new[:, :6])
    with pytest.raises(TypeError, match="Guard"):
        report(mcdd.Guard(None), new)
    assert "100 images" in clf.verdict()


def test_images_from_arrays_and_folders(images, tmp_path):
    X, y, clf = images
    assert clf.score(X, y) > 0.9 and clf.p_values(X).shape == (120,)
    clf.save(tmp_path / "i.mcdd")
    again = ImageClassifier.load(tmp_path / "i.mcdd")
    assert np.array_equal(again.score_samples(X), clf.score_samples(X)) and again.net == "resnet8"
    pillow = pytest.importorskip("PIL.Image")
    for label in ("dark", "light"):
        (tmp_path / "photos" / label).mkdir(parents=True)
    for i, (pixels, label) in enumerate(zip(X, y, strict=True)):
        pillow.fromarray(pixels).save(tmp_path / "photos" / label / f"{i:03}.png")
    folder = ImageClassifier("resnet8", epochs=20).fit(tmp_path / "photos")
    assert np.array_equal(folder.score_samples(X), clf.score_samples(X))
    paths = sorted((tmp_path / "photos" / "dark").iterdir())
    assert np.array_equal(folder.p_values(paths), clf.p_values(X[:60]))
    other = folder.refit(tmp_path / "photos", detector="msp", tpr=0.9)
    want = ImageClassifier("resnet8", detector="msp", tpr=0.9, epochs=20).fit(X, y)
    assert other.model_.to_bytes() == want.model_.to_bytes() == clf.refit(X, y, detector="msp", tpr=0.9).model_.to_bytes()
    fresh = pictures(40, 0, 90)
    assert np.array_equal(clf.calibrate(fresh).model_.calibration_scores, np.sort(clf.score_samples(fresh)))
    with pytest.raises(ValueError, match="leave out y"):
        ImageClassifier().fit(tmp_path / "photos", y)
    with pytest.raises(ValueError, match="uint8"):
        clf.predict(X.astype(float))


def test_images_have_presets(images):
    X, y, _ = images
    mirrored = np.ascontiguousarray(X[:, :, ::-1])
    for given, net, epochs, same in [
        ({}, "cnn", 16, True),
        ({"preset": "fast"}, "cnn", 5, True),
        ({"augment": "move"}, "cnn", 16, False),
        ({"test_flips": False}, "cnn", 16, False),
    ]:
        clf = ImageClassifier(**given, batch=30).fit(X, y)
        settings = json.loads(clf.model_.settings)
        assert (settings["image"]["net"], settings["epochs"]) == (net, epochs)
        assert np.array_equal(clf.score_samples(X), clf.score_samples(mirrored)) == same
    with pytest.raises(mcdd.SettingError, match="augment"):
        ImageClassifier(augment="sideways").fit(X, y)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_stops_training_and_the_interpreter_goes_on():
    script = """
import numpy as np, mcdd, sys
X = np.random.default_rng(0).normal(size=(2000, 20)); y = np.arange(2000) % 5
clf = mcdd.McddClassifier(epochs=40_000)
print("training", flush=True)
try:
    clf.fit(X, y)
except KeyboardInterrupt:
    print("stopped", mcdd.McddClassifier(preset="fast", epochs=1).fit(X, y).predict(X[:3]).shape, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "training\n"
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert out == "stopped (3,)\n" and process.returncode == 0


def test_progress(iris, capsys):
    X_train, _, y_train, _ = iris
    McddClassifier(preset="fast", epochs=5, verbose=1).fit(X_train, y_train)
    assert "5" in capsys.readouterr().err


def test_importing_is_fast_and_lean():
    code = "import sys, mcdd; assert 'sklearn' not in sys.modules and 'pandas' not in sys.modules; print(mcdd.__version__)"
    assert run(sys.executable, "-c", code).strip() == mcdd.__version__
    names = set(dir(mcdd))
    assert {"McddClassifier", "Guard", "Detector", "ImageClassifier", "Monitor", "report", "metrics"} <= names
    with pytest.raises(AttributeError):
        mcdd.nothing


def test_stubs_and_package_agree():
    package = Path(mcdd.__file__).parent
    assert (package / "py.typed").exists() and (package / "_mcdd.pyi").exists()
    stub = (package / "_mcdd.pyi").read_text()
    for name in dir(mcdd._mcdd):
        if not name.startswith("_"):
            assert f"class {name}" in stub or f"def {name}(" in stub, name
