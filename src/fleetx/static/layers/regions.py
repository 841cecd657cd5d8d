"""Layers on regions of images: precise and deformable RoI pooling, perspective, masks."""

from __future__ import annotations

from collections.abc import Sequence

from fleetx.exports import export_defined
from fleetx.static.building.one_op import WIDE
from fleetx.static.building.op_layer import changed, op_layer
from fleetx.static.graph.variable import Variable
from fleetx.static.layers.window_args import convert_to_list


@op_layer(
    "X=input ROIs=rois BatchRoINums=batch_roi_nums",
    spatial_scale=float,
    pooled_height=int,
    pooled_width=int,
    input=Variable,
)
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
    """


@op_layer(
    "input ROIs=rois trans",
    op="deformable_psroi_pooling",
    layer="deformable_psroi_pooling",
    output="Output TopCount:int32",
    unused="position_sensitive",
    input=WIDE,
    rois=WIDE,
    trans=WIDE,
    group_size=list | tuple,
    part_size=list | tuple | None,
)
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
        trans_std: the factor of the offsets.
        position_sensitive: whether every bin has its own channels.
    """
    channels = input.shape[1]
    if position_sensitive:
        channels = channels // pooled_height // pooled_width
    return changed(
        output_dim=channels,
        group_size=convert_to_list(group_size, 2, "group_size"),
        part_size=convert_to_list(part_size or [pooled_height, pooled_width], 2, "part_size"),
    )


@op_layer(
    "X=input ROIs=rois",
    output="Out Mask:int32 TransformMatrix Out2InIdx:int32 Out2InWeights",
    returns="Out Mask TransformMatrix",
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

    Returns:
        The rectangles, [quadrangles, C, height, width]; where they show the image (int32); and the
        matrices of the projections, [quadrangles, 9].
    """


@op_layer(
    "im_info gt_classes is_crowd gt_segms rois LabelsInt32=labels_int32",
    output="MaskRois:rois RoiHasMaskInt32:gt_classes MaskInt32:gt_classes",
    returns="MaskRois RoiHasMaskInt32 MaskInt32",
    no_grad="MaskRois RoiHasMaskInt32 MaskInt32",
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
        is_crowd: which of them are crowds; these are ignored.
        gt_segms: the points of their polygons, [points, 2], with three levels of sequences: the
            objects of an image, the polygons of an object, the points of a polygon.
        rois: boxes (generate_proposal_labels), a sequence per image.
        labels_int32: the classes of the boxes; 0 is the background.
        num_classes: the number of classes.
        resolution: the height and the width of a mask.

    Returns:
        The boxes of objects, their indices among the boxes of an image, and the masks: 0 and 1 in
        the box's class, -1 in all others.
    """


export_defined(globals())
