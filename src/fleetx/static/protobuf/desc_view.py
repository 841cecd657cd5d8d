"""Views of a Program with the methods of Paddle's ProgramDesc, BlockDesc and OpDesc.

A view has no state: it reads and changes the underlying Program, Block or Operator.
`ProgramDescView()` without a program creates an empty one. Two views of one object are equal.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from fleetx.checkpoint.program_desc import AttrType
from fleetx.static.autodiff.grad_desc import gradient_ops
from fleetx.static.graph.block import Block
from fleetx.static.graph.op_registry import find_op
from fleetx.static.graph.operator import Operator, names_of
from fleetx.static.graph.program import Program
from fleetx.static.protobuf.attr_codec import kind_for
from fleetx.static.protobuf.serialize import op_to_bytes, program_from_bytes, program_to_bytes
from fleetx.static.protobuf.var_desc_view import DescView, VarDescView, name_text
from fleetx.static.shapes.infer_shape import infer_shape


class ProgramDescView(DescView):
    """The description of a program."""

    def __init__(self, program: Program | None = None) -> None:
        self._target = Program() if program is None else program

    def block(self, index: int) -> BlockDescView:
        """Return the block with this index."""
        return BlockDescView(self._target.block(index))

    def num_blocks(self) -> int:
        """Return the number of blocks."""
        return self._target.num_blocks

    def append_block(self, parent: BlockDescView) -> BlockDescView:
        """Add a block inside another one."""
        current = self._target.current_block_idx
        block = self._target.create_block(parent.id)
        self._target.current_block_idx = current
        return BlockDescView(block)

    def serialize_to_string(self) -> bytes:
        """Return the program as the bytes of a `__model__` file."""
        return program_to_bytes(self._target)

    def parse_from_string(self, data: bytes) -> None:
        """Replace the content by that of a serialized program."""
        parsed = program_from_bytes(data, source="the given bytes")
        self._target.blocks = parsed.blocks
        for block in parsed.blocks:
            block.program = self._target
        self._target.bump_version()

    def prune_backward(self) -> ProgramDescView:
        """Return the description of a copy without backward and update ops."""
        return ProgramDescView(self._target.prune_backward())

    def flush(self) -> None:
        """Do nothing: views are always up to date."""

    def get_feed_target_names(self) -> list[str]:
        """Return the names that the program's `feed` ops write."""
        ops = self._target.global_block().ops
        return [op.output("Out")[0] for op in ops if op.type == "feed"]

    def get_fetch_target_names(self) -> list[str]:
        """Return the names that the program's `fetch` ops read."""
        ops = self._target.global_block().ops
        return [op.input("X")[0] for op in ops if op.type == "fetch"]

    def _version(self) -> int:
        return 0


class BlockDescView(DescView):
    """The description of a block."""

    def __init__(self, block: Block) -> None:
        self._target = block

    @property
    def id(self) -> int:
        """The block's index in its program."""
        return self._target.idx

    @property
    def parent(self) -> int:
        """The index of the parent block, -1 for the outermost."""
        return self._target.parent_idx

    def get_forward_block_idx(self) -> int:
        """Return the index of the block whose gradients this block computes, or -1."""
        return self._target.forward_block_idx

    def _set_forward_block_idx(self, index: int) -> None:
        self._target.forward_block_idx = index

    # -- variables ---------------------------------------------------------------------------------
    def var(self, name: str | bytes) -> VarDescView:
        """Return the variable of this name; create it if there is none."""
        return VarDescView(self._target.create_var(name=name_text(name)))

    def has_var(self, name: str | bytes) -> bool:
        """Return whether this block itself has the variable."""
        return self._target.has_var(name_text(name))

    def find_var(self, name: str | bytes) -> VarDescView | None:
        """Return the variable of this block, or None."""
        found = self._target.vars.get(name_text(name))
        return None if found is None else VarDescView(found)

    def has_var_recursive(self, name: str | bytes) -> bool:
        """Return whether this block or one of its parents has the variable."""
        return self._target.find_var(name_text(name)) is not None

    def find_var_recursive(self, name: str | bytes) -> VarDescView | None:
        """Return the variable of this block or of one of its parents, or None."""
        found = self._target.find_var(name_text(name))
        return None if found is None else VarDescView(found)

    def all_vars(self) -> list[VarDescView]:
        """Return all variables of this block."""
        return [VarDescView(v) for v in self._target.vars.values()]

    def _remove_var(self, name: str | bytes) -> None:
        self._target._remove_var(name_text(name))

    def _rename_var(self, name: str | bytes, new_name: str | bytes) -> None:
        self._target._rename_var(name_text(name), name_text(new_name))

    # -- ops ---------------------------------------------------------------------------------------
    def append_op(self) -> OpDescView:
        """Add an empty op at the end, to be filled in by `set_type`, `set_input`, ..."""
        return self._insert_op(len(self._target.ops))

    def _prepend_op(self) -> OpDescView:
        return self._insert_op(0)

    def _insert_op(self, index: int) -> OpDescView:
        op = _empty_operator(self._target)
        self._target.ops.insert(index, op)
        self._target.program.bump_version()
        return OpDescView(op)

    def _remove_op(self, start: int, end: int) -> None:
        del self._target.ops[start:end]
        self._target.program.bump_version()

    def op(self, index: int) -> OpDescView:
        """Return the op at this index."""
        return OpDescView(self._target.ops[index])

    def op_size(self) -> int:
        """Return the number of ops."""
        return len(self._target.ops)


class OpDescView(DescView):
    """The description of an op."""

    def __init__(self, op: Operator) -> None:
        self._target = op

    def type(self) -> str:
        """Return the op's type."""
        return self._target.type

    def set_type(self, type: str) -> None:
        """Set the op's type; `check_attrs` fills in the attributes."""
        self._target.type = type
        self._changed()

    def id(self) -> int:
        """Return a unique id of the op."""
        return id(self._target)

    def block(self) -> BlockDescView:
        """Return the block that the op is in."""
        return BlockDescView(self._target.block)

    # -- variables ---------------------------------------------------------------------------------
    def input(self, slot: str) -> list[str]:
        """Return the names in an input slot."""
        return list(self._target.input(slot))

    def output(self, slot: str) -> list[str]:
        """Return the names in an output slot."""
        return list(self._target.output(slot))

    def set_input(self, slot: str, names: Sequence[Any]) -> None:
        """Put names into an input slot."""
        self._target.inputs[slot] = names_of(names)
        self._changed()

    def set_output(self, slot: str, names: Sequence[Any]) -> None:
        """Put names into an output slot."""
        self._target.outputs[slot] = names_of(names)
        self._changed()

    def inputs(self) -> dict[str, list[str]]:
        """Return all input slots with the names in them."""
        return {slot: list(names) for slot, names in self._target.inputs.items()}

    def outputs(self) -> dict[str, list[str]]:
        """Return all output slots with the names in them."""
        return {slot: list(names) for slot, names in self._target.outputs.items()}

    def input_names(self) -> list[str]:
        """Return the input slots."""
        return self._target.input_names

    def output_names(self) -> list[str]:
        """Return the output slots."""
        return self._target.output_names

    def input_arg_names(self) -> list[str]:
        """Return the names of all inputs."""
        return self._target.input_arg_names

    def output_arg_names(self) -> list[str]:
        """Return the names of all outputs."""
        return self._target.output_arg_names

    def _rename_input(self, old: str, new: str) -> None:
        self._target.rename_input(old, new)

    def _rename_output(self, old: str, new: str) -> None:
        self._target.rename_output(old, new)

    # -- attributes --------------------------------------------------------------------------------
    def attr_names(self) -> list[str]:
        """Return the names of the attributes that were set or have a default."""
        return list(self._target.attrs)

    def has_attr(self, name: str, with_attr_var: bool = False) -> bool:
        """Return whether the op has this attribute."""
        return self._target.has_attr(name)

    def attr(self, name: str, with_attr_var: bool = False) -> Any:
        """Return the attribute's value."""
        return self._target.attr(name)

    def attr_type(self, name: str, with_attr_var: bool = False) -> AttrType:
        """Return the attribute's kind."""
        return kind_for(self._target, name, self._target.attr(name))

    def set_attr(self, name: str, value: Any) -> None:
        """Set an attribute."""
        self._target.set_attr(name, value)

    _set_attr = set_attr

    def remove_attr(self, name: str) -> None:
        """Remove an attribute."""
        self._target.attrs.pop(name, None)
        self._changed()

    def set_block_attr(self, name: str, block: BlockDescView) -> None:
        """Set an attribute to the block that an op runs."""
        self._target.set_attr(name, block._target)

    def set_blocks_attr(self, name: str, blocks: Sequence[BlockDescView]) -> None:
        """Set an attribute to the blocks that an op runs."""
        self._target.set_attr(name, [block._target for block in blocks])

    def _block_attr_id(self, name: str) -> int:
        return self._target._block_attr_id(name)

    def _blocks_attr_ids(self, name: str) -> list[int]:
        return [block.idx for block in self._target.attr(name)]

    def check_attrs(self) -> None:
        """Set missing attributes to their defaults."""
        definition = find_op(self._target.type)
        for name, attr in {} if definition is None else definition.attrs.items():
            self._target.attrs.setdefault(name, attr.default)

    # -- the rest ----------------------------------------------------------------------------------
    def infer_shape(self, block: BlockDescView) -> None:
        """Set the outputs' shapes from the inputs' and the attributes."""
        self.check_attrs()
        infer_shape(self._target, block._target)

    def infer_var_type(self, block: BlockDescView) -> None:
        """Set the outputs' element types, along with their shapes."""
        self.infer_shape(block)

    def copy_from(self, other: OpDescView) -> None:
        """Copy type, variables and attributes of another op."""
        source, target = other._target, self._target
        target.type = source.type
        target.inputs = {k: list(v) for k, v in source.inputs.items()}
        target.outputs = {k: list(v) for k, v in source.outputs.items()}
        target.attrs = dict(source.attrs)
        target.forward_uid, target.backward_id = source.forward_uid, source.backward_id
        target.recomputes = source.recomputes
        self._changed()

    def gradient_ops(self, no_grad: Collection[str]) -> tuple[list[OpDescView], dict[str, str]]:
        """Return the op's gradient ops, and the variable of each gradient; see `autodiff`."""
        ops, variables = gradient_ops(self._target, no_grad)
        return [OpDescView(op) for op in ops], variables

    def serialize_to_string(self) -> bytes:
        """Return the op as an OpDesc protobuf."""
        return op_to_bytes(self._target)

    def _changed(self) -> None:
        self._target.block.program.bump_version()


def _empty_operator(block: Block) -> Operator:
    """Return an op without type, variables and attributes."""
    op = Operator(block, "feed", {"X": ["feed"]}, {"Out": ["feed"]})
    op.type, op.inputs, op.outputs, op.attrs = "", {}, {}, {}
    return op
