"""DistributedStrategy: the one object on which a script switches techniques on.

A flag switches a technique on, the `*_configs` beside it hold the technique's own settings; both
follow from the registered techniques (`technique_switches`). The class body is the table of all
other settings, with Paddle 2.x's names and defaults. A wrong name, type or value is an error that
lists the right ones. `print(strategy)` shows what is on, and
`save_to_prototxt` writes the protobuf text that Paddle reads.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fleetx.checkpoint.atomic import write_bytes
from fleetx.fleet.policy import FLEETX, Policy
from fleetx.fleet.strategy import configs as tables
from fleetx.fleet.strategy.technique_switches import ConfigsField, TechniqueSwitches
from fleetx.step.settings import Configs, Effect, Field, rows_of, unknown_name
from fleetx.techniques.auto_candidates import AutoConfig
from fleetx.techniques.parameter_server import Config as ServerConfig

if TYPE_CHECKING:
    from fleetx.static.run.compiled_program import BuildStrategy, ExecutionStrategy

_none, _refused = Effect.NONE, Effect.REFUSED


class DistributedStrategy(TechniqueSwitches):
    """The techniques of a training, their settings, and those of communication."""

    policy: ClassVar[Policy] = FLEETX
    """The rules by which a session follows this strategy."""

    # -- techniques -------------------------------------------------------------------
    # Their switches and settings are in TechniqueSwitches; this is what belongs to none of them.
    fp16_allreduce_dtype = Field(
        1001,
        "float16",
        "the dtype of these messages",
        since="fleetx",
        choices=("float16", "bfloat16"),
    )
    auto = Field(11, False, "search for the fastest strategy by measuring")
    auto_configs = ConfigsField(1002, rows_of(AutoConfig), "finding the best strategy", AutoConfig)

    # -- data parallelism -------------------------------------------------------------
    sync_batch_norm = Field(17, False, "statistics of batch normalisation over all workers")
    fuse_all_reduce_ops = Field(18, True, "few large all-reduces instead of many small ones")
    fuse_grad_size_in_MB = Field(19, 32, "size of a fused all-reduce", least=0)
    fuse_grad_size_in_num = Field(
        31,
        8,
        "gradients in a fused all-reduce of a program at most, if set; 0 for no limit",
        since="2.2",
        least=0,
    )
    last_comm_group_size_MB = Field(
        27, 1.0, "size of the last bucket, whose all-reduce does not overlap", above=0
    )
    find_unused_parameters = Field(
        28, False, "some parameters may get no gradient in a step", since="2.1"
    )
    gradient_scale_configs = ConfigsField(203, tables.GRADIENT_SCALE, "scale of summed gradients")
    nccl_comm_num = Field(14, 1, "communicators that take all-reduces in turn", least=1)
    sync_nccl_allreduce = Field(13, True, "wait for each all-reduce before the next", effect=_none)
    use_hierarchical_allreduce = Field(15, False, "sum within groups, then between their leaders")
    hierarchical_allreduce_inter_nranks = Field(16, 1, "workers in such a group", least=0)

    hybrid_configs = ConfigsField(112, tables.HYBRID, "degrees of mixed parallelism")

    # -- parameter servers ------------------------------------------------------------
    mode = Field(
        1, "COLLECTIVE", "kind of job; init decides", effect=_none,
        choices=("COLLECTIVE", "PS", "PIPELINE", "HETER"),
    )  # fmt: skip
    a_sync = Field(12, True, "parameter servers do not wait for all workers; sets k_steps to 0")
    a_sync_configs = ConfigsField(107, rows_of(ServerConfig), "parameter servers", ServerConfig)
    trainer_desc_configs = ConfigsField(114, tables.TRAINER_DESC, "dumps of trainers")
    adam_d2sum = Field(36, False, "Adam of a closed parameter server", since="2.3", effect=_none)
    is_fl_ps_mode = Field(39, False, "federated learning", since="2.4", effect=_refused)
    is_with_coordinator = Field(
        40, False, "a coordinator of federated learning", since="2.4", effect=_refused,
        proto_name="with_coordinator",
    )  # fmt: skip

    # -- how a program runs -----------------------------------------------------------
    cudnn_exhaustive_search = Field(21, True, "search for algorithms", effect=_none)
    conv_workspace_size_limit = Field(22, 4000, "MB for convolutions", effect=_none)
    cudnn_batchnorm_spatial_persistent = Field(23, True, "algorithm of cuDNN", effect=_none)
    _fuse_grad_size_in_TFLOPS = Field(
        20, 50.0, "work per fused all-reduce", effect=_none, proto_name="fuse_grad_size_in_TFLOPS"
    )
    _calc_comm_same_stream = Field(
        32, False, "compute and communicate on one stream", since="2.2", effect=_none,
        proto_name="calc_comm_same_stream",
    )  # fmt: skip
    fuse_grad_merge = Field(34, False, "merged gradients in one block", since="2.2", effect=_none)
    without_graph_optimization = Field(30, False, "leave out passes", since="2.1", effect=_none)
    split_data = Field(42, True, "readers split batches", since="2.4", effect=_none)
    elastic = Field(10, False, "no effect in Paddle either", effect=_none)

    # -- refused ----------------------------------------------------------------------
    semi_auto = Field(35, False, "plan by annotations", since="2.2", effect=_refused)
    auto_search = Field(37, False, "plan by search", since="2.3", effect=_refused)
    asp = Field(33, False, "structured sparsity", since="2.2", effect=_refused)
    qat = Field(41, False, "training for quantisation", since="2.4", effect=_refused)
    qat_configs = ConfigsField(117, tables.QAT, "training for quantisation")
    heter_ccl_mode = Field(38, False, "different kinds of devices", since="2.3", effect=_refused)

    def __init__(self) -> None:
        init = super().__setattr__
        rows = settings(type(self))
        flags = {name: row for name, row in rows.items() if isinstance(row, Field)}
        init("_values", {name: row.initial() for name, row in flags.items()})
        groups = {
            name: Configs(name, row.fields)
            for name, row in rows.items()
            if isinstance(row, ConfigsField)
        }
        groups["build_strategy"] = Configs("build_strategy", tables.BUILD)
        groups["execution_strategy"] = Configs("execution_strategy", tables.EXECUTION)
        init("_configs", groups)
        init("_given", set())
        init("_objects", {})

    _given: set[str]  # what was assigned: only that is saved
    _objects: dict[str, Any]  # the BuildStrategy and ExecutionStrategy handed out

    # -- assigning --------------------------------------------------------------------
    if not TYPE_CHECKING:  # with it, a type checker would accept any name

        def __setattr__(self, name: str, value: Any) -> None:
            if not isinstance(getattr(type(self), name, None), Field | ConfigsField | property):
                raise TypeError(
                    f"{name} is not a attribute of {type(self).__name__}."
                    + unknown_name(name, [*settings(type(self)), *_OBJECTS])
                )
            super().__setattr__(name, value)

    def _assign(self, field: Field[Any], value: Any) -> None:
        """Set the value of a setting; subclasses may be more lenient."""
        self._keep(field, field.check(value))

    def _keep(self, field: Field[Any], value: Any) -> None:
        self._values[field.name] = value
        self._given.add(field.name)
        if field.name == "a_sync":
            # This selects the mode; configs that are set afterwards may change it to geo.
            self._configs["a_sync_configs"].assign({"k_steps": 0})

    def _assign_configs(self, configs: Configs, values: Mapping[str, Any]) -> None:
        """Set the given settings of a technique; subclasses may be more lenient."""
        configs.assign(values)

    # -- build and execution strategies -----------------------------------------------
    @property
    def build_strategy(self) -> BuildStrategy:
        """How programs are built; changes of the returned object take effect."""
        from fleetx.static.run.compiled_program import BuildStrategy

        return self._object("build_strategy", BuildStrategy)  # type: ignore[no-any-return]

    @build_strategy.setter
    def build_strategy(self, value: BuildStrategy) -> None:
        self._take("build_strategy", value)

    @property
    def execution_strategy(self) -> ExecutionStrategy:
        """How programs are run; changes of the returned object take effect."""
        from fleetx.static.run.compiled_program import ExecutionStrategy

        return self._object("execution_strategy", ExecutionStrategy)  # type: ignore[no-any-return]

    @execution_strategy.setter
    def execution_strategy(self, value: ExecutionStrategy) -> None:
        self._take("execution_strategy", value)

    def _object(self, name: str, kind: type) -> Any:
        if name not in self._objects:
            made = kind()
            for key, value in self._configs[name].items():
                setattr(made, key, value)
            self._objects[name] = made
        return self._objects[name]

    def _take(self, name: str, source: Any) -> None:
        self._objects.pop(name, None)
        self._read_object(name, source)

    def _read_object(self, name: str, source: Any) -> None:
        configs = self._configs[name]
        found = {key: getattr(source, key, None) for key in configs.fields}
        # None means "default" there, which keeps the current value.
        changed = {k: v for k, v in found.items() if v is not None and v != configs[k]}
        configs.assign(changed)

    def _current_configs(self) -> dict[str, Configs]:
        """Return all groups of settings, including changes of the objects handed out."""
        for name, handed_out in self._objects.items():
            self._read_object(name, handed_out)
        return self._configs

    # -- queries ----------------------------------------------------------------------
    def was_set(self, name: str) -> bool:
        """Return whether a setting was assigned, even to its default."""
        return name in self._given

    def refused(self) -> list[str]:
        """Return the switches that are on but not supported, such as `["pipeline"]`."""
        rows = settings(type(self))
        found = [
            name
            for name, row in rows.items()
            if isinstance(row, Field) and row.effect is _refused and self._values[name]
        ]
        if self.hybrid_configs["sep_degree"] > 1:
            found.append("hybrid_configs['sep_degree']")
        if self.gradient_scale_configs["scale_strategy"] != "avg":
            found.append("gradient_scale_configs['scale_strategy'] other than 'avg'")
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DistributedStrategy):
            return NotImplemented
        return self._everything() == other._everything()

    def _everything(self) -> tuple[dict[str, Any], dict[str, Configs]]:
        """Return all values, including those of techniques that were registered later."""
        for name in settings(type(self)):
            getattr(self, name)
        return self._values, self._current_configs()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        from fleetx.fleet.strategy.reference import overview

        return overview(self)

    # -- copies and files -------------------------------------------------------------
    def __deepcopy__(self, memo: dict[int, Any]) -> DistributedStrategy:
        result = type(self)()
        result.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return result

    def __copy__(self) -> DistributedStrategy:
        # A shallow copy would share lists with the original.
        return copy.deepcopy(self)

    def __getstate__(self) -> dict[str, Any]:
        groups = self._current_configs()
        return {
            "values": dict(self._values),
            "given": set(self._given),
            "configs": {name: dict(group) for name, group in groups.items()},
            "configs_given": {name: set(group.given) for name, group in groups.items()},
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "_values" not in vars(self):
            DistributedStrategy.__init__(self)
        self._values.update(state["values"])
        self._given.update(state["given"])
        for name, group in self._configs.items():
            dict.update(group, state["configs"].get(name, {}))
            group.given.update(state["configs_given"].get(name, ()))

    def save_to_prototxt(self, output: str | os.PathLike[str]) -> None:
        """Write the settings that were assigned, as protobuf text."""
        from fleetx.fleet.strategy.prototxt import to_text

        write_bytes(output, to_text(self).encode())

    def load_from_prototxt(self, pb_file: str | os.PathLike[str]) -> None:
        """Apply the settings in a file of protobuf text; all others keep their values."""
        from fleetx.fleet.strategy.prototxt import merge_text

        merge_text(self, Path(pb_file).read_text(), str(pb_file))


_OBJECTS = ("build_strategy", "execution_strategy")


def settings(kind: type = DistributedStrategy) -> dict[str, Field[Any] | ConfigsField]:
    """Return the table of settings: fields and groups of fields by name, in the order above."""
    rows: dict[str, Field[Any] | ConfigsField] = {}
    for base in reversed(kind.__mro__):
        rows.update(
            (name, row) for name, row in vars(base).items() if isinstance(row, Field | ConfigsField)
        )
    return rows
