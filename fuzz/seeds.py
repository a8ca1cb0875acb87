#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets to fuzz/corpus: small files of every format, by other programs where there are some.

    fuzz/seeds.py [MCDD]      MCDD is the command, for models, detectors and results [target/release/mcdd]

It makes a virtual environment in target/fuzz-seeds on its first run.
"""

import io
import json
import os
import pickle
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENV = ROOT / "target" / "fuzz-seeds"
if Path(sys.prefix) != ENV:
    if not (ENV / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", ENV], check=True)
        packages = ["numpy", "pyarrow", "pillow", "openpyxl", "scipy", "onnx"]
        subprocess.run([ENV / "bin" / "pip", "install", "--quiet", *packages], check=True)
    python = str(ENV / "bin" / "python")
    os.execv(python, [python, *sys.argv])

import numpy as np  # noqa: E402
import openpyxl  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.feather as feather  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
import scipy.io  # noqa: E402
from PIL import Image  # noqa: E402

CORPUS = ROOT / "fuzz" / "corpus"
MCDD = str(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target" / "release" / "mcdd").resolve())


def put(target, name, content):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


def ways(way, form, content):
    """Two bytes before the content choose how it is read."""
    return bytes([way, form]) + content


CSV = "a,b,label\n1,2.5,x\n,-3e4,y\n\"4\",5,\"x\"\n7,8,y\n"
TEXTS = {
    "csv": CSV.encode(),
    "semicolon": b"a;b;label\n1,5;2;x\n2,5;3;y\n",
    "european": "größe;klasse\n1.234,5;ä\n2.000,1;ö\n".encode("cp1252"),
    "utf16": CSV.encode("utf-16"),
    "tsv": CSV.replace(",", "\t").encode(),
    "quotes": b"a,label\n\"1\n2\",\"x\"\"y\"\n3,z\n",
    "spaces": b"1 2 3 a\n4 5 6 b\n7 8 9 a\n",
    "jsonl": b'{"a":1,"label":"x"}\n{"a":null,"b":[1,2],"label":"y"}\n{"a":-1e-3,"c":{"d":true},"label":"x"}\n',
    "libsvm": b"1 1:0.5 3:2\n-1 2:1e3\n1 1:nan 4:1\n",
    "times": b"t,label\n2024-02-29T12:00:00Z,a\n1999-12-31 23:59:59,b\n2024-03-01,a\n",
    "words": b"a,label\nyes,1\nno,2\n,1\nNA,2\n",
}


def texts():
    for number, (name, content) in enumerate(TEXTS.items()):
        put("table_text", name, ways(0, number % 4, content))
        put("table_text", f"{name}-raw", ways(0x81, 8, content))
        put("predict_table", name, ways(1, 0, content))


def table():
    return pa.table(
        {
            "a": pa.array([1.0, None, 3.0, 4.5]),
            "t": pa.array(["x", "yy", None, "x"]),
            "d": pa.array([1, 2, 3, 4], pa.timestamp("ms")),
            "c": pa.array(["u", "v", "u", "u"]).dictionary_encode(),
            "n": pa.array([[1], [], None, [2, 3]], pa.list_(pa.int64())),
            "label": pa.array([0, 1, 0, 1]),
        }
    )


def binaries():
    files = {}
    for codec in ["none", "snappy", "gzip", "zstd", "lz4"]:
        for version in ["1.0", "2.0"]:
            out = io.BytesIO()
            pq.write_table(table(), out, compression=codec, data_page_version=version, use_dictionary=codec != "zstd")
            files[f"parquet-{codec}-{version}"] = out.getvalue()
    out = io.BytesIO()
    plain = table().drop_columns(["c", "n"])
    encodings = {"t": "DELTA_BYTE_ARRAY", "label": "DELTA_BINARY_PACKED", "a": "BYTE_STREAM_SPLIT"}
    pq.write_table(plain, out, use_dictionary=False, column_encoding=encodings)
    files["parquet-delta"] = out.getvalue()
    for codec in ["uncompressed", "lz4", "zstd"]:
        out = io.BytesIO()
        feather.write_feather(table(), out, compression=codec)
        files[f"feather-{codec}"] = out.getvalue()
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table().schema) as stream:
        stream.write_table(table())
    files["arrow-stream"] = out.getvalue()
    for kind in ["<f8", ">f4", "|u1", "<i8", "|b1", "<U3", "<f2"]:
        out = io.BytesIO()
        np.save(out, np.arange(6).reshape(3, 2).astype(kind))
        files[f"npy-{kind.strip('<>|')}"] = out.getvalue()
    out = io.BytesIO()
    np.savez_compressed(out, x=np.eye(3), y=np.array(["a", "b", "a"]))
    files["npz"] = out.getvalue()
    files["idx"] = bytes([0, 0, 8, 2, 0, 0, 0, 3, 0, 0, 0, 2]) + bytes(range(6))
    for name, content in files.items():
        put("table_binary", name, ways(0x80, 0, content))
        put("predict_table", name, ways(1, 1, content))
    put("table_binary", "in-npz", ways(0, 2, files["npy-f8"]))
    put("table_binary", "in-gzip", ways(0, 1, files["npy-f8"]))
    book = openpyxl.Workbook()
    for row in [["a", "b", "label"], [1, 2.5, "x"], [None, True, "y"], [3, "=1+1", "x"]]:
        book.active.append(row)
    out = io.BytesIO()
    book.save(out)
    put("table_binary", "xlsx", ways(0, 0, out.getvalue()))
    with zipfile.ZipFile(out) as archive:
        sheet = archive.read("xl/worksheets/sheet1.xml")
        strings = archive.read("xl/sharedStrings.xml") if "xl/sharedStrings.xml" in archive.namelist() else b""
    put("table_binary", "in-xlsx", ways(0, 3, sheet + b"\0" + strings))


def images():
    pixels = np.arange(8 * 6 * 3, dtype=np.uint8).reshape(6, 8, 3)
    kinds = {"rgb": Image.fromarray(pixels), "gray": Image.fromarray(pixels[:, :, 0].copy())}
    encoded = {}
    for kind, image in kinds.items():
        for form in ["png", "jpeg", "webp", "bmp", "gif", "tiff"]:
            out = io.BytesIO()
            image.save(out, form)
            encoded[f"{kind}.{form}"] = out.getvalue()
    exif = Image.Exif()
    exif[0x0112] = 6
    for form in ["jpeg", "webp", "png", "tiff"]:
        out = io.BytesIO()
        kinds["rgb"].save(out, form, exif=exif)
        encoded[f"turned.{form}"] = out.getvalue()
    for name, options in [("progressive.jpeg", {"progressive": True}), ("lossless.webp", {"lossless": True})]:
        out = io.BytesIO()
        kinds["rgb"].save(out, name.split(".")[1], **options)
        encoded[name] = out.getvalue()
    for compression in ["tiff_lzw", "tiff_adobe_deflate", "packbits"]:
        out = io.BytesIO()
        kinds["rgb"].save(out, "tiff", compression=compression)
        encoded[f"{compression}.tiff"] = out.getvalue()
    out = io.BytesIO()
    kinds["rgb"].convert("P").save(out, "bmp")
    encoded["palette.bmp"] = out.getvalue()
    for name, content in encoded.items():
        put("image", name, content)

    put("image_file", "cifar10", ways(0, 1, (bytes([3]) + bytes(3072)) * 2))
    batch = {b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 2], b"filenames": [b"a", b"b"]}
    put("image_file", "cifar-python", ways(0, 0, pickle.dumps(batch, 2)))
    put("image_file", "idx", ways(1, 0, struct.pack(">BBBBIII", 0, 0, 8, 3, 2, 4, 4) + bytes(range(32))))
    for compressed in [False, True]:
        out = io.BytesIO()
        x = np.arange(4 * 4 * 3 * 2, dtype=np.uint8).reshape(4, 4, 3, 2)
        scipy.io.savemat(out, {"X": x, "y": np.array([[1], [10]])}, do_compression=compressed)
        put("image_file", f"svhn-{compressed}", ways(0, 3, out.getvalue()))
    out = io.BytesIO()
    cells = [{"bytes": encoded["rgb.png"], "path": "a"}, {"bytes": encoded["rgb.jpeg"], "path": "b"}]
    pq.write_table(pa.table({"image": cells, "label": [0, 1]}), out)
    put("image_file", "parquet", ways(0, 0, out.getvalue()))


def container(path):
    """The parts of a container: its text, the table of tensors, and the data, with zero bytes between."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    text = header.pop("__metadata__")["mcdd"]
    return text, json.dumps(header, separators=(",", ":")), content[8 + length :]


def joined(text, tensors, data):
    return text.encode() + b"\0" + tensors.encode() + b"\0" + data


def models():
    rows = "".join(f"{i * i % 17},{i * 7 % 5},{'ab'[i % 2]}\n" for i in range(60))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "t.csv").write_text("p,q,label\n" + rows)
        np.save(folder / "f.npy", np.arange(60.0).reshape(20, 3) % 7)

        def run(*args):
            subprocess.run([MCDD, *map(str, args)], cwd=folder, check=True, capture_output=True)

        small = ["--hidden", "4", "--latent", "2", "--epochs", "2", "--quiet"]
        for number, more in enumerate(
            [
                ["--preset", "fast"],
                ["--preset", "paper"],
                ["--preset", "fast", "--method", "softmax", "--detector", "mahalanobis"],
                ["--preset", "fast", "--method", "softmax", "--detector", "knn"],
            ]
        ):
            run("train", "t.csv", "-o", f"{number}.mcdd", *small, *more)
            for target in ["model", "report"]:
                put(target, f"{number}", joined(*container(folder / f"{number}.mcdd")))
            put("export", f"{number}", bytes([number]) + joined(*container(folder / f"{number}.mcdd")))
        put("model", "whole", (folder / "0.mcdd").read_bytes())
        # With networks for the class, one of them with a piecewise-linear code.
        run("train", "t.csv", "-o", "class.mcdd", "--hidden", "2", "--latent", "2", "--epochs", "1", "--members", "4", "--quiet")
        text, tensors, data = container(folder / "class.mcdd")
        assert all(f'"{key}":' in text for key in ["binned", "role", "sharpness"]), text
        for target in ["model", "report"]:
            put(target, "class", joined(text, tensors, data))
        for way in [0, 3]:
            put("export", f"class-{way}", bytes([way]) + joined(text, tensors, data))
        categories = "".join(f"{i % 7},{'xyz'[i % 3]},202{i % 5}-03-0{i % 9 + 1},{'ab'[i % 2]}\n" for i in range(60))
        (folder / "mixed.csv").write_text("p,q,day,label\n" + categories)
        run("train", "mixed.csv", "-o", "mixed.mcdd", *small, "--preset", "fast")
        for target in ["model", "report"]:
            put(target, "mixed", joined(*container(folder / "mixed.mcdd")))
        put("export", "mixed", b"\2" + joined(*container(folder / "mixed.mcdd")))
        run("monitor", "0.mcdd", "t.csv", "--state", "state.json", "--quiet")
        state = json.loads((folder / "state.json").read_text())
        state["calibration"] = "CALIBRATION"
        put("monitor", "state", json.dumps(state).encode())
        for detector in ["knn", "gmm", "mahalanobis", "pca"]:
            try:
                run("fit-detector", "--detector", detector, "--train-features", "f.npy", "-o", f"{detector}.mcdd")
            except subprocess.CalledProcessError:
                continue
            put("scorer", detector, joined(*container(folder / f"{detector}.mcdd")))
        run("train", "t.csv", "-o", "c.mcdd", *small, "--preset", "fast", "--checkpoint", "c")
        text, tensors, data = container(folder / "c" / "member-0.checkpoint")
        text = json.loads(text)
        text["fingerprint"] = "FINGERPRINT"
        put("checkpoint", "run", joined(json.dumps(text), tensors, data))
        (folder / "three.csv").write_text("p,q,label\n" + rows.replace(",b\n", ",c\n", 12))
        run("bench", "three.csv", "--methods", "softmax", "--folds", "2", "--epochs", "1", "--quiet", "-o", "study")
        put("results", "study", (folder / "study" / "results.jsonl").read_bytes())


def networks():
    """ONNX networks: rows, images, other ways to store constants, and operators that compute sizes."""
    from onnx import TensorProto, helper, numpy_helper

    def network(nodes, shape, constants, output="y"):
        port = helper.make_tensor_value_info
        graph = helper.make_graph(
            nodes, "g", [port("x", TensorProto.FLOAT, shape)], [port(output, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        model.metadata_props.add(key="mean", value="0.5,0.5,0.5")
        return model.SerializeToString()

    node, f32 = helper.make_node, np.float32
    rows = [node("Gemm", ["x", "w", "b"], ["h"], transB=1), node("Relu", ["h"], ["r"]), node("MatMul", ["r", "v"], ["y"])]
    put("onnx", "rows", network(rows, ["n", 3], {"w": np.ones((4, 3), f32), "b": np.ones(4, f32), "v": np.ones((4, 2), f32)}))
    conv = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]), node("Clip", ["c", "zero", "six"], ["r"]),
        node("GlobalAveragePool", ["r"], ["p"]), node("Flatten", ["p"], ["f"]), node("Gemm", ["f", "v"], ["y"]),
    ]  # fmt: skip
    constants = {"w": np.ones((4, 3, 3, 3), f32), "zero": f32(0), "six": f32(6), "v": np.ones((4, 2), f32)}
    put("onnx", "images", network(conv, ["n", 3, 8, 8], constants))
    put("onnx", "images-any-size", network(conv, ["n", 3, "h", "w"], constants))
    shapes = [
        node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["n"]), node("Concat", ["n", "minus"], ["to"], axis=0),
        node("Reshape", ["x", "to"], ["r"]), node("Expand", ["r", "big"], ["e"]), node("Tile", ["e", "twice"], ["t"]),
        node("Pad", ["t", "pads"], ["p"]), node("Slice", ["p", "zero", "two", "one"], ["y"]),
    ]  # fmt: skip
    integers = {"zero": [0], "one": [1], "two": [2], "minus": [-1], "big": [2, 4], "twice": [1, 2], "pads": [0, 1, 0, 1]}
    put("onnx", "shapes", network(shapes, ["n", 4], {n: np.array(v, np.int64) for n, v in integers.items()}))
    constant = [node("Constant", [], ["c"], value_floats=[1.0, 2.0, 3.0]), node("Add", ["x", "c"], ["y"])]
    put("onnx", "constant", network(constant, [1, 3], {}))
    resize = [node("Resize", ["x", "", "s"], ["r"], mode="linear"), node("ReduceMean", ["r"], ["y"], axes=[2, 3], keepdims=0)]
    put("onnx", "resize", network(resize, [1, 3, 4, 4], {"s": np.array([1, 1, 2, 2], f32)}))


def rest():
    for number, text in enumerate(
        ["deep-mcdd:nu=1,sigma=shared", "knn:k=5", "softmax+odin:temperature=1000", "resnet20", "best", "last", "12", "a,b"]
    ):
        put("spec", str(number), text.encode())

    def entries(*files):
        return b"".join(bytes([len(n)]) + n + bytes([len(c)]) + c for n, c in files)

    seeds = {
        "files": entries((b"a/b.txt", b"0 one"), (b"a/c.txt", b"0 two")),
        "folder": entries((b"a/", b"5"), (b"a/b", b"0x")),
        "twice": entries((b"a", b"0x"), (b"a", b"0y"), (b"a/b", b"0z")),
        "names": entries((b"../x", b"0"), (b"/x", b"0"), (b".", b"0"), (b"n" * 250, b"0")),
        "links": entries((b"l", b"2"), (b"h", b"1"), (b"f", b"6")),
    }
    for name, content in seeds.items():
        put("archive_zip", name, content)
        put("archive_tar", name, content)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/b.txt", "one" * 50)
        archive.writestr("inner.zip", b"PK\5\6" + bytes(18))
    put("archive_zip", "whole", out.getvalue())


def scores():
    put("scores", "text", ways(0, 0, b"1\n2.5\n-3e-4\n"))
    put("scores", "column", ways(1, 1, b"label,confidence\na,0.5\nb,nan\n"))
    put("scores", "second", ways(3, 1, b"a;b\n1;2\n3;4\n"))
    for kind in ["<f8", "<i4"]:
        out = io.BytesIO()
        np.save(out, np.arange(6).astype(kind))
        put("scores", kind[1:], ways(0, 2, out.getvalue()))
    out = io.BytesIO()
    np.save(out, np.arange(6.0).reshape(6, 1))
    put("scores", "matrix", ways(2, 3, out.getvalue()))


def requests():
    rows = [{"length": 1, "width": 2.5, "color": "red"}, {"length": None, "color": "green"}]
    cells = [[1, 2.5, "red"], [3, None, "blue"]]
    csv = b"length,width,color\n1,2.5,red\n,3,\"blue\"\n"
    table = pa.table({"length": [1.0, None], "width": [2, 3], "color": ["red", "blue"]})
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    dictionary = io.BytesIO()
    coded = table.set_column(2, "color", table["color"].dictionary_encode())
    with pa.ipc.new_stream(dictionary, coded.schema) as stream:
        stream.write_table(coded)
    bodies = {
        "objects": (0, json.dumps(rows).encode()),
        "arrays": (0, json.dumps(cells).encode()),
        "rows": (0, json.dumps({"rows": cells}).encode()),
        "lines": (1, b"".join(json.dumps(r).encode() + b"\n" for r in rows)),
        "csv": (2, csv),
        "arrow": (3, out.getvalue()),
        "dictionary": (3, dictionary.getvalue()),
        "unnamed": (5, json.dumps(rows[0]).encode()),
        "unnamed-csv": (5, csv),
    }
    for number, (name, (form, body)) in enumerate(bodies.items()):
        put("request_predict", name, ways(number % 4, form, body))
    put("request_predict", "explained", ways(1, 0, json.dumps(rows).encode()))

    def tensor(name, shape, kind, **more):
        return {"name": name, "shape": shape, "datatype": kind, **more}

    columns = [
        tensor("length", [2], "FP64", data=[1.5, None]),
        tensor("width", [2], "INT32", data=[1, 2]),
        tensor("color", [2, 1], "BYTES", data=[["red"], ["blue"]]),
    ]
    outputs = [{"name": "known"}, {"name": "explanation", "parameters": {"binary_data": True}}]
    put("request_infer", "columns", json.dumps({"id": "1", "inputs": columns, "outputs": outputs}).encode())
    texts = b"".join(struct.pack("<I", len(t)) + t for t in [b"1.5", b"2", b"red"])
    matrix = tensor("x", [1, 3], "BYTES", parameters={"binary_data_size": len(texts)})
    head = {"inputs": [matrix], "parameters": {"binary_data_output": True, "tpr": 0.9}}
    put("request_infer", "binary", json.dumps(head).encode() + b"\0" + texts)
    numbers = struct.pack("<2d2i", 1, 2, 3, 4)
    coded = [
        tensor("length", [2], "FP64", parameters={"binary_data_size": 16}),
        tensor("width", [2], "INT32", parameters={"binary_data_size": 8}),
        columns[2],
    ]
    put("request_infer", "both", json.dumps({"inputs": coded}).encode() + b"\0" + numbers)
    put("request_infer", "matrix", json.dumps({"inputs": [tensor("x", [2, 3], "BYTES", data=["1", "2", "red"] * 2)]}).encode())

    heads = {
        "predict": b"POST\n/predict?model=m&tpr=0.9\nContent-Type: text/csv\n\n" + csv,
        "infer": b"POST\n/v2/models/m/versions/1/infer\nInference-Header-Content-Length:2\n\n{}",
        "length": b"POST\n/predict\nContent-Length: 99999999999\n\n[]",
        "encoded": b"POST\n/predict\nContent-Encoding: gzip\n\n\x1f\x8b",
    }
    paths = "/ /page.js /status /openapi.json /metrics /v2 /v2/health/ready /v2/models/m /v2/models/m/ready /nothing/%2e%2e".split()
    heads |= {f"get-{n}": f"GET\n{path}\nX-Request-Id: a-{n}\n".encode() for n, path in enumerate(paths)}
    heads |= {f"post-{n}": f"POST\n{p}\n\n".encode() for n, p in enumerate(["/models/m/restart", "/v2/repository/index"])}
    for name, content in heads.items():
        put("request_any", name, content)


for part in [texts, binaries, images, models, networks, rest, scores, requests]:
    part()
for folder in sorted(CORPUS.iterdir()):
    files = list(folder.iterdir())
    print(f"{folder.name:<14} {len(files):>4} files, {sum(f.stat().st_size for f in files):>8} bytes")
