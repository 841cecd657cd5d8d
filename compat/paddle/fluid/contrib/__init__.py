"""The contributed part of Paddle 1.x."""

from fleetx.static.optimizer.decoupled import extend_with_decoupled_weight_decay
from paddle.fluid.contrib import decoder, extend_optimizer, layers, mixed_precision
from paddle.fluid.contrib.decoder import (
    BeamSearchDecoder,
    InitState,
    StateCell,
    TrainingDecoder,
)
from paddle.fluid.contrib.layers import *  # noqa: F403
from paddle.fluid.contrib.layers import __all__ as _layer_names
from paddle.fluid.contrib.memory_usage_calc import memory_usage
from paddle.fluid.contrib.op_frequence import op_freq_statistic
from paddle.fluid.contrib.reader import distributed_batch_reader
from paddle.fluid.contrib.utils import HDFSClient, multi_download, multi_upload

__all__ = [*_layer_names, "extend_optimizer", "extend_with_decoupled_weight_decay", "layers"]
__all__ += ["HDFSClient", "distributed_batch_reader", "memory_usage", "mixed_precision"]
__all__ += ["multi_download", "multi_upload", "op_freq_statistic"]
__all__ += ["BeamSearchDecoder", "InitState", "StateCell", "TrainingDecoder", "decoder"]
