"""Compute the evaluation vectors of a trained network on an ImageNet folder, with Paddle's names.

    python evaluate.py --data_dir ./ImageNet --pretrained_model output/params --output vectors

Writes vectors.safetensors (one row per picture, with its path) and the network as an inference
model, `vectors.pdmodel`, for `fleetx serve` and `fleetx evaluate --against`.
"""

import argparse
import functools
import os

import numpy as np
from models import resnet
from utils.pretrained import load_pretrained
from utils.utility import add_arguments, print_arguments

import paddle
import paddle.fluid as fluid
from fleetx.data.imagenet_list import read_list
from fleetx.evaluation.vectors_file import vectors_file
from utils import reader_cv2

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
add_arg = functools.partial(add_arguments, argparser=parser)
add_arg("batch_size", int, 32, "Pictures at a time.")
add_arg("class_dim", int, 1000, "Numbers in a vector.")
add_arg("image_shape", str, "3,224,224", "Channels, height and width of a picture.")
add_arg("pretrained_model", str, None, "Folder of the parameters, a file each.")
add_arg("model", str, "ResNet50", "One of " + ", ".join(resnet.__all__[1:]) + ".")
add_arg("data_dir", str, "./ImageNet", "Folder with val.txt and val/.")
add_arg("resize_short_size", int, 256, "Size of the short side after resizing.")
add_arg("output", str, "vectors", "Path prefix of the vectors and the model.")


def build(args: argparse.Namespace, startup: fluid.Program) -> tuple:
    """Return the program for evaluation, its reader, its input and its output."""
    main = fluid.Program()
    sides = [int(side) for side in args.image_shape.split(",")]
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        image = fluid.data("image", [None, *sides], "float32")
        label = fluid.data("label", [None, 1], "int64")
        loader = fluid.io.DataLoader.from_generator(
            feed_list=[image, label], capacity=4, iterable=True
        )
        vector = getattr(resnet, args.model)().net(image, args.class_dim)
    return main.clone(for_test=True), loader, image, vector


def evaluate(args: argparse.Namespace) -> None:
    """Compute the vectors and write them."""
    startup = fluid.Program()
    program, loader, image, vector = build(args, startup)
    place = fluid.CUDAPlace(int(os.environ.get("FLAGS_selected_gpus", 0)))  # noqa: SIM112
    exe = fluid.Executor(place)
    exe.run(startup)
    if args.pretrained_model:
        load_pretrained(exe, args.pretrained_model, program)
    fluid.io.save_inference_model(
        os.path.dirname(args.output) or ".",
        ["image"],
        [vector],
        exe,
        main_program=program,
        model_filename=f"{os.path.basename(args.output)}.pdmodel",
        params_filename=f"{os.path.basename(args.output)}.pdiparams",
    )
    images = read_list(os.path.join(args.data_dir, "val.txt"), num_classes=args.class_dim)
    names = [images.name(i) for i in range(len(images))]
    reader = reader_cv2.val(settings=args, data_dir=args.data_dir)
    loader.set_sample_list_generator(paddle.batch(reader, args.batch_size), places=place)
    width = max(len(name.encode()) for name in names)
    with vectors_file(f"{args.output}.safetensors", len(names), width, {}) as file:
        done = 0
        for number, feed in enumerate(loader()):
            (rows,) = exe.run(program, feed=feed, fetch_list=[vector])
            file.add(names[done : done + len(rows)], {"vector": np.asarray(rows)})
            done += len(rows)
            if number % 100 == 0:
                print(f"batch: {number}")
    print(f"{done} vectors in {args.output}.safetensors")


if __name__ == "__main__":
    arguments = parser.parse_args()
    print_arguments(arguments)
    evaluate(arguments)
