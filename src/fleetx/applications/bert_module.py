"""BERT as an `nn.Module`: that of `transformers`, built from sizes without a download."""

from __future__ import annotations

from torch import nn

from fleetx.applications.bert_sizes import BertSizes


def bert_for_pretraining(sizes: BertSizes) -> nn.Module:
    """Return `transformers.BertForPreTraining` of these sizes, with random weights.

    Called with input_ids, token_type_ids, attention_mask, labels (-100 for tokens that are not
    masked) and next_sentence_label, it returns both heads' scores and the sum of both losses.
    """
    try:
        from transformers import BertConfig, BertForPreTraining
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "BERT as an nn.Module comes from the package transformers, which is not installed: "
            "pip install 'fleetx[text]'."
        ) from error
    config = BertConfig(
        vocab_size=sizes.words,
        hidden_size=sizes.hidden,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        intermediate_size=sizes.inner,
        hidden_dropout_prob=sizes.dropout,
        attention_probs_dropout_prob=sizes.dropout,
        max_position_embeddings=sizes.positions,
        type_vocab_size=sizes.kinds,
    )
    return BertForPreTraining(config)
