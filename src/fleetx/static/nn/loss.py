"""Losses as layers."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static.graph.variable import Variable
from fleetx.static.nn import functional as F
from fleetx.static.nn.layer_of import FunctionLayer, layer_of


class _Loss(FunctionLayer):
    def _keep(self, **settings: Any) -> None:
        reduction = settings.get("reduction", "mean")
        allowed = ("none", "mean", "sum", "batchmean")
        if reduction not in allowed:
            raise ValueError(
                f"reduction of {type(self).__name__} must be one of {', '.join(allowed)}, "
                f"but is {reduction!r}."
            )
        super()._keep(**settings)

    def forward(self, *inputs: Variable) -> Variable:
        """Return the loss."""
        return type(self)._function(*inputs, **self._settings)


BCELoss = layer_of("BCELoss", F.binary_cross_entropy, base=_Loss, inputs=2)
BCEWithLogitsLoss = layer_of(
    "BCEWithLogitsLoss", F.binary_cross_entropy_with_logits, base=_Loss, inputs=2
)
CosineEmbeddingLoss = layer_of("CosineEmbeddingLoss", F.cosine_embedding_loss, base=_Loss, inputs=3)
CrossEntropyLoss = layer_of("CrossEntropyLoss", F.cross_entropy, base=_Loss, inputs=2)
HingeEmbeddingLoss = layer_of("HingeEmbeddingLoss", F.hinge_embedding_loss, base=_Loss, inputs=2)
KLDivLoss = layer_of("KLDivLoss", F.kl_div, base=_Loss, inputs=2, arguments="reduction")
L1Loss = layer_of("L1Loss", F.l1_loss, base=_Loss, inputs=2)
MSELoss = layer_of("MSELoss", F.mse_loss, base=_Loss, inputs=2, arguments="reduction")
MarginRankingLoss = layer_of("MarginRankingLoss", F.margin_ranking_loss, base=_Loss, inputs=3)
NLLLoss = layer_of("NLLLoss", F.nll_loss, base=_Loss, inputs=2)
SmoothL1Loss = layer_of("SmoothL1Loss", F.smooth_l1_loss, base=_Loss, inputs=2)
TripletMarginLoss = layer_of("TripletMarginLoss", F.triplet_margin_loss, base=_Loss, inputs=3)


export_defined(globals())
