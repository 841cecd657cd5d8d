"""The process that holds tables: requests, workers, logs and snapshots."""
