"""Parts of a sequence: what is between divided layers runs on each worker's own part of it.

    split     what enters is whole, and this worker goes on with its part: the first block
    sequence  computes on a part, with whole parameters: norms
    whole     what enters is put together: an attention, or a pair of divided layers, whose rowwise
              layer leaves parts again
    joined    as sequence, with the outputs put together: the last norm

Sequences are the second dimension. Norms then compute, and keep, a share of what they would.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torch import nn

from fleetx.comm.divided_tensors import is_divided, is_elsewhere

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

SEQUENCE_STYLES = ("split", "sequence", "whole", "joined")
_SETTING = "tensor_parallel_configs['sequence_parallel']"

_LLAMA = {
    "*layers.0": "split",
    "*input_layernorm": "sequence",
    "*post_attention_layernorm": "sequence",
    "*self_attn": "whole",
    "*layers.*.mlp": "whole",
    "model.norm": "joined",
    "norm": "joined",
}
SEQUENCE_FAMILIES: Mapping[str, Mapping[str, str]] = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
}
"""Of transformers: model types of their configuration, and what computes on parts."""


def check_covered(model: nn.Module, plan: Mapping[str, str]) -> None:
    """Raise ValueError unless a plan says where parts of a sequence begin and end, and how every
    parameter of the blocks is used: gradients of others would be those of a part."""
    styles = set(plan.values())
    if not {"split", "joined"} <= styles:
        raise ValueError(
            f"{_SETTING} is True, but the plan of {type(model).__name__} does not say between "
            "which modules sequences are divided: give the first block the style 'split', the last "
            "norm 'joined', other norms 'sequence' and attentions 'whole', or set it to False "
            f"(known for the families {', '.join(SEQUENCE_FAMILIES)} of transformers)."
        )
    split = next(name for name, style in plan.items() if style == "split")
    blocks = split.rpartition(".")[0]
    inside = tuple(f"{name}." for name, style in plan.items() if style != "split")
    for name, parameter in model.named_parameters():
        is_block = name.startswith(f"{blocks}.") or not blocks
        if parameter.requires_grad and is_block and not name.startswith(inside):
            raise ValueError(
                f"{_SETTING} is True, but the plan of {type(model).__name__} does not say how "
                f"{name!r} computes on a part of a sequence: give its module the style 'sequence', "
                "or the module around it 'whole', or set sequence_parallel to False."
            )


def run_on_parts(name: str, module: nn.Module, style: str, mesh: DeviceMesh) -> None:
    """Let a module compute on, or begin or end, parts of a sequence."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import SequenceParallel, parallelize_module

    if style == "split":
        _change_input(module, lambda x: _split(name, x, mesh))
    elif style == "whole":
        # It stays torch's divided tensor: gradients of all layers that use it travel at once.
        _change_input(
            module, lambda x: _as(x, mesh, Shard(1)).redistribute(placements=[Replicate()])
        )
    elif not any(map(is_elsewhere, module.parameters())):
        parallelize_module(module, mesh, SequenceParallel(use_local_output=style == "sequence"))
        if style == "joined":
            module.register_forward_hook(
                lambda _, __, output: output.redistribute(placements=[Replicate()]).to_local()
            )


def _as(x: Any, mesh: DeviceMesh, placement: Any) -> Any:
    from torch.distributed.tensor import DTensor

    return x if is_divided(x) else DTensor.from_local(x, mesh, [placement], run_check=False)


def _split(name: str, x: Any, mesh: DeviceMesh) -> Any:
    from torch.distributed.tensor import Replicate, Shard

    if x.dim() < 3 or x.shape[1] % mesh.size():
        raise ValueError(
            f"{_SETTING} is True, but {name!r} gets a tensor of shape {tuple(x.shape)}, whose "
            f"second dimension cannot be divided between {mesh.size()} workers: give batches "
            "(samples, length, width) with a length that is a multiple of it, or set "
            "sequence_parallel to False."
        )
    return _as(x, mesh, Replicate()).redistribute(placements=[Shard(1)]).to_local()


def _change_input(module: nn.Module, change: Callable[[Any], Any]) -> None:
    """Let a module get its first argument changed."""
    first = next(iter(inspect.signature(module.forward).parameters))

    def enter(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args:
            return (change(args[0]), *args[1:]), kwargs
        return args, {**kwargs, first: change(kwargs[first])}

    module.register_forward_pre_hook(enter, with_kwargs=True)
