"""Messages, metrics and programs of jobs with parameter servers."""

from fleetx.paddle_rules.fleet_util import FleetUtil
