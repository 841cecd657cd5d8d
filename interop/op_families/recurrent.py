"""Cases of recurrent ops, of losses with sampled or structured classes, and of beam search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from op_cases import Draw, OpCase, family, settings


@family
def recurrent_layers(draw: Draw) -> Iterator[OpCase]:
    lengths = [[3, 1, 4]]
    for attrs in settings(
        is_reverse=[False, True], origin_mode=[False, True], activation=["tanh", "relu"],
        gate_activation=["sigmoid", "identity"],
    ):  # fmt: skip
        inputs: dict[str, Any] = {"Input": (draw.floats(8, 9), lengths)}
        inputs["Weight"] = draw.floats(3, 9)
        outputs = "BatchGate BatchResetHiddenPrev BatchHidden Hidden"
        yield OpCase("gru", inputs, attrs, outputs, "Input Weight", "Hidden")
        inputs |= {"H0": draw.floats(3, 3), "Bias": draw.floats(1, 9)}
        yield OpCase("gru", inputs, attrs, outputs, "Input Weight H0 Bias", "Hidden")
        wide = {**inputs, "Input": (20 * draw.floats(8, 9), lengths)}  # gates that are open
        if attrs["activation"] == "tanh" and attrs["gate_activation"] == "sigmoid":
            yield OpCase("gru", wide, attrs, outputs)
        inputs = {"Input": draw.floats(3, 6), "HiddenPrev": draw.floats(3, 2)}
        inputs |= {"Weight": draw.floats(2, 6)}
        unit = {"origin_mode": attrs["origin_mode"], "activation": 2, "gate_activation": 1}
        if attrs["activation"] == "relu":
            unit |= {"activation": 3, "gate_activation": 0}
        outputs = "Gate ResetHiddenPrev Hidden"
        yield OpCase("gru_unit", inputs, unit, outputs, "Input HiddenPrev Weight", "Hidden")
    for attrs in settings(
        is_reverse=[False, True], use_peepholes=[False, True], cell_activation=["tanh", "relu"],
        candidate_activation=["tanh", "identity"],
    ):  # fmt: skip
        width = 7 if attrs["use_peepholes"] else 4
        inputs = {"Input": (draw.floats(8, 12), lengths), "Weight": draw.floats(3, 12)}
        inputs |= {"Bias": draw.floats(1, width * 3)}
        outputs = "Hidden Cell BatchGate BatchCellPreAct"
        yield OpCase("lstm", inputs, attrs, outputs, "Input Weight Bias", "Hidden")
        why = "the gradient of Cell is left out"
        yield OpCase("lstm", inputs, attrs, outputs, "Input", "Hidden Cell", differs=why)
        inputs |= {"H0": draw.floats(3, 3), "C0": draw.floats(3, 3)}
        yield OpCase("lstm", inputs, attrs, outputs, "Input Weight Bias H0 C0", "Hidden")
        inputs |= {"H0": draw.floats(3, 2), "Weight": draw.floats(2, 12)}
        inputs |= {"ProjWeight": draw.floats(3, 2)}
        for clip in (0.0, 0.4):
            more = {**attrs, "proj_activation": "tanh", "cell_clip": clip, "proj_clip": clip}
            outputs = "Projection Cell BatchGate BatchCellPreAct BatchHidden"
            grads = "" if clip else "Input Weight ProjWeight Bias H0 C0"
            why = "the projection has cell_activation instead of proj_activation"
            why = why if attrs["cell_activation"] != "tanh" else ""
            yield OpCase("lstmp", inputs, more, outputs, grads, "Projection", differs=why)


def _tree_of_classes(inputs: dict[str, Any], attrs: dict[str, Any], grads: str) -> OpCase:
    outputs = "Out PreOut W_Out"
    return OpCase("hierarchical_sigmoid", inputs, attrs, outputs, grads, "Out", hidden="W_Out")


@family
def structured_losses(draw: Draw) -> Iterator[OpCase]:
    for classes in (2, 5, 8):
        inputs = {"X": draw.floats(4, 3), "W": draw.floats(classes - 1, 3)}
        inputs["Label"] = draw.ints(classes, 4, 1)
        attrs = {"num_classes": classes}
        yield _tree_of_classes(inputs, attrs, "X W")
        inputs["Bias"] = draw.floats(classes - 1, 1)
        yield _tree_of_classes(inputs, attrs, "X W Bias")
    paths = np.array([[0, 2, -1, -1], [0, 1, 3, -1], [0, 1, 4, 5], [0, 2, -1, -1]])
    inputs = {"X": draw.floats(4, 3), "W": draw.floats(6, 3), "Bias": draw.floats(6, 1)}
    inputs |= {"Label": draw.ints(4, 4, 1), "PathTable": paths}
    inputs["PathCode"] = np.where(paths >= 0, draw.ints(2, 4, 4), -1)
    attrs = {"num_classes": 7}
    yield _tree_of_classes(inputs, attrs, "X W Bias")
    for sampler in (0, 1):
        for width in (1, 2):
            inputs = {"Input": draw.floats(4, 3), "Label": draw.ints(6, 4, width)}
            inputs |= {"Weight": draw.floats(6, 3)}
            attrs = {"num_total_classes": 6, "num_neg_samples": 3, "sampler": sampler, "seed": 1}
            attrs["custom_neg_classes"] = [0, 4, 2]
            outputs = "Cost SampleLogits SampleLabels"
            yield OpCase("nce", inputs, attrs, outputs, "Input Weight", "Cost")
            inputs |= {"Bias": draw.floats(6), "SampleWeight": draw.floats(4, 1, low=0.2)}
            yield OpCase("nce", inputs, attrs, outputs, "Input Weight Bias", "Cost")
    for hits in (True, False):
        labels = draw.ints(7, 4, 2)
        samples = np.concatenate([labels, draw.ints(7, 4, 3)], 1)
        inputs = {"Logits": draw.floats(4, 7), "Labels": labels, "CustomizedSamples": samples}
        inputs["CustomizedProbabilities"] = draw.floats(4, 5, low=0.1)
        attrs = {"use_customized_samples": True, "remove_accidental_hits": hits, "num_samples": 3}
        outputs = "Samples Probabilities LogitsDim LabelsDim SampledLogits SampledLabels"
        yield OpCase(
            "sample_logits", inputs, attrs, outputs, "Logits", "SampledLogits",
            hidden="LogitsDim LabelsDim",
            in_place={
                "Samples": "CustomizedSamples",
                "Probabilities": "CustomizedProbabilities",
            },
        )  # fmt: skip
    for blank in (0, 3):
        for by_times in (False, True):
            attrs = {"blank": blank, "norm_by_times": by_times}
            label = np.array([[1], [2], [2], [1]], "int32")
            inputs = {"Logits": (draw.floats(9, 4), [[5, 4]]), "Label": (label, [[3, 1]])}
            outputs = "WarpCTCGrad Loss"
            yield OpCase("warpctc", inputs, attrs, outputs, "Logits", "Loss", hidden="WarpCTCGrad")
            inputs = {"Logits": draw.floats(5, 2, 4), "LogitsLength": np.array([5, 3])}
            inputs |= {"Label": np.array([[1, 2, 2], [2, 1, 1]], "int32")}
            inputs["LabelLength"] = np.array([3, 1])
            yield OpCase("warpctc", inputs, attrs, outputs, "Logits", "Loss", hidden="WarpCTCGrad")
    inputs = {"X": draw.floats(5, 3), "Centers": draw.floats(4, 3)}
    inputs |= {"Label": np.array([1, 0, 1, 3, 1]), "CenterUpdateRate": draw.floats(1, low=0.1)}
    for update in (True, False):
        attrs = {"cluster_num": 4, "need_update": update}
        outputs = "CentersOut SampleCenterDiff Loss"
        hidden = "" if update else "CentersOut"
        yield OpCase("center_loss", inputs, attrs, outputs, "X", "Loss", hidden=hidden)
    for attrs in settings(reduction=["none", "mean", "sum"], ignore_index=[-100, 1]):
        for shape in ((5, 3), (2, 3, 4, 1)):
            inputs = {"X": draw.floats(*shape), "Label": draw.ints(3, shape[0], *shape[2:])}
            outputs, hidden = "Out Total_weight", ""
            if attrs["reduction"] == "none":
                hidden = "Total_weight"
            yield OpCase("nll_loss", inputs, attrs, outputs, "X", "Out", hidden=hidden)
            inputs["Weight"] = draw.floats(3, low=0.1)
            yield OpCase("nll_loss", inputs, attrs, outputs, "X", "Out", hidden=hidden)


@family
def beams(draw: Draw) -> Iterator[OpCase]:
    for attrs in settings(beam_size=[1, 2, 3], end_id=[0, 5], is_accumulated=[True, False]):
        lod = [[2, 2], [1, 1, 1, 1]]
        inputs = {"pre_ids": (np.array([[1], [0], [5], [3]]), lod)}
        inputs |= {"pre_scores": (draw.floats(4, 1, low=0.1), lod)}
        inputs |= {"ids": (draw.ints(6, 4, 3), lod), "scores": (draw.floats(4, 3, low=0.1), lod)}
        outputs = "selected_ids selected_scores parent_idx"
        yield OpCase("beam_search", inputs, {**attrs, "level": 0}, outputs)
    for scheme, kinds in (("IOB", 2), ("IOE", 2), ("IOBES", 1), ("plain", 3)):
        for excluded in ([], [0]):
            tags = {"IOB": 2, "IOE": 2, "IOBES": 4, "plain": 1}[scheme] * kinds + 1
            attrs = {"num_chunk_types": kinds, "chunk_scheme": scheme}
            attrs["excluded_chunk_types"] = excluded
            pair = {s: (draw.ints(tags, 9, 1), [[4, 5]]) for s in ("Inference", "Label")}
            outputs = "Precision Recall F1-Score NumInferChunks NumLabelChunks NumCorrectChunks"
            yield OpCase("chunk_eval", pair, attrs, outputs)
            pair = {s: draw.ints(tags, 2, 5) for s in ("Inference", "Label")}
            pair["SeqLength"] = np.array([3, 5])
            yield OpCase("chunk_eval", pair, attrs, outputs)


@family
def fused_sequences(draw: Draw) -> Iterator[OpCase]:
    lengths = [[3, 1, 4]]
    lstm = "XX BatchedInput BatchedHidden BatchedCell ReorderedH0 ReorderedC0"  # intermediate
    gru = "ReorderedH0 XX BatchedInput BatchedOut"
    more = lstm + " CheckedCell"
    rows = (draw.floats(8, 4), lengths)
    for attrs in settings(
        is_reverse=[False, True], use_peepholes=[False, True], use_seq=[False, True]
    ):
        bias = draw.floats(1, 21 if attrs["use_peepholes"] else 12)
        inputs: dict[str, Any] = {"X": rows, "WeightX": draw.floats(4, 12)}
        inputs |= {"WeightH": draw.floats(3, 12), "Bias": bias}
        yield OpCase("fusion_lstm", inputs, attrs, f"Hidden Cell {more}", hidden=more)
        inputs |= {"H0": draw.floats(3, 3), "C0": draw.floats(3, 3)}
        yield OpCase("fusion_lstm", inputs, attrs, f"Hidden Cell {more}", hidden=more)
        inputs = {k: v for k, v in inputs.items() if k not in ("X", "WeightX")}
        inputs |= {"Ids": (draw.ints(6, 8, 1), lengths), "Embeddings": draw.floats(6, 12)}
        outputs = f"Hidden Cell {lstm}"
        yield OpCase("fused_embedding_fc_lstm", inputs, attrs, outputs, hidden=lstm)
    for attrs in settings(
        is_reverse=[False, True], origin_mode=[False, True], use_seq=[False, True]
    ):
        inputs = {"X": rows, "WeightX": draw.floats(4, 9), "WeightH": draw.floats(3, 9)}
        inputs |= {"Bias": draw.floats(1, 9), "H0": draw.floats(3, 3)}
        why = "origin_mode is ignored" if attrs["origin_mode"] else ""
        yield OpCase("fusion_gru", inputs, attrs, f"{gru} Hidden", hidden=gru, differs=why)
    inputs = {"X": rows, "Filter": draw.floats(12, 3), "Bias": draw.floats(1, 3)}
    for start in (-2, -1, 0):
        attrs = {"contextLength": 3, "contextStart": start, "contextStride": 1}
        yield OpCase("fusion_seqconv_eltadd_relu", inputs, attrs, "Out ColMat", hidden="ColMat")
    inputs = {"X": [rows, (draw.floats(3, 5), [[1, 1, 1]])], "FCWeight": draw.floats(9, 3)}
    inputs["FCBias"] = draw.floats(1, 3)
    for name in ("relu", "identity", "tanh"):
        attrs = {"fc_activation": name}
        yield OpCase("fusion_seqexpand_concat_fc", inputs, attrs, "Out FCOut", hidden="FCOut")
    inputs = {"X": [draw.sequence(4), draw.sequence(4)]}
    for kind in ("SUM", "AVERAGE", "SQRT"):
        yield OpCase("fusion_seqpool_concat", inputs, {"pooltype": kind, "axis": 1}, "Out")
    counts = (draw.floats(8, 4, low=0.1), lengths)
    inputs = {"X": [counts, counts], "CVM": draw.floats(1, 2)}
    for kind in ("SUM", "AVERAGE", "SQRT"):
        attrs = {"pooltype": kind, "axis": 1, "use_cvm": True}
        yield OpCase("fusion_seqpool_cvm_concat", inputs, attrs, "Out")
    inputs = {"X": draw.floats(3, 4), "W": [draw.floats(4, 5), draw.floats(5, 2)]}
    inputs["Bias"] = [draw.floats(1, 5), draw.floats(1, 2)]
    yield OpCase("fusion_repeated_fc_relu", inputs, {}, "ReluOut Out")
    inputs = {"X": draw.floats(3, 4), "Y": draw.floats(4, 5)}
    notes = "SquaredX SquaredY SquaredXY"
    yield OpCase("fusion_squared_mat_sub", inputs, {"scalar": 0.7}, f"{notes} Out", hidden=notes)
