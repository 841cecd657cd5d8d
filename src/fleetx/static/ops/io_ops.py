"""Ops that mark where data enters and leaves a program; the executor does what they say."""

from __future__ import annotations

from typing import Any

import torch

from fleetx.checkpoint.paddle_tensor import read_tensor
from fleetx.static.graph.op_registry import Attr, effect_op


@effect_op("feed", attrs={"col": 0})
def feed(x: Any) -> Any:
    """Mark a variable as fed; column `col` of the feed list."""
    return x


@effect_op("fetch", attrs={"col": 0})
def fetch(x: Any) -> Any:
    """Mark a variable as fetched; column `col` of the fetch list."""
    return x


@effect_op(
    "create_py_reader",
    inputs="blocking_queue",
    attrs={
        "shape_concat": Attr("INTS", []),
        "ranks": Attr("INTS", []),
        "lod_levels": Attr("INTS", []),
        "dtypes": Attr("INTS", []),
        "need_check_feed": Attr("INTS", []),
        "use_data_config": True,
        "device_index": 0,
        "device_count": 1,
    },
)
def create_py_reader(queue: Any) -> Any:
    """Mark a reader that runs ahead of the program, with what its batches look like."""
    return queue


@effect_op(
    "create_double_buffer_reader",
    inputs="UnderlyingReader",
    attrs={"place": "AUTO"},
)
def create_double_buffer_reader(reader: Any) -> Any:
    """Mark a reader whose batches are copied to the device ahead."""
    return reader


@effect_op(
    "read",
    inputs="Reader",
    outputs="Out*",
    attrs={"throw_eof_exp": True, "infer_out": True, "drop_last": True},
)
def read(reader: Any) -> Any:
    """Mark variables as coming from a reader."""
    return reader


@effect_op("load", inputs="", attrs={"seek": Attr("LONG", -1), "shape": Attr("LONGS", [0])})
def load(*, file_path: str = "", load_as_fp16: bool = False, ctx: Any) -> torch.Tensor:
    """Read a tensor from a file of its own."""
    with open(file_path, "rb") as stream:
        tensor = torch.from_numpy(read_tensor(stream, source=file_path).array).to(ctx.device)
    return tensor.half() if load_as_fp16 else tensor
