"""Momentum whose L2 decay is part of the update op, with the arguments of 1.x."""

from typing import Any

from fleetx.static.optimizer import optimizers_of_2x


class Momentum(optimizers_of_2x.Momentum):
    """Momentum whose L2 decay is part of the update op."""

    def __init__(
        self,
        learning_rate: Any,
        momentum: float,
        parameter_list: Any = None,
        use_nesterov: bool = False,
        regularization: Any = None,
        grad_clip: Any = None,
        multi_precision: bool = False,
        rescale_grad: float = 1.0,
        name: str | None = None,
    ) -> None:
        super().__init__(
            learning_rate,
            momentum,
            parameter_list,
            use_nesterov,
            regularization,
            grad_clip,
            multi_precision,
            rescale_grad,
            name=name,
        )
