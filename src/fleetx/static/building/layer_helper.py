"""LayerHelper: builds a layer: names, parameters, temporaries, bias and activation.

The names follow Fluid: parameters `fc_0.w_0`, `fc_0.b_0`, temporaries `fc_0.tmp_0`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from fleetx.static import unique_name
from fleetx.static.building.param_attr import ParamAttr, WeightNormParamAttr
from fleetx.static.graph.default_programs import default_main_program, default_startup_program
from fleetx.static.graph.dtypes import VarType, is_floating
from fleetx.static.graph.operator import Operator
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Parameter, Variable
from fleetx.static.initializer import Constant, Xavier, global_initializer
from fleetx.static.shapes.infer_shape import ShapeError


class LayerHelper:
    """Builds one layer in the default programs; keyword arguments are the layer's own."""

    def __init__(self, layer_type: str, **kwargs: Any) -> None:
        self.layer_type = layer_type
        self.kwargs = kwargs
        name = kwargs.get("name")
        self.name: str = name if name is not None else unique_name.generate(layer_type)
        if name is not None and not isinstance(name, str):
            raise TypeError(
                f"name of layer {layer_type!r} must be a str, not {type(name).__name__}."
            )

    @property
    def main_program(self) -> Program:
        """The program that gets the layer's ops."""
        return default_main_program()

    @property
    def startup_program(self) -> Program:
        """The program that gets the initializers."""
        return default_startup_program()

    def append_op(self, *args: Any, **kwargs: Any) -> Operator:
        """Append an op to the current block; a shape error names this layer."""
        try:
            return self.main_program.current_block().append_op(*args, **kwargs)
        except ShapeError as error:
            raise ShapeError(
                f"layer {self.layer_type!r} ({self.name}): {error}"
            ) from error.__cause__

    def output_of(
        self,
        type: str,
        inputs: dict[str, Any],
        attrs: dict[str, Any] | None = None,
        *,
        dtype: Any,
        slot: str = "Out",
        stop_gradient: bool = False,
    ) -> Variable:
        """Append an op with one output, a new temporary, and return that."""
        out = self.create_variable_for_type_inference(dtype, stop_gradient)
        self.append_op(type=type, inputs=inputs, outputs={slot: [out]}, attrs=attrs)
        return out

    def outputs_of(
        self,
        type: str,
        inputs: dict[str, Any],
        attrs: dict[str, Any] | None = None,
        no_grad: str = "",
        **dtypes: Any,
    ) -> list[Variable]:
        """Append an op and return its outputs, new temporaries whose types are given by slot.

        The outputs in the slots `no_grad` get no gradient.
        """
        quiet = no_grad.split()
        outputs = {
            slot: [self.create_variable_for_type_inference(dtype, slot in quiet)]
            for slot, dtype in dtypes.items()
        }
        self.append_op(type=type, inputs=inputs, outputs=outputs, attrs=attrs)
        return [out for (out,) in outputs.values()]

    # -- inputs
    # ---------------------------------------------------------------------------------------
    def multiple_input(self, input_param_name: str = "input") -> list[Variable]:
        """Return the layer's inputs as a list of Variables."""
        inputs = self.kwargs.get(input_param_name, [])
        inputs = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
        for value in inputs:
            if not isinstance(value, Variable):
                raise TypeError(
                    f"{input_param_name} of layer {self.layer_type!r} must be a Variable, "
                    f"not {type(value).__name__}: {value!r}."
                )
        return inputs

    def input(self, input_param_name: str = "input") -> Variable:
        """Return the layer's only input."""
        inputs = self.multiple_input(input_param_name)
        if len(inputs) != 1:
            raise ValueError(f"layer {self.layer_type!r} takes one input, not {len(inputs)}.")
        return inputs[0]

    def input_dtype(self, input_param_name: str = "input") -> Any:
        """Return the common element type of the inputs."""
        dtypes = [v.dtype for v in self.multiple_input(input_param_name)]
        for dtype in dtypes[1:]:
            if dtype != dtypes[0]:
                raise ValueError(
                    f"the inputs of layer {self.layer_type!r} have different data types: "
                    f"{dtypes[0]} and {dtype}."
                )
        return dtypes[0] if dtypes else None

    @property
    def param_attr(self) -> Any:
        """The attributes of the weights."""
        return ParamAttr._to_attr(self.kwargs.get("param_attr"))

    @property
    def bias_attr(self) -> Any:
        """The attributes of the bias; False means none."""
        return ParamAttr._to_attr(self.kwargs.get("bias_attr"))

    def multiple_param_attr(self, length: int) -> list[ParamAttr]:
        """Return one attribute per input."""
        attrs = self.param_attr
        if isinstance(attrs, ParamAttr):
            attrs = [attrs]
        if len(attrs) == 1 and length > 1:
            attrs = [copy.deepcopy(attrs[0]) for _ in range(length)]
        if len(attrs) != length:
            raise ValueError(
                f"layer {self.layer_type!r} has {length} inputs, but {len(attrs)} param_attr "
                "were given."
            )
        return list(attrs)

    def iter_inputs_and_params(
        self, input_param_name: str = "input"
    ) -> Iterator[tuple[Variable, ParamAttr]]:
        """Iterate over the inputs with the attribute of each one's weights."""
        inputs = self.multiple_input(input_param_name)
        yield from zip(inputs, self.multiple_param_attr(len(inputs)), strict=True)

    # -- variables
    # ------------------------------------------------------------------------------------
    def create_parameter(
        self,
        attr: Any,
        shape: Any,
        dtype: Any = None,
        is_bias: bool = False,
        default_initializer: Any = None,
        stop_gradient: bool = False,
        type: VarType = VarType.LOD_TENSOR,
    ) -> Any:
        """Create a parameter in both programs; None where `attr` is False."""
        attr = copy.deepcopy(ParamAttr._to_attr(attr))
        if attr is False:
            return None
        shape = [int(d) for d in shape]
        if attr.initializer is None:
            usual = Xavier() if is_floating(dtype) and not is_bias else Constant(0.0)
            attr.initializer = global_initializer(is_bias) or default_initializer or usual
        if attr.name is None:
            attr.name = unique_name.generate(f"{self.name}.{'b' if is_bias else 'w'}")
        if isinstance(attr, WeightNormParamAttr):
            from fleetx.static.building.weight_norm import create_weight_norm_parameter

            return create_weight_norm_parameter(self, attr, shape, dtype)
        return self._create_in_both(attr, shape, dtype, stop_gradient)

    def weight(self, shape: Any, dtype: Any, initializer: Any = None) -> Any:
        """Create a parameter with the attributes of the weights."""
        return self.create_parameter(self.param_attr, shape, dtype, default_initializer=initializer)

    def bias(self, shape: Any, dtype: Any) -> Any:
        """Create a parameter with the attributes of the bias; None if the layer has none."""
        return self.create_parameter(self.bias_attr, shape, dtype, is_bias=True)

    def _create_in_both(
        self, attr: ParamAttr, shape: list[int], dtype: Any, stop_gradient: bool = False
    ) -> Parameter:
        common = {"dtype": dtype, "shape": shape, "stop_gradient": stop_gradient}
        self.startup_program.global_block().create_parameter(
            **common, **attr._to_kwargs(with_initializer=True)
        )
        return self.main_program.global_block().create_parameter(**common, **attr._to_kwargs())

    def get_parameter(self, name: str) -> Parameter:
        """Return an existing parameter by name."""
        param = self.main_program.global_block().var(name)
        if not isinstance(param, Parameter):
            raise ValueError(f"the program has no parameter {name!r}.")
        return param

    def create_variable_for_type_inference(
        self, dtype: Any = None, stop_gradient: bool = False, shape: Any = None
    ) -> Variable:
        """Create a temporary; its shape comes from the op that writes it."""
        return self.main_program.current_block().create_var(
            name=unique_name.generate(f"{self.name}.tmp"),
            dtype=dtype,
            shape=shape,
            persistable=False,
            stop_gradient=stop_gradient,
        )

    def create_named(self, name: str | None, dtype: Any) -> Variable:
        """Create a variable with exactly this name, or a temporary if it is None."""
        if name is None:
            return self.create_variable_for_type_inference(dtype)
        return self.create_variable(name=name, dtype=dtype, persistable=False)

    def create_variable(self, *args: Any, **kwargs: Any) -> Variable:
        """Create a variable in the current block."""
        return self.main_program.current_block().create_var(*args, **kwargs)

    def create_global_variable(
        self, persistable: bool = False, *args: Any, **kwargs: Any
    ) -> Variable:
        """Create a variable in the main program's block 0."""
        kwargs.setdefault("stop_gradient", True)
        return self.main_program.global_block().create_var(*args, persistable=persistable, **kwargs)

    def create_or_get_global_variable(
        self, name: str, *args: Any, **kwargs: Any
    ) -> tuple[Variable, bool]:
        """Return the variable of this name in block 0, and whether it was created."""
        root = self.main_program.global_block()
        if root.has_var(name):
            return root.var(name), False
        return self.create_global_variable(*args, name=name, **kwargs), True

    def set_variable_initializer(self, var: Variable, initializer: Any) -> Variable:
        """Initialise a persistable variable in the startup program."""
        return self.startup_program.global_block().create_var(
            name=var.name,
            type=var.type,
            dtype=var.dtype,
            shape=var.shape,
            persistable=True,
            initializer=initializer,
        )

    # -- bias and activation
    # --------------------------------------------------------------------------
    def append_bias_op(
        self, input_var: Variable, dim_start: int = 1, dim_end: int | None = None
    ) -> Variable:
        """Add a bias over the dimensions `dim_start:dim_end` of a value, unless bias_attr is
        False."""
        size = list(input_var.shape[dim_start:dim_end])
        if not self.bias_attr:
            return input_var
        inputs = {"X": [input_var], "Y": [self.bias(size, input_var.dtype)]}
        return self.output_of("elementwise_add", inputs, {"axis": dim_start}, dtype=input_var.dtype)

    def append_activation(self, input_var: Variable) -> Variable:
        """Apply the layer's `act`, given as a name or as {'type': name, attribute: value}."""
        act = self.kwargs.get("act")
        if act is None:
            return input_var
        if isinstance(act, str):
            act = {"type": act}
        elif not isinstance(act, dict):
            raise TypeError(f"act of layer {self.layer_type!r} must be a name, not {act!r}.")
        attrs = {k: v for k, v in act.items() if k != "type"}
        return self.output_of(act["type"], {"X": [input_var]}, attrs, dtype=input_var.dtype)

    def is_instance(self, param_name: str, cls: Any) -> None:
        """Check the type of one of the layer's arguments."""
        value = self.kwargs.get(param_name)
        if not isinstance(value, cls):
            raise TypeError(
                f"{param_name} of layer {self.layer_type!r} must be a {cls.__name__}, "
                f"not {type(value).__name__}."
            )
