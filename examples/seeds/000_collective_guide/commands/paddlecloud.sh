#!/bin/sh
# The start command of a PaddleCloud job. Submit it there with
#   paddlecloud job --start-cmd "sh paddlecloud.sh" --is-standalone 0 --distribute-job-type NCCL2 ...
# PaddleCloud says in the environment which machines there are (PADDLE_TRAINERS, POD_IP, ...).
exec python -m paddle.distributed.launch \
    --use_paddlecloud \
    --selected_gpus="${GPUS:-0,1,2,3,4,5,6,7}" \
    "$(dirname "$0")/../../../imagenet/train_with_fleet.py" \
    --model=ResNet50 \
    --data_dir="${DATA:-./ImageNet}" \
    "$@"
