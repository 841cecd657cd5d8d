"""Waiting for servers."""

from fleetx.runtime.network import wait_server_ready
