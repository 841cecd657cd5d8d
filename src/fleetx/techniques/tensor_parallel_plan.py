"""Plans of tensor parallelism: which modules are divided, and how.

    colwise    the outputs of a linear layer are divided; what follows computes on a part of them
    rowwise    its inputs are divided, and the results are added up: the partner of colwise
    gathered   as colwise, with the outputs put together again: for the layer before the loss
    vocabulary as gathered, but a loss is computed from the parts (`loss_parallel`)
    embedding  the rows of a table are divided; what comes out is whole

`tensor_parallel_sequence.py` has styles of modules that compute on parts of a sequence. A plan is
found by the model's attribute `tensor_parallel_plan`, or by its family
(`tensor_parallel_families.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor, nn

from fleetx.comm.divided_tensors import is_divided, is_elsewhere, shape_elsewhere
from fleetx.techniques.recompute import find_modules
from fleetx.techniques.tensor_parallel_families import FAMILIES, family_plan
from fleetx.techniques.tensor_parallel_loss import divide_losses
from fleetx.techniques.tensor_parallel_sequence import (
    SEQUENCE_STYLES,
    check_covered,
    meets_parts,
    run_on_parts,
)

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

STYLES = ("colwise", "rowwise", "gathered", "vocabulary", "embedding", *SEQUENCE_STYLES)
_SETTING = "tensor_parallel_configs['plan']"


def find_plan(
    model: nn.Module,
    given: Sequence[str] = (),
    *,
    sequence_parallel: bool = False,
    loss_parallel: bool = False,
) -> dict[str, str]:
    """Return the style of each module that is to be divided: as given, as the model says, or as
    known for its family.

    Modules compute on parts of a sequence with `sequence_parallel`, and outputs before the loss
    stay divided with `loss_parallel`; otherwise neither.

    Raises ValueError if there is no plan, or if it names modules or styles that do not exist.
    """
    plan = _find(model, read_plan(given, sequence_parallel=sequence_parallel))
    if loss_parallel:
        if not {"gathered", "vocabulary"} & set(plan.values()):
            raise ValueError(
                "tensor_parallel_configs['loss_parallel'] is True, but the plan of "
                f"{type(model).__name__} has no layer before the loss: give it the style "
                "'vocabulary', or set loss_parallel to False."
            )
        plan = {n: "vocabulary" if style == "gathered" else style for n, style in plan.items()}
    if sequence_parallel:
        check_covered(model, plan)
        return plan
    return {name: style for name, style in plan.items() if style not in SEQUENCE_STYLES}


def _find(model: nn.Module, given: Mapping[str, str]) -> dict[str, str]:
    """Return the whole plan of a model."""
    if given:
        return _resolve(model, given)
    own = getattr(model, "tensor_parallel_plan", None)
    if own is not None:
        return _resolve(model, own)
    family = family_plan(getattr(model, "config", None))
    if family is not None:
        return _resolve(model, _present(model, family))
    known = ", ".join(FAMILIES)
    raise ValueError(
        f"tensor_parallel has no plan for {type(model).__name__}: name its modules in "
        f"{_SETTING}, such as ['blocks.*.up: colwise', 'blocks.*.down: rowwise'], or in an "
        f"attribute tensor_parallel_plan of the model; known families of transformers are {known}."
    )


def read_plan(lines: Sequence[str], *, sequence_parallel: bool) -> dict[str, str]:
    """Return the styles by patterns of names, as a user gave them.

    Raises ValueError for a line that is none, and for a style of parts of a sequence that would not
    act. A model's own plan may have such styles: it does not say what is switched on.
    """
    plan: dict[str, str] = {}
    for line in lines:
        name, colon, style = (part.strip() for part in line.rpartition(":"))
        if not colon or not name:
            raise ValueError(
                f"{_SETTING} has {line!r}, which is no module and its style: write "
                "'blocks.*.up: colwise'."
            )
        if style in SEQUENCE_STYLES and not sequence_parallel:
            raise ValueError(
                f"{_SETTING} has {line!r}, but {style!r} acts on parts of a sequence, and "
                "tensor_parallel_configs['sequence_parallel'] is False: set it to True, or leave "
                f"{name!r} out of the plan."
            )
        plan[name] = style
    return plan


def _present(model: nn.Module, plan: Mapping[str, str]) -> dict[str, str]:
    """Return the part of a family's plan that a model has modules for."""
    found: dict[str, str] = {}
    for pattern, style in plan.items():
        try:
            find_modules(model, [pattern], setting=_SETTING)
        except ValueError:  # such as the head of a model without one
            continue
        found[pattern] = style
    return found


def _resolve(model: nn.Module, plan: Mapping[str, str]) -> dict[str, str]:
    """Return the styles by names of modules, checked."""
    found: dict[str, str] = {}
    for pattern, style in plan.items():
        if style not in STYLES:
            raise ValueError(
                f"{_SETTING} says {style!r} for {pattern!r}: a style is one of {', '.join(STYLES)}."
            )
        for name, module in find_modules(model, [pattern], setting=_SETTING).items():
            _check_kind(name, module, style)
            found.setdefault(name, style)  # what is named first counts
    return found


def _check_kind(name: str, module: nn.Module, style: str) -> None:
    if style in SEQUENCE_STYLES:
        return
    is_table = isinstance(module, nn.Embedding)
    fits = is_table if style == "embedding" else isinstance(module, nn.Linear) or is_conv1d(module)
    if not fits:
        wanted = "nn.Embedding" if style == "embedding" else "nn.Linear"
        raise ValueError(
            f"{_SETTING} says {style!r} for {name!r}, which is a {type(module).__name__}, but "
            f"{style} divides a {wanted}: name the {wanted} inside it."
        )


def is_conv1d(module: nn.Module) -> bool:
    """Return whether a module is GPT-2's linear layer, whose weight is transposed."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")


def divide_modules(model: nn.Module, plan: Mapping[str, str], mesh: DeviceMesh) -> None:
    """Divide modules between the workers of a mesh; shared parameters stay shared."""
    from torch.distributed.tensor.parallel import parallelize_module

    places = _places(model)
    for name, style in plan.items():
        module = model.get_submodule(name)
        if style in SEQUENCE_STYLES:
            run_on_parts(name, module, style, mesh)
            continue
        _check_size(name, module, style, mesh.size())
        if any(map(is_elsewhere, module.parameters(recurse=False))):
            continue  # of another stage of a pipeline
        in_parts = meets_parts(name, plan)
        if is_conv1d(module):
            _divide_conv1d(module, style, mesh, in_parts=in_parts)
        else:
            parallelize_module(module, mesh, _style(style, in_parts=in_parts))
    if "vocabulary" in plan.values():
        divide_losses()
    _share_again(model, places)
    _settle_gradients(model)


def _style(style: str, *, in_parts: bool) -> Any:
    """Return torch's style; `in_parts`: what a pair of layers gets and returns is a part of the
    sequence."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    outside = Shard(1) if in_parts else Replicate()
    if style == "colwise":
        return ColwiseParallel(input_layouts=outside)
    if style == "rowwise":
        return RowwiseParallel(output_layouts=outside)
    if style == "vocabulary":
        return ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
    if style == "gathered":
        return ColwiseParallel(output_layouts=Replicate())
    return RowwiseParallel(input_layouts=Replicate())


def _divide_conv1d(module: nn.Module, style: str, mesh: DeviceMesh, *, in_parts: bool) -> None:
    """Divide a linear layer with a transposed weight, as `_style` divides others."""
    from torch.distributed.tensor import (
        DTensor,
        Replicate,
        Shard,
        distribute_module,
        distribute_tensor,
    )

    by_rows = style == "rowwise"
    outside = Shard(1) if in_parts else Replicate()
    splits = {"weight": Shard(0 if by_rows else 1), "bias": Replicate() if by_rows else Shard(0)}

    def divide(_: str, part: nn.Module, mesh: DeviceMesh) -> None:
        for name, split in splits.items():
            whole = getattr(part, name)
            value = distribute_tensor(whole.data, mesh, [split], src_data_rank=None)
            part.register_parameter(name, nn.Parameter(value, whole.requires_grad))

    def enter(_: nn.Module, inputs: Any, mesh: DeviceMesh) -> Any:
        x = inputs[0]
        if not is_divided(x):
            x = DTensor.from_local(x, mesh, [Shard(-1) if by_rows else outside], run_check=False)
        wanted = Shard(-1) if by_rows else Replicate()
        return (x.redistribute(placements=[wanted]), *inputs[1:])

    def leave(_: nn.Module, output: Any, mesh: DeviceMesh) -> Any:
        split = outside if by_rows else Replicate() if style == "gathered" else Shard(-1)
        return output.redistribute(placements=[split]).to_local()

    distribute_module(module, mesh, divide, enter, leave)


def _check_size(name: str, module: nn.Module, style: str, degree: int) -> None:
    """Refuse a layer whose divided side would have parts of different sizes."""
    if style in ("gathered", "vocabulary", "embedding"):  # parts may have different sizes
        return
    shape = shape_elsewhere(cast("Tensor", module.weight))
    axis = 0 if (style == "colwise") != is_conv1d(module) else 1
    if shape[axis] % degree:
        side = "outputs" if style == "colwise" else "inputs"
        raise ValueError(
            f"tensor_parallel divides the {shape[axis]} {side} of {name!r} between {degree} "
            f"workers, which does not come out even: choose a degree that divides "
            f"{shape[axis]}, or leave {name!r} out of the plan."
        )


def _places(model: nn.Module) -> list[list[tuple[nn.Module, str]]]:
    """Return where each shared parameter is."""
    found: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            found.setdefault(id(parameter), []).append((module, name))
    return [places for places in found.values() if len(places) > 1]


def _share_again(model: nn.Module, places: list[list[tuple[nn.Module, str]]]) -> None:
    """Let modules share again the parameters that they shared before."""
    names = {id(module): name for name, module in model.named_modules()}
    for shared in places:
        parts = [getattr(module, name) for module, name in shared]
        splits = {str(getattr(part, "placements", "whole")) for part in parts}
        if len(splits) > 1:
            where = " and ".join(f"{names[id(module)]}.{name}" for module, name in shared)
            raise ValueError(
                f"{where} are one parameter, but {_SETTING} divides them in different ways: give "
                "an embedding the style 'embedding' and the layer that shares its table "
                "'gathered'."
            )
        for module, name in shared[1:]:
            module.register_parameter(name, parts[0])


def _settle_gradients(model: nn.Module) -> None:
    """Let the gradient of every part be divided as the part itself is."""

    def settle(parameter: Tensor) -> None:
        grad: Any = parameter.grad
        if grad is not None and grad.placements != parameter.placements:  # type: ignore[attr-defined]
            parameter.grad = grad.redistribute(placements=parameter.placements)  # type: ignore[attr-defined]

    for parameter in model.parameters():
        if hasattr(parameter, "placements") and parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(settle)
