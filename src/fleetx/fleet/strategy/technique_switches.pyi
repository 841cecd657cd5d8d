# Written by `python -m fleetx.fleet.strategy.reference --stub`.
from collections.abc import Mapping
from typing import Any, overload

from fleetx.step.settings import Configs, Field, Rows

class ConfigsField:
    number: int
    fields: Rows
    meaning: str
    name: str
    config: type | None
    def __init__(
        self,
        number: int,
        fields: Rows,
        meaning: str,
        config: type | None = None,
        name: str = "",
    ) -> None: ...
    @overload
    def __get__(self, holder: None, owner: type) -> ConfigsField: ...
    @overload
    def __get__(self, holder: TechniqueSwitches, owner: type) -> Configs: ...
    def __set__(self, holder: TechniqueSwitches, values: Mapping[str, Any]) -> None: ...

class TechniqueSwitches:
    _values: dict[str, Any]
    _configs: dict[str, Configs]
    dgc: Field[bool]
    dgc_configs: ConfigsField
    lamb: Field[bool]
    lamb_configs: ConfigsField
    lars: Field[bool]
    lars_configs: ConfigsField
    gradient_clip: Field[bool]
    gradient_clip_configs: ConfigsField
    recompute: Field[bool]
    recompute_configs: ConfigsField
    amp: Field[bool]
    amp_configs: ConfigsField
    fp16_allreduce: Field[bool]
    localsgd: Field[bool]
    localsgd_configs: ConfigsField
    adaptive_localsgd: Field[bool]
    adaptive_localsgd_configs: ConfigsField
    demo: Field[bool]
    demo_configs: ConfigsField
    powersgd: Field[bool]
    powersgd_configs: ConfigsField
    signsgd: Field[bool]
    signsgd_configs: ConfigsField
    sharding: Field[bool]
    sharding_configs: ConfigsField
    tensor_parallel: Field[bool]
    tensor_parallel_configs: ConfigsField
    pipeline: Field[bool]
    pipeline_configs: ConfigsField
    gradient_merge: Field[bool]
    gradient_merge_configs: ConfigsField
    stop_on_nan: Field[bool]
