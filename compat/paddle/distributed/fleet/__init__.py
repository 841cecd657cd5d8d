"""The Fleet API of Paddle 2.x: one session, whose methods are the functions of this module."""

import warnings
from typing import Any

from fleetx.data.data_generator import (
    DataGenerator,
    MultiSlotDataGenerator,
    MultiSlotStringDataGenerator,
)
from fleetx.fleet import (
    Fleet,
    all_reduce_worker,
    barrier_worker,
    clear_grad,
    distributed_model,
    distributed_optimizer,
    fleet,
    get_lr,
    is_first_worker,
    is_server,
    is_worker,
    load_checkpoint,
    load_model,
    local_rank,
    minimize,
    node_num,
    save,
    save_checkpoint,
    save_inference_model,
    save_persistables,
    server_endpoints,
    server_index,
    server_num,
    set_lr,
    set_state_dict,
    split_files,
    state_dict,
    step,
    worker_endpoints,
    worker_index,
    worker_num,
)
from fleetx.static.readers.file_datasets import InMemoryDataset, QueueDataset
from paddle._coverage import exported, missing
from paddle.distributed.fleet import base, metrics, utils
from paddle.distributed.fleet.base.distributed_strategy import DistributedStrategy
from paddle.distributed.fleet.base.role_maker import (
    PaddleCloudRoleMaker,
    Role,
    UserDefinedRoleMaker,
)
from paddle.distributed.fleet.base.util_factory import UtilBase

rank = worker_index
nranks = world_size = worker_num
rank_in_node = local_rank
util = UtilBase()


def init(role_maker: Any = None, is_collective: bool = False, strategy: Any = None) -> Fleet:
    """Determine the role of this worker; it connects to the others on first communication."""
    strategy = DistributedStrategy() if strategy is None else strategy
    if role_maker is None and is_collective:
        role_maker = PaddleCloudRoleMaker(is_collective=True)
    return fleet.init(role_maker, is_collective, strategy, wait=False)


def _in_server_job(name: str, *args: Any, **kwargs: Any) -> None:
    """Call a method of the session in a job with parameter servers; raise an error in others."""
    if fleet._role.is_non_distributed():
        warnings.warn(f"{name}() has no effect without a distributed job.", stacklevel=3)
        return
    if fleet._role.is_collective:
        raise ValueError(f"{name}() is for jobs with parameter servers.")
    getattr(fleet, name)(*args, **kwargs)


def init_worker() -> None:
    """Start a worker of a parameter-server job."""
    _in_server_job("init_worker")


def init_server(*args: Any, **kwargs: Any) -> None:
    """Start a server of a parameter-server job."""
    _in_server_job("init_server", *args, **kwargs)


def run_server() -> None:
    """Serve until all workers have finished."""
    _in_server_job("run_server")


def stop_worker() -> None:
    """Stop a worker of a parameter-server job."""
    _in_server_job("stop_worker")


def set_util(my_util: UtilBase) -> None:
    """Set the object that `util` returns."""
    global util
    util = my_util


# These change with minimize, so they are read from the session each time.
_CHANGING = (
    "main_program",
    "startup_program",
    "_origin_program",
    "_final_strategy",
    "_get_applied_meta_list",
    "_get_applied_graph_list",
)
__all__ = [*exported(globals(), without="fleet"), "metrics"]
_refuse = missing(__name__)


def __getattr__(name: str) -> Any:
    return getattr(fleet, name) if name in _CHANGING else _refuse(name)
