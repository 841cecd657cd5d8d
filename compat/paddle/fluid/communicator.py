"""Sending and receiving of a worker with parameter servers."""

from fleetx.paddle_rules.communicator import Communicator
