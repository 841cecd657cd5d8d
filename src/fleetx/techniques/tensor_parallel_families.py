"""Known plans of tensor parallelism: families of `transformers`, by the model type of their
configuration.

Each has the styles of divided layers and those of modules that compute on parts of a sequence, as a
model's own plan does. `{last}` is the index of the last block.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BERT = {  # its table of words stays whole: the head that shares it shares a bias, too
    "*attention.self.query": "colwise",
    "*attention.self.key": "colwise",
    "*attention.self.value": "colwise",
    "*attention.output.dense": "rowwise",
    "*layer.*.intermediate.dense": "colwise",
    "*layer.*.output.dense": "rowwise",
    # Norms come after sums, so that the last one is part of the last block.
    "*encoder.layer.0": "split",
    "*encoder.layer.{last}.output.LayerNorm": "joined",
    "*layer.*.output.LayerNorm": "sequence",
    "*layer.*.output.dropout": "sequence",
    "*attention.self": "whole",
}
_LLAMA = {
    "*self_attn.q_proj": "colwise",
    "*self_attn.k_proj": "colwise",
    "*self_attn.v_proj": "colwise",
    "*self_attn.o_proj": "rowwise",
    "*mlp.gate_proj": "colwise",
    "*mlp.up_proj": "colwise",
    "*mlp.down_proj": "rowwise",
    "*embed_tokens": "embedding",
    "lm_head": "gathered",
    "*layers.0": "split",
    "*input_layernorm": "sequence",
    "*post_attention_layernorm": "sequence",
    "*self_attn": "whole",
    "*layers.*.mlp": "whole",
    "model.norm": "joined",
    "norm": "joined",
}
_GPT2 = {  # the projections of its attention are one layer, which stays whole
    "*mlp.c_fc": "colwise",
    "*mlp.c_proj": "rowwise",
    "*wte": "embedding",
    "lm_head": "gathered",
    "*h.0": "split",
    "*h.*.ln_*": "sequence",
    "*h.*.attn": "repeated",
    "*h.*.crossattention": "repeated",
    "*mlp.dropout": "sequence",
    "*ln_f": "joined",
}
_T5 = {  # its attention counts heads, which stay whole
    "*DenseReluDense.wi": "colwise",
    "*DenseReluDense.wi_0": "colwise",
    "*DenseReluDense.wi_1": "colwise",
    "*DenseReluDense.wo": "rowwise",
    "*shared": "embedding",
    "*embed_tokens": "embedding",
    "lm_head": "gathered",
    "*block.0": "split",
    "*final_layer_norm": "joined",
    "*layer_norm": "sequence",
    "*layer.?.dropout": "sequence",
    "*SelfAttention": "repeated",
    "*EncDecAttention": "repeated",
    "*DenseReluDense": "whole",
}
FAMILIES: Mapping[str, Mapping[str, str]] = {
    "bert": _BERT,
    "gpt2": _GPT2,
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "t5": _T5,
}


def family_plan(config: Any) -> dict[str, str] | None:
    """Return the plan of the family that a configuration of `transformers` is of, if it is known;
    a model may lack some of the modules."""
    family = FAMILIES.get(str(getattr(config, "model_type", "")))
    if family is None:
        return None
    last = getattr(config, "num_hidden_layers", 1) - 1
    return {pattern.format(last=last): style for pattern, style in family.items()}
