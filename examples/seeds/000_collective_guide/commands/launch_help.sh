#!/bin/sh
# What the launcher of 1.x takes.
python -m paddle.distributed.launch --help
