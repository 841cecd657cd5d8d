"""Ops by type, outside of programs: their definitions, and running one on a scope."""

from typing import Any

from fleetx.static.graph.op_registry import op_types
from fleetx.static.protobuf.op_proto import OpProto, all_op_protos, op_proto
from fleetx.static.run.single_op import SingleOp

__all__ = ["Operator", "get_all_op_protos"]


def get_all_op_protos() -> list[OpProto]:
    """Return the definitions of all ops."""
    return all_op_protos()


class OperatorFactory:
    """Creates ops: `Operator("scale", X="x", Out="y", scale=2.0)`."""

    def __call__(self, *args: str, **kwargs: Any) -> SingleOp:
        """Return an op of the type given first or as `type`."""
        if len(args) > 1:
            raise ValueError("Operator takes keyword arguments only, except for the type.")
        return SingleOp(args[0] if args else kwargs.pop("type"), **kwargs)

    def types(self) -> list[str]:
        """Return the types of all ops."""
        return op_types()

    def get_op_info(self, t: str) -> OpProto:
        """Return the definition of an op."""
        return op_proto(t)

    def get_op_input_names(self, type: str) -> list[str]:
        """Return the names of an op's input slots."""
        return [slot.name for slot in op_proto(type).inputs]

    def get_op_inputs(self, type: str) -> list[tuple[str, bool]]:
        """Return an op's input slots, each with whether it takes several variables."""
        return [(slot.name, slot.duplicable) for slot in op_proto(type).inputs]

    def get_op_output_names(self, type: str) -> list[str]:
        """Return the names of an op's output slots."""
        return [slot.name for slot in op_proto(type).outputs]

    def get_op_outputs(self, type: str) -> list[tuple[str, bool]]:
        """Return an op's output slots, each with whether it takes several variables."""
        return [(slot.name, slot.duplicable) for slot in op_proto(type).outputs]

    def get_op_attr_names(self, type: str) -> list[str]:
        """Return the names of an op's attributes."""
        return [attr.name for attr in op_proto(type).attrs]


Operator = OperatorFactory()


class DynamicRecurrentOp:
    """An op that Paddle 1.8 cannot create either; `layers.DynamicRNN` is its successor."""

    def __init__(self, type: str, **kwargs: Any) -> None:
        raise NotImplementedError(
            f"DynamicRecurrentOp({type!r}) cannot be created, nor in Paddle 1.8; "
            "use fluid.layers.DynamicRNN."
        )
