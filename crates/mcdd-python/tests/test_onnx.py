"""Models as ONNX give in onnxruntime what they give here."""

from __future__ import annotations

import json

import numpy as np
import onnxruntime
import pandas
import pytest
from sklearn.datasets import load_iris

from mcdd import ImageClassifier, McddClassifier
from mcdd import _mcdd


def run(model: bytes, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs)))


def described(model: bytes) -> list[dict]:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return json.loads(session.get_modelmeta().custom_metadata_map["mcdd.inputs"])


def same(clf, X, found: dict[str, np.ndarray]) -> None:
    assert found["score"] == pytest.approx(clf.score_samples(X), rel=1e-4, abs=1e-4)
    # One of some twenty calibration rows more or less, where a score is that of a calibration row to within rounding.
    assert found["p_value"] == pytest.approx(clf.p_values(X), abs=0.06)
    assert found["probabilities"] == pytest.approx(clf.predict_proba(X), abs=1e-5)
    assert (found["known"] == clf.is_known(X)).mean() > 0.98
    assert (found["class"] == np.argmax(clf.predict_proba(X), axis=1)).all()


def test_an_array(tmp_path):
    X, y = load_iris(return_X_y=True)
    clf = McddClassifier(preset="fast", epochs=20).fit(X, y)
    rows = np.concatenate([X, 3 * X])
    written = clf.to_onnx(tmp_path / "iris.onnx")
    assert (tmp_path / "iris.onnx").read_bytes() == written
    found = run(written, {"x": rows})
    same(clf, rows, found)
    labels = np.array([str(label) for label in clf.predict_open(rows)])
    assert (found["label"] == labels).mean() > 0.98
    # The threshold is an input, or fixed.
    none = run(written, {"x": rows, "threshold": np.array([np.inf])})
    assert not none["known"].any() and (none["label"] == "unknown").all()
    fixed = run(clf.to_onnx(tpr=0.5), {"x": rows})
    assert (fixed["known"] == clf.is_known(rows, tpr=0.5)).mean() > 0.98
    # One row, and none.
    assert run(written, {"x": rows[:1]})["score"] == pytest.approx(found["score"][:1])
    assert run(written, {"x": rows[:0]})["score"].shape == (0,)
    with pytest.raises(_mcdd.SettingError, match="tpr"):
        clf.to_onnx(tpr=1.5)


def hostile() -> tuple[pandas.DataFrame, np.ndarray]:
    """Columns and classes with difficult names, categories, missing cells and times."""
    rng = np.random.default_rng(0)
    n = 600
    y = rng.integers(3, size=n)
    numbers = y[:, None] + rng.normal(scale=0.4, size=(n, 3))
    numbers[rng.random((n, 3)) < 0.05] = np.nan
    colors = np.array(["red", "grün\n", 'a "quoted", text', "score"], dtype=object)
    color = colors[(y + (rng.random(n) < 0.2)) % 4]
    color[rng.random(n) < 0.05] = None
    days = pandas.Timestamp("2023-01-01") + pandas.to_timedelta(rng.integers(1100 * 24, size=n), unit="h")
    frame = pandas.DataFrame(
        {"score": numbers[:, 0], "v7": numbers[:, 1], "threshold": numbers[:, 2], "ключ \u202e\\": color, "day": days}
    )
    names = np.array(["", "unknown?", "a\tb\u0000c"], dtype=object)
    return frame, np.array([names[k] or "ø" for k in y], dtype=object)


@pytest.mark.parametrize("core", [False, True])
def test_names_categories_missing_cells_and_times(core):
    X, y = hostile()
    clf = McddClassifier(preset="fast", epochs=20, per_class=True).fit(X, y)
    written = clf.to_onnx(core=core)
    inputs = {}
    for column in described(written):
        values = X[column["column"]]
        if column["takes"] == "text":
            inputs[column["input"]] = values.fillna("").str.strip().to_numpy(dtype=object).reshape(-1, 1)
        elif column["takes"] == "code":
            codes = {text: i for i, text in enumerate(column["categories"])}
            known = [-1 if pandas.isna(v) else codes.get(str(v).strip(), 1 << 40) for v in values]
            inputs[column["input"]] = np.array(known).reshape(-1, 1)
        elif column["takes"] == "seconds":
            seconds = (values - pandas.Timestamp("1970-01-01")).dt.total_seconds()
            inputs[column["input"]] = seconds.to_numpy(dtype=float).reshape(-1, 1)
        else:
            inputs[column["input"]] = values.to_numpy(dtype=float).reshape(-1, 1)
    assert {c["takes"] for c in described(written)} == {"number", "seconds", "code" if core else "text"}
    found = run(written, inputs)
    same(clf, X, found)
    assert ("label" in found) != core
    if not core:
        assert set(found["label"]) <= {*clf.classes_, "unknown"}


def test_images():
    rng = np.random.default_rng(0)
    X = rng.integers(256, size=(120, 12, 10, 3), dtype=np.uint8)
    y = np.arange(120) % 2
    X[y == 1, :6] //= 3
    clf = ImageClassifier(net="cnn8", epochs=2).fit(X, y)
    same(clf, X, run(clf.to_onnx(), {"image": X}))


def test_a_detector_that_needs_gradients():
    X, y = load_iris(return_X_y=True)
    clf = McddClassifier(preset="paper", method="softmax", detector="odin", epochs=2).fit(X, y)
    with pytest.raises(_mcdd.SettingError, match="gradient"):
        clf.to_onnx()


def network(tmp_path, shape: list, weights: dict[str, np.ndarray], nodes: list):
    """A small network in a file."""
    onnx = pytest.importorskip("onnx")
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op, inputs, outputs, **more) for op, inputs, outputs, more in nodes],
        "network",
        [info("x", onnx.TensorProto.FLOAT, shape)],
        [info("y", onnx.TensorProto.FLOAT, ["rows", 3])],
        [onnx.numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def test_a_backbone_of_numbers(tmp_path):
    random, (X, y) = np.random.default_rng(0), load_iris(return_X_y=True)
    weights = {"w": random.normal(size=(4, 12)) / 2, "v": random.normal(size=(12, 3))}
    nodes = [("MatMul", ["x", "w"], ["h"], {}), ("Relu", ["h"], ["r"], {}), ("MatMul", ["r", "v"], ["y"], {})]
    net = network(tmp_path, ["rows", 4], weights, nodes)
    clf = McddClassifier(preset="fast", epochs=20, backbone=net).fit(X, y)
    assert clf.model_.backbone == ("net.onnx", ["r"])
    assert clf.score(X, y) > 0.8
    # The same as training on the features that onnxruntime computes, to within the order of the columns' standardization.
    features = np.maximum(X.astype(np.float32) @ weights["w"].astype(np.float32), 0)
    other = McddClassifier(preset="fast", epochs=20).fit(features, y)
    assert (clf.predict(X) == other.predict(features)).mean() > 0.95
    # Backbone and head in one file.
    rows = np.concatenate([X, 3 * X])
    same(clf, rows, run(clf.to_onnx(), {"x": rows}))
    # A model file without the network finds it beside it, or where it is given.
    clf.set_params(embed=False).fit(X, y).save(tmp_path / "m.mcdd")
    assert McddClassifier.load(tmp_path / "m.mcdd").score_samples(X) == pytest.approx(clf.score_samples(X), abs=0)
    net.rename(tmp_path / "moved.onnx")
    with pytest.raises(_mcdd.FormatError, match="net.onnx"):
        McddClassifier.load(tmp_path / "m.mcdd")
    McddClassifier.load(tmp_path / "m.mcdd", backbone=tmp_path / "moved.onnx")
    with pytest.raises(_mcdd.SettingError, match="nowhere"):
        McddClassifier(backbone=tmp_path / "moved.onnx", layer="nowhere").fit(X, y)
    with pytest.raises(_mcdd.SettingError, match="backbone="):
        McddClassifier(layer="r").fit(X, y)


def test_a_backbone_of_images(tmp_path):
    random = np.random.default_rng(0)
    weights = {"w": random.normal(size=(8, 3, 3, 3)) / 5, "v": random.normal(size=(8, 3))}
    nodes = [
        ("Conv", ["x", "w"], ["c"], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ("Relu", ["c"], ["r"], {}),
        ("ReduceMean", ["r"], ["f"], {"axes": [2, 3], "keepdims": 0}),
        ("MatMul", ["f", "v"], ["y"], {}),
    ]
    net = network(tmp_path, ["rows", 3, 20, 20], weights, nodes)
    dark, light = random.integers(0, 100, (60, 8, 8, 3)), random.integers(120, 250, (60, 8, 8, 3))
    X, y = np.concatenate([dark, light]).astype(np.uint8), np.repeat(["dark", "light"], 60)
    for more in ({}, {"layer": ["r", "y"], "channel_order": "bgr", "mean": [0.5] * 3, "std": [0.5] * 3}):
        clf = ImageClassifier(backbone=net, epochs=10, **more).fit(X, y)
        assert (clf.predict(X) == y).mean() > 0.9
        same(clf, X, run(clf.to_onnx(), {"image": X}))
        clf.save(tmp_path / "m.mcdd")
        assert ImageClassifier.load(tmp_path / "m.mcdd").score_samples(X) == pytest.approx(clf.score_samples(X), abs=0)
