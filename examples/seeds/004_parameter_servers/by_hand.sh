#!/bin/sh
# Two servers and WORKERS workers (3) on this machine, each told who it is; options go to all.
# The servers listen at ENDPOINTS.
script="$(dirname "$0")/train.py"
endpoints="${ENDPOINTS:-127.0.0.1:6001,127.0.0.1:6002}"
workers="${WORKERS:-3}"
mkdir -p log
for i in 0 1; do
    python "$script" --role server --current_id "$i" --worker_num "$workers" \
        --endpoints "$endpoints" "$@" > "log/server.$i" 2>&1 &
done
pids=""
for i in $(seq 0 $((workers - 1))); do
    python "$script" --role worker --current_id "$i" --worker_num "$workers" \
        --endpoints "$endpoints" "$@" > "log/worker.$i" 2>&1 &
    pids="$pids $!"
done
status=0
for pid in $pids; do wait "$pid" || status=1; done
[ "$status" = 0 ] && wait
exit "$status"
