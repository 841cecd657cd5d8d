"""Casting a program: which ops run in half precision, and the `cast` ops between them.

White ops run in half precision, black and unlisted ones in single precision; gray ones follow the
ops that compute their inputs (single if one of them is). Lists, rule and names (`x.cast_fp16`, for
bfloat16 too) are Paddle's. Parameters stay float32: their casts are part of the program, so their
gradients come back as float32. Ops that write persistable or rewritten variables, and ops whose
results are read inside control flow, stay in single precision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fleetx.static.graph.block import Block
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_names import reads_of, sub_blocks, writes_of
from fleetx.static.graph.op_registry import EMPTY_NAME
from fleetx.static.graph.operator import Operator, OpRole
from fleetx.static.graph.program import Program

_WHITE = {"conv2d", "matmul", "matmul_v2", "mul"}
_BLACK = {
    *("exp", "square", "log", "mean", "sum", "cos_sim", "softmax", "softmax_with_cross_entropy"),
    *("sigmoid_cross_entropy_with_logits", "cross_entropy", "cross_entropy2"),
    *("lookup_table", "lookup_table_v2"),
}
_GRAY = {
    *("elementwise_add", "elementwise_sub", "elementwise_mul", "elementwise_div"),
    *("elementwise_max", "elementwise_min", "elementwise_pow", "elementwise_mod"),
    *("elementwise_floordiv", "batch_norm", "tanh", "sigmoid", "top_k", "pool2d", "pool3d"),
    *("dropout", "relu", "relu6", "leaky_relu", "soft_relu", "flatten2", "stack", "unstack"),
    *("uniform_random", "uniform_random_batch_size_like", "gaussian_random"),
    *("gaussian_random_batch_size_like", "slice", "rank", "scale", "transpose2", "reshape2"),
    *("gather", "fill_constant", "get_tensor_from_selected_rows", "sign", "cast", "concat"),
    *("split", "fused_bn_add_activation", "c_identity", "c_concat", "c_allreduce_sum"),
}
# Slots that stay float32 in a half-precision op: statistics and the factors applied to them.
_HALF_SLOTS = {"batch_norm": ("X", "Y"), "layer_norm": ("X", "Y"), "instance_norm": ("X", "Y")}
_DTYPES = {"float16": VarType.FP16, "bfloat16": VarType.BF16}
_TYPE_ATTRS = ("in_dtype", "out_dtype", "dtype")


def half_type(dtype: str) -> VarType:
    """Return the half-precision type: float16 or bfloat16."""
    found = _DTYPES.get(str(dtype).lower())
    if found is None:
        raise ValueError(f"dtype of decorate must be 'float16' or 'bfloat16', not {dtype!r}.")
    return found


def made_for(device: str) -> str:
    """Return the half-precision type that a kind of device computes fast.

    CPUs have vector instructions for bfloat16, if any; float16 is computed number by number.
    """
    return "bfloat16" if device == "cpu" else "float16"


class AutoMixedPrecisionLists:
    """Ops that run in half precision (white) and ops that do not (black), with custom changes."""

    def __init__(
        self,
        custom_white_list: Iterable[str] | None = None,
        custom_black_list: Iterable[str] | None = None,
        custom_black_varnames: Iterable[str] | None = None,
        dtype: str = "float16",
    ) -> None:
        half_type(dtype)
        white, black = set(custom_white_list or ()), set(custom_black_list or ())
        both = white & black
        if both:
            raise ValueError(f"custom_white_list and custom_black_list overlap: {sorted(both)}.")
        self.amp_dtype = dtype
        self.white_list = (_WHITE | white) - black
        self.black_list = (_BLACK | black) - white
        self.gray_list = _GRAY - white - black
        self.black_varnames = set(custom_black_varnames or ())


def cast_program(program: Program, lists: AutoMixedPrecisionLists, half: VarType) -> None:
    """Cast the ops of a program's main block according to the lists."""
    block = program.global_block()
    ops = [op for op in block.ops if not op.op_role & OpRole.LRSched]
    precisions = _precisions(block, ops, lists, half)
    _Casting(block, half).run(precisions)


def _precisions(
    block: Block, ops: list[Operator], lists: AutoMixedPrecisionLists, half: VarType
) -> dict[int, VarType]:
    """Return the compute type of each op by uid; unlisted ops are unchanged."""
    fixed = _kept_single(block, ops) | lists.black_varnames
    found: dict[int, VarType] = {}
    made_in: dict[str, VarType] = {}
    for op in ops:
        touched = {*op.input_arg_names, *op.output_arg_names} - _single_names(op)
        choice: VarType | None = VarType.FP32
        if touched & fixed or sub_blocks(op) or op.type in lists.black_list:
            pass
        elif op.type in lists.white_list:
            choice = half
        elif op.type in lists.gray_list:
            sources = {made_in[n] for n in op.input_arg_names if n in made_in}
            choice = VarType.FP32 if VarType.FP32 in sources else half if sources else None
        if choice is not None:
            found[op.uid] = choice
            made_in.update(dict.fromkeys(op.output_arg_names, choice))
    return found


def _kept_single(block: Block, ops: list[Operator]) -> set[str]:
    """Return variables whose type must not change, or whose cast value would be outdated."""
    writes = Counter(n for op in ops for n in writes_of(op))
    inside = {n for op in ops if sub_blocks(op) for n in (*reads_of(op), *writes_of(op))}
    del writes[EMPTY_NAME]
    persistable = {n for n in writes if block.var_recursive(n).persistable}
    return {n for n, count in writes.items() if count > 1} | inside | persistable


def _single_names(op: Operator) -> set[str]:
    """Return the variables in slots that stay float32 in any precision."""
    slots = _HALF_SLOTS.get(op.type)
    if slots is None:
        return set()
    both = (*op.inputs.items(), *op.outputs.items())
    return {n for slot, names in both if slot not in slots for n in names}


class _Casting:
    """Inserts the cast ops of one block."""

    def __init__(self, block: Block, half: VarType) -> None:
        self.block = block
        self.half = half
        self._cast: set[str] = set()

    def run(self, precisions: dict[int, VarType]) -> None:
        for op in list(self.block.ops):
            wanted = precisions.get(op.uid)
            if wanted is not None:
                self._cast_inputs(op, wanted)
                if wanted == self.half:
                    self._halve_outputs(op)
        self.block.program.bump_version()

    def _cast_inputs(self, op: Operator, wanted: VarType) -> None:
        source = VarType.FP32 if wanted == self.half else self.half
        # The last slot's cast comes first, as Paddle inserts each right before the op.
        casts: list[str] = []
        for slot in sorted(op.inputs):
            if wanted == self.half and slot not in _HALF_SLOTS.get(op.type, (slot,)):
                continue
            for i, name in enumerate(op.inputs[slot]):
                if name == EMPTY_NAME or not self._is(name, source):
                    continue
                op.inputs[slot][i] = new = self._cast_name(name, wanted)
                if new not in self._cast:
                    self._cast.add(new)
                    casts.insert(0, name)
        position = op.idx
        for name in casts:
            self._insert(position, op, name, wanted)
            position += 1

    def _is(self, name: str, dtype: VarType) -> bool:
        var = self.block.var_recursive(name)
        return var.type == VarType.LOD_TENSOR and var.dtype == dtype

    def _cast_name(self, name: str, wanted: VarType) -> str:
        return name + (".cast_fp32" if wanted == VarType.FP32 else ".cast_fp16")

    def _insert(self, position: int, op: Operator, name: str, wanted: VarType) -> None:
        source = self.block.var_recursive(name)
        new = self.block.create_var(
            name=self._cast_name(name, wanted),
            shape=source._shape,
            dtype=wanted,
            lod_level=source.lod_level,
            persistable=False,
            stop_gradient=source.stop_gradient,
        )
        self.block.insert_op(
            position,
            type="cast",
            inputs={"X": [source]},
            outputs={"Out": [new]},
            attrs={
                "in_dtype": int(source.dtype),
                "out_dtype": int(wanted),
                "op_role": op.op_role,
            },
        )

    def _halve_outputs(self, op: Operator) -> None:
        for name in _TYPE_ATTRS:
            if op.attrs.get(name) == VarType.FP32 and name != "in_dtype":
                op.attrs[name] = int(self.half)
        for slot, names in op.outputs.items():
            if slot not in _HALF_SLOTS.get(op.type, (slot,)):
                continue
            for name in names:
                if name != EMPTY_NAME and self._is(name, VarType.FP32):
                    var = self.block.var_recursive(name)
                    var._dtype = self.half
