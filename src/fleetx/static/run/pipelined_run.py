"""A run of a program that is one stage of a pipeline: micro-batches forward and backward, in the
order of the schedule, then one update.

Forward and backward of a micro-batch are one lowered function that pauses between the two and holds
its activations meanwhile. Fetched values are merged over micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fleetx import torch_private
from fleetx.runtime import heartbeat
from fleetx.static.errors import EOFException, FeedError, NotFiniteError
from fleetx.static.graph.op_names import writes_of
from fleetx.static.graph.op_registry import GRAD_SUFFIX
from fleetx.static.graph.operator import Operator, OpRole
from fleetx.static.graph.program import Program
from fleetx.static.lowering import LoweredStep, lower
from fleetx.static.run.feeding import FeedCheck
from fleetx.static.run.fetched_array import as_fetched, as_lod_tensor
from fleetx.static.run.flags import checks_numbers
from fleetx.static.run.pipeline_stage import MERGED, PipelineStage
from fleetx.static.run.run_errors import explain, is_of_other_processes
from fleetx.static.run.scope import Scope


def _begins(op: Operator) -> bool:
    """Return whether an op sets the sum of gradients to zero before a batch."""
    names = op.output_arg_names
    return bool(names) and op.op_role == OpRole.LRSched and all(n.endswith(MERGED) for n in names)


def _updates(op: Operator) -> bool:
    return bool(op.op_role & (OpRole.Optimize | OpRole.LRSched)) and not _begins(op)


def _computes(op: Operator) -> bool:
    return not _begins(op) and not _updates(op)


class PipelinedRun:
    """A stage, lowered for a scope and sets of names."""

    def __init__(
        self,
        program: Program,
        checks: list[FeedCheck],
        fetches: list[str],
        scope: Scope,
        device: torch.device,
        build: Any = None,
    ) -> None:
        stage = program.binding.pipeline
        assert stage is not None
        if build is not None and build.enable_auto_fusion:
            raise ValueError(
                "BuildStrategy.enable_auto_fusion is on, but a stage of a pipeline cannot be "
                "compiled: it pauses between forward and backward. Set it to False."
            )
        self._stage: PipelineStage = stage
        self._checks = checks
        self._fetches = fetches
        self._device = device
        self._has_compared = False
        block = program.global_block()
        self._variables = {name: block.find_var(name) for name in fetches}
        self._persistable = {c.name for c in checks if block.vars[c.name].persistable}
        for var in program.list_vars():
            if var.persistable:
                scope.var(var.name)
        self._scope = Scope(scope)  # keeps accumulated gradients out of the user's scope
        fed = [c.name for c in checks if c.name not in self._persistable]
        updated = {n for op in block.ops if _updates(op) for n in writes_of(op)}
        kept = [n for n, v in self._variables.items() if v is None or v.persistable]
        self._late = [n for n in fetches if n in kept or n in updated]
        self._late = [n for n in self._late if n not in stage.elsewhere]
        self._early = [
            n for n in fetches if n not in self._late and n not in stage.elsewhere and n not in fed
        ]
        self._begin = self._lower(program, _begins, [], [])
        self._compute = self._lower(program, _computes, fed, self._early, pauses=True)
        self._update = self._lower(program, _updates, [], self._late)

    def _lower(
        self,
        program: Program,
        belongs: Callable[[Operator], bool],
        feeds: list[str],
        fetches: list[str],
        *,
        pauses: bool = False,
    ) -> LoweredStep:
        part = program.clone()
        block = part.global_block()
        block.ops = [op for op in block.ops if belongs(op)]
        for name, var in block.vars.items():
            if name.endswith(MERGED):
                var.persistable = True
        found = lower(
            part,
            feeds,
            fetches,
            self._scope,
            self._device,
            checks_numbers=checks_numbers(),
            pauses=pauses,
        )
        if found.required:
            raise FeedError(
                f"variable {found.required[0]!r} is needed by this stage, but feed has no value "
                f"for it (feed has {feeds or 'nothing'})."
            )
        return found

    # -- feeds ------------------------------------------------------------------------
    def _micro_batches(self, feed: Mapping[str, Any]) -> list[list[Tensor]]:
        """Return the feed of each micro-batch."""
        count = self._stage.micro_batches
        tensors, columns, rows = {}, [], set()
        for check in self._checks:
            value = tensors[check.name] = check.convert(feed[check.name], self._device)
            if check.name in self._persistable:
                self._scope.var(check.name).value = value.clone()
            elif check.shape and value.dim() and check.shape[0] == len(value):
                columns.append([value] * count)  # not divided: a value for all samples
            else:
                columns.append(self._divided(check.name, value))
                rows.add(len(value))
        self._check_size(rows)
        if not self._has_compared:
            self._stage.compare(tensors)
            self._has_compared = True
        return [[column[i] for column in columns] for i in range(count)]

    def _divided(self, name: str, value: Tensor) -> list[Tensor]:
        count = self._stage.micro_batches
        if not value.dim() or not len(value) or len(value) % count:
            raise FeedError(
                f"the feed of {name!r} has the shape {tuple(value.shape)}, which cannot be divided "
                f"into the {count} equal micro-batches of pipeline_configs['accumulate_steps']: "
                "choose another batch size, and drop_last=True in the loader."
            )
        return list(value.split(len(value) // count))

    def _check_size(self, rows: set[int]) -> None:
        size, count = self._stage.micro_batch_size, self._stage.micro_batches
        if size is not None and rows and count * size not in rows:
            raise FeedError(
                f"a batch has {max(rows)} samples, but pipeline_configs['micro_batch_size'] is "
                f"{size} and 'accumulate_steps' is {count}: feed batches of {count * size}, or "
                "leave micro_batch_size out."
            )

    # -- running ----------------------------------------------------------------------
    def run(self, feed: Mapping[str, Any], return_numpy: bool) -> list[Any]:
        """Run a batch and update; return the fetched values, None for those of other stages."""
        parts = self._micro_batches(feed)
        was_enabled = torch.is_grad_enabled()
        try:
            self._call(self._begin, self._begin.run)
            with self._stage.peers.deferring():
                early = self._schedule(parts)
            late = self._call(self._update, self._update.run)
        finally:
            torch_private.set_grad_enabled(was_enabled)
        heartbeat.show_life()
        values = dict(zip(self._late, late, strict=True))
        for i, name in enumerate(self._early):
            values[name] = self._joined(name, [each[i] for each in early])
        for check in self._checks:
            values.setdefault(check.name, feed[check.name])
        found = [values.get(name) for name in self._fetches]
        if return_numpy:
            return [as_fetched(value, name in self._late) for name, value in self._named(found)]
        return [as_lod_tensor(value, None, copy=True) for value in found]

    def _named(self, values: list[Any]) -> list[tuple[str, Any]]:
        return list(zip(self._fetches, values, strict=True))

    def _schedule(self, parts: list[list[Tensor]]) -> list[list[Any]]:
        """Run all micro-batches; return the fetched values of each."""
        paused: dict[int, Any] = {}
        results: list[list[Any]] = [[] for _ in parts]
        peers, before = self._stage.peers, 0
        for is_forward, i in self._stage.order():
            if is_forward:
                paused[i] = self._compute.run(*parts[i])
                self._call(self._compute, partial(next, paused[i]), parts[i])
                continue
            began = peers.started
            results[i] = self._call(self._compute, partial(_rest, paused.pop(i)))
            # Everything sent before the last backward pass has been received, or will be without
            # anything more from here: its memory can be released.
            peers.finish(before)
            before = began
        return results

    def _call(self, step: LoweredStep, run: Callable[[], Any], fed: Sequence[Tensor] = ()) -> Any:
        try:
            return run()
        except (EOFException, NotFiniteError):
            raise
        except Exception as error:
            if is_of_other_processes(error):
                raise
            raise explain(error, step, dict(zip(step.feed_names, fed, strict=False))) from error

    def _joined(self, name: str, values: list[Any]) -> Any:
        """Merge the values of all micro-batches: concatenate samples; sum gradients, whose losses
        are already weighted; average other numbers."""
        first = values[0]
        if not isinstance(first, Tensor) or len(values) == 1:
            return values[-1]
        var = self._variables[name]
        if first.dim() and var is not None and var.shape[:1] == (-1,):
            return torch.cat(values)
        if not first.is_floating_point():
            return values[-1]
        total = torch.stack(values).sum(0)
        return total if GRAD_SUFFIX in name else total / len(values)


def _rest(run: Any) -> Any:
    """Return what a paused function returns."""
    try:
        next(run)
    except StopIteration as end:
        return end.value
    raise AssertionError("a lowered step pauses once")


class WithoutOthers:
    """A prepared run without backward whose fetches include variables of other stages."""

    def __init__(self, prepared: Any, fetches: list[str], own: list[str]) -> None:
        self._prepared, self._fetches, self._own = prepared, fetches, own

    def run(self, feed: Mapping[str, Any], return_numpy: bool) -> list[Any]:
        """Run it; return None for variables of other stages."""
        values = dict(zip(self._own, self._prepared.run(feed, return_numpy), strict=True))
        return [values.get(name) for name in self._fetches]
