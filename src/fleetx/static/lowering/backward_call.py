"""A backward pass as one call of autograd.

The gradient ops of one `append_backward` describe exactly what torch's autograd would compute, if
the forward ops ran under autograd with gradients flowing where gradient ops exist. The whole pass
is then one `torch.autograd.grad`. If the program does something that autograd cannot express (an op
changes a gradient inside the pass, second derivatives, parameters updated between two passes), the
gradient ops run one by one.

Recomputing ops of the pass are replaced too: the forward ops of their segment run as one function
that does not save tensors for backward and is called again in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetx.static.autodiff.recomputed_segments import number_of
from fleetx.static.graph.dtypes import VarType
from fleetx.static.graph.op_names import reads_of, sub_blocks, writes_of
from fleetx.static.graph.op_registry import EMPTY_NAME, GRAD_SUFFIX, get_op
from fleetx.static.graph.operator import Operator
from fleetx.static.lowering.needed_ops import count_writes


@dataclass
class BackwardCall:
    """One call of autograd: differentiate `roots` and bind the results to gradient names."""

    members: set[int] = field(default_factory=set)  # uids of the gradient ops it replaces
    roots: list[tuple[str, str]] = field(default_factory=list)  # (variable, name of its seed)
    results: list[tuple[str, str]] = field(default_factory=list)  # (variable, gradient name)
    # gradient name -> the loop or branch before which its variable has the value it belongs to
    before: dict[str, Operator] = field(default_factory=dict)
    # forward op uid -> its (slot, index) inputs that a gradient flows into
    flows: dict[int, set[tuple[str, int]]] = field(default_factory=dict)
    # forward op uid -> the segment it is recomputed in
    segments: dict[int, int] = field(default_factory=dict)
    reduced: bool = False  # the results are summed over all workers
    first: int = 0
    last: int = 0


def find_backward_calls(
    ops: list[Operator], fetches: list[str], keep: set[str]
) -> list[BackwardCall] | None:
    """Return a BackwardCall per backward pass, or None if the gradient ops must run one by one.

    `keep` are further names whose values are needed afterwards.
    """
    passes: dict[int, list[int]] = {}
    for i, op in enumerate(ops):
        if op.backward_id is not None:
            passes.setdefault(op.backward_id, []).append(i)
    calls = []
    for indices in passes.values():
        call = _one_call(ops, indices, set(fetches) | keep)
        if call is None:
            return None
        calls.append(call)
    calls.sort(key=lambda c: c.first)
    # An update in place before a later pass would change values that autograd has saved.
    if len(calls) > 1 and any(
        get_op(op.type).inplace for op in ops[calls[0].last : calls[-1].first]
    ):
        return None
    return calls


def _one_call(ops: list[Operator], indices: list[int], fetched: set[str]) -> BackwardCall | None:
    forward = {op.uid: op for op in ops[: indices[0]] if op.backward_id is None}
    members = [ops[i] for i in indices]
    call = BackwardCall({op.uid for op in members}, first=indices[0], last=indices[-1])
    variable_of: dict[str, str] = {}  # gradient name -> variable
    produced: set[str] = set()
    for op in members:
        if op.recomputes is not None:
            if op.recomputes not in forward:
                return None
            for name in op.output_arg_names:
                number = number_of(name)
                if number is not None:
                    call.segments[op.recomputes] = number
                    produced.add(name)
            continue
        if op.type == "sum":
            sources = {variable_of.get(n) for n in op.input("X")}
            if len(sources) != 1 or None in sources:
                return None
            variable_of[op.output("Out")[0]] = str(sources.pop())
        else:
            source = forward.get(op.forward_uid or -1)
            if source is None or get_op(source.type).grad != "auto":
                return None
            # An op that computes a checkpoint is not recomputed, but belongs to the segment.
            for n in map(number_of, op.input_arg_names):
                if n is not None:
                    call.segments[source.uid] = n
            flow = call.flows.setdefault(source.uid, set())
            for slot, names in op.outputs.items():
                plain = slot[: -len(GRAD_SUFFIX)]
                for i, (grad, name) in enumerate(zip(names, source.input(plain), strict=True)):
                    if grad != EMPTY_NAME:
                        variable_of[grad] = name
                        flow.add((plain, i))
            for slot_def in get_op(source.type).outputs:
                seeds = op.input(slot_def.name + GRAD_SUFFIX)
                for name, seed in zip(source.output(slot_def.name), seeds, strict=False):
                    if (
                        seed != EMPTY_NAME
                        and seed not in produced
                        and (name, seed) not in call.roots
                    ):
                        call.roots.append((name, seed))
        produced.update(op.output_arg_names)
    produced.discard(EMPTY_NAME)
    return call if _is_self_contained(call, ops, members, produced, variable_of, fetched) else None


def _is_self_contained(
    call: BackwardCall,
    ops: list[Operator],
    members: list[Operator],
    produced: set[str],
    variable_of: dict[str, str],
    fetched: set[str],
) -> bool:
    """Check that nothing interferes with the pass; collect the results needed outside it."""
    inner_reads = {n for op in members for n in op.input_arg_names}
    outside_reads = set(fetched)
    for i, op in enumerate(ops):
        if op.uid in call.members:
            continue
        outside_reads.update(reads_of(op))
        if call.first < i < call.last and set(writes_of(op)) & inner_reads:
            return False
    writes = count_writes(ops[: call.first])
    for grad in sorted(produced & outside_reads):
        name = variable_of.get(grad)
        if name is None or "@RENAME@" in grad:
            return False
        if writes[name] > 1:
            block = _overwritten_by(call, ops, members, name, grad)
            if block is None:
                return False
            call.before[grad] = block
        call.results.append((name, grad))
    return True


def _overwritten_by(
    call: BackwardCall, ops: list[Operator], members: list[Operator], name: str, grad: str
) -> Operator | None:
    """Return the loop or branch that overwrites the value to which a gradient belongs.

    A gradient's name does not tell which value of its variable it belongs to: it is the one that
    the forward ops of the last gradient ops have read. None if that is not a single
    tensor, or if something other than a loop or branch overwrites it.
    """
    last = {n: op for op in members for n in op.output_arg_names}  # the last op that writes it
    parts = last[grad].input("X") if last[grad].type == "sum" else [grad]
    sources = {last[part].forward_uid for part in parts}
    readers = [i for i, op in enumerate(ops) if op.uid in sources]
    writers = [i for i, op in enumerate(ops[: call.first]) if name in writes_of(op)]
    versions = {sum(w < reader for w in writers) for reader in readers}
    if len(versions) != 1 or (version := versions.pop()) == len(writers):
        return None
    block = ops[writers[version]]
    variable = block.block.find_var(name)
    read_inside = any(
        grad in reads_of(op) for op in ops[call.first : call.last] if op.uid not in call.members
    )
    known = variable is not None and variable.type == VarType.LOD_TENSOR
    usable = known and sub_blocks(block) and block.uid not in call.segments and not read_inside
    return block if usable else None


def refuse_lost_inputs(ops: list[Operator]) -> None:
    """Reject separate gradient ops of a loop, branch or layer that has overwritten its inputs."""
    by_uid = {op.uid: op for op in ops}
    for op in ops:
        forward = by_uid.get(op.forward_uid or -1)
        if forward is None or not (sub_blocks(forward) or forward.type == "inplace_abn"):
            continue
        lost = set(forward.input_arg_names) & set(forward.output_arg_names) - {EMPTY_NAME}
        if lost:
            raise ValueError(
                f"the gradient of op {forward.type!r} needs {min(lost)!r} from before the op, "
                "known only if the whole backward pass runs at once; do not fetch or change "
                "gradients of variables that are written more than once."
            )
