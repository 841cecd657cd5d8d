#!/bin/sh
# Train on eight cards, or on those that GPUS lists. Options go to the script.
exec fleetrun --gpus "${GPUS:-0,1,2,3,4,5,6,7}" "$(dirname "$0")/resnet50_localsgd.py" "$@"
