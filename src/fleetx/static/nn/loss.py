"""Losses as layers."""

from __future__ import annotations

from typing import Any

from fleetx.exports import export_defined
from fleetx.static.building.argument_checks import check_choice
from fleetx.static.graph.variable import Variable
from fleetx.static.nn import functional as F
from fleetx.static.nn.layer import Layer
from fleetx.static.nn.layer_of import FunctionLayer, layer_of


class _Loss(FunctionLayer):
    def _keep(self, **settings: Any) -> None:
        allowed = ("none", "mean", "sum", "batchmean")
        check_choice(settings.get("reduction", "mean"), "reduction", allowed, type(self).__name__)
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


class CTCLoss(Layer):
    """Computes the CTC loss of label sequences."""

    def __init__(self, blank: int = 0, reduction: str = "mean") -> None:
        super().__init__()
        self.blank, self.reduction = blank, reduction

    def forward(
        self,
        log_probs: Variable,
        labels: Variable,
        input_lengths: Variable,
        label_lengths: Variable,
        norm_by_times: bool = False,
    ) -> Variable:
        """Return the loss of padded logits [steps, batch, classes]."""
        inputs = (log_probs, labels, input_lengths, label_lengths)
        return F.ctc_loss(*inputs, self.blank, self.reduction, norm_by_times)


class HSigmoidLoss(Layer):
    """Computes the loss of a hierarchical sigmoid, with a vector and a bias per node."""

    def __init__(
        self,
        feature_size: int,
        num_classes: int,
        weight_attr: Any = None,
        bias_attr: Any = None,
        is_custom: bool = False,
        is_sparse: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        if num_classes < 2 and not is_custom:
            raise ValueError(
                f"num_classes of HSigmoidLoss must be at least 2, but is {num_classes}."
            )
        self._num_classes, self._is_sparse = num_classes, is_sparse
        nodes = num_classes if is_custom else num_classes - 1
        self.weight = self.create_parameter([nodes, feature_size], attr=weight_attr)
        self.bias = self.create_parameter([nodes, 1], attr=bias_attr, is_bias=True)

    def forward(
        self,
        input: Variable,
        label: Variable,
        path_table: Variable | None = None,
        path_code: Variable | None = None,
    ) -> Variable:
        """Return the loss of each row."""
        parameters, paths = (self.weight, self.bias), (path_table, path_code)
        return F.hsigmoid_loss(
            input, label, self._num_classes, *parameters, *paths, self._is_sparse
        )


export_defined(globals())
