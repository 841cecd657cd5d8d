"""Protobuf messages."""

from paddle.fluid.proto import framework_pb2
