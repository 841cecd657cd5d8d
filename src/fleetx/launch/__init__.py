"""fleetrun: starts, watches and ends the processes of a job."""
