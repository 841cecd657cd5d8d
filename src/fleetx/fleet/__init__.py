"""The API of a training script: `from fleetx import fleet`, then `fleet.init()`.

The functions of this module are the methods of one session; see `session.py` for what they do.
"""

from typing import Any

from fleetx.fleet import metrics
from fleetx.fleet.collective.elastic_sampler import ElasticSampler
from fleetx.fleet.roles.general_role_maker import GeneralRoleMaker
from fleetx.fleet.roles.mpi_role_maker import MPISymetricRoleMaker
from fleetx.fleet.roles.role_maker import PaddleCloudRoleMaker, Role
from fleetx.fleet.roles.user_defined_role_maker import (
    UserDefinedCollectiveRoleMaker,
    UserDefinedRoleMaker,
)
from fleetx.fleet.session import Fleet
from fleetx.fleet.strategy.distributed_strategy import DistributedStrategy
from fleetx.fleet.utilities import UtilBase
from fleetx.runtime import membership as _membership
from fleetx.step.registry import register

fleet = Fleet()
_membership.found_by(lambda: fleet._role_maker)

init = fleet.init
is_first_worker = fleet.is_first_worker
worker_index = fleet.worker_index
worker_num = fleet.worker_num
rank = fleet.rank
nranks = fleet.nranks
world_size = fleet.world_size
node_num = fleet.node_num
local_rank = fleet.local_rank
is_worker = fleet.is_worker
is_server = fleet.is_server
worker_endpoints = fleet.worker_endpoints
server_endpoints = fleet.server_endpoints
server_num = fleet.server_num
server_index = fleet.server_index
barrier_worker = fleet.barrier_worker
all_reduce = fleet.all_reduce
broadcast_object = fleet.broadcast_object
print = fleet.print
all_reduce_worker = fleet.all_reduce_worker
split_files = fleet.split_files
init_worker = fleet.init_worker
init_server = fleet.init_server
run_server = fleet.run_server
stop_worker = fleet.stop_worker
resize_servers = fleet.resize_servers
distributed_model = fleet.distributed_model
distributed_optimizer = fleet.distributed_optimizer
join = fleet.join
elastic_loader = fleet.elastic_loader
share_state = fleet.share_state
data_index = fleet.data_index
data_num = fleet.data_num
get_hybrid_communicate_group = fleet.get_hybrid_communicate_group
explain = fleet.explain
_final_strategy = fleet._final_strategy
_get_applied_meta_list = fleet._get_applied_meta_list
_get_applied_graph_list = fleet._get_applied_graph_list
minimize = fleet.minimize
step = fleet.step
clear_grad = fleet.clear_grad
get_lr = fleet.get_lr
set_lr = fleet.set_lr
state_dict = fleet.state_dict
set_state_dict = fleet.set_state_dict
save = fleet.save
load_model = fleet.load_model
save_persistables = fleet.save_persistables
save_inference_model = fleet.save_inference_model
save_checkpoint = fleet.save_checkpoint
save_weights = fleet.save_weights
load_checkpoint = fleet.load_checkpoint
prepare_checkpoint = fleet.prepare_checkpoint
wait_for_checkpoint = fleet.wait_for_checkpoint
resumable = fleet.resumable
synchronize_model = fleet.synchronize_model

_SESSION_ATTRIBUTES = ("util", "main_program", "startup_program", "_origin_program")


def __getattr__(name: str) -> Any:
    """Look up attributes that change during a session in the session itself."""
    if name in _SESSION_ATTRIBUTES:
        return getattr(fleet, name)
    raise AttributeError(f"module 'fleetx.fleet' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, without the subpackages."""
    return sorted([*__all__, *(name for name in _SESSION_ATTRIBUTES if not name.startswith("_"))])


__all__ = [
    "DistributedStrategy",
    "ElasticSampler",
    "Fleet",
    "GeneralRoleMaker",
    "MPISymetricRoleMaker",
    "PaddleCloudRoleMaker",
    "Role",
    "UserDefinedCollectiveRoleMaker",
    "UserDefinedRoleMaker",
    "UtilBase",
    "all_reduce",
    "all_reduce_worker",
    "barrier_worker",
    "broadcast_object",
    "clear_grad",
    "data_index",
    "data_num",
    "distributed_model",
    "distributed_optimizer",
    "elastic_loader",
    "explain",
    "fleet",
    "get_hybrid_communicate_group",
    "get_lr",
    "init",
    "init_server",
    "init_worker",
    "is_first_worker",
    "is_server",
    "is_worker",
    "join",
    "load_checkpoint",
    "load_model",
    "local_rank",
    "metrics",
    "minimize",
    "node_num",
    "nranks",
    "prepare_checkpoint",
    "print",
    "rank",
    "register",
    "resumable",
    "run_server",
    "save_checkpoint",
    "save_weights",
    "save_inference_model",
    "save",
    "save_persistables",
    "server_endpoints",
    "server_index",
    "server_num",
    "set_lr",
    "set_state_dict",
    "share_state",
    "split_files",
    "state_dict",
    "step",
    "resize_servers",
    "stop_worker",
    "synchronize_model",
    "wait_for_checkpoint",
    "worker_endpoints",
    "worker_index",
    "worker_num",
    "world_size",
]
