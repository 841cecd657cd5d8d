"""Transforms on arrays and Pillow images."""

import numpy as np
import pytest

from fleetx.data import image as images
from fleetx.data import transforms as T

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def array():
    return np.arange(20 * 30 * 3, dtype=np.uint8).reshape(20, 30, 3)


def test_pipeline_for_training_gives_a_normalised_array(array):
    np.random.seed(0)
    pipeline = T.Compose(
        [
            T.RandomResizedCrop(16),
            T.RandomHorizontalFlip(),
            T.ColorJitter(0.1, 0.1, 0.1, 0.1),
            T.Transpose(),
            T.Normalize([127.5] * 3, [127.5] * 3),
        ]
    )
    for image in (array, Image.fromarray(array)):
        result = pipeline(image)
        assert result.shape == (3, 16, 16)
        assert result.dtype == np.float32
        assert -1 <= result.min() <= result.max() <= 1


def test_arrays_and_pillow_images_give_the_same_picture(array):
    picture = Image.fromarray(array)
    for transform in (
        T.Resize((9, 11)),
        T.Resize(10, "nearest"),
        T.CenterCrop(8),
        T.RandomHorizontalFlip(1.0),
        T.RandomVerticalFlip(1.0),
        T.Pad((1, 2, 3, 4), fill=7),
        T.Pad(2, padding_mode="edge"),
        T.Grayscale(3),
    ):
        np.testing.assert_array_equal(transform(array), np.asarray(transform(picture)))


def test_resize_keeps_the_aspect_ratio_for_one_number(array):
    assert T.Resize(10)(array).shape == (10, 15, 3)
    assert T.Resize(10)(Image.fromarray(array)).size == (15, 10)
    floats = T.Resize(10)(array.astype(np.float32))
    assert floats.dtype == np.float32


def test_to_tensor_scales_bytes_only(array):
    assert T.ToTensor()(array).max() <= 1
    assert T.ToTensor()(array).shape == (3, 20, 30)
    grey = np.full((2, 2), 3.0, np.float32)
    np.testing.assert_array_equal(T.ToTensor("HWC")(grey), grey[:, :, None])


def test_random_crop_pads_or_refuses(array):
    assert T.RandomCrop(16, padding=4)(array).shape == (16, 16, 3)
    assert T.RandomCrop(40, pad_if_needed=True)(array).shape == (40, 40, 3)
    with pytest.raises(ValueError, match="cannot take 40x40 out of an image of 20x30"):
        T.RandomCrop(40)(array)


def test_rotation_and_hue(array):
    assert T.RandomRotation(30)(array).shape == array.shape
    np.testing.assert_array_equal(images.rotate(array, 180), array[::-1, ::-1])
    turned = images.adjust_hue(np.full((1, 1, 3), (200, 0, 0), np.uint8), 1 / 3)
    assert turned[0, 0].argmax() == 1


def test_keys_name_the_parts_of_a_tuple(array):
    image, label = T.CenterCrop(8)((array, 5))
    assert image.shape == (8, 8, 3)
    assert label == 5
    with pytest.raises(NotImplementedError, match="cannot transform 'boxes'"):
        T.CenterCrop(8, keys=("boxes",))


def test_an_error_says_which_transform_failed(array):
    with pytest.raises(TypeError, match="must be a Pillow image or an array") as caught:
        T.Compose([T.Resize(4)])("no image")
    assert "Resize" in caught.value.__notes__[0]


def test_image_backend(tmp_path, array):
    path = str(tmp_path / "a.png")
    Image.fromarray(array).save(path)
    assert images.get_image_backend() == "pil"
    assert images.image_load(path).size == (30, 20)
    images.set_image_backend("cv2")
    try:
        np.testing.assert_array_equal(images.image_load(path), array[:, :, ::-1])
    finally:
        images.set_image_backend("pil")
    with pytest.raises(ValueError, match="must be one of"):
        images.set_image_backend("gd")
