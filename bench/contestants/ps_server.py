"""One parameter server that keeps its state: ps_server.py ENDPOINT FOLDER."""

import sys

import torch

from fleetx.ps.server.server import run_server
from fleetx.ps.server.server_settings import ServerSettings
from fleetx.ps.server.snapshots import Durability

torch.set_num_threads(1)
settings = ServerSettings(workers=1, allow_insecure=True, durability=Durability(folder=sys.argv[2]))
run_server(sys.argv[1], settings)
