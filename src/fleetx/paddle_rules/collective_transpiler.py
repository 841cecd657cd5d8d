"""`GradAllReduce` and `LocalSGD` of Paddle 1.x, for scripts that rewrite programs themselves.

Both connect the workers by their addresses and write the communication into the startup program
and the main program, as `fleet` does (`fleet/collective`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetx.fleet.collective.data_parallel_program import insert_all_reduce, insert_broadcast
from fleetx.fleet.roles.user_defined_role_maker import UserDefinedCollectiveRoleMaker
from fleetx.static.graph.default_programs import default_main_program, default_startup_program
from fleetx.static.graph.operator import OpRole
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Variable

_SNAPSHOT = "@SNAPSHOT"


class Collective:
    """Base of both: the workers, and the broadcast of initial parameters."""

    mode = ""

    def __init__(self, nrings: int = 2) -> None:
        self.nrings = nrings
        self.nranks = 0
        self.rank = 0
        self.endpoints: list[str] = []
        self.current_endpoint = ""
        self.startup_program: Program | None = None
        self.main_program: Program | None = None

    def transpile(
        self,
        startup_program: Program | None,
        main_program: Program | None,
        rank: int,
        endpoints: str | Sequence[str],
        current_endpoint: str,
        wait_port: bool = True,
    ) -> None:
        """Write communication into both programs.

        Args:
            startup_program: the default one if None.
            main_program: the program of `minimize`; the default one if None.
            rank: the rank of this worker.
            endpoints: the addresses of all workers, "ip:port,ip:port" or a list.
            current_endpoint: the address of this one.
            wait_port: accepted; the first communication waits for all workers.
        """
        addresses = endpoints.split(",") if isinstance(endpoints, str) else list(endpoints)
        if len(addresses) == 1:
            raise ValueError(
                f"endpoints is {endpoints!r}: transpile() needs at least 2 endpoints; a single "
                "worker runs the program unchanged."
            )
        if not 0 <= rank < len(addresses):
            raise ValueError(
                f"rank is {rank}: it must be from 0 to {len(addresses) - 1}, one per endpoint."
            )
        if current_endpoint not in addresses:
            raise ValueError(f"current_endpoint {current_endpoint!r} is not among {addresses}.")
        self.startup_program = startup = startup_program or default_startup_program()
        self.main_program = main = main_program or default_main_program()
        self.rank, self.nranks = rank, len(addresses)
        self.endpoints, self.current_endpoint = addresses, current_endpoint
        UserDefinedCollectiveRoleMaker(rank, addresses).connect(later=True)
        self._write(startup, main)

    def _write(self, startup: Program, main: Program) -> None:
        insert_broadcast(startup, [p.name for p in _updated(main)], self.nrings)


class GradAllReduce(Collective):
    """Average gradients over workers in every step."""

    mode = "grad_allreduce"

    def _write(self, startup: Program, main: Program) -> None:
        super()._write(startup, main)
        block = main.global_block()
        pairs = [
            (block.var(op.input("Param")[0]), block.var(_gradient(op))) for op in _updates(main)
        ]
        insert_all_reduce(main, pairs, self.nranks, self.nrings)


class LocalSGD(Collective):
    """Average parameters over workers after every update, by their changes since the last one."""

    mode = "local_sgd"

    def snapshot_name(self, param_name: str) -> str:
        """Return the variable that holds the last average of a parameter."""
        return param_name + _SNAPSHOT

    def _write(self, startup: Program, main: Program) -> None:
        super()._write(startup, main)
        block = main.global_block()
        for i, param in enumerate(_updated(main)):
            ring = i % self.nrings
            for program in (startup, main):
                program.global_block().create_var(
                    name=self.snapshot_name(param.name),
                    shape=param.shape,
                    dtype=param.dtype,
                    persistable=True,
                    stop_gradient=True,
                )
            kept = self.snapshot_name(param.name)
            _append(startup.global_block(), "assign", {"X": param.name}, kept, OpRole.Forward)
            difference = {"X": kept, "Y": param.name}
            _append(block, "elementwise_sub", difference, param.name)
            _append(block, "c_allreduce_sum", {"X": param.name}, param.name, ring_id=ring)
            _append(block, "scale", {"X": param.name}, param.name, scale=1.0 / self.nranks)
            _append(block, "elementwise_sub", difference, param.name)
            _append(block, "assign", {"X": param.name}, kept)


def _append(
    block: Any,
    kind: str,
    inputs: dict[str, str],
    out: str,
    role: int = OpRole.Optimize,
    **attrs: Any,
) -> None:
    block.append_op(
        type=kind,
        inputs={slot: [name] for slot, name in inputs.items()},
        outputs={"Out": [out]},
        attrs={**attrs, "op_role": role},
    )


def _updates(main: Program) -> list[Any]:
    found = [op for op in main.global_block().ops if op.input("Param") and op.input("Grad")]
    if not found:
        raise ValueError(
            "the program has no updates: call optimizer.minimize(loss) before transpile()."
        )
    return found


def _updated(main: Program) -> list[Variable]:
    return [main.global_block().var(op.input("Param")[0]) for op in _updates(main)]


def _gradient(update: Any) -> str:
    """Return the gradient from the backward pass, before clipping and regularization."""
    return f"{update.input('Param')[0]}@GRAD"
