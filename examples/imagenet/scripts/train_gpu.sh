#!/bin/sh
# Train ResNet-50 on NUM_CARDS cards of this machine (1 by default), or as many CPU workers where
# there are none. DATA_DIR names the pictures; further options go to train_with_fleet.py.
cards=$(seq -s, 0 $((${NUM_CARDS:-1} - 1)))
exec python -m paddle.distributed.launch \
    --selected_gpus="$cards" \
    --log_dir=log \
    train_with_fleet.py \
    --model=ResNet50 \
    --data_dir="${DATA_DIR:-./ImageNet}" \
    "$@"
