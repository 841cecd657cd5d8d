#!/usr/bin/env bash
# Run all tests repeatedly, in a new order each time, next to two busy processes. Print seed, time
# and result of every run; stop at the first failure and keep the logs.
#
#     tests/under_load.sh [runs] [first seed] [arguments of pytest...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
runs=${1:-10}
seed=${2:-$RANDOM}
shift $(($# < 2 ? $# : 2))
logs=$(mktemp -d "${TMPDIR:-/tmp}/under-load.XXXXXX")
echo "$runs runs, starting with seed $seed; logs in $logs"

busy=()
trap 'kill "${busy[@]}" 2>/dev/null || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
for _ in 1 2; do
    sh -c 'while :; do :; done' &
    busy+=($!)
done

for ((run = 0; run < runs; run++, seed++)); do
    began=$SECONDS
    result=0
    make --silent test ARGS="-q -p no:cacheprovider --randomly-seed=$seed ${*@Q}" \
        >"$logs/$seed.log" 2>&1 || result=$?
    echo "seed $seed: $((SECONDS - began)) s: $(tail -n 1 "$logs/$seed.log")"
    if ((result)); then
        echo "failed (exit code $result), see $logs/$seed.log; to reproduce: make test ARGS=--randomly-seed=$seed"
        exit "$result"
    fi
done
