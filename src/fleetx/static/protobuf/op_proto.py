"""Definitions of ops as Paddle's OpProto: slots and attributes.

Tools and tests that build ops from their definitions read these; see `op_registry` for the
definitions themselves.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass

from fleetx.checkpoint.program_desc import AttrType
from fleetx.static.graph.op_registry import OpDef, Slot, get_op, op_types


@dataclass(frozen=True)
class SlotProto:
    """An input or output: whether it takes several variables, and whether it is optional."""

    name: str
    duplicable: bool
    dispensable: bool
    intermediate: bool = False
    comment: str = ""


@dataclass(frozen=True)
class AttrProto:
    """An attribute and how its value is stored."""

    name: str
    type: AttrType
    generated: bool = False
    comment: str = ""


@dataclass(frozen=True)
class OpProto:
    """The definition of one type of op."""

    type: str
    inputs: tuple[SlotProto, ...]
    outputs: tuple[SlotProto, ...]
    attrs: tuple[AttrProto, ...]
    comment: str = ""


# Outputs that Paddle calls intermediate: only the gradient reads them.
_INTERMEDIATE = {
    "attention_lstm": "AttentionedX AttentionFCOut LSTMX LSTMOUT",
    "batch_norm": "SavedMean SavedVariance",
    "cos_sim": "XNorm YNorm",
    "data_norm": "Means Scales",
    "dropout": "Mask",
    "fused_elemwise_activation": "IntermediateOut",
    "fused_embedding_fc_lstm": "XX BatchedInput BatchedHidden BatchedCell ReorderedH0 ReorderedC0",
    "fusion_gru": "ReorderedH0 XX BatchedInput BatchedOut",
    "fusion_lstm": "XX BatchedInput BatchedHidden BatchedCell ReorderedH0 ReorderedC0 CheckedCell",
    "fusion_repeated_fc_relu": "ReluOut",
    "fusion_seqconv_eltadd_relu": "ColMat",
    "fusion_seqexpand_concat_fc": "FCOut",
    "fusion_squared_mat_sub": "SquaredX SquaredY SquaredXY",
    "group_norm": "Mean Variance",
    "gru": "BatchGate BatchResetHiddenPrev BatchHidden",
    "gru_unit": "Gate ResetHiddenPrev",
    "hierarchical_sigmoid": "PreOut W_Out",
    "huber_loss": "Residual",
    "inplace_abn": "SavedMean SavedVariance",
    "instance_norm": "SavedMean SavedVariance",
    "layer_norm": "Mean Variance",
    "linear_chain_crf": "Alpha EmissionExps TransitionExps",
    "lstm": "BatchGate BatchCellPreAct",
    "lstmp": "BatchGate BatchCellPreAct BatchHidden",
    "margin_rank_loss": "Activated",
    "modified_huber_loss": "IntermediateVal",
    "multiclass_nms2": "Index",
    "nce": "SampleLogits SampleLabels",
    "norm": "Norm",
    "random_crop": "SeedOut",
    "roi_perspective_transform": "Out2InIdx Out2InWeights",
    "roi_pool": "Argmax",
    "sample_logits": "Samples Probabilities LogitsDim LabelsDim SampledLogits",
    "sequence_pool": "MaxIndex",
    "sequence_topk_avg_pooling": "pos",
    "smooth_l1_loss": "Diff",
    "softmax_with_cross_entropy": "Softmax",
    "squared_l2_distance": "sub_result",
    "warpctc": "WarpCTCGrad",
    "yolov3_loss": "ObjectnessMask GTMatchMask",
}


def _slots(slots: tuple[Slot, ...], intermediate: Collection[str] = ()) -> tuple[SlotProto, ...]:
    return tuple(SlotProto(s.name, s.many, s.optional, s.name in intermediate) for s in slots)


def _proto(definition: OpDef) -> OpProto:
    # XShape only passes a shape to the gradient; cross_entropy2 declares it as a result.
    xshape = "" if definition.type == "cross_entropy2" else "XShape"
    intermediate = _INTERMEDIATE.get(definition.type, xshape).split()
    return OpProto(
        definition.type,
        _slots(definition.inputs),
        _slots(definition.outputs, intermediate),
        tuple(AttrProto(name, AttrType[a.kind]) for name, a in definition.attrs.items()),
        (definition.fn.__doc__ or "").strip(),
    )


@functools.cache
def op_proto(type: str) -> OpProto:
    """Return the definition of an op, or raise a ValueError that names similar ones."""
    return _proto(get_op(type))


def all_op_protos() -> list[OpProto]:
    """Return the definitions of all ops."""
    return [op_proto(type) for type in op_types()]
