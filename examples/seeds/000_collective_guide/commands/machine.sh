#!/bin/sh
# ResNet-50 on two machines: start it on both, each with its own address.
#   sh machine.sh 192.168.1.2        sh machine.sh 192.168.1.3
# IPS, PORT, GPUS and DATA replace what is written here; further options go to the training script,
# such as --fp16=True for mixed precision.
node_ip="$1"
shift
exec python -m paddle.distributed.launch \
    --cluster_node_ips="${IPS:-192.168.1.2,192.168.1.3}" \
    --node_ip="$node_ip" \
    --started_port="${PORT:-6170}" \
    --selected_gpus="${GPUS:-0,1,2,3}" \
    "$(dirname "$0")/../../../imagenet/train_with_fleet.py" \
    --model=ResNet50 \
    --data_dir="${DATA:-./ImageNet}" \
    "$@"
