#!/bin/sh
# What the launcher of 1.x takes.
exec python -m paddle.distributed.launch --help
