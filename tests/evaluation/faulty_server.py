"""A plain HTTP server around a model; the path of a request selects its fault.

    python faulty_server.py MODEL OLD_MODEL

`/raw/FAULT`, `/json/FAULT` and `/kserve/FAULT` take and give the bodies of those adapters;
`/photos/FAULT` takes photographs, which it prepares itself.
"""

import base64
import io
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import torch
from PIL import Image

from fleetx.data.imagenet_augment import Augment, Pictures
from fleetx.serving.bodies import decode_raw, encode_raw
from fleetx.serving.model import load_model

MODEL, OLD = load_model(sys.argv[1]), load_model(sys.argv[2])
MEAN = np.array([0.485, 0.456, 0.406], "float32").reshape(3, 1, 1)
STD = np.array([0.229, 0.224, 0.225], "float32").reshape(3, 1, 1)
LOCK = threading.Lock()
asked = 0


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def as_bfloat16(x):
    return (x.view(np.uint32) & 0xFFFF0000).view(np.float32)


def shifted(x):
    x = x.copy()
    x[:, 417] += 1e-3
    return x


def swapped(x):
    x = x.copy()
    x[:, [3, 700]] = x[:, [700, 3]]
    return x


def sometimes_wrong(x):
    x = x.copy()
    x[len(x) // 2] = np.random.default_rng(0).standard_normal(x.shape[1])
    return x


BEFORE = {
    "channels": lambda x: x[:, ::-1].copy(),
    "unnormalised": lambda x: x * STD + MEAN,
    "bytes": lambda x: (x * STD + MEAN) * 255,
    "unnormalised_bgr": lambda x: (x * STD + MEAN)[:, ::-1].copy(),
    "odd_scale": lambda x: x * np.float32(0.43) + np.float32(0.21),
    "mirrored": lambda x: x[..., ::-1].copy(),
}
AFTER = {
    "shifted": shifted,
    "swapped": swapped,
    "rotated": lambda x: np.roll(x, -1, axis=1),
    "reversed_rows": lambda x: x[::-1].copy(),
    "softmax": softmax,
    "float16": lambda x: x.astype("float16").astype("float32"),
    "bfloat16": as_bfloat16,
    "decimals": lambda x: np.round(x.astype("float64"), 3),
    "doubled": lambda x: x * 2,
    "constant": lambda x: np.repeat(x[:1] * 0 + np.float32(0.5), len(x), axis=0),
    "random": lambda x: np.random.default_rng(5).standard_normal(x.shape).astype("float32"),
    "not_a_number": lambda x: np.where(np.arange(1000) == 5, np.float32("nan"), x),
    "short": lambda x: x[:, :10].copy(),
    "one_row": lambda x: x[:1],
    "one_sample": sometimes_wrong,
}


def prepared(photo, fault):
    """Return a photograph as a normalised picture [3, 16, 16], in one way or another."""
    if fault in ("photo", "channels"):
        return validated(photo, Augment(crop_size=16, resize_short_size=18))
    if fault == "pixels_bgr":
        plain = Augment(crop_size=16, resize_short_size=18, mean=(0, 0, 0), std=(1, 1, 1))
        return (validated(photo, plain)[::-1] - MEAN) / STD
    image = Image.open(io.BytesIO(photo)).convert("RGB")
    if fault == "squeezed":
        pixels = np.asarray(image.resize((16, 16), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    else:
        assert fault == "unsmoothed_bgr"
        height, width = (round(side * 18 / min(image.size)) for side in (image.height, image.width))
        whole = torch.from_numpy(np.array(image)).permute(2, 0, 1).float()[None]
        whole = torch.nn.functional.interpolate(whole, (height, width), mode="bilinear")[0]
        top, left = (height - 16) // 2, (width - 16) // 2
        pixels = whole[:, top : top + 16, left : left + 16].flip(0).round().byte().numpy()
    return (pixels.astype("float32") / 255 - MEAN) / STD


def validated(photo, augment):
    out = np.empty((3, 16, 16), np.float32)
    Pictures(augment).validation(photo, out)
    return out


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        kind, fault = self.path.strip("/").split("/")
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if fault == "never":
            threading.Event().wait(600)
        if fault == "busy_first" and self.is_early():
            return self.answer(503, b"come back later", {"Retry-After": "0"})
        if fault == "refused":
            return self.answer(422, b"no such picture", {})
        if fault == "moved":
            return self.answer(301, b"", {"Location": "http://elsewhere/"})
        if fault == "garbage":
            return self.answer(200, b"<html>hello</html>", {})
        x = self.inputs(kind, body, fault)
        model = OLD if fault.startswith("old") else MODEL
        with LOCK:
            (y,) = model.run({"picture": BEFORE.get(fault, lambda x: x)(x)}).values()
        y = AFTER.get(fault, lambda y: y)(y)
        headers = {}
        if fault == "old":
            headers = {"X-Model-Version": "2023-07", "X-Model-Checksum": model.checksum}
        return self.answer(200, self.outputs(kind, y), headers)

    def is_early(self):
        global asked
        asked += 1
        return asked == 1

    def inputs(self, kind, body, fault):
        if kind == "raw":
            return decode_raw(body)["picture"]
        content = json.loads(body)
        if kind == "json":
            return np.array(content["inputs"]["picture"], "float32")
        if kind == "photos":
            return np.stack([prepared(base64.b64decode(each), fault) for each in content["photos"]])
        if kind == "own":
            return np.array(content["rows"], "float32").reshape(-1, 3, 16, 16)
        (tensor,) = content["inputs"]
        assert tensor["datatype"] == "FP32"
        return np.array(tensor["data"], "float32").reshape(tensor["shape"])

    def outputs(self, kind, y):
        if kind == "raw":
            return encode_raw({"scores": y})
        if kind in ("json", "photos"):
            return json.dumps({"predictions": y.tolist()}).encode()
        if kind == "own":
            return y.astype("<f4").tobytes()
        tensor = {"name": "scores", "shape": y.shape, "datatype": "FP32"}
        content = {"model_name": "m", "outputs": [{**tensor, "data": y.reshape(-1).tolist()}]}
        return json.dumps(content).encode()

    def answer(self, status, body, headers):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
