"""ParamAttr: the attributes of a layer's parameter."""

from __future__ import annotations

from typing import Any

from fleetx.static.initializer import Initializer
from fleetx.static.regularizer import WeightDecayRegularizer


class ParamAttr:
    """Name, initializer, learning rate factor, regularizer and clipping of a parameter."""

    def __init__(
        self,
        name: str | None = None,
        initializer: Any = None,
        learning_rate: float = 1.0,
        regularizer: Any = None,
        trainable: bool = True,
        gradient_clip: Any = None,
        do_model_average: bool = True,
        need_clip: bool = True,
    ) -> None:
        if name is not None and not isinstance(name, str):
            raise TypeError(f"ParamAttr name must be a str, not {type(name).__name__}.")
        if isinstance(learning_rate, bool) or not isinstance(learning_rate, float | int):
            raise TypeError(
                f"ParamAttr learning_rate must be a number, not {type(learning_rate).__name__}."
            )
        for what, value in (("trainable", trainable), ("do_model_average", do_model_average)):
            if not isinstance(value, bool):
                raise TypeError(f"ParamAttr {what} must be a bool, not {type(value).__name__}.")
        self.name = name
        self.initializer = initializer
        self.learning_rate = learning_rate
        self.regularizer = regularizer
        self.trainable = trainable
        self.gradient_clip = gradient_clip
        self.do_model_average = do_model_average
        self.need_clip = need_clip

    @staticmethod
    def _to_attr(arg: Any) -> Any:
        """Return a ParamAttr (or a list of them, or False) for anything a layer accepts as one."""
        if arg is None:
            return ParamAttr()
        if isinstance(arg, list | tuple):
            return [ParamAttr._to_attr(a) for a in arg]
        if isinstance(arg, ParamAttr):
            return arg
        if isinstance(arg, str):
            return ParamAttr(name=arg)
        if isinstance(arg, bool):
            return ParamAttr() if arg else False
        if isinstance(arg, Initializer):
            return ParamAttr(initializer=arg)
        if isinstance(arg, WeightDecayRegularizer):
            return ParamAttr(regularizer=arg)
        raise TypeError(f"{type(arg).__name__} cannot be used as a ParamAttr: {arg!r}.")

    def _to_kwargs(self, with_initializer: bool = False) -> dict[str, Any]:
        """Return the keywords for `Block.create_parameter`."""
        kwargs: dict[str, Any] = {
            "name": self.name,
            "optimize_attr": {"learning_rate": self.learning_rate},
            "regularizer": self.regularizer,
            "trainable": self.trainable,
            "gradient_clip_attr": self.gradient_clip,
            "do_model_average": self.do_model_average,
            "need_clip": self.need_clip,
        }
        if with_initializer:
            kwargs["initializer"] = self.initializer
        return kwargs


class WeightNormParamAttr(ParamAttr):
    """A parameter stored as direction and length: w = g * v / ||v||, the norm over all axes but
    `dim`."""

    # The parameters created with this attribute.
    params_with_weight_norm: list[Any] = []

    def __init__(self, dim: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dim = dim
