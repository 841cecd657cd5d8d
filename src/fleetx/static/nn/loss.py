"""Losses as layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fleetx.static.exports import export_defined
from fleetx.static.nn import functional as F
from fleetx.static.nn.layer import Layer
from fleetx.static.variable import Variable


class _Loss(Layer):
    """Calls one of the loss functions with what the constructor was given."""

    _function: Callable[..., Variable]

    def _keep(self, **settings: Any) -> None:
        reduction = settings.get("reduction", "mean")
        allowed = ("none", "mean", "sum", "batchmean")
        if reduction not in allowed:
            raise ValueError(
                f"reduction of {type(self).__name__} must be one of {', '.join(allowed)}, "
                f"but is {reduction!r}."
            )
        self._settings = settings

    def forward(self, *inputs: Variable) -> Variable:
        """Return the loss."""
        return type(self)._function(*inputs, **self._settings)


class CrossEntropyLoss(_Loss):
    """The cross entropy of logits with labels."""

    _function = staticmethod(F.cross_entropy)

    def __init__(
        self,
        weight: Variable | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        soft_label: bool = False,
        axis: int = -1,
        use_softmax: bool = True,
        label_smoothing: float = 0.0,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._keep(
            weight=weight,
            ignore_index=ignore_index,
            reduction=reduction,
            soft_label=soft_label,
            axis=axis,
            use_softmax=use_softmax,
            label_smoothing=label_smoothing,
        )


class BCELoss(_Loss):
    """The cross entropy of probabilities with yes/no labels."""

    _function = staticmethod(F.binary_cross_entropy)

    def __init__(
        self, weight: Variable | None = None, reduction: str = "mean", name: str | None = None
    ) -> None:
        super().__init__()
        self._keep(weight=weight, reduction=reduction)


class BCEWithLogitsLoss(_Loss):
    """The cross entropy of logits with yes/no labels."""

    _function = staticmethod(F.binary_cross_entropy_with_logits)

    def __init__(
        self,
        weight: Variable | None = None,
        reduction: str = "mean",
        pos_weight: Variable | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._keep(weight=weight, reduction=reduction, pos_weight=pos_weight)


class MSELoss(_Loss):
    """The squared differences."""

    _function = staticmethod(F.mse_loss)

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self._keep(reduction=reduction)


class L1Loss(_Loss):
    """The absolute differences."""

    _function = staticmethod(F.l1_loss)

    def __init__(self, reduction: str = "mean", name: str | None = None) -> None:
        super().__init__()
        self._keep(reduction=reduction)


class SmoothL1Loss(_Loss):
    """Errors that are quadratic below `delta` and linear above."""

    _function = staticmethod(F.smooth_l1_loss)

    def __init__(
        self, reduction: str = "mean", delta: float = 1.0, name: str | None = None
    ) -> None:
        super().__init__()
        self._keep(reduction=reduction, delta=delta)


class NLLLoss(_Loss):
    """Minus the log probability of each label."""

    _function = staticmethod(F.nll_loss)

    def __init__(
        self,
        weight: Variable | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._keep(weight=weight, ignore_index=ignore_index, reduction=reduction)


class KLDivLoss(_Loss):
    """The divergence of the label from exp(input)."""

    _function = staticmethod(F.kl_div)

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self._keep(reduction=reduction)


class MarginRankingLoss(_Loss):
    """max(0, margin - label (input - other))."""

    _function = staticmethod(F.margin_ranking_loss)

    def __init__(
        self, margin: float = 0.0, reduction: str = "mean", name: str | None = None
    ) -> None:
        super().__init__()
        self._keep(margin=margin, reduction=reduction)


class HingeEmbeddingLoss(_Loss):
    """The input where the label is 1, max(0, margin - input) where it is -1."""

    _function = staticmethod(F.hinge_embedding_loss)

    def __init__(
        self, margin: float = 1.0, reduction: str = "mean", name: str | None = None
    ) -> None:
        super().__init__()
        self._keep(margin=margin, reduction=reduction)


class CosineEmbeddingLoss(_Loss):
    """1 - cos where the label is 1, max(0, cos - margin) where it is -1."""

    _function = staticmethod(F.cosine_embedding_loss)

    def __init__(self, margin: float = 0, reduction: str = "mean", name: str | None = None) -> None:
        super().__init__()
        self._keep(margin=margin, reduction=reduction)


class TripletMarginLoss(_Loss):
    """max(0, margin + distance to the positive - distance to the negative)."""

    _function = staticmethod(F.triplet_margin_loss)

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        epsilon: float = 1e-6,
        swap: bool = False,
        reduction: str = "mean",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._keep(margin=margin, p=p, epsilon=epsilon, swap=swap, reduction=reduction)


export_defined(globals())
