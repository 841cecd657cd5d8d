"""Operator: one op in a Block, with its inputs, outputs and attributes by slot name."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fleetx.static.errors import ArgumentError
from fleetx.static.graph.op_registry import get_op

if TYPE_CHECKING:
    from fleetx.checkpoint.program_desc import AttrType
    from fleetx.static.graph.block import Block

# The attributes of every op besides its own, with their defaults.
_COMMON: dict[str, Any] = {
    "op_role": 0,
    "op_role_var": (),
    "op_namescope": "/",
    "op_callstack": (),
    "op_device": "",
}
_uids = itertools.count(1)


class OpRole:
    """The role of an op, stored in its `op_role` attribute; bit flags, as in Paddle."""

    Forward = 0x0000
    Backward = 0x0001
    Optimize = 0x0002
    RPC = 0x0004
    Dist = 0x0008
    LRSched = 0x0010
    Loss = 0x0100
    NotSpecified = 0x1000


class Operator:
    """An op: type, variables by slot, attributes.

    `uid` is the same in clones of its program, so that a gradient op can find its forward op.
    """

    OP_ROLE = "op_role"
    OP_ROLE_VAR = "op_role_var"

    def __init__(
        self,
        block: Block,
        type: str | None = None,
        inputs: dict[str, Any] | None = None,
        outputs: dict[str, Any] | None = None,
        attrs: dict[str, Any] | None = None,
    ) -> None:
        if type is None:
            raise ValueError("an Operator needs a type, not None.")
        self.block = block
        self.type = type
        self.uid = next(_uids)
        self.forward_uid: int | None = None  # of a gradient op: the op it belongs to
        self.recomputes: int | None = None  # of an op that runs again: the op it is a copy of
        self._attr_kinds: dict[str, str] = {}  # of attributes read from a file
        self.backward_id: int | None = None  # of an op of a backward pass: which pass
        op_def = get_op(type)
        self.inputs = {slot: names_of(v) for slot, v in (inputs or {}).items() if v is not None}
        self.outputs = {slot: names_of(v) for slot, v in (outputs or {}).items() if v is not None}
        for slot in op_def.inputs:
            # An op that may leave an output unchanged (a branch not taken, an array that grows)
            # also declares it as an optional input, which receives the old value implicitly.
            if slot.optional and slot.name in self.outputs and slot.name not in self.inputs:
                listed = set(self.input_arg_names)
                self.inputs[slot.name] = [n for n in self.outputs[slot.name] if n not in listed]
            if not slot.optional and not self.inputs.get(slot.name):
                raise ArgumentError(f"op {type!r} needs input {slot.name!r}, which was not given.")
        for group, slots, word in (
            (self.inputs, op_def.inputs, "input"),
            (self.outputs, op_def.outputs, "output"),
        ):
            known = {s.name: s for s in slots}
            for name, args in group.items():
                if name in known and len(args) > 1 and not known[name].many:
                    raise ValueError(
                        f"op {type!r} takes one variable for {word} {name!r}, not {len(args)}: "
                        f"{args}."
                    )
        self.attrs: dict[str, Any] = {name: a.default for name, a in op_def.attrs.items()}
        for name, value in (attrs or {}).items():
            if value is not None or name not in self.attrs:
                self.attrs[name] = value

    # -- variables ---------------------------------------------------------------------
    def input(self, name: str) -> list[str]:
        """Return the names of the variables in an input slot (empty if it is not used)."""
        return self.inputs.get(name, [])

    def output(self, name: str) -> list[str]:
        """Return the names of the variables in an output slot (empty if it is not used)."""
        return self.outputs.get(name, [])

    @property
    def input_names(self) -> list[str]:
        """The input slots in use."""
        return list(self.inputs)

    @property
    def output_names(self) -> list[str]:
        """The output slots in use."""
        return list(self.outputs)

    @property
    def input_arg_names(self) -> list[str]:
        """The names of all input variables."""
        return [n for names in self.inputs.values() for n in names]

    @property
    def output_arg_names(self) -> list[str]:
        """The names of all output variables."""
        return [n for names in self.outputs.values() for n in names]

    def rename_input(self, old: str, new: str) -> None:
        """Rename a variable in all input slots."""
        for names in self.inputs.values():
            names[:] = [new if n == old else n for n in names]
        self.block.program.bump_version()

    def rename_output(self, old: str, new: str) -> None:
        """Rename a variable in all output slots."""
        for names in self.outputs.values():
            names[:] = [new if n == old else n for n in names]
        self.block.program.bump_version()

    # -- attributes --------------------------------------------------------------------
    @property
    def attr_names(self) -> list[str]:
        """The names of all attributes, those that every op has last."""
        return [*self.attrs, *(name for name in _COMMON if name not in self.attrs)]

    def has_attr(self, name: str) -> bool:
        """Return whether the op has this attribute."""
        return name in self.attrs or name in _COMMON

    def attr(self, name: str) -> Any:
        """Return the value of an attribute; raise ValueError if the op has none of this name."""
        if name in self.attrs:
            return self.attrs[name]
        if name not in _COMMON:
            raise ValueError(f"op {self.type!r} has no attribute {name!r}.")
        default = _COMMON[name]
        return list(default) if isinstance(default, tuple) else default

    def attr_type(self, name: str) -> AttrType:
        """Return the kind of an attribute (`AttrType.INT`, ...)."""
        from fleetx.static.protobuf.attr_codec import kind_for

        return kind_for(self, name, self.attr(name))

    def all_attrs(self) -> dict[str, Any]:
        """Return all attributes."""
        return {name: self.attr(name) for name in self.attr_names}

    def set_attr(self, name: str, value: Any) -> None:
        """Set an attribute."""
        self.attrs[name] = value
        self.block.program.bump_version()

    _set_attr = _update_desc_attr = set_attr  # Paddle's names

    def _block_attr(self, name: str) -> Block:
        value = self.attrs[name]
        return self.block.program.block(value.idx)

    def _block_attr_id(self, name: str) -> int:
        return int(self.attrs[name].idx)

    @property
    def op_role(self) -> int:
        """The role of the op; see `OpRole`."""
        return int(self.attrs.get(self.OP_ROLE, OpRole.Forward))

    # -- the rest ----------------------------------------------------------------------
    @property
    def idx(self) -> int:
        """The op's position in its block."""
        for i, other in enumerate(self.block.ops):
            if other is self:
                return i
        raise ValueError(f"op {self.type!r} is no longer in its block.")

    @property
    def desc(self) -> Any:
        """A view with the methods of Paddle's OpDesc."""
        from fleetx.static.protobuf.desc_view import OpDescView

        return OpDescView(self)

    def to_string(self, throw_on_error: bool = False) -> str:
        """Return the op as one readable line."""
        return format_operator(self)

    def __str__(self) -> str:
        return format_operator(self)

    __repr__ = __str__

    # Paddle's names, which scripts use.
    _rename_input = rename_input
    _rename_output = rename_output


def names_of(value: Any) -> list[str]:
    """Return the variable names in a slot's value: a Variable, a name, or a sequence of them."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, bytes):
        return [value.decode()]
    if hasattr(value, "name"):
        return [value.name]
    if isinstance(value, Iterable):
        return [n for item in value for n in names_of(item)]
    raise TypeError(f"a Variable or its name was expected, not {type(value).__name__}: {value!r}.")


_HIDDEN = frozenset({"op_callstack", "op_namescope", "op_device", "op_role_var", "op_role"})


def format_operator(op: Operator) -> str:
    """Return `{Out=['y']} = relu(inputs={X=['x']}, axis = 1)`, without default attributes."""
    declared = get_op(op.type).attrs
    outs = ", ".join(f"{slot}={names}" for slot, names in op.outputs.items())
    ins = ", ".join(f"{slot}={names}" for slot, names in op.inputs.items())
    attrs = []
    for name, value in sorted(op.attrs.items()):
        if name in _HIDDEN or (name in declared and declared[name].default == value):
            continue
        shown = f"block[{value.idx}]" if hasattr(value, "idx") else value
        attrs.append(f"{name} = {shown}")
    tail = (", " + ", ".join(attrs)) if attrs else ""
    return f"{{{outs}}} = {op.type}(inputs={{{ins}}}{tail})"
