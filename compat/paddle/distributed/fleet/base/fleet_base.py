"""The class of the session."""

from fleetx.fleet import Fleet
