"""Layers that read regions of images: precise and deformable pooling, perspective, masks."""

from __future__ import annotations

from collections.abc import Sequence

from fleetx.static.building.argument_checks import check_type
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.building.one_op import WIDE
from fleetx.static.building.op_layer import checked
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.window_args import convert_to_list

__all__ = [
    "deformable_roi_pooling",
    "generate_mask_labels",
    "prroi_pool",
    "roi_perspective_transform",
]


@checked(spatial_scale=float, pooled_height=int, pooled_width=int)
def prroi_pool(
    input: Variable,
    rois: Variable,
    spatial_scale: float = 1.0,
    pooled_height: int = 1,
    pooled_width: int = 1,
    batch_roi_nums: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Average the interpolated image over each bin of boxes (left, top, right, bottom), exactly.

    Args:
        input: images of shape [N, C, H, W].
        rois: boxes of shape [boxes, 4], a sequence per image.
        spatial_scale: the size of a pixel of the boxes in pixels of the images.
        pooled_height: rows of bins per box.
        pooled_width: columns of bins per box.
        batch_roi_nums: the number of boxes per image, int64, instead of sequences.
        name: the layer's name.
    """
    helper = LayerHelper("prroi_pool", input=input, name=name)
    inputs = {"X": input, "ROIs": rois}
    if batch_roi_nums is not None:
        inputs["BatchRoINums"] = batch_roi_nums
    attrs = {
        "spatial_scale": spatial_scale,
        "pooled_height": pooled_height,
        "pooled_width": pooled_width,
    }
    return helper.output_of("prroi_pool", inputs, attrs, dtype=helper.input_dtype())


@checked(input=WIDE, rois=WIDE, trans=WIDE, group_size=list | tuple)
def deformable_roi_pooling(
    input: Variable,
    rois: Variable,
    trans: Variable,
    no_trans: bool = False,
    spatial_scale: float = 1.0,
    group_size: Sequence[int] = (1, 1),
    pooled_height: int = 1,
    pooled_width: int = 1,
    part_size: Sequence[int] | None = None,
    sample_per_part: int = 1,
    trans_std: float = 0.1,
    position_sensitive: bool = False,
    name: str | None = None,
) -> Variable:
    """Average samples of the bins of boxes, moved by learned offsets.

    Args:
        input: images of shape [N, C, H, W].
        rois: boxes of shape [boxes, 4], a sequence per image.
        trans: offsets of shape [boxes, 2 * classes, rows, columns], relative to a box's size.
        no_trans: leave the bins where they are.
        spatial_scale: the size of a pixel of the boxes in pixels of the images.
        group_size: rows and columns of groups of channels.
        pooled_height: rows of bins per box.
        pooled_width: columns of bins per box.
        part_size: rows and columns of offsets; those of bins by default.
        sample_per_part: samples per bin and axis.
        trans_std: what the offsets are multiplied by.
        position_sensitive: whether every bin has channels of its own.
        name: the layer's name.
    """
    layer = "deformable_roi_pooling"
    if part_size is None:
        part_size = [pooled_height, pooled_width]
    else:
        check_type(part_size, "part_size", (list, tuple), layer)
    channels = input.shape[1]
    if position_sensitive:
        channels = channels // pooled_height // pooled_width
    attrs = {
        "no_trans": no_trans,
        "spatial_scale": float(spatial_scale),
        "output_dim": channels,
        "group_size": convert_to_list(group_size, 2, "group_size"),
        "pooled_height": pooled_height,
        "pooled_width": pooled_width,
        "part_size": convert_to_list(part_size, 2, "part_size"),
        "sample_per_part": sample_per_part,
        "trans_std": float(trans_std),
    }
    op = "deformable_psroi_pooling"
    helper = LayerHelper(op, input=input, name=name)
    inputs = {"Input": input, "ROIs": rois, "Trans": trans}
    types = {"Output": helper.input_dtype(), "TopCount": "int32"}
    return helper.outputs_of(op, inputs, attrs, **types)[0]


@checked(
    input=("float32",),
    rois=("float32",),
    transformed_height=int,
    transformed_width=int,
    spatial_scale=float,
)
def roi_perspective_transform(
    input: Variable,
    rois: Variable,
    transformed_height: int,
    transformed_width: int,
    spatial_scale: float = 1.0,
    name: str | None = None,
) -> tuple[Variable, Variable, Variable]:
    """Project quadrangles of images onto rectangles of one size.

    Args:
        input: float32 images of shape [N, C, H, W].
        rois: the corners of quadrangles, clockwise from the top left: shape [quadrangles, 8], a
            sequence per image.
        transformed_height: the height of the rectangles.
        transformed_width: the width of the rectangles.
        spatial_scale: the size of a pixel of the corners in pixels of the images.
        name: the layer's name.

    Returns:
        The rectangles, [quadrangles, C, height, width]; where they show the image (int32); and the
        matrices of the projections, [quadrangles, 9].
    """
    layer = "roi_perspective_transform"
    helper = LayerHelper(layer, input=input, name=name)
    attrs = {
        "transformed_height": transformed_height,
        "transformed_width": transformed_width,
        "spatial_scale": spatial_scale,
    }
    dtype = helper.input_dtype()
    types = {"Out": dtype, "Mask": "int32", "TransformMatrix": dtype}
    types |= {"Out2InIdx": "int32", "Out2InWeights": dtype}
    out, mask, matrix, *_ = helper.outputs_of(layer, {"X": input, "ROIs": rois}, attrs, **types)
    return out, mask, matrix


@checked(
    im_info=Variable,
    gt_classes=Variable,
    is_crowd=Variable,
    gt_segms=Variable,
    rois=Variable,
    labels_int32=("int32",),
)
def generate_mask_labels(
    im_info: Variable,
    gt_classes: Variable,
    is_crowd: Variable,
    gt_segms: Variable,
    rois: Variable,
    labels_int32: Variable,
    num_classes: int,
    resolution: int,
) -> tuple[Variable, Variable, Variable]:
    """Draw the true polygons of objects into the boxes that found them: targets of Mask R-CNN.

    Args:
        im_info: height, width and scale of each image, [images, 3].
        gt_classes: int32 classes of the true objects, a sequence per image.
        is_crowd: which of them are crowds, which are left out.
        gt_segms: the points of their polygons, [points, 2], with three levels of sequences: the
            objects of an image, the polygons of an object, the points of a polygon.
        rois: boxes (generate_proposal_labels), a sequence per image.
        labels_int32: the classes of the boxes; 0 is the background.
        num_classes: the number of classes.
        resolution: the height and the width of a mask.

    Returns:
        The boxes of objects, their numbers among the boxes of an image, and the masks: 0 and 1 in
        the box's class, -1 in all others.
    """
    layer = "generate_mask_labels"
    inputs = {
        "ImInfo": im_info,
        "GtClasses": gt_classes,
        "IsCrowd": is_crowd,
        "GtSegms": gt_segms,
        "Rois": rois,
        "LabelsInt32": labels_int32,
    }
    attrs = {"num_classes": num_classes, "resolution": resolution}
    kind = gt_classes.dtype
    types = {"MaskRois": rois.dtype, "RoiHasMaskInt32": kind, "MaskInt32": kind}
    helper = LayerHelper(layer)
    found = helper.outputs_of(layer, inputs, attrs, " ".join(types), **types)
    return found[0], found[1], found[2]
