#!/bin/sh
# ResNet-50 on four cards, or as many as NUM_CARDS says. Options go to the training script.
cd "$(dirname "$0")/../../../imagenet" || exit
NUM_CARDS="${NUM_CARDS:-4}" exec sh scripts/train_gpu.sh "$@"
