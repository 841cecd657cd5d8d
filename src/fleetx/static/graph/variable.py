"""Variable and Parameter: the named values of a Program.

A Variable holds no data; it describes a value (shape with -1 for unknown, element type) and its
role in training. The data of persistable variables is in a Scope; all other data exists only during
a run. Arithmetic on Variables (`a + b`, `a[0]`, `a > b`) appends ops; see
`variable_math.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fleetx.static import unique_name
from fleetx.static.graph.dtypes import VarType, convert_dtype, dtype_name
from fleetx.static.graph.op_registry import GRAD_SUFFIX

if TYPE_CHECKING:
    from fleetx.static.graph.block import Block
    from fleetx.static.graph.operator import Operator


class Variable:
    """A value in a Block: what layers take and return."""

    # Keeps NumPy from broadcasting over a Variable in `array + variable`; the Variable's operator
    # handles it.
    __array_priority__ = 100.0

    if TYPE_CHECKING:  # the operators come from `variable_math.install`

        def __add__(self, other: Any) -> Variable: ...
        def __neg__(self) -> Variable: ...
        def __getitem__(self, item: Any) -> Variable: ...

        __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __add__
        __pow__ = __rpow__ = __mod__ = __floordiv__ = __matmul__ = __and__ = __or__ = __add__
        __lt__ = __le__ = __gt__ = __ge__ = __add__
        __invert__ = __neg__

    def __init__(
        self,
        block: Block,
        type: VarType = VarType.LOD_TENSOR,
        name: str | None = None,
        shape: Sequence[int | None] | None = None,
        dtype: Any = None,
        lod_level: int | None = None,
        capacity: int | None = None,
        persistable: bool | None = None,
        error_clip: Any = None,
        stop_gradient: bool = False,
        is_data: bool = False,
        need_check_feed: bool = False,
        belong_to_optimizer: bool = False,
        **_: Any,
    ) -> None:
        self.block = block
        self.name = name if name is not None else unique_name.generate("_generated_var")
        self.type = VarType(type)
        self._shape: tuple[int, ...] | None = None if shape is None else _as_shape(shape)
        self._dtype = None if dtype is None else convert_dtype(dtype)
        if self._dtype is None and self.type == VarType.LOD_TENSOR and shape is not None:
            self._dtype = VarType.FP32
        self._lod_level = lod_level or 0
        self.persistable = bool(persistable)
        self.error_clip = error_clip
        self.stop_gradient = stop_gradient
        self.is_data = is_data
        self.need_check_feed = need_check_feed
        self.belong_to_optimizer = belong_to_optimizer
        self.op: Operator | None = None
        self._capacity = capacity
        self._info: dict[str, Any] | None = None  # what scripts note about it

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions; -1 where the size is known only when the program runs."""
        return () if self._shape is None else self._shape

    @property
    def dtype(self) -> Any:
        """The element type, or None for variables that hold no tensor."""
        return self._dtype

    @property
    def lod_level(self) -> int:
        """How many levels of variable-length sequences the first dimension holds."""
        return self._lod_level

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def dim(self) -> int:
        """Return the number of dimensions."""
        return len(self.shape)

    @property
    def grad_name(self) -> str:
        """The name of this variable's gradient."""
        return self.name + GRAD_SUFFIX

    @property
    def is_parameter(self) -> bool:
        """Whether this is a Parameter."""
        return isinstance(self, Parameter)

    @property
    def desc(self) -> Any:
        """A view with the methods of Paddle's VarDesc."""
        from fleetx.static.protobuf.var_desc_view import VarDescView

        return VarDescView(self)

    def _set_shape(self, shape: Sequence[int | None]) -> None:
        self._shape = _as_shape(shape)
        self.block.program.bump_version()

    def set_inferred(self, shape: tuple[int, ...], dtype: VarType) -> None:
        """Set the inferred shape and type; those of parameters and data are never changed."""
        if not isinstance(self, Parameter) and not self.is_data:
            self._shape = shape
            self._dtype = dtype

    def _set_info(self, key: str, value: Any) -> None:
        if self._info is None:
            self._info = {}
        self._info[key] = value

    def _get_info(self, key: str) -> Any:
        return None if self._info is None else self._info.get(key)

    def _set_error_clip(self, error_clip: Any) -> None:
        self.error_clip = error_clip

    def _sync_name(self, name: str) -> None:
        self.name = name

    def astype(self, dtype: Any) -> Variable:
        """Return this variable cast to another element type."""
        from fleetx.static.layers import cast

        return cast(self, dtype)

    def to_string(self, throw_on_error: bool = False, with_details: bool = False) -> str:
        """Return a readable description; `with_details` adds the training attributes."""
        text = _format_variable(self)
        if with_details:
            for key in ("error_clip", "stop_gradient"):
                text += f"\n{key}: {getattr(self, key)}"
        return text

    def __str__(self) -> str:
        return _format_variable(self)

    __repr__ = __str__


class Parameter(Variable):
    """A persistable Variable that optimizers train."""

    def __init__(
        self, block: Block, shape: Sequence[int], dtype: Any, type: Any = None, **kwargs: Any
    ) -> None:
        if shape is None or dtype is None:
            raise ValueError("A Parameter needs a shape and a dtype.")
        if len(shape) == 0 and not kwargs.pop("allow_scalar", False):
            raise ValueError(f"The shape of Parameter {kwargs.get('name')!r} is empty.")
        for dim in shape:
            if dim < 0:
                raise ValueError(
                    f"Parameter {kwargs.get('name')!r} has shape {tuple(shape)}, but every "
                    "dimension of a Parameter must be known."
                )
        super().__init__(
            block,
            type=VarType.LOD_TENSOR if type is None else type,
            persistable=True,
            shape=shape,
            dtype=dtype,
            **{k: v for k, v in kwargs.items() if k in _VARIABLE_KEYWORDS},
        )
        self.trainable: bool = kwargs.get("trainable", True)
        self.optimize_attr: dict[str, Any] = kwargs.get("optimize_attr") or {"learning_rate": 1.0}
        self.regularizer = kwargs.get("regularizer")
        self.gradient_clip_attr = kwargs.get("gradient_clip_attr")
        self.do_model_average = kwargs.get("do_model_average")
        self.need_clip: bool = kwargs.get("need_clip", True)
        self.is_distributed: bool = kwargs.get("is_distributed", False)
        self.initializer = kwargs.get("initializer")

    def to_string(self, throw_on_error: bool = False, with_details: bool = False) -> str:
        """Return a readable description; `with_details` adds the training attributes."""
        text = super().to_string(throw_on_error, with_details)
        if with_details:
            for key in (
                "trainable",
                "optimize_attr",
                "regularizer",
                "do_model_average",
                "need_clip",
            ):
                text += f"\n{key}: {getattr(self, key)}"
        return text


_VARIABLE_KEYWORDS = frozenset(
    {"name", "lod_level", "error_clip", "stop_gradient", "is_data", "need_check_feed"}
    | {"belong_to_optimizer", "capacity"}
)


def _as_shape(shape: Sequence[int | None]) -> tuple[int, ...]:
    return tuple(-1 if d is None else int(d) for d in shape)


def _format_variable(var: Variable) -> str:
    kind = "param" if isinstance(var, Parameter) else "var"
    if var.persistable and kind == "var":
        kind = "persist var"
    if var.dtype is None:
        body = var.type.name
    else:
        shape = ", ".join(str(d) for d in var.shape)
        body = f"{var.type.name}.shape({shape}).dtype({dtype_name(var.dtype)})"
    lod = f".lod({var.lod_level})" if var.lod_level else ""
    return f"{kind} {var.name} : {body}{lod}.stop_gradient({var.stop_gradient})"
