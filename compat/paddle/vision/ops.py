"""Operators of detection models."""

from fleetx.static.layers.detection_boxes import yolo_box
from fleetx.static.layers.detection_targets import yolov3_loss as yolo_loss
from fleetx.static.nn.deformable_conv import DeformConv2D, deform_conv2d
