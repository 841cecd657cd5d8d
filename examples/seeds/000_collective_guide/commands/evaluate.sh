#!/bin/sh
# Compute the vectors of the pictures in DATA (./data). Options go to the script.
exec python "$(dirname "$0")/../evaluate.py" --data_dir "${DATA:-./data}" "$@"
