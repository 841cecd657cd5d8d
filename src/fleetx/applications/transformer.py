"""The Transformer for translation as a static model, with the inputs of Paddle's.

`src_word`, `src_pos` [N, S, 1] and `src_slf_attn_bias`; `trg_word`, `trg_pos` [N, T, 1],
`trg_slf_attn_bias` and `trg_src_attn_bias`; `lbl_word` and `lbl_weight` [N*T, 1]. Biases are added
to the attention scores and may have size 1 if they are the same for all heads or rows. The three
projections of an attention are one parameter, as in `torch.nn.MultiheadAttention`.
"""

from __future__ import annotations

import math

from torch import nn

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
from fleetx.applications.reading import files_in, worker_share
from fleetx.applications.static_model import StaticModel
from fleetx.applications.transformer_module import (
    TransformerSizes,
    TranslationTransformer,
    waves,
)
from fleetx.applications.weights import Weight
from fleetx.data import translation
from fleetx.static import layers
from fleetx.static.building.param_attr import ParamAttr
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Normal, NumpyArrayInitializer, Xavier
from fleetx.static.layers.io import static_data
from fleetx.static.readers.generator_loader import GeneratorLoader

_EPSILON = 1e-5
_WORDS, _PLACES = "word_emb", "pos_enc"


class Transformer(StaticModel):
    """A model of the next word of a translation, trained with label smoothing."""

    def __init__(self, sizes: TransformerSizes | None = None) -> None:
        self.sizes = sizes or TransformerSizes()
        super().__init__()

    def make_module(self) -> nn.Module:
        """Return the same network as a module."""
        return TranslationTransformer(self.sizes)

    # -- the network -----------------------------------------------------------------------------
    def build(self) -> None:
        """Add the network to the default programs."""
        source, source_bias = self._sentence("src"), _bias("src_slf_attn_bias")
        target, target_bias = self._sentence("trg"), _bias("trg_slf_attn_bias")
        across = _bias("trg_src_attn_bias")
        label = static_data("lbl_word", [None, 1], "int64")
        counts = static_data("lbl_weight", [None, 1], "float32")
        self.inputs = [*source, source_bias, *target, target_bias, across, label, counts]
        memory = self._encode(self._embed(*source), source_bias)
        out = self._decode(self._embed(*target), memory, target_bias, across)
        flat = layers.reshape(out, [-1, self.sizes.width])
        scores = layers.matmul(flat, weight(_WORDS).variable, transpose_y=True)
        self._judge(scores, label, counts)
        self.predict = scores
        self.weights = self._weights()

    def _sentence(self, name: str) -> tuple[Variable, Variable]:
        word, place = (
            static_data(f"{name}_{what}", [None, None, 1], "int64") for what in ("word", "pos")
        )
        return word, place

    def _embed(self, word: Variable, place: Variable) -> Variable:
        size = self.sizes
        first = Normal(0.0, size.width**-0.5)
        table = ParamAttr(name=_WORDS, initializer=first)
        fixed = ParamAttr(
            name=_PLACES,
            initializer=NumpyArrayInitializer(waves(size.longest, size.width)),
            trainable=False,
        )
        words = layers.embedding(word, [size.words, size.width], param_attr=table)
        places = layers.embedding(place, [size.longest, size.width], param_attr=fixed)
        places.stop_gradient = True
        return self._dropout(
            layers.elementwise_add(layers.scale(words, math.sqrt(size.width)), places)
        )

    def _encode(self, value: Variable, bias: Variable) -> Variable:
        for number in range(self.sizes.layers):
            name = f"encoder_layer_{number}"
            before = named_norm(f"{name}_norm1", value, _EPSILON)
            value = self._add(value, self._attention(f"{name}_self", before, before, bias))
            value = self._add(value, self._feed_forward(name, value, "norm2"))
            self.checkpoints.append(value.name)
        return named_norm("encoder_norm", value, _EPSILON)

    def _decode(
        self, value: Variable, memory: Variable, bias: Variable, across: Variable
    ) -> Variable:
        for number in range(self.sizes.layers):
            name = f"decoder_layer_{number}"
            before = named_norm(f"{name}_norm1", value, _EPSILON)
            value = self._add(value, self._attention(f"{name}_self", before, before, bias))
            before = named_norm(f"{name}_norm2", value, _EPSILON)
            value = self._add(value, self._attention(f"{name}_cross", before, memory, across))
            value = self._add(value, self._feed_forward(name, value, "norm3"))
            self.checkpoints.append(value.name)
        return named_norm("decoder_norm", value, _EPSILON)

    def _feed_forward(self, name: str, value: Variable, norm: str) -> Variable:
        before = named_norm(f"{name}_{norm}", value, _EPSILON)
        wide = named_fc(f"{name}_fc1", before, self.sizes.inner, num_flatten_dims=2, act="relu")
        return named_fc(f"{name}_fc2", self._dropout(wide), self.sizes.width, num_flatten_dims=2)

    def _attention(self, name: str, asks: Variable, knows: Variable, bias: Variable) -> Variable:
        query, key, content = (
            split_heads(part, self.sizes.heads) for part in self._projections(name, asks, knows)
        )
        joined = attend(query, key, content, bias, self.sizes.dropout)
        return named_fc(f"{name}_out", joined, self.sizes.width, num_flatten_dims=2)

    def _projections(self, name: str, asks: Variable, knows: Variable) -> list[Variable]:
        size = self.sizes.width
        matrix = layers.create_parameter(
            [size, 3 * size],
            "float32",
            attr=ParamAttr(name=f"{name}_qkv.w_0", initializer=Xavier()),
        )
        shift = layers.create_parameter(
            [3 * size], "float32", attr=ParamAttr(name=f"{name}_qkv.b_0"), is_bias=True
        )
        if asks is knows:
            return layers.split(_linear(asks, matrix, shift), 3, dim=2)
        query = _linear(asks, *_columns(matrix, shift, 0, size))
        return [query, *layers.split(_linear(knows, *_columns(matrix, shift, size, 3 * size)), 2)]

    def _judge(self, scores: Variable, label: Variable, counts: Variable) -> None:
        if self.sizes.smoothing:
            spread = layers.label_smooth(
                layers.one_hot(label, self.sizes.words), epsilon=self.sizes.smoothing
            )
            spread.stop_gradient = True
            costs = layers.softmax_with_cross_entropy(scores, spread, soft_label=True)
        else:
            costs = layers.softmax_with_cross_entropy(scores, label)
        total = layers.reduce_sum(layers.elementwise_mul(costs, counts))
        tokens = layers.reduce_sum(counts)
        tokens.stop_gradient = True
        self.loss = layers.elementwise_div(total, tokens)
        self.target = Targets({"sum_cost": total, "token_num": tokens})

    def _add(self, value: Variable, change: Variable) -> Variable:
        return layers.elementwise_add(value, self._dropout(change))

    def _dropout(self, value: Variable) -> Variable:
        return dropped(value, self.sizes.dropout)

    # -- the module's names ----------------------------------------------------------------------
    def _weights(self) -> dict[str, Weight]:
        weights = {"words.weight": weight(_WORDS)}
        for side, norms, attentions in (
            ("encoder", 2, {"self": "self_attn"}),
            ("decoder", 3, {"self": "self_attn", "cross": "multihead_attn"}),
        ):
            weights |= norm_weights(f"{side}_norm", f"transformer.{side}.norm")
            for number in range(self.sizes.layers):
                name, place = f"{side}_layer_{number}", f"transformer.{side}.layers.{number}"
                for i in range(1, norms + 1):
                    weights |= norm_weights(f"{name}_norm{i}", f"{place}.norm{i}")
                for i in (1, 2):
                    weights |= linear_weights(f"{name}_fc{i}", f"{place}.linear{i}")
                for mine, theirs in attentions.items():
                    weights |= _attention_weights(f"{name}_{mine}", f"{place}.{theirs}")
        return weights

    # -- data ------------------------------------------------------------------------------------
    def get_train_dataloader(
        self, local_path: str, batch_size: int = 2048, shuffle: bool = True
    ) -> GeneratorLoader:
        """Return a loader of a folder with a vocabulary `vocab*` and sentences `train*`.

        Args:
            local_path: the folder.
            batch_size: tokens per batch.
            shuffle: shuffle the lines, differently in every pass.
        """
        return self._loader(local_path, "train*", batch_size, shuffle)

    def get_val_dataloader(
        self, local_path: str, batch_size: int = 2048, shuffle: bool = False
    ) -> GeneratorLoader:
        """Return a loader of the sentences `val*` of a folder; see `get_train_dataloader`."""
        return self._loader(local_path, "val*", batch_size, shuffle)

    def _loader(self, folder: str, files: str, batch_size: int, shuffle: bool) -> GeneratorLoader:
        words = translation.load_vocabulary(files_in(folder, "vocab*")[0], self.sizes.words)
        config = translation.TranslationConfig(
            batch_size=batch_size, longest=min(self.sizes.longest, batch_size), shuffle=shuffle
        )
        batches = translation.reader(files_in(folder, files), words, config, shard=worker_share())
        return self.batch_loader(batches)


def _bias(name: str) -> Variable:
    return static_data(name, [None, None, None, None], "float32")


def _linear(value: Variable, matrix: Variable, shift: Variable) -> Variable:
    return layers.elementwise_add(layers.matmul(value, matrix), shift)


def _columns(matrix: Variable, shift: Variable, start: int, end: int) -> tuple[Variable, Variable]:
    return (
        layers.slice(matrix, axes=[1], starts=[start], ends=[end]),
        layers.slice(shift, axes=[0], starts=[start], ends=[end]),
    )


def _attention_weights(name: str, place: str) -> dict[str, Weight]:
    return {
        f"{place}.in_proj_weight": weight(f"{name}_qkv.w_0", transposed=True),
        f"{place}.in_proj_bias": weight(f"{name}_qkv.b_0"),
        **linear_weights(f"{name}_out", f"{place}.out_proj"),
    }
