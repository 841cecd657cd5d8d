#!/bin/sh
# ResNet-50 on one card. Options go to the training script.
cd "$(dirname "$0")/../../../imagenet" || exit
NUM_CARDS=1 exec sh scripts/train_gpu.sh "$@"
