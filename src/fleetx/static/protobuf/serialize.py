"""Programs as Paddle's ProgramDesc protobuf, in both directions.

`program_to_bytes` writes what `__model__` and `.pdmodel` files hold; `program_from_bytes` checks
such bytes completely and returns a Program, or raises an error that names the source. Attributes
are in `attr_codec.py`; `gradient_links.py` restores the forward op of each gradient op.
"""

from __future__ import annotations

from typing import Any

from fleetx.checkpoint.file_errors import FormatError
from fleetx.checkpoint.program_desc import AttrType, message, parse_program
from fleetx.static.graph.block import Block
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_registry import find_op
from fleetx.static.graph.operator import Operator
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Parameter, Variable
from fleetx.static.protobuf.attr_codec import decode_attr, encode_attr, fit_declared, kind_for
from fleetx.static.protobuf.gradient_links import link_gradients
from fleetx.static.protobuf.sparse_gradients import selected_rows

# The member of VarType that describes the tensors of a variable of this kind.
_TENSOR_MEMBERS = {
    VarType.LOD_TENSOR: "lod_tensor",
    VarType.LOD_TENSOR_ARRAY: "tensor_array",
    VarType.SELECTED_ROWS: "selected_rows",
}
# Inputs of gradient ops that select another kernel in Paddle: batch_norm in place.
_UNWANTED = {"batch_norm_grad": ("Y",), "sync_batch_norm_grad": ("Y",)}
_KERNEL_FLAGS = ("use_cudnn", "use_mkldnn", "use_quantizer")


# -- writing
# ------------------------------------------------------------------------------------------
def _write_variable(desc: Any, var: Variable, *, rows: bool = False) -> None:
    desc.name = var.name
    kind = VarType.SELECTED_ROWS if rows else var.type
    desc.type.type = int(kind)
    member = _TENSOR_MEMBERS.get(kind)
    if member is not None and (var.dtype is not None or var._shape is not None):
        body = getattr(desc.type, member)
        tensor = body if kind == VarType.SELECTED_ROWS else body.tensor
        tensor.data_type = int(VarType.FP32 if var.dtype is None else var.dtype)
        tensor.dims.extend(var.shape)
        if kind != VarType.SELECTED_ROWS:
            body.lod_level = var.lod_level
    elif kind == VarType.READER:
        desc.type.reader.SetInParent()
    desc.persistable = var.persistable
    # The remaining flags are unknown to Paddle 1.x, which skips them; they are written when set.
    for flag in ("need_check_feed", "is_parameter", "stop_gradient"):
        if getattr(var, flag):
            setattr(desc, flag, True)


def _write_op(desc: Any, op: Operator) -> None:
    desc.type = op.type
    for slot in sorted(op.inputs):
        # Paddle does not list old values of outputs as inputs; see Operator.__init__.
        if slot not in op.outputs and slot not in _UNWANTED.get(op.type, ()):
            desc.inputs.add(parameter=slot, arguments=op.inputs[slot])
    for slot in sorted(op.outputs):
        desc.outputs.add(parameter=slot, arguments=op.outputs[slot])
    for name in sorted(op.attrs):
        value = op.attrs[name]
        if value is None:
            continue
        kind = kind_for(op, name, value)
        try:
            encode_attr(desc.attrs.add(name=name), kind, value)
        except (TypeError, ValueError, AttributeError) as error:
            raise ValueError(
                f"The program cannot be saved: attribute {name!r} of op {op.type!r} is "
                f"{value!r}, which does not fit its kind {kind.name} ({error})."
            ) from error
    _write_kernel_flags(desc, op)


def _write_kernel_flags(desc: Any, op: Operator) -> None:
    """Write the switches that Paddle fills in for forward ops, but reads from gradient ops."""
    if op.type.endswith("_grad"):
        for name in _KERNEL_FLAGS:
            if op.attrs.get(name) is None:
                encode_attr(desc.attrs.add(name=name), AttrType.BOOLEAN, False)


def program_to_desc(program: Program) -> Any:
    """Return the program as a ProgramDesc message."""
    desc = message("ProgramDesc")()
    for block in program.blocks:
        target = desc.blocks.add(idx=block.idx, parent_idx=block.parent_idx)
        if block.forward_block_idx >= 0:
            target.forward_block_idx = block.forward_block_idx
        rows = selected_rows(block)
        for name in sorted(block.vars):
            _write_variable(target.vars.add(), block.vars[name], rows=name in rows)
        for op in block.ops:
            _write_op(target.ops.add(), op)
    # Version 0 makes no claim about a release of Paddle; all releases accept it.
    desc.version.version = 0
    return desc


def program_to_bytes(program: Program) -> bytes:
    """Return the program as the bytes of a `__model__` or `.pdmodel` file."""
    return program_to_desc(program).SerializeToString(deterministic=True)


def op_to_bytes(op: Operator) -> bytes:
    """Return one op as an OpDesc message."""
    desc = message("OpDesc")()
    _write_op(desc, op)
    return desc.SerializeToString(deterministic=True)


def var_to_bytes(var: Variable) -> bytes:
    """Return one variable as a VarDesc message."""
    desc = message("VarDesc")()
    _write_variable(desc, var)
    return desc.SerializeToString(deterministic=True)


# -- reading
# ------------------------------------------------------------------------------------------
class _ProgramReader:
    def __init__(self, desc: Any, source: str) -> None:
        self.desc = desc
        self.source = source
        self.program = Program()
        self.program.blocks = [Block(self.program, b.idx, b.parent_idx) for b in desc.blocks]

    def fail(self, problem: str) -> FormatError:
        return FormatError(self.source, problem)

    def read(self) -> Program:
        self._refuse_unknown_ops()
        for desc, block in zip(self.desc.blocks, self.program.blocks, strict=True):
            block.forward_block_idx = desc.forward_block_idx
            for var in desc.vars:
                block.vars[var.name] = self._variable(var, block)
            for op in desc.ops:
                self._append(op, block)
        link_gradients(self.program)
        return self.program

    def _refuse_unknown_ops(self) -> None:
        types = {op.type for block in self.desc.blocks for op in block.ops}
        if unknown := sorted(t for t in types if find_op(t) is None):
            raise self.fail(f"uses ops that fleetx.static does not have: {', '.join(unknown)}.")

    def _variable(self, desc: Any, block: Block) -> Variable:
        try:
            kind = VarType(desc.type.type)
        except ValueError:
            raise self.fail(
                f"variable {desc.name!r} is of kind {desc.type.type}, which is not supported."
            ) from None
        keywords: dict[str, Any] = {
            "name": desc.name,
            "persistable": desc.persistable,
            "need_check_feed": desc.need_check_feed,
            "is_data": desc.need_check_feed,
            "stop_gradient": desc.stop_gradient,
            "type": kind,
        }
        member = _TENSOR_MEMBERS.get(kind)
        if member is not None and desc.type.HasField(member):
            body = getattr(desc.type, member)
            tensor = body if kind == VarType.SELECTED_ROWS else body.tensor
            keywords["shape"] = [int(dim) for dim in tensor.dims]
            keywords["dtype"] = tensor.data_type
            keywords["lod_level"] = getattr(body, "lod_level", 0)
        try:
            if desc.is_parameter and keywords.get("shape") is not None:
                keywords.pop("persistable")
                trainable = not desc.stop_gradient
                return Parameter(block, allow_scalar=True, trainable=trainable, **keywords)
            return Variable(block, **keywords)
        except (TypeError, ValueError) as error:
            raise self.fail(f"variable {desc.name!r} is invalid: {error}") from error

    def _append(self, desc: Any, block: Block) -> None:
        attrs, kinds = {}, {}
        for attr in desc.attrs:
            value = self._attribute(desc.type, attr)
            attrs[attr.name] = fit_declared(desc.type, attr.name, value)
            kinds[attr.name] = AttrType(attr.type).name
        slots = [
            {slot.parameter: list(slot.arguments) for slot in group}
            for group in (desc.inputs, desc.outputs)
        ]
        try:
            op = Operator(block, desc.type, slots[0], slots[1], attrs)
        except (TypeError, ValueError) as error:
            raise self.fail(f"op number {len(block.ops)} of block {block.idx}: {error}") from error
        op._attr_kinds = kinds
        for name in op.input_arg_names:
            self._check_name(name, op, block)
        for name in op.output_arg_names:
            var = block.find_var(name)
            if var is not None:
                var.op = op
        block.ops.append(op)

    def _attribute(self, op_type: str, attr: Any) -> Any:
        value = decode_attr(attr)
        if attr.type not in (AttrType.BLOCK, AttrType.BLOCKS):
            return value
        numbers = value if isinstance(value, list) else [value]
        if not all(0 <= number < len(self.program.blocks) for number in numbers):
            raise self.fail(
                f"op {op_type!r} runs block {value}, but there are only {len(self.program.blocks)}."
            )
        blocks = [self.program.blocks[number] for number in numbers]
        return blocks if isinstance(value, list) else blocks[0]

    def _check_name(self, name: str, op: Operator, block: Block) -> None:
        # Unneeded gradients have names but no variables in Paddle's programs.
        # The gradient of a body sees the variables of the body.
        places = [block]
        if 0 <= block.forward_block_idx < len(self.program.blocks):
            places.append(self.program.blocks[block.forward_block_idx])
        if "@" not in name and not any(b.find_var(name) for b in places):
            raise self.fail(f"op {op.type!r} uses the variable {name!r}, which is not declared.")


def program_from_bytes(data: bytes, *, source: str) -> Program:
    """Return the program in the bytes of a ProgramDesc; errors name ``source``."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"A serialized program is bytes, not {type(data).__name__}.")
    return _ProgramReader(parse_program(bytes(data), source=source), source).read()
