"""Offline evaluation: the vectors that a served network should answer with.

`python evaluate.py --data_dir ./data --pretrained_model FOLDER --output vectors.npy` runs all
pictures through the network; `fleetx evaluate` does the same for a saved inference model, and
compares with a live service. The network and the reader are those of examples/imagenet.
"""

import argparse
import functools
import os
import sys
from pathlib import Path

import numpy as np

import paddle
import paddle.fluid as fluid

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "imagenet"))
import utils.reader_cv2 as reader
from models import resnet
from utils.utility import add_arguments

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
add_arg = functools.partial(add_arguments, argparser=parser)
add_arg("batch_size", int, 32, "pictures per batch")
add_arg("class_dim", int, 1000, "number of classes")
add_arg("image_shape", str, "3,224,224", "shape of the network's input")
add_arg("pretrained_model", str, None, "folder of the parameters")
add_arg("model", str, "ResNet50", "the network, a name in models/resnet.py")
add_arg("data_dir", str, "./data/ILSVRC2012/", "folder of ImageNet")
add_arg("lower_scale", float, 0.08, "the least share of a picture that is cut out")
add_arg("lower_ratio", float, 3.0 / 4.0, "the least ratio of width to height")
add_arg("upper_ratio", float, 4.0 / 3.0, "the greatest ratio of width to height")
add_arg("resize_short_size", int, 256, "short side of a picture before its middle is cut out")
add_arg("output", str, None, "where to write the vectors")


def build_program(
    main_prog: fluid.Program, startup_prog: fluid.Program, args: argparse.Namespace
) -> tuple:
    """Build the network behind a py_reader; return its output and the reader."""
    image_shape = [int(m) for m in args.image_shape.split(",")]
    model_list = [m for m in dir(resnet) if "__" not in m]
    assert args.model in model_list, f"{args.model} is not in lists: {model_list}"
    model = resnet.__dict__[args.model]()
    with fluid.program_guard(main_prog, startup_prog):
        py_reader = fluid.layers.py_reader(
            capacity=16,
            shapes=[[-1, *image_shape], [-1, 1]],
            lod_levels=[0, 0],
            dtypes=["float32", "int64"],
            use_double_buffer=True,
        )
        with fluid.unique_name.guard():
            image, label = fluid.layers.read_file(py_reader)
            out = model.net(input=image, class_dim=args.class_dim)
    return out, py_reader


def evaluate(args: argparse.Namespace) -> None:
    """Run all pictures through the network; keep the vectors, and write them if asked to."""
    startup_prog, main_prog = fluid.Program(), fluid.Program()
    emb, py_reader = build_program(main_prog=main_prog, startup_prog=startup_prog, args=args)
    fetch_vars = [emb]

    place = fluid.CUDAPlace(int(os.environ.get("FLAGS_selected_gpus", 0)))  # noqa: SIM112
    exe = fluid.Executor(place)
    exe.run(startup_prog)
    if args.pretrained_model:

        def if_exist(var: fluid.Variable) -> bool:
            return os.path.exists(os.path.join(args.pretrained_model, var.name))

        fluid.io.load_vars(exe, args.pretrained_model, main_program=main_prog, predicate=if_exist)

    predict_reader = reader.train(settings=args, data_dir=args.data_dir, pass_id_as_seed=0)
    py_reader.decorate_paddle_reader(paddle.batch(predict_reader, batch_size=args.batch_size))
    py_reader.start()
    result = []
    batch_id = 0
    try:
        while True:
            emb = exe.run(main_prog, fetch_list=fetch_vars, use_program_cache=True)
            if batch_id % 100 == 0:
                print(f"batch: {batch_id}")
            batch_id += 1
            result.append(emb[0])
    except fluid.core.EOFException:
        py_reader.reset()
    if args.output:
        np.save(args.output, np.concatenate(result))


if __name__ == "__main__":
    evaluate(parser.parse_args())
