"""The processes of a server job on this machine, with Fleet's environment for each role."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from fleetx.launch.child_environment import started_from
from fleetx.launch.group import ProcessSpec
from fleetx.launch.job_layout import Cluster
from fleetx.launch.job_plan import JobPlan
from fleetx.launch.server_arguments import ServerOptions
from fleetx.runtime import network, server_support
from fleetx.runtime.layout_folder import LayoutFolder, ServerLayout

# The rows of the environment table.
TABLE = (
    "PADDLE_PSERVERS_IP_PORT_LIST",
    "PADDLE_TRAINER_ENDPOINTS",
    "PADDLE_TRAINERS_NUM",
    "TRAINING_ROLE",
    "PADDLE_TRAINER_ID",
    "POD_IP",
    "PADDLE_PORT",
    server_support.STATE,
)


class ServerProcesses:
    """Factory of the specifications of all servers and workers of this machine."""

    def __init__(self, job: JobPlan) -> None:
        self._plan = job
        self.state = job.state

    def specs(self, cluster: Cluster) -> list[ProcessSpec]:
        """List the processes to start, servers first."""
        job = self._plan.options.server_job
        assert job is not None
        shared = self._shared(cluster, job)
        here = cluster.here
        servers = [
            self._spec(
                "server",
                str(local),
                cluster.servers.index(endpoint),
                {**shared, **self._server(cluster, endpoint, cluster.servers.index(endpoint))},
                job.max_restart,
            )
            for local, endpoint in enumerate(here.servers)
        ]
        workers = [
            self._spec(
                "worker",
                str(local),
                cluster.endpoints.index(endpoint),
                {**shared, **self._worker(cluster, local, job)},
                self._plan.options.max_restart,
            )
            for local, endpoint in enumerate(here.endpoints)
        ]
        return servers + workers

    def successors(
        self, cluster: Cluster, layout: ServerLayout, here: Collection[str]
    ) -> list[ProcessSpec]:
        """List the servers that take over from those of the layout before, at addresses `here`."""
        job = self._plan.options.server_job
        assert job is not None
        assert self.state is not None
        number = layout.generation
        shared = {
            **self._shared(cluster, job),
            "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(layout.endpoints),
            server_support.TAKE_OVER: str(LayoutFolder(self.state).handover(number)),
        }
        return [
            self._spec(
                "server",
                f"{number}.{index}",
                index,
                {**shared, **self._server(cluster, endpoint, index, number)},
                job.max_restart,
            )
            for index, endpoint in enumerate(layout.endpoints)
            if endpoint in here
        ]

    def _spec(
        self, role: str, local: str, number: int, environment: dict[str, str], restarts: int
    ) -> ProcessSpec:
        heartbeat = self._plan.scratch / f"heartbeat.{role}.{local}"
        return ProcessSpec(
            rank=number,
            command=self._plan.command,
            environment={**environment, "FLEETX_HEARTBEAT": str(heartbeat)},
            log=Path(self._plan.options.log_dir, f"{role}log.{local}"),
            heartbeat=heartbeat,
            role=role,
            restarts=restarts,
        ).traced_to(self._plan.scratch / f"stacks.{role}.{local}")

    def _shared(self, cluster: Cluster, job: ServerOptions) -> dict[str, str]:
        host, port = cluster.master
        given, scratch = self._plan.environment, self._plan.scratch
        meeting = network.join_endpoint(host, job.http_port or port)
        variables = {
            **started_from(given),
            "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(cluster.servers),
            "PADDLE_TRAINER_ENDPOINTS": ",".join(cluster.endpoints),
            "PADDLE_HETER_TRAINER_IP_PORT_LIST": "",
            "PADDLE_TRAINERS_NUM": str(len(cluster.endpoints)),
            "PADDLE_WITH_GLOO": given.get("PADDLE_WITH_GLOO", self._plan.options.with_gloo),
            "PADDLE_GLOO_RENDEZVOUS": given.get("PADDLE_GLOO_RENDEZVOUS", "3"),
            "PADDLE_GLOO_FS_PATH": given.get("PADDLE_GLOO_FS_PATH", str(scratch / "gloo")),
            "PADDLE_GLOO_HTTP_ENDPOINT": meeting,
        }
        if job.insecure:
            variables[server_support.INSECURE] = "1"
        interface = network.interface_of(cluster.here.host)
        if interface is not None:
            variables.setdefault("GLOO_SOCKET_IFNAME", interface)
        if len(cluster.here.servers) + len(cluster.here.endpoints) > 1:
            variables.setdefault("OMP_NUM_THREADS", "1")
        return variables

    def _server(
        self, cluster: Cluster, endpoint: str, index: int, generation: int | None = None
    ) -> dict[str, str]:
        job = self._plan.options.server_job
        assert job is not None
        host, port = network.split_endpoint(endpoint)
        variables = {"TRAINING_ROLE": "PSERVER", "POD_IP": host, "PADDLE_PORT": str(port)}
        if self.state is not None:
            files = LayoutFolder(self.state)
            if generation is None:
                known = files.read()
                generation = known.generation if known is not None else 0
            variables[server_support.STATE] = str(files.state_of(generation, index))
            variables[server_support.FSYNC] = job.fsync
        if self._plan.options.elastic:
            variables[server_support.ELASTIC] = "1"
        optional = {
            server_support.SNAPSHOT_SECONDS: job.snapshot_seconds,
            server_support.MEMORY: job.memory,
            server_support.SPILL: job.spill,
            server_support.WORKER_WAIT: job.worker_wait,
        }
        variables |= {name: str(value) for name, value in optional.items() if value is not None}
        return {**variables, **self._keys(cluster, "server")}

    def _worker(self, cluster: Cluster, local: int, job: ServerOptions) -> dict[str, str]:
        here, endpoints = cluster.here, cluster.endpoints
        rank = endpoints.index(here.endpoints[local])
        host, port = network.split_endpoint(endpoints[0])
        variables = {
            **self._plan.measuring(),
            "TRAINING_ROLE": "TRAINER",
            "PADDLE_TRAINING_ROLE": "TRAINER",
            "PADDLE_TRAINER_ID": str(rank),
            "PADDLE_CURRENT_ENDPOINT": here.endpoints[local],
            "FLAGS_selected_gpus": self._plan.devices.shares[local][0],
            # Workers may form a process group of their own, with the first worker as rendezvous.
            "RANK": str(rank),
            "WORLD_SIZE": str(len(endpoints)),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(len(here.endpoints)),
            "MASTER_ADDR": host,
            "MASTER_PORT": str(port),
        }
        if self._plan.devices.visible is not None:
            cards = self._plan.devices.visible.split(",")
            variables["CUDA_VISIBLE_DEVICES"] = cards[local % len(cards)]
        if job.server_wait is not None:
            variables[server_support.SERVER_WAIT] = str(job.server_wait)
        if self.state is not None:
            variables[server_support.LAYOUT] = str(self.state)
        return {**variables, **self._keys(cluster, "worker")}

    def _keys(self, cluster: Cluster, role: str) -> dict[str, str]:
        """Write the job's keys to a private file of this user; only servers get their secret."""
        if cluster.keys is None:
            return {}
        path = self._plan.scratch / f"keys.{role}"
        if not path.exists():
            hidden = {"server_secret": ""} if role == "worker" else {}
            server_support.write_keys(path, {**cluster.keys, **hidden})
        return {server_support.KEYS: str(path)}
