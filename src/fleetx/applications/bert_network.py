"""BERT as a static model: masked words and next-sentence prediction.

Inputs, with B texts of T tokens: `src_ids`, `pos_ids`, `sent_ids` [B, T, 1], `input_mask` [B, T, 1]
(1.0 for tokens, 0.0 for padding), `mask_label` [M, 1] and `mask_pos` [M, 1] (the masked words and
their indices in the B*T tokens), `labels` [B, 1] (1 if the second text does not follow the first).
Parameters have the names of Paddle's published BERT files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from torch import nn

from fleetx.applications.bert_module import bert_for_pretraining
from fleetx.applications.bert_sizes import BertSizes
from fleetx.applications.named_layers import (
    attend,
    dropped,
    linear_weights,
    named_fc,
    named_norm,
    norm_weights,
    split_heads,
    weight,
)
from fleetx.applications.named_targets import Targets
from fleetx.applications.static_model import StaticModel
from fleetx.applications.weights import Values, Weight
from fleetx.static import layers
from fleetx.static.building.param_attr import ParamAttr
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import TruncatedNormal
from fleetx.static.layers.io import static_data

_EPSILON = 1e-12
_STD = 0.02
# Keys of the module that alias other tensors.
_TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
_FIXED = ("embeddings.position_ids", "embeddings.token_type_ids")


class BertModel(StaticModel):
    """A BERT of any size; `BertBase` and others are subclasses with their sizes."""

    def __init__(self, sizes: BertSizes, lang: str = "en") -> None:
        self.sizes, self.lang = sizes, lang
        super().__init__()

    def make_module(self) -> nn.Module:
        """Return `transformers.BertForPreTraining` of the same sizes."""
        return bert_for_pretraining(self.sizes)

    def to_module(self) -> nn.Module:
        """Return the module with the current weights."""
        module, state = self.make_module(), self.module_state()
        module.load_state_dict(state | {key: state[same] for key, same in _TIED.items()})
        return module

    def _put(self, values: Values, leave_out: Sequence[str]) -> None:
        # Tied or fixed weights of the module have no variable of their own, but may be in files.
        own = {
            name: value
            for name, value in values.tensors.items()
            if name not in _TIED and not name.endswith(_FIXED)
        }
        super()._put(dataclasses.replace(values, tensors=own), leave_out)

    def other_names(self) -> dict[str, str]:
        """Return the names in the first published files: gamma and beta of normalisations."""
        old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
        names = {}
        for key in self.weights:
            name = key
            for now, before in old.items():
                name = name.replace(now, before)
            names[name] = key
        return names

    # -- the network -----------------------------------------------------------------------------
    def build(self) -> None:
        """Add the network to the default programs."""
        ids, places, kinds = (
            static_data(name, [None, None, 1], "int64")
            for name in ("src_ids", "pos_ids", "sent_ids")
        )
        mask = static_data("input_mask", [None, None, 1], "float32")
        word, word_place, follows = (
            static_data(name, [None, 1], "int64") for name in ("mask_label", "mask_pos", "labels")
        )
        self.inputs = [ids, places, kinds, mask, word, word_place, follows]
        # One row of scores per text: 0 for tokens, -10000 for padding.
        hidden_places = layers.scale(
            layers.transpose(layers.unsqueeze(mask, [1]), [0, 1, 3, 2]), 1e4, bias=-1e4
        )
        hidden_places.stop_gradient = True
        value = self._embed(ids, places, kinds)
        for number in range(self.sizes.layers):
            value = self._layer(f"encoder_layer_{number}", value, hidden_places)
            self.checkpoints.append(value.name)
        self._heads(value, word, word_place, follows)
        self.weights = self._weights()

    def _table(self, name: str, rows: int) -> dict[str, Any]:
        attr = ParamAttr(name=name, initializer=TruncatedNormal(scale=_STD))
        return {"size": [rows, self.sizes.hidden], "param_attr": attr}

    def _embed(self, ids: Variable, places: Variable, kinds: Variable) -> Variable:
        words = layers.embedding(ids, **self._table("word_embedding", self.sizes.words))
        where = layers.embedding(places, **self._table("pos_embedding", self.sizes.positions))
        which = layers.embedding(kinds, **self._table("sent_embedding", self.sizes.kinds))
        value = layers.elementwise_add(layers.elementwise_add(words, where), which)
        return self._dropout(named_norm("pre_encoder_layer_norm", value, _EPSILON))

    def _layer(self, name: str, value: Variable, hidden_places: Variable) -> Variable:
        attended = self._attention(f"{name}_multi_head_att", value, hidden_places)
        value = named_norm(
            f"{name}_post_att_layer_norm",
            layers.elementwise_add(self._dropout(attended), value),
            _EPSILON,
        )
        wide = self._fc(f"{name}_ffn_fc_0", value, self.sizes.inner, act="gelu")
        narrow = self._fc(f"{name}_ffn_fc_1", wide, self.sizes.hidden)
        return named_norm(
            f"{name}_post_ffn_layer_norm",
            layers.elementwise_add(self._dropout(narrow), value),
            _EPSILON,
        )

    def _attention(self, name: str, value: Variable, hidden_places: Variable) -> Variable:
        size = self.sizes.hidden
        query, key, content = (
            split_heads(self._fc(f"{name}_{part}_fc", value, size), self.sizes.heads)
            for part in ("query", "key", "value")
        )
        joined = attend(query, key, content, hidden_places, self.sizes.dropout)
        return self._fc(f"{name}_output_fc", joined, size)

    def _heads(
        self, value: Variable, word: Variable, word_place: Variable, follows: Variable
    ) -> None:
        size = self.sizes.hidden
        first = layers.reshape(layers.slice(value, axes=[1], starts=[0], ends=[1]), [-1, size])
        pooled = self._fc("pooled_fc", first, size, act="tanh", flat=1)
        masked = layers.gather(layers.reshape(value, [-1, size]), word_place)
        changed = self._fc("mask_lm_trans_fc", masked, size, act="gelu", flat=1)
        changed = named_norm("mask_lm_trans_layer_norm", changed, _EPSILON)
        table = weight("word_embedding").variable
        shift = layers.create_parameter(
            [self.sizes.words], "float32", name="mask_lm_out_fc.b_0", is_bias=True
        )
        scores = layers.elementwise_add(layers.matmul(changed, table, transpose_y=True), shift)
        lm_loss = layers.mean(layers.softmax_with_cross_entropy(scores, word))
        next_scores = self._fc("next_sent_fc", pooled, 2, flat=1)
        next_costs, chances = layers.softmax_with_cross_entropy(
            next_scores, follows, return_softmax=True
        )
        accuracy = layers.accuracy(chances, follows)
        self.target = Targets({"next_sent_acc": accuracy, "mask_lm_loss": lm_loss})
        self.loss = layers.elementwise_add(layers.mean(next_costs), lm_loss)

    def _fc(
        self, name: str, value: Variable, size: int, act: str | None = None, flat: int = 2
    ) -> Variable:
        return named_fc(
            name,
            value,
            size,
            initializer=TruncatedNormal(scale=_STD),
            num_flatten_dims=flat,
            act=act,
        )

    def _dropout(self, value: Variable) -> Variable:
        return dropped(value, self.sizes.dropout)

    # -- the module's names ----------------------------------------------------------------------
    def _weights(self) -> dict[str, Weight]:
        inside, head = "bert.embeddings", "cls.predictions"
        weights = {
            f"{inside}.word_embeddings.weight": weight("word_embedding"),
            f"{inside}.position_embeddings.weight": weight("pos_embedding"),
            f"{inside}.token_type_embeddings.weight": weight("sent_embedding"),
            f"{head}.bias": weight("mask_lm_out_fc.b_0"),
            **norm_weights("pre_encoder_layer_norm", f"{inside}.LayerNorm"),
            **linear_weights("pooled_fc", "bert.pooler.dense"),
            **linear_weights("mask_lm_trans_fc", f"{head}.transform.dense"),
            **norm_weights("mask_lm_trans_layer_norm", f"{head}.transform.LayerNorm"),
            **linear_weights("next_sent_fc", "cls.seq_relationship"),
        }
        for number in range(self.sizes.layers):
            weights |= _layer_weights(f"encoder_layer_{number}", f"bert.encoder.layer.{number}")
        return weights


def _layer_weights(name: str, module: str) -> dict[str, Weight]:
    attention = f"{name}_multi_head_att"
    linear = {
        f"{attention}_query_fc": "attention.self.query",
        f"{attention}_key_fc": "attention.self.key",
        f"{attention}_value_fc": "attention.self.value",
        f"{attention}_output_fc": "attention.output.dense",
        f"{name}_ffn_fc_0": "intermediate.dense",
        f"{name}_ffn_fc_1": "output.dense",
    }
    norms = {
        f"{name}_post_att_layer_norm": "attention.output.LayerNorm",
        f"{name}_post_ffn_layer_norm": "output.LayerNorm",
    }
    weights: dict[str, Weight] = {}
    for static, place in linear.items():
        weights |= linear_weights(static, f"{module}.{place}")
    for static, place in norms.items():
        weights |= norm_weights(static, f"{module}.{place}")
    return weights
