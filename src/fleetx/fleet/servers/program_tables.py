"""The tables of a program's parameters on the servers, with the updates of the program.

Everything is read from a program that `minimize` has completed: an update op per parameter with its
attributes, clips and penalties of the optimizer and of the parameters. A parameter that is only
looked up with `is_sparse` or `is_distributed`, and whose optimizer works on rows, becomes a sparse
table; all others are slices of dense ones.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fleetx.fleet.servers.early_ids import ops_to_move
from fleetx.ps.modes.server_mode import SPLIT_METHODS, ServerMode, dense_table
from fleetx.ps.tables.row_rules import EntrySpec
from fleetx.ps.tables.rule_update import TAKES_RATE
from fleetx.ps.tables.table_spec import (
    SPARSE_OPTIMIZERS,
    ClipSpec,
    DenseTableSpec,
    InitializerSpec,
    OptimizerSpec,
    SparseTableSpec,
)
from fleetx.static.clip import (
    GradientClipBase,
    GradientClipByGlobalNorm,
    GradientClipByNorm,
    GradientClipByValue,
)
from fleetx.static.graph.dtypes import dtype_name
from fleetx.static.graph.op_registry import get_op
from fleetx.static.graph.operator import Operator, OpRole
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Variable
from fleetx.static.regularizer import L1DecayRegularizer, L2DecayRegularizer
from fleetx.step.program_step import WrittenUpdate

_log = logging.getLogger("fleetx.fleet")
LOOKUPS = ("lookup_table", "lookup_table_v2")
_INTERNAL = ("rows", "ctx", "lod")
_ENTRIES = {"count_filter_entry": "count", "probability_entry": "probability"}


@dataclass
class RowTable:
    """A parameter whose rows are on servers."""

    spec: SparseTableSpec
    rows: int
    """How many rows the program declares."""
    given: bool
    """Whether worker 0 sends the initial rows, created by its startup program."""
    padding: int
    lookups: list[Operator] = field(default_factory=list)


@dataclass
class ProgramTables:
    """All tables of a program."""

    dense: list[list[DenseTableSpec]] = field(default_factory=list)
    """Every dense table, as one specification per server."""
    frozen: list[list[DenseTableSpec]] = field(default_factory=list)
    """Tables of parameters that are not trained: all workers start with the same."""
    sparse: dict[str, RowTable] = field(default_factory=dict)
    rate: str | None = None
    """The variable of the learning rate."""

    @property
    def trained(self) -> list[str]:
        """The names of dense parameters that are updated."""
        return _names(self.dense)

    @property
    def dense_names(self) -> list[str]:
        """The names of all parameters in dense tables."""
        return _names([*self.dense, *self.frozen])


def _names(tables: Sequence[Sequence[DenseTableSpec]]) -> list[str]:
    return list(dict.fromkeys(b.parameter for t in tables for spec in t for b in spec.blocks))


def find_tables(
    written: WrittenUpdate, optimizer: Any, mode: ServerMode, servers: int
) -> ProgramTables:
    """Return the tables of a completed training program."""
    program, startup = written.main, written.startup
    block = program.global_block()
    rate = optimizer.global_learning_rate(program)
    found = ProgramTables(rate=None if rate is None else rate.name)
    dense: list[tuple[Any, OptimizerSpec, dict[str, Any]]] = []
    updated = set()
    for op in written.updates:
        param = block.var(op.input("Param")[0])
        updated.add(param.name)
        spec, own = _optimizer(op, param, optimizer, startup)
        table = _row_table(program, startup, param, spec, own, mode, servers)
        if table is None:
            dense.append((param, spec, own))
        else:
            found.sparse[param.name] = table
    found.dense = _dense_tables(dense, mode, servers)
    frozen: list[Any] = [
        (p, OptimizerSpec(), {}) for p in block.all_parameters() if p.name not in updated
    ]
    found.frozen = _dense_tables(frozen, mode, servers, "frozen")
    return found


# -- optimizers -----------------------------------------------------------------------------------
def _optimizer(
    op: Operator, param: Any, optimizer: Any, startup: Program
) -> tuple[OptimizerSpec, dict[str, Any]]:
    """Return the update of a parameter, and its own settings as fields of its block."""
    op_def = get_op(op.type)
    settings = {
        name: value
        for name, value in op.attrs.items()
        if name in op_def.names
        and name not in _INTERNAL
        and (value is None or isinstance(value, bool | int | float | str))
    }
    if op.type == "adagrad":
        settings["initial_accumulator_value"] = _first_value(startup, op.input("Moment")[0])
    if not op.input("LearningRate"):
        settings[TAKES_RATE] = False
    factor = param.optimize_attr["learning_rate"]
    if isinstance(factor, Variable):
        raise ValueError(
            f"parameter {param.name!r} has its own learning rate variable, which servers do not "
            "support: use a number, a factor of the optimizer's learning rate."
        )
    penalty = _penalty(param.regularizer or getattr(optimizer, "regularization", None), param)
    clip, clipped = _clip(optimizer, param)
    spec = OptimizerSpec(kind=op.type, clip=clip)
    own = {"rate_scale": float(factor), "settings": settings, "clipped": clipped, **penalty}
    return spec, own


def _first_value(startup: Program, name: str) -> float:
    for op in startup.global_block().ops:
        if op.type == "fill_constant" and name in op.output("Out"):
            return float(op.attr("value"))
    return 0.0


def _penalty(regularizer: Any, param: Any) -> dict[str, float]:
    if regularizer is None:
        return {"l1": 0.0, "l2": 0.0}
    if isinstance(regularizer, L2DecayRegularizer):
        return {"l1": 0.0, "l2": float(regularizer.coeff)}
    if isinstance(regularizer, L1DecayRegularizer):
        return {"l1": float(regularizer.coeff), "l2": 0.0}
    raise ValueError(
        f"parameter {param.name!r} has the regularizer {type(regularizer).__name__}, which servers "
        "do not support: use L1Decay or L2Decay."
    )


def _clip(optimizer: Any, param: Any) -> tuple[ClipSpec | None, bool]:
    """Return how a parameter's gradient is clipped, and whether it is."""
    clip = getattr(optimizer, "grad_clip", None)
    if clip is None:
        clip = getattr(param, "gradient_clip_attr", None)
    if clip is None:
        return None, True
    return _clip_spec(clip, param), clip.needs_clip(param)


def _clip_spec(clip: GradientClipBase, param: Any) -> ClipSpec:
    if isinstance(clip, GradientClipByValue):
        return ClipSpec(kind="value", limit=clip.max, low=clip.min)
    if isinstance(clip, GradientClipByNorm):
        return ClipSpec(kind="norm", limit=clip.clip_norm)
    if isinstance(clip, GradientClipByGlobalNorm):
        return ClipSpec(kind="global_norm", limit=clip.clip_norm, epsilon=clip.epsilon)
    raise ValueError(
        f"the gradient of {param.name!r} is clipped by {type(clip).__name__}, which servers do not "
        "support: use GradientClipByValue, ByNorm or ByGlobalNorm."
    )


# -- dense parameters -----------------------------------------------------------------------------
def _dense_tables(
    params: Sequence[tuple[Any, OptimizerSpec, Mapping[str, Any]]],
    mode: ServerMode,
    servers: int,
    name: str = "dense",
) -> list[list[DenseTableSpec]]:
    groups: dict[tuple[str, ClipSpec | None, str], list[Any]] = {}
    for param, spec, own in params:
        key = (spec.kind, spec.clip, dtype_name(param.dtype))
        groups.setdefault(key, []).append((spec, (param.name, tuple(param.shape), own)))
    limits = {c.limit for _, c, _ in groups if c is not None and c.kind == "global_norm"}
    if len(limits) > 1:
        raise ValueError(
            "parameters are clipped by their global norm in several groups, which servers do not "
            f"support (clip_norm {', '.join(map(str, sorted(limits)))}): use one clip for all."
        )
    dispatcher = SPLIT_METHODS[mode.split_method](servers)
    found = []
    for number, ((_, _, dtype), members) in enumerate(groups.items()):
        table = name if number == 0 else f"{name}_{number}"
        shapes = [shape for _, shape in members]
        found.append(dense_table(table, dtype, members[0][0], shapes, mode, servers, dispatcher))
    return found


# -- rows -----------------------------------------------------------------------------------------
def _row_table(
    program: Program,
    startup: Program,
    param: Any,
    optimizer: OptimizerSpec,
    own: Mapping[str, Any],
    mode: ServerMode,
    servers: int,
) -> RowTable | None:
    """Return the table of a parameter that is only looked up; None if it must be dense."""
    lookups = lookups_of(program, param.name)
    if not lookups:
        return None
    distributed = any(op.attr("is_distributed") for op in lookups)
    problem = _why_no_rows(lookups, optimizer, own, mode, servers)
    if ops_to_move(program.global_block().ops, lookups) is None:
        problem = problem or "ids of one look-up are computed from rows of another"
    if problem:
        if distributed:
            raise ValueError(f"the table {param.name!r} is on parameter servers, but {problem}.")
        _log.info("Parameter %r is stored as a dense one, because %s.", param.name, problem)
        return None
    spec = SparseTableSpec(
        name=param.name,
        dim=int(param.shape[-1]),
        dtype=dtype_name(param.dtype),
        initializer=_initializer(startup, param) if distributed else InitializerSpec(),
        optimizer=replace(
            optimizer, settings=_row_settings(optimizer.kind, own["settings"]),
            l1=own["l1"], l2=own["l2"], clip=optimizer.clip if own["clipped"] else None,
        ),
        entry=_entry(lookups),
        seed=_seed(startup, param) if distributed else None,
    )  # fmt: skip
    padding = int(lookups[0].attr("padding_idx"))
    return RowTable(spec, int(param.shape[0]), not distributed, padding, lookups)


def lookups_of(program: Program, name: str) -> list[Operator]:
    """Return the look-ups in a parameter, if nothing else of the forward pass reads it."""
    found = []
    for block in program.blocks:
        for op in block.ops:
            forward = op.backward_id is None and not op.op_role & OpRole.Optimize
            if name not in op.input_arg_names or not forward:
                continue
            sparse = op.type in LOOKUPS and (op.attr("is_sparse") or op.attr("is_distributed"))
            if not sparse or block.idx != 0:
                return []
            found.append(op)
    return found


# Updates, with their settings, that leave a row without a gradient as it is. Others (momentum, ...)
# move every row of an ordinary parameter in every step; only distributed tables take them by rows.
_BY_ROWS = {
    "sgd": (),
    "adagrad": ("epsilon", "initial_accumulator_value"),
    "adam": ("beta1", "beta2", "epsilon"),
    "ftrl": ("l1", "l2", "lr_power"),
}


def _why_no_rows(
    lookups: Sequence[Operator],
    optimizer: OptimizerSpec,
    own: Mapping[str, Any],
    mode: ServerMode,
    servers: int,
) -> str:
    distributed = any(op.attr("is_distributed") for op in lookups)
    kinds: tuple[str, ...] = ("sgd",) if mode.updates_on_worker else tuple(SPARSE_OPTIMIZERS)
    if not distributed:
        kinds = tuple(kind for kind in kinds if kind in _BY_ROWS)
    if optimizer.kind not in kinds:
        return f"rows are updated by {', '.join(kinds)} in mode {mode.kind!r}, not by " + (
            repr(optimizer.kind)
        )
    clips = optimizer.clip is not None and own["clipped"]
    if mode.updates_on_worker and (clips or own["l1"] or own["l2"]):
        return "geo training of rows has neither clips nor penalties"
    if clips and optimizer.clip.kind == "norm" and servers > 1:  # type: ignore[union-attr]
        return "its gradient is clipped by its own norm, and its rows are on several servers"
    if own["rate_scale"] != 1.0:
        return "it has its own learning rate factor"
    if len({op.attr("padding_idx") for op in lookups}) > 1:
        return "its look-ups have different padding ids"
    return ""


def _row_settings(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of an update op as those of rows."""
    if kind not in _BY_ROWS:
        return dict(settings)
    found = {name: settings[name] for name in _BY_ROWS[kind] if name in settings}
    if kind == "adam" and settings.get("use_global_beta_pow") is not None:
        found["scale_epsilon"] = True
    return found


# Initializers of rows by the op of a startup program, with the attribute of each setting.
_INITIALIZERS = {
    "fill_constant": ("constant", {"value": "value"}),
    "uniform_random": ("uniform", {"low": "min", "high": "max"}),
    "gaussian_random": ("normal", {"mean": "mean", "std": "std"}),
    "truncated_gaussian_random": ("truncated_normal", {"mean": "mean", "std": "std"}),
}


def first_value_op(startup: Program, name: str) -> Operator | None:
    """Return the op of a startup program that initialises a variable."""
    for op in startup.global_block().ops:
        if name in op.output_arg_names:
            return op
    return None


def _initializer(startup: Program, param: Any) -> InitializerSpec:
    op = first_value_op(startup, param.name)
    if op is None or op.type not in _INITIALIZERS:
        made = "nothing" if op is None else repr(op.type)
        raise ValueError(
            f"the rows of table {param.name!r} are initialised on servers, which do not support "
            f"{made} of the startup program: use Constant, Uniform, Normal, TruncatedNormal or "
            "Xavier."
        )
    kind, attributes = _INITIALIZERS[op.type]
    settings = {setting: float(op.attr(name)) for setting, name in attributes.items()}
    return InitializerSpec(kind=kind, settings=settings)


def _seed(startup: Program, param: Any) -> int | None:
    op = first_value_op(startup, param.name)
    seed = int(op.attr("seed")) if op is not None and op.has_attr("seed") else 0
    return seed or None


def _entry(lookups: Sequence[Operator]) -> EntrySpec | None:
    words = {str(op.attrs.get("entry") or "none") for op in lookups} - {"none"}
    if not words:
        return None
    kind, _, value = words.pop().partition(":")
    return EntrySpec(kind=_ENTRIES[kind], value=float(value))
