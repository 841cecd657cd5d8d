"""Crops, sizes, colours and randomness against plain Pillow and NumPy."""

import io

import numpy as np
import pytest
import torch
from generated_pictures import photograph
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fleetx.data import imagenet_augment
from fleetx.data.image_decode import UnreadableImage, check_image, decode, read_header
from fleetx.data.imagenet_augment import (
    Augment,
    Normalizer,
    Pictures,
    draw,
    random_box,
    random_part,
)
from fleetx.kernels import compiled
from fleetx.kernels.resample import resample_by_torch


@pytest.fixture(params=["compiled", "torch"])
def resample(request, monkeypatch):
    """What resizes photographs, everywhere in a test."""
    function = resample_by_torch
    if request.param == "compiled":
        if reason := compiled.why_missing("fleetx.kernels._resample"):
            pytest.skip(f"needs fleetx.kernels._resample: {reason}")
        from fleetx.kernels._resample import resample as function
    monkeypatch.setattr(imagenet_augment, "resample", function)
    return function


def resample_by_pillow(pixels, box, out, flip, scale, shift):
    """Do the same with Pillow, which rounds to whole bytes on the way."""
    left, top, width, height = box
    # Pillow takes no box that is beyond the image by a rounding error.
    right, bottom = min(left + width, pixels.shape[1]), min(top + height, pixels.shape[0])
    part = Image.fromarray(np.ascontiguousarray(pixels)).resize(
        (out.shape[2], out.shape[1]), Image.Resampling.BILINEAR, box=(left, top, right, bottom)
    )
    resized = np.asarray(part)[:, :: -1 if flip else 1].transpose(2, 0, 1)
    out[...] = resized * np.reshape(scale, (3, 1, 1)) + np.reshape(shift, (3, 1, 1))


def encoded(pixels, kind="JPEG", mode="RGB", **options):
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, kind, **options)
    return file.getvalue()


def trained(data, augment, chance):
    out = np.full((3, augment.crop_size, augment.crop_size), np.nan, np.float32)
    Pictures(augment).train(data, chance, out)
    return out


def validated(data, augment, dtype=np.float32):
    out = np.full((3, augment.crop_size, augment.crop_size), 99, dtype)
    Pictures(augment).validation(data, out)
    return out


def by_pillow(data):
    with Image.open(io.BytesIO(data)) as image:
        return image.convert("RGB")


JPEGS = {
    "444": {"subsampling": 0},
    "420": {"subsampling": 2},
    "422": {"subsampling": 1},
    "progressive": {"progressive": True},
    "restarts": {"restart_marker_rows": 1},
    "optimized": {"optimize": True, "quality": 98},
}


@pytest.mark.parametrize("options", JPEGS.values(), ids=JPEGS)
@pytest.mark.parametrize("factor", [1, 2, 4])
def test_fewer_rows_are_the_same_rows(options, factor):
    data = encoded(photograph(213, 301), **options)
    header = read_header(data)
    whole = decode(data, header, factor=factor)
    assert (header.width, header.height) == (213, 301)
    assert whole.shape == (-(-301 // factor), -(-213 // factor), 3)
    for rows in (1, 8, 97, 160, 300, 301):
        some = decode(data, header, rows=rows, factor=factor)
        needed = -(-rows // factor)
        assert len(some) >= needed
        np.testing.assert_array_equal(some[:needed], whole[:needed])
    if factor == 1:
        assert np.abs(whole.astype(int) - np.asarray(by_pillow(data))).max() <= 2


OTHERS = {
    "png": ("PNG", "RGB"),
    "palette": ("PNG", "P"),
    "transparent": ("PNG", "RGBA"),
    "grey jpeg": ("JPEG", "L"),
    "grey png": ("PNG", "L"),
    "cmyk": ("JPEG", "CMYK"),
    "bmp": ("BMP", "RGB"),
}


@pytest.mark.parametrize(("kind", "mode"), OTHERS.values(), ids=OTHERS)
def test_other_kinds_of_images(kind, mode):
    data = encoded(photograph(90, 70), kind, mode)
    assert (check_image(data).width, check_image(data).height) == (90, 70)
    pixels = decode(data, read_header(data))
    assert np.abs(pixels.astype(int) - np.asarray(by_pillow(data))).max() <= 2
    small = Augment(crop_size=32, resize_short_size=36)
    for picture in (trained(data, small, [0.5] * 5), validated(data, small)):
        assert np.isfinite(picture).all()
        assert picture.std() > 0.1


def test_images_that_are_none():
    good = encoded(photograph(90, 70))
    for data in (b"", b"<html>not found</html>", good[: len(good) // 2], good[:20]):
        with pytest.raises(UnreadableImage):
            check_image(data)
        with pytest.raises(UnreadableImage):
            trained(data, Augment(), [0.5] * 5)
    damaged = bytearray(good)
    damaged[len(good) // 2 : len(good) // 2 + 40] = b"\xff\xd3" * 20
    with pytest.raises(UnreadableImage, match="damaged"):
        check_image(bytes(damaged))


def reference(data, augment, chance):
    """The training picture as it is written down, by Pillow and NumPy, in float32."""
    image = by_pillow(data)
    (left, top, width, height), _ = random_part(*image.size, chance, augment)
    part = image.crop((left, top, left + width, top + height))
    size = (augment.crop_size, augment.crop_size)
    pixels = np.asarray(part.resize(size, Image.Resampling.BILINEAR))
    if chance[4] < augment.flip:
        pixels = pixels[:, ::-1]
    return normalized(pixels, augment)


def normalized(pixels, augment):
    values = (pixels / 255.0 - np.array(augment.mean)) / np.array(augment.std)
    return values.transpose(2, 0, 1).astype(np.float32)


@pytest.mark.parametrize("subsampling", [0, 2])
def test_training_pictures_are_pillows(subsampling, resample):
    augment = Augment(crop_size=64, resize_short_size=72)
    data = encoded(photograph(260, 190), subsampling=subsampling)
    for number in range(24):
        chance = draw(1, 2, number, 5)
        mine = trained(data, augment, chance)
        off = np.abs(mine - reference(data, augment, chance))
        # A step of brightness is 0.017. Parts of twice the size are reduced by the decoder, in
        # another way than Pillow's.
        assert off.mean() < 0.03
        assert off.max() < 0.3


def test_pictures_without_reduction_are_pillows_to_two_steps(resample):
    augment = Augment(crop_size=224)
    data = encoded(photograph(300, 260), subsampling=0)
    for number in range(8):
        chance = draw(5, 0, number, 5)
        mine = trained(data, augment, chance)
        assert np.abs(mine - reference(data, augment, chance)).max() < 2.5 / 255 / 0.224


@pytest.mark.parametrize("size", [(500, 375), (256, 300), (90, 200), (1100, 700)])
def test_validation_pictures_are_pillows(size, resample):
    augment = Augment()
    data = encoded(photograph(*size))
    image = by_pillow(data)
    short = min(size)
    width, height = (round(side * 256 / short) for side in size)
    left, top = (width - 224) // 2, (height - 224) // 2
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(image.crop((left, top, left + 224, top + 224)))
    off = np.abs(validated(data, augment) - normalized(pixels, augment))
    assert off.mean() < 0.03
    assert off.max() < 0.3


def test_chance_is_a_function_of_seed_epoch_and_image():
    assert draw(1, 2, 3, 5) == draw(1, 2, 3, 5)
    some = {tuple(draw(s, e, i, 5)) for s in range(5) for e in range(5) for i in range(5)}
    assert len(some) == 125
    numbers = np.array([draw(0, 0, i, 5) for i in range(4000)])
    assert numbers.min() >= 0
    assert numbers.max() < 1
    np.testing.assert_allclose(numbers.mean(axis=0), 0.5, atol=0.03)
    np.testing.assert_allclose(np.corrcoef(numbers.T), np.eye(5), atol=0.06)


@pytest.mark.parametrize("size", [(500, 375), (375, 500), (1000, 20), (20, 1000), (1, 1)])
def test_boxes_are_inside_and_of_the_asked_shape(size):
    width, height = size
    augment = Augment()
    for number in range(500):
        left, top, w, h = random_box(width, height, draw(0, 0, number, 5), augment)
        assert 0 <= left <= left + w <= width
        assert 0 <= top <= top + h <= height
        assert w >= 1
        assert h >= 1
        if size[0] > 100 and size[1] > 100:
            assert 0.075 < w * h / (width * height) <= 1
            assert 0.73 < w / h < 1.36


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"crop_size": 0}, "crop_size=0 must be at least 1"),
        ({"lower_scale": 0}, "lower_scale=0 must be above 0"),
        ({"lower_ratio": 2, "upper_ratio": 1}, "lower_ratio=2 must be .* upper_ratio=1"),
        ({"flip": 1.5}, "flip=1.5 must be between 0 and 1"),
        ({"resize_short_size": 200}, "resize_short_size=200 must be at least crop_size=224"),
        ({"std": (1, 0, 1)}, "std without zeros"),
    ],
)
def test_wrong_settings(options, message):
    with pytest.raises(ValueError, match=message):
        Augment(**options)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize(
    "box", [(0, 0, 97, 61), (0.0, 0.0, 30.5, 61.0), (13.7, 9.2, 60.1, 33.3), (96, 60, 1, 1)]
)
def test_pillow_gives_the_same(box, flip, resample):
    pixels = photograph(120, 80)[10:71, 20:117]
    for shape in ((3, 50, 40), (3, 7, 200), (3, 1, 1)):
        mine, other = (np.full(shape, np.nan, np.float32) for _ in range(2))
        for function, out in ((resample, mine), (resample_by_pillow, other)):
            function(pixels, box, out, flip, (1, 2, 0.5), (0, -1, 10))
        np.testing.assert_allclose(mine[0], other[0], atol=1.01)
        np.testing.assert_allclose(mine[1], other[1], atol=2.02)
        np.testing.assert_allclose(mine[2], other[2], atol=0.51)


SIDES = st.integers(1, 60)
PLACES = st.floats(-30, 60)
LENGTHS = st.floats(0.01, 200)


@settings(max_examples=150, deadline=None)
@given(
    source=st.tuples(SIDES, SIDES),
    result=st.tuples(SIDES, SIDES),
    box=st.tuples(PLACES, PLACES, LENGTHS, LENGTHS),
    flip=st.booleans(),
)
def test_compiled_and_torch_give_the_same(source, result, box, flip):
    if reason := compiled.why_missing("fleetx.kernels._resample"):
        pytest.skip(f"needs fleetx.kernels._resample: {reason}")
    from fleetx.kernels import _resample

    pixels = photograph(source[1], source[0])
    mine, other = (np.full((3, *result), np.nan, np.float32) for _ in range(2))
    _resample.resample(pixels, box, mine, flip, (1, 2, 0.5), (0, -1, 10))
    resample_by_torch(pixels, box, other, flip, (1, 2, 0.5), (0, -1, 10))
    np.testing.assert_allclose(mine, other, rtol=0, atol=2e-3)


def test_resampling_refuses_what_it_cannot_read(resample):
    pixels, out = photograph(20, 20), np.empty((3, 4, 4), np.float32)
    more = (False, (1, 1, 1), (0, 0, 0))
    for wrong in (pixels[:, ::2], pixels[:, :, :1], pixels[:0], pixels.astype(np.int32)):
        with pytest.raises(ValueError, match="pixels must be bytes"):
            resample(wrong, (0, 0, 4, 4), out, *more)
    for wrong in (np.empty((4, 4, 3), np.float32), np.empty((3, 4, 4), np.int32)):
        with pytest.raises(ValueError, match="out must be float32"):
            resample(pixels, (0, 0, 4, 4), wrong, *more)
    for box in ((0, 0, 0, 4), (0, 0, 4, float("nan")), (1e9, 0, 4, 4)):
        with pytest.raises(ValueError, match="box must be"):
            resample(pixels, box, out, *more)
    resample(pixels, (100, -50, 4, 4), out, *more)
    assert np.isfinite(out).all()


def test_bytes_normalised_later_are_the_same_picture():
    augment = Augment()
    data = [encoded(photograph(300, 280, seed)) for seed in range(2)]
    pictures = torch.from_numpy(np.stack([validated(each, augment, np.uint8) for each in data]))
    out = np.empty(pictures.shape, np.float32)
    Normalizer(augment)(pictures, out)
    for i in range(2):
        # Half a step of brightness is lost by rounding to bytes.
        np.testing.assert_allclose(out[i], validated(data[i], augment), atol=0.51 / 255 / 0.224)
