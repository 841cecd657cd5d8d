#!/bin/sh
# Train on two cards; without GPUs on two CPU workers. Options go to the script.
exec fleetrun --gpus=0,1 "$(dirname "$0")/train_fleet_static.py" "$@"
