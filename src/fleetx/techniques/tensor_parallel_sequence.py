"""Parts of a sequence: what is between divided layers runs on each worker's own part of it.

    split     what enters is whole, and this worker goes on with its part: the first block
    sequence  computes on a part, with whole parameters: norms, dropout
    whole     what enters is put together: an attention, or a pair of divided layers, whose rowwise
              layer leaves parts again
    repeated  what enters is put together, and this worker goes on with its part of what comes out:
              an attention that is not divided, which every worker computes
    joined    as sequence, with the outputs put together: the last norm

A colwise layer that is not inside of one that is whole puts together what enters it. Sequences are
the second dimension. Norms then compute, and keep, a share of what they would.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.nn import functional

from fleetx.comm.divided_tensors import is_divided, is_elsewhere

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

SEQUENCE_STYLES = ("split", "sequence", "whole", "repeated", "joined")
_SETTING = "tensor_parallel_configs['sequence_parallel']"


def check_covered(model: nn.Module, plan: Mapping[str, str]) -> None:
    """Raise ValueError unless a plan says where parts of a sequence begin and end, and how every
    parameter of the blocks is used: gradients of others would be those of a part."""
    if not {"split", "joined"} <= set(plan.values()):
        raise ValueError(
            f"{_SETTING} is True, but the plan of {type(model).__name__} does not say between "
            "which modules sequences are divided: give the first block the style 'split', the last "
            "norm 'joined', other norms 'sequence', and attentions 'whole' if their layers are "
            "divided or else 'repeated', or set it to False."
        )
    # A module that is whole has parameters of divided layers only: those of others would be used
    # for a part of the heads, and get the gradient of this part.
    inside = tuple(f"{name}." for name, style in plan.items() if style not in ("split", "whole"))
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and _is_in_block(name, plan) and not name.startswith(inside):
            raise ValueError(
                f"{_SETTING} is True, but the plan of {type(model).__name__} does not say how "
                f"{name!r} computes on a part of a sequence: give its module the style 'sequence', "
                "or the module around it 'repeated', or set sequence_parallel to False."
            )


def _is_in_block(name: str, plan: Mapping[str, str]) -> bool:
    """Return whether a module or parameter is one of those between which sequences are divided."""
    splits = (each for each, style in plan.items() if style == "split")
    return any(name.startswith("".join(split.rpartition(".")[:2])) for split in splits)


def meets_parts(name: str, plan: Mapping[str, str]) -> bool:
    """Return whether a colwise layer gets, or a rowwise layer leaves, a part of a sequence."""
    around = {style for other, style in plan.items() if name.startswith(f"{other}.")}
    apart = {"repeated"} if plan[name] == "rowwise" else {"repeated", "whole"}
    return _is_in_block(name, plan) and not around & apart


def run_on_parts(name: str, module: nn.Module, style: str, mesh: DeviceMesh) -> None:
    """Let a module compute on, or begin or end, parts of a sequence."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import SequenceParallel, parallelize_module

    if style == "split":
        _change_input(module, lambda x: _split(name, x, mesh))
    elif style == "whole":
        # It stays torch's divided tensor: gradients of all layers that use it travel at once.
        _change_input(module, lambda x: _join(x, mesh))
    elif style == "repeated":
        # Every worker has the whole gradient of what enters, and goes on with its part of it.
        _change_input(module, lambda x: _join(x, mesh).to_local())
        module.register_forward_hook(lambda _, __, output: _own_part_of(output, mesh))
    elif isinstance(module, nn.Dropout):
        _drop_from_parts(module, mesh)
    elif not any(map(is_elsewhere, module.parameters())):
        parallelize_module(module, mesh, SequenceParallel(use_local_output=style == "sequence"))
        if style == "joined":
            module.register_forward_hook(
                lambda _, __, output: output.redistribute(placements=[Replicate()]).to_local()
            )


def _drop_from_parts(module: nn.Dropout, mesh: DeviceMesh) -> None:
    """Let dropout act on a part as it would on the whole, of which it draws all random numbers:
    workers that draw the same ones have different masks, and stay alike."""

    def forward(input: Tensor) -> Tensor:
        if not module.training or not module.p:
            return input
        own = input.shape[1]
        whole = input.new_ones(input.shape[0], own * mesh.size(), *input.shape[2:])
        mask = functional.dropout(whole, module.p, training=True)
        return input * mask.narrow(1, own * mesh.get_local_rank(), own).contiguous()

    module.forward = forward  # type: ignore[method-assign]


def _as(x: Any, mesh: DeviceMesh, placement: Any) -> Any:
    from torch.distributed.tensor import DTensor

    return x if is_divided(x) else DTensor.from_local(x, mesh, [placement], run_check=False)


def _join(x: Any, mesh: DeviceMesh) -> Any:
    """Return the whole of which each worker has a part, as torch's divided tensor."""
    from torch.distributed.tensor import Replicate, Shard

    return _as(x, mesh, Shard(1)).redistribute(placements=[Replicate()])


def _own_part(x: Any, mesh: DeviceMesh) -> Any:
    """Return this worker's part of what all workers have."""
    from torch.distributed.tensor import Replicate, Shard

    return _as(x, mesh, Replicate()).redistribute(placements=[Shard(1)]).to_local()


def _own_part_of(output: Any, mesh: DeviceMesh) -> Any:
    """Return an output, or the first of several, as this worker's part."""
    if isinstance(output, tuple):
        return (_own_part(output[0], mesh), *output[1:])
    return _own_part(output, mesh)


def _split(name: str, x: Any, mesh: DeviceMesh) -> Any:
    if x.dim() < 3 or x.shape[1] % mesh.size():
        raise ValueError(
            f"{_SETTING} is True, but {name!r} gets a tensor of shape {tuple(x.shape)}, whose "
            f"second dimension cannot be divided between {mesh.size()} workers: give batches "
            "(samples, length, width) with a length that is a multiple of it, or set "
            "sequence_parallel to False."
        )
    return _own_part(x, mesh)


def _change_input(module: nn.Module, change: Callable[[Any], Any]) -> None:
    """Let a module get its first argument changed, also where it is passed again: the query of an
    attention may be its key and its value."""
    first = next(iter(inspect.signature(module.forward).parameters))

    def enter(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = args[0] if args else kwargs[first]
        changed = change(given)
        return (
            tuple(changed if each is given else each for each in args),
            {name: changed if each is given else each for name, each in kwargs.items()},
        )

    module.register_forward_pre_hook(enter, with_kwargs=True)
