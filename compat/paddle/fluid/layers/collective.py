"""Raw collective ops on variables."""

from fleetx.static.layers.collective import allreduce as _allreduce
from fleetx.static.layers.collective import broadcast_inplace as _broadcast
from fleetx.static.layers.collective import c_allgather as _c_allgather
from fleetx.static.layers.collective import c_allreduce as _c_allreduce
from fleetx.static.layers.collective import c_broadcast as _c_broadcast
from fleetx.static.layers.collective import c_reducescatter as _c_reducescatter
from fleetx.static.layers.collective import c_sync_calc_stream as _c_sync_calc_stream
from fleetx.static.layers.collective import c_sync_comm_stream as _c_sync_comm_stream

__all__: list[str] = []
