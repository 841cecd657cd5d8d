"""Ops that mark where data enters and leaves a program; the executor does what they say."""

from __future__ import annotations

from typing import Any

import torch

from fleetx.checkpoint.paddle_tensor import read_tensor
from fleetx.static.graph.op_registry import Attr, effect_op


def _mark(x: Any) -> Any:
    return x


# A variable that is fed or fetched: column `col` of the feed or fetch list.
effect_op("feed", attrs={"col": 0})(_mark)
effect_op("fetch", attrs={"col": 0})(_mark)
# A reader that runs ahead of the program, with what its batches look like.
effect_op(
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
)(_mark)
# A reader whose batches are copied to the device ahead of their use.
effect_op("create_double_buffer_reader", inputs="UnderlyingReader", attrs={"place": "AUTO"})(_mark)
# Variables that come from a reader.
effect_op(
    "read",
    inputs="Reader",
    outputs="Out*",
    attrs={"throw_eof_exp": True, "infer_out": True, "drop_last": True},
)(_mark)


@effect_op("load", inputs="", attrs={"seek": Attr("LONG", -1), "shape": Attr("LONGS", [0])})
def load(*, file_path: str = "", load_as_fp16: bool = False, ctx: Any) -> torch.Tensor:
    """Read a tensor from a file of its own."""
    with open(file_path, "rb") as stream:
        tensor = torch.from_numpy(read_tensor(stream, source=file_path).array).to(ctx.device)
    return tensor.half() if load_as_fp16 else tensor
