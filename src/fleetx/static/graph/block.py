"""Block: a list of ops and the variables they use. A Program is a list of Blocks; block 0 is its
main body."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fleetx.static.graph.operator import Operator
from fleetx.static.graph.variable import Parameter, Variable
from fleetx.static.shapes.infer_shape import infer_shape

if TYPE_CHECKING:
    from fleetx.static.graph.program import Program


class Block:
    """Ops in order and variables by name; a block also sees the variables of its parents."""

    def __init__(self, program: Program, idx: int, parent_idx: int = -1) -> None:
        self.program = program
        self.idx = idx
        self.parent_idx = parent_idx
        self.forward_block_idx = -1
        self.vars: OrderedDict[str, Variable] = OrderedDict()
        self.ops: list[Operator] = []

    # -- variables ---------------------------------------------------------------------
    def create_var(self, *args: Any, **kwargs: Any) -> Variable:
        """Create a variable (keywords as for `Variable`), or return the existing one of that
        name."""
        initializer = kwargs.pop("initializer", None)
        name = kwargs.get("name")
        if name is not None and name in self.vars:
            var = self.vars[name]
            _check_same(var, kwargs)
        else:
            var = Variable(self, *args, **kwargs)
            self.vars[var.name] = var
            self.program.bump_version()
        if initializer is not None:
            initializer(var, self)
        return var

    def create_parameter(self, *args: Any, **kwargs: Any) -> Parameter:
        """Add a Parameter to the program's main block, with its initializer if one is given."""
        initializer = kwargs.pop("initializer", None)
        root = self.program.global_block()
        param = Parameter(root, *args, **kwargs)
        old = root.vars.get(param.name)
        if isinstance(old, Parameter) and old.shape != param.shape:
            raise ValueError(
                f"Parameter {param.name!r} is shared, but its shape {param.shape} differs from the "
                f"first use's {old.shape}."
            )
        root.vars[param.name] = param
        self.program.bump_version()
        # A parameter that several layers share keeps its first initializer.
        shared = old is not None and any(param.name in op.output_arg_names for op in root.ops)
        if initializer is not None and not shared:
            initializer(param, self)
        param.stop_gradient = kwargs.get("stop_gradient", False)
        return param

    def has_var(self, name: str) -> bool:
        """Return whether this block itself has the variable."""
        return name in self.vars

    def var(self, name: str) -> Variable:
        """Return a variable of this block; raise ValueError if there is none."""
        if not isinstance(name, str):
            raise TypeError(f"block.var() takes a name (str), not {type(name).__name__}.")
        found = self.vars.get(name)
        if found is None:
            raise ValueError(f"block {self.idx} has no variable {name!r}.")
        return found

    def find_var(self, name: str) -> Variable | None:
        """Return the variable of this name in this block or its parents, or None."""
        block: Block | None = self
        while block is not None:
            if name in block.vars:
                return block.vars[name]
            block = block.parent
        return None

    def var_recursive(self, name: str) -> Variable:
        """Return the variable of this name in this block or its parents, or raise ValueError."""
        found = self.find_var(name)
        if found is None:
            raise ValueError(f"neither block {self.idx} nor its parents have a variable {name!r}.")
        return found

    @property
    def parent(self) -> Block | None:
        """The parent block, or None."""
        return None if self.parent_idx < 0 else self.program.blocks[self.parent_idx]

    def all_parameters(self) -> list[Parameter]:
        """Return the Parameters of this block."""
        return list(self.iter_parameters())

    def iter_parameters(self) -> Iterator[Parameter]:
        """Iterate over the Parameters of this block."""
        return (v for v in self.vars.values() if isinstance(v, Parameter))

    def _remove_var(self, name: str) -> None:
        self.vars.pop(name, None)
        self.program.bump_version()

    def _rename_var(self, name: str, new_name: str) -> Variable:
        name, new_name = _as_text(name), _as_text(new_name)
        if name not in self.vars:
            raise ValueError(f"block {self.idx} has no variable {name!r}.")
        var = self.vars.pop(name)
        var.name = new_name
        self.vars[new_name] = var
        for op in self.ops:
            op.rename_input(name, new_name)
            op.rename_output(name, new_name)
        return var

    def clone_variable(self, var: Variable, force_persistable: bool = True) -> Variable:
        """Create a variable like another one in this block."""
        return self.create_var(
            name=var.name,
            type=var.type,
            shape=var._shape,
            dtype=var.dtype,
            lod_level=var.lod_level,
            persistable=True if force_persistable else var.persistable,
            is_data=var.is_data,
            stop_gradient=var.stop_gradient,
            need_check_feed=var.need_check_feed,
        )

    # -- ops ---------------------------------------------------------------------------
    def append_op(self, *args: Any, **kwargs: Any) -> Operator:
        """Add an op at the end: `append_op(type=, inputs=, outputs=, attrs=)`."""
        return self._insert(len(self.ops), *args, **kwargs)

    def prepend_op(self, *args: Any, **kwargs: Any) -> Operator:
        """Insert an op before all others."""
        return self._insert(0, *args, **kwargs)

    def insert_op(self, index: int, *args: Any, **kwargs: Any) -> Operator:
        """Insert an op at an index."""
        return self._insert(index, *args, **kwargs)

    def _insert(
        self,
        index: int,
        type: str | None = None,
        inputs: dict[str, Any] | None = None,
        outputs: dict[str, Any] | None = None,
        attrs: dict[str, Any] | None = None,
        stop_gradient: bool = False,
        **_: Any,
    ) -> Operator:
        op = Operator(self, type, inputs, outputs, attrs)
        self.program._stamp(op)
        infer_shape(op, self)
        for name in op.output_arg_names:
            var = self.find_var(name)
            if var is not None:
                var.op = op
                if stop_gradient and not isinstance(var, Parameter):
                    var.stop_gradient = True
        self.ops.insert(index, op)
        self.program.bump_version()
        return op

    def remove_op(self, index: int) -> None:
        """Remove the op at an index."""
        del self.ops[index]
        self.program.bump_version()

    def slice_ops(self, start: int, end: int) -> list[Operator]:
        """Return a part of the ops."""
        return self.ops[start:end]

    @property
    def desc(self) -> Any:
        """A view with the methods of Paddle's BlockDesc."""
        from fleetx.static.protobuf.desc_view import BlockDescView

        return BlockDescView(self)

    def to_string(self, throw_on_error: bool = False, with_details: bool = False) -> str:
        """Return the block as readable text: its variables, then its ops in order."""
        lines = [f"{{ // block {self.idx}"]
        lines += [
            "    " + v.to_string(throw_on_error, with_details).replace("\n", "\n    ")
            for v in self.vars.values()
        ]
        lines.append("")
        lines += [f"    {op}" for op in self.ops]
        lines.append("}")
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        return self.to_string()

    __repr__ = __str__

    # Paddle's names, which scripts use.
    _find_var_recursive = find_var
    _var_recursive = var_recursive
    _clone_variable = clone_variable
    _prepend_op = prepend_op
    _insert_op = insert_op
    _remove_op = remove_op
    _slice_ops = slice_ops


def _as_text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _check_same(var: Variable, wanted: dict[str, Any]) -> None:
    """Reject a second declaration of a variable that differs from the first."""
    from fleetx.static.graph.dtypes import convert_dtype

    def reject(what: str, old: Any, new: Any) -> None:
        raise ValueError(
            f"variable {var.name!r} exists with {what} {old} and cannot be created again with "
            f"{what} {new}; use another name."
        )

    shape, dtype = wanted.get("shape"), wanted.get("dtype")
    if shape is not None and var._shape is not None:
        new = tuple(-1 if d is None else int(d) for d in shape)
        if len(new) != len(var.shape) or any(
            a != b for a, b in zip(new, var.shape, strict=True) if a >= 0 and b >= 0
        ):
            reject("shape", var.shape, new)
    for key in ("lod_level", "persistable"):
        new_value, old_value = wanted.get(key), getattr(var, key)
        if new_value is not None and new_value != old_value:
            reject(key, old_value, new_value)
    if dtype is not None and var.dtype is not None and convert_dtype(dtype) != var.dtype:
        reject("data type", var.dtype, convert_dtype(dtype))
