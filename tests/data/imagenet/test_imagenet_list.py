"""Lists of images: what is read, and the errors for wrong lines."""

import pytest

from fleetx.data.imagenet_list import DataError, read_list


def written(folder, text):
    (folder / "train.txt").write_text(text)
    return folder / "train.txt"


def test_images_labels_and_lines(imagenet):
    images = read_list(imagenet / "train.txt")
    assert len(images) == 23
    assert images.name(2) == "n00000001/n00000001_2.jpeg"
    assert images.labels[:4].tolist() == [0, 0, 1, 1]
    assert (images.line(0), images.line(22)) == (1, 23)
    assert images.read(0)[:2] == b"\xff\xd8"
    assert images.folder == imagenet / "train"
    assert images.skipped == ()


def test_spaces_in_paths_blank_lines_and_windows_line_ends(tmp_path):
    images = read_list(written(tmp_path, "a dog.jpeg 1\r\n\n  b.jpeg\t2  \n"))
    assert [images.name(i) for i in range(2)] == ["a dog.jpeg", "  b.jpeg"]
    assert images.labels.tolist() == [1, 2]
    assert images.line(1) == 3


def test_paths_may_begin_at_the_lists_folder(own_imagenet):
    text = (own_imagenet / "train.txt").read_text()
    file = written(own_imagenet, "".join(f"train/{line}\n" for line in text.splitlines()))
    images = read_list(file, check_files=True)
    assert images.folder == own_imagenet
    assert len(images) == 6


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        ("a.jpeg", "no label", r"train\.txt:2: no label after 'a\.jpeg'"),
        ("a.jpeg cat", "no label", r"train\.txt:2: label 'cat' of 'a\.jpeg' is not a whole number"),
        ("a.jpeg 10", "label out of range", r"train\.txt:2: label 10 is not in 0\.\.9"),
        ("a.jpeg -1", "label out of range", r"train\.txt:2: label -1 is not in 0\.\.9"),
        ("x.jpeg 3", "duplicate", r"train\.txt:2: image 'x\.jpeg' is on line 1 already"),
    ],
)
def test_wrong_lines(tmp_path, line, kind, message):
    file = written(tmp_path, f"x.jpeg 0\n{line}\ny.jpeg 9\n")
    with pytest.raises(DataError, match=message) as caught:
        read_list(file, num_classes=10)
    assert [problem.kind for problem in caught.value.problems] == [kind]
    images = read_list(file, num_classes=10, on_error="skip")
    assert [images.name(i) for i in range(len(images))] == ["x.jpeg", "y.jpeg"]
    assert images.line(1) == 3
    assert [problem.line for problem in images.skipped] == [2]


def test_missing_image(own_imagenet):
    (own_imagenet / "train" / "n00000001" / "n00000001_3.jpeg").unlink()
    file = own_imagenet / "train.txt"
    assert len(read_list(file)) == 6
    with pytest.raises(DataError, match=r"train\.txt:4: image '.*_3\.jpeg' does not exist"):
        read_list(file, check_files=True)
    images = read_list(file, check_files=True, on_error="skip")
    assert (len(images), len(images.skipped)) == (5, 1)


def test_many_problems_are_counted(tmp_path):
    file = written(tmp_path, "".join(f"{i}.jpeg\n" for i in range(8)) + "x.jpeg 1\n")
    with pytest.raises(DataError, match=r"train\.txt:5: .*; and 3 more\. Correct the list"):
        read_list(file)


def test_a_list_without_images(tmp_path):
    with pytest.raises(ValueError, match=r"train\.txt lists no image \(it is empty\)"):
        read_list(written(tmp_path, "\n\n"), on_error="skip")
    with pytest.raises(ValueError, match=r"lists no image \(all of its 2 lines are wrong\)"):
        read_list(written(tmp_path, "a\nb\n"), on_error="skip")


def test_no_list_and_no_such_way(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no list '.*train\.txt'"):
        read_list(tmp_path / "train.txt")
    with pytest.raises(ValueError, match="on_error must be 'raise' or 'skip', not 'ignore'"):
        read_list(tmp_path / "train.txt", on_error="ignore")


def test_upper_case_names_find_lower_case_files(own_imagenet):
    text = (own_imagenet / "train.txt").read_text().replace(".jpeg", ".JPEG")
    images = read_list(written(own_imagenet, text), check_files=True)
    assert images.path(1).endswith("n00000000_1.jpeg")
    assert images.read(1) == (own_imagenet / "train/n00000000/n00000000_1.jpeg").read_bytes()
    upper = own_imagenet / "train/n00000000/n00000000_1.JPEG"
    upper.write_bytes(b"its own")
    assert images.read(1) == b"its own"
