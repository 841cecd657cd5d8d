"""fleetrun: starts, monitors and stops the processes of a job."""
