"""Sharding written into a program, as Paddle's sharding optimizer writes it: every parameter has an
owner, whose program alone has its update and the state of its optimizer.

Stage 1 leaves the sums of gradients (`c_allreduce_sum`); in stage 2 a gradient is summed on its
owner (`c_reduce_sum`). Then owners send what they have updated (`c_broadcast`).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from fleetx.static.graph.operator import Operator, OpRole
from fleetx.static.optimizer.gradient_merge_optimizer import SUFFIX
from fleetx.step.program_step import ProgramParameterSync, ProgramStep, WrittenUpdate
from fleetx.techniques.sharding_owners import choose_owners

_NO_STATE = ("Param", "Grad", "LearningRate")


class ShardedProgram(ProgramParameterSync):
    """Leaves a worker's program the updates of the parameters that it owns."""

    divides_state = True

    def __init__(self, rank: int, workers: int, stage: int) -> None:
        self._rank = rank
        self._workers = workers
        self._stage = stage
        self.state_copies = 0
        """Tensors of the size of a parameter that the optimizer keeps for it."""

    def write(self, written: WrittenUpdate) -> None:
        """Remove the updates of others, let gradients travel to owners, and parameters back."""
        block = written.block
        updates = [op for op in block.ops if _is_update(op)]
        owners = self._owners(written, updates)
        self.state_copies = max((_copies(op, written) for op in updates), default=0)
        if self._stage > 1:
            _reduce_to_owners(written, owners)
        others = [op for op in updates if owners[op.input("Param")[0]] != self._rank]
        end = 1 + max(i for i, op in enumerate(block.ops) if op in updates)
        for i, (name, owner) in enumerate(owners.items()):
            block.insert_op(
                end + i,
                type="c_broadcast",
                inputs={"X": [name]},
                outputs={"Out": [name]},
                attrs={"ring_id": 0, "root": owner, "op_role": OpRole.Optimize},
            )
        kept = [op for op in updates if op not in others]
        self.own = frozenset(name for op in kept for name in _state(op, written))
        self.own -= {name for op in others for name in op.input_arg_names}
        _remove_updates(written, others, kept)

    def _owners(self, written: WrittenUpdate, updates: Iterable[Operator]) -> dict[str, int]:
        names = [op.input("Param")[0] for op in updates]
        variables = written.main.global_block().vars
        loads = [0] * self._workers
        owners = choose_owners([prod(variables[name].shape) for name in names], loads)
        return dict(zip(names, owners, strict=True))


def _reduce_to_owners(written: WrittenUpdate, owners: dict[str, int]) -> None:
    """Sum each gradient on the owner of its parameter, and nowhere else."""
    roots = {f"{name}{end}": root for name, root in owners.items() for end in ("@GRAD", SUFFIX)}
    pairs = [(param.name, grad.name) for param, grad in written.pairs if grad is not None]
    roots.update((grad, owners[name]) for name, grad in pairs if name in owners)
    for block in written.main.blocks:
        for op in block.ops:
            if op.type == "c_allreduce_sum" and op.output("Out")[0] in roots:
                op.type = "c_reduce_sum"
                op.set_attr("root_id", roots[op.output("Out")[0]])


def _is_update(op: Operator) -> bool:
    return bool(op.op_role & OpRole.Optimize and op.input("Param") and op.input("Grad"))


def _state(op: Operator, written: WrittenUpdate) -> set[str]:
    """Return the persistable variables of an update beside the parameter."""
    variables = written.main.global_block().vars
    names = {n for slot in op.input_names if slot not in _NO_STATE for n in op.input(slot)}
    return {n for n in names if n in variables and variables[n].persistable}


def _copies(op: Operator, written: WrittenUpdate) -> int:
    variables = written.main.global_block().vars
    size = prod(variables[op.input("Param")[0]].shape)
    if size < 2:
        return 0
    return sum(prod(variables[name].shape) == size for name in _state(op, written))


def _remove_updates(written: WrittenUpdate, removed: list[Operator], kept: list[Operator]) -> None:
    """Remove updates with what only they use: their state, how it is created and changed."""
    gone = {name for op in removed for name in _state(op, written)}
    gone -= {name for op in kept for name in op.input_arg_names}
    for program, block in ((written.main, written.block), (written.startup, None)):
        block = block or program.global_block()
        for i in reversed(range(len(block.ops))):
            op = block.ops[i]
            names = op.output_arg_names
            if op in removed or (names and gone.issuperset(names)):
                block.remove_op(i)
        for op in (op for each in program.blocks for op in each.ops):
            for names in (*op.inputs.values(), *op.outputs.values()):
                names[:] = [name for name in names if name not in gone]  # such as of a condition
        for name in gone:
            program.global_block().vars.pop(name, None)
        program.bump_version()


def check_program(step: ProgramStep, stage: int) -> None:
    """Refuse what sharding cannot do in a program."""
    if stage == 3:
        raise ValueError(
            "sharding_configs['stage'] is 3, which FleetX can do for modules but not for programs: "
            "set it to 2, or train a torch.nn.Module."
        )
    exchange = step.owner("param_sync")
    if exchange is not None:
        raise ValueError(
            f"the strategy switches on sharding and {exchange.name}, which FleetX can combine for "
            "modules but not for programs: switch off one of them, or train a torch.nn.Module."
        )
    if stage == 1:
        return
    needs_all, owner = "", step.owner("precision")
    if step.clip is not None or getattr(step.update, "grad_clip", None) is not None:
        needs_all = "the clip of gradients"
    elif owner is not None and owner.config.rules().scaling.is_on:
        needs_all = "amp with a loss scale"
    elif getattr(step.update, "exchanges_gradients", False):
        needs_all = type(step.update).__name__
    if needs_all:
        raise ValueError(
            f"sharding_configs['stage'] is 2, which leaves each worker the gradients of a part of "
            f"the parameters, but {needs_all} looks at all of them: set it to 1 for programs."
        )
