"""The server process, which holds tables: requests, sessions, logs and snapshots."""
