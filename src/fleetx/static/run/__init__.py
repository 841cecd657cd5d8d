"""Running programs: `Executor`, the scopes that hold values, feeds, fetches and places.

`executor` lowers a program (`fleetx.static.lowering`) and calls the result; `feeding`,
`fetch_targets` and `fetched_array` are its inputs and outputs, `run_errors` explains a failure,
`server_link` is the interface to parameter servers.
"""
