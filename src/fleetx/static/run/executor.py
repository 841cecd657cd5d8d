"""Executor: lowers a program on the first run with its feeds and fetches; later runs reuse it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from fleetx import torch_private
from fleetx.runtime import heartbeat
from fleetx.static.errors import EOFException, ExecutionError, FeedError, NotFiniteError
from fleetx.static.graph.default_programs import default_main_program
from fleetx.static.graph.operator import Operator
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Parameter
from fleetx.static.lowering import LoweredStep, lower
from fleetx.static.readers.look_ahead import announcing, following_feed
from fleetx.static.run.decided_run import decision_of, without_result
from fleetx.static.run.feeding import (
    FeedCheck,
    check_feed_names,
    merge_feeds,
    warn_of_empty_batch,
    with_readers,
)
from fleetx.static.run.fetch_handler import watched
from fleetx.static.run.fetch_targets import prune_to_targets, split_fetches
from fleetx.static.run.fetched_array import as_fetched, as_lod_tensor, lod_of_fetched
from fleetx.static.run.flags import checks_numbers
from fleetx.static.run.pipeline_stage import batches_per_run, names_elsewhere
from fleetx.static.run.pipelined_run import PipelinedRun, WithoutOthers
from fleetx.static.run.place import CPUPlace, Place
from fleetx.static.run.place_runs import divided, feeds_by_place, run_on_places
from fleetx.static.run.run_errors import explain, is_of_other_processes
from fleetx.static.run.run_watchers import before_run
from fleetx.static.run.scope import Scope, ScopeVariable, global_scope
from fleetx.static.run.server_link import Servers


class Executor:
    """Runs programs on a place.

    Args:
        place: the device to run on; the CPU by default.
        unknown_feed: "error" rejects feeds of unknown names and checks every feed against its
            variable. "warn", Paddle's behaviour, warns of unknown names and checks only variables
            with `need_check_feed` (`static.data`, not `layers.data`), others if the run fails.
    """

    def __init__(self, place: Place | None = None, *, unknown_feed: str = "error") -> None:
        self.place = CPUPlace() if place is None else place
        self._device = self.place.device()
        self._unknown_feed = unknown_feed
        self._closed = False
        self._links: list[Servers] = []  # to servers that programs train with
        self._pruned_programs: weakref.WeakKeyDictionary[Program, dict[Any, Program]] = (
            weakref.WeakKeyDictionary()
        )

    def run(
        self,
        program: Any = None,
        feed: Any = None,
        fetch_list: Any = None,
        feed_var_name: str = "feed",
        fetch_var_name: str = "fetch",
        scope: Scope | None = None,
        return_numpy: bool = True,
        use_program_cache: bool = False,
        return_merged: bool = True,
        use_prune: bool = False,
    ) -> Any:
        """Run a program once and return the fetched values.

        Args:
            program: a Program or CompiledProgram; the default main program if None.
            feed: values by variable name (arrays, LoDTensors, numbers), or a list of such dicts.
            fetch_list: Variables or names to return. If it contains the result of `minimize`, only
                these updates run, and `use_prune` is on.
            scope: where persistable variables live; the global scope by default.
            return_numpy: arrays if true, else LoDTensors.
            use_program_cache: accepted without effect; lowered programs are always cached.
            use_prune: run only what the fetches and the updates depend on.

            return_merged: with several places, join the fetches of all along the first dimension;
                else they are lists with a value per place.

        `feed_var_name` and `fetch_var_name` are accepted without effect.
        """
        if self._closed:
            raise RuntimeError("This Executor is closed; create a new one to run programs.")
        scope = global_scope() if scope is None else scope
        batches = getattr(program, "_place_count", 1)
        if getattr(program, "only_built", False):  # a dry run
            return []
        compiled, (program, build) = program, _unwrap(program)
        fetches, updates = split_fetches(fetch_list)
        if program.binding.pipeline is not None:  # other stages wait for everything that it sends
            use_prune, updates = False, []
        parts_of = None if use_prune or updates else divided(program, batches)
        if parts_of is not None:
            feeds = feeds_by_place(program, feed, batches)
            as_asked = (return_numpy, return_merged)
            parts_of.each.binding.compiled_as = compiled
            return run_on_places(self, parts_of, feeds, fetches, scope, *as_asked)
        if program.binding.runs_as is not None:
            program = program.binding.runs_as(program)
        given = feed
        batches = batches_per_run(program) or batches
        parts = batches  # the number of batches of the declared size in the feed
        if isinstance(feed, list | tuple):
            parts = max(parts, len(feed))
            feed = merge_feeds(feed)
        feed = {} if feed is None else feed
        if type(feed) is not dict and not isinstance(feed, Mapping):
            raise TypeError(
                "feed of Executor.run must be a dict of values by variable name, not "
                f"{type(feed).__name__}."
            )
        if program.binding.readers:
            feed = with_readers(program, feed, batches)
        if use_prune or updates:
            program = self._pruned(program, feed, fetches, updates)
        binding = program.binding
        decision = None if binding.decision is None else decision_of(program)
        if decision is not None:
            decision.begin(program, scope)
        if binding.first_run is not None:
            binding.first_run(self, program, feed, scope)
        for hook in binding.before_run:
            hook(scope)
        before_run(self, program, scope)
        key = (tuple(feed), tuple(fetches), id(scope), program._version, id(build), parts)
        cache = binding.steps.get(self)
        if cache is None:
            cache = binding.steps[self] = {}
        prepared = cache.get(key)
        if prepared is None:
            stale = [k for k in cache if k[3] != program._version]
            for k in stale:
                del cache[k]
            prepared = self._prepared(program, list(feed), fetches, scope, build, parts)
            cache[key] = prepared
        if binding.servers is not None:
            following = following_feed(program, given)
            if following is not None:
                binding.servers.expect(program, following)
        if decision is not None:
            return decision.run(
                lambda: prepared.run(feed, return_numpy),
                lambda: without_result(program, fetches, feed),
            )
        return prepared.run(feed, return_numpy)

    def _pruned(
        self, program: Program, feed: Mapping[str, Any], fetches: list[str], updates: list[Operator]
    ) -> Program:
        """Return the program pruned to these feeds and fetches, from the cache if possible."""
        cache = self._pruned_programs.setdefault(program, {})
        key = (program._version, *feed, None, *fetches, None, *(op.uid for op in updates))
        if key not in cache:
            for stale in [k for k in cache if k[0] != program._version]:
                del cache[stale]
            cache[key] = self._prune_program(program, feed, fetches, updates)
            cache[key].binding.measured = program.binding.measured
        return cache[key]

    def _prune_program(
        self,
        program: Program,
        feed: Mapping[str, Any],
        fetch_list: list[str],
        optimize_ops: list[Operator],
    ) -> Program:
        return prune_to_targets(program, list(feed), fetch_list, optimize_ops)

    def _prepared(self, program: Program, feeds: list[str], fetches: list[str], *more: Any) -> Any:
        """Return the prepared program, wrapped by the monitor's hook if monitoring is on."""
        measured = program.binding.measured
        if measured is None:
            return self._prepare(program, feeds, fetches, *more)
        return measured(lambda names: self._prepare(program, feeds, names, *more), fetches)

    def _prepare(
        self,
        program: Program,
        feeds: list[str],
        fetches: list[str],
        scope: Scope,
        build: Any,
        parts: int,
    ) -> _Prepared | PipelinedRun | WithoutOthers:
        servers = program.binding.servers
        if servers is not None and servers not in self._links:
            self._links.append(servers)
        block = program.global_block()
        elsewhere = names_elsewhere(program)
        for name in fetches:
            if name in elsewhere:
                continue
            if block.find_var(name) is None and scope.find_var(name) is None:
                raise ExecutionError(
                    f"fetch_list names {name!r}, but the program has no variable of that name."
                )
        strict = self._unknown_feed == "error"
        check_feed_names(program, feeds, strict=strict)
        checks = [FeedCheck(block.vars[n], strict, parts) for n in feeds if block.has_var(n)]
        if batches_per_run(program):
            return PipelinedRun(program, checks, fetches, scope, self._device, build)
        own = [name for name in fetches if name not in elsewhere]
        prepared = _Prepared(program, checks, own, scope, self._device, build)
        return prepared if len(own) == len(fetches) else WithoutOthers(prepared, fetches, own)

    def train_from_dataset(
        self,
        program: Any = None,
        dataset: Any = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Any = None,
        fetch_info: Sequence[str] | None = None,
        print_period: int = 100,
        fetch_handler: Any = None,
    ) -> None:
        """Run the program for every batch of a dataset; print fetched values periodically."""
        if dataset is None:
            raise RuntimeError("train_from_dataset needs a dataset.")
        names, _ = split_fetches(fetch_list)
        labels = list(fetch_info) if fetch_info else names
        with watched(fetch_handler, global_scope() if scope is None else scope) as seen:
            fetches = [*names, *seen]
            for step, feed in enumerate(announcing(dataset)):
                values = self.run(program, feed=feed, fetch_list=fetches, scope=scope)
                for holder, value in zip(seen.values(), values[len(names) :], strict=True):
                    holder.set(value)
                if names and step % print_period == 0:
                    shown = ", ".join(f"{k}={v}" for k, v in zip(labels, values, strict=False))
                    print(f"[step {step}] {shown}", flush=True)

    def infer_from_dataset(
        self,
        program: Any = None,
        dataset: Any = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Any = None,
        fetch_info: Sequence[str] | None = None,
        print_period: int = 100,
        fetch_handler: Any = None,
    ) -> None:
        """Run the program, without backward and updates, for every batch of a dataset."""
        program, _ = _unwrap(program)
        self.train_from_dataset(
            program.clone(for_test=True), dataset, scope, thread, debug, fetch_list, fetch_info,
            print_period, fetch_handler,
        )  # fmt: skip

    def close(self) -> None:
        """Close the Executor and its connections to parameter servers."""
        self._closed = True
        for link in self._links:
            link.close()


class _Prepared:
    """A program lowered for one executor, scope and set of names, with the checks of its feeds."""

    def __init__(
        self,
        program: Program,
        checks: list[FeedCheck],
        fetches: list[str],
        scope: Scope,
        device: torch.device,
        build: Any,
    ) -> None:
        self.program = weakref.ref(program)
        self.scope, self.device, self.build = scope, device, build
        self.feeds = [check.name for check in checks]
        self.fetches = fetches
        self.checks = checks
        self._lowered: dict[tuple[bool, bool], LoweredStep] = {}
        self._compiled: dict[Any, Callable[..., list[Any]]] = {}
        # Persistable variables whose offsets stay in the scope from run to run.
        self._sequences: dict[str, ScopeVariable] = {}
        self.trains = any(op.backward_id is not None for op in program.global_block().ops)
        self.may_have_lod = any(v.lod_level > 0 for v in program.list_vars())

    def step(self, with_lod: bool) -> LoweredStep:
        checks = checks_numbers()
        found = self._lowered.get((with_lod, checks))
        if found is None:
            program = self.program()
            assert program is not None  # the caller holds it
            found = lower(
                program,
                self.feeds,
                self.fetches,
                self.scope,
                self.device,
                with_lod=with_lod,
                checks_numbers=checks,
            )
            if found.required:
                name = found.required[0]
                if found.ops_of_line:
                    raise FeedError(
                        f"variable {name!r} is needed by this run, but feed has no value for it"
                        f" (feed has {self.feeds or 'nothing'})."
                    )
            self._lowered[with_lod, checks] = found
            if with_lod:
                block = program.global_block()
                for name, holder in found.holders.items():
                    var = block.find_var(name)
                    if var is not None and not isinstance(var, Parameter):
                        self._sequences[name] = holder
        return found

    def run(self, feed: Mapping[str, Any], return_numpy: bool) -> Any:
        lods: dict[str, Any] = {}
        tensors = []
        for check in self.checks:
            value = feed[check.name]
            if type(value) is not np.ndarray and callable(getattr(value, "lod", None)):
                offsets = value.lod()
                if offsets:
                    lods[check.name] = [list(level) for level in offsets]
            tensors.append(check.convert(value, self.device, check.name in lods))
        if self.trains and not all(map(torch.numel, tensors)):
            for name, value in zip(self.feeds, tensors, strict=True):
                if not value.numel() and name not in lods:  # sequences may have no elements
                    warn_of_empty_batch(repr(name), value)
                    break
        step = self.step(bool(lods) or self.may_have_lod)
        for name, holder in self._sequences.items():
            if holder.lod and name not in lods:
                lods[name] = holder.lod
        step.context.lods = lods
        was_enabled = torch.is_grad_enabled()
        try:
            run = step.run if not self._wants_compile(lods) else self._compile(step, tensors)
            values = run(*tensors)
        except (EOFException, NotFiniteError):
            raise
        except Exception as error:
            if not is_of_other_processes(error):
                for check, tensor in zip(self.checks, tensors, strict=True):
                    check.blame(tensor, error)
            raise explain(error, step, dict(zip(self.feeds, tensors, strict=True))) from error
        finally:
            torch_private.set_grad_enabled(was_enabled)
        heartbeat.show_life()
        for name, holder in self._sequences.items():
            holder.lod = lods.get(name) or []
        if return_numpy:
            return [
                as_fetched(value, copy)
                for value, copy in zip(values, step.copy_fetches, strict=True)
            ]
        return [
            as_lod_tensor(value, lod_of_fetched(name, value, lods), copy=copy is not False)
            for value, name, copy in zip(values, self.fetches, step.copy_fetches, strict=True)
        ]

    def _wants_compile(self, lods: dict[str, Any]) -> bool:
        compiles = self.build is not None and self.build.enable_auto_fusion
        return compiles and not lods and not checks_numbers()

    def _compile(self, step: LoweredStep, tensors: list[torch.Tensor]) -> Callable[..., list[Any]]:
        key = tuple((t.shape, t.dtype) for t in tensors)
        found = self._compiled.get(key)
        if found is None:
            from fleetx.static.lowering.compiled_step import compile_step

            with heartbeat.collective(heartbeat.COMPILATION):
                found = self._compiled[key] = compile_step(step, tensors)
        return found


def _unwrap(program: Any) -> tuple[Program, Any]:
    """Return the Program of a program or CompiledProgram, and its BuildStrategy if any."""
    program = default_main_program() if program is None else program
    if isinstance(program, Program):
        compiled = program.binding.compiled_as
        return program, None if compiled is None else compiled._build_strategy
    inner = getattr(program, "_program", None)
    if isinstance(inner, Program):
        return inner, program._build_strategy
    raise TypeError(
        f"Executor.run takes a Program or CompiledProgram, not {type(program).__name__}: "
        f"{program!r}."
    )
