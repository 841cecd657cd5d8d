"""Build a network with its optimizer, save it, train it: train_program.py API KIND FOLDER [sparse].

KIND is an optimizer; with `sparse` the table's gradient is selected rows. The folder gets the
training program, the variables before the first step, the losses of all steps, and one parameter
after them.
"""

import os
import sys

import numpy as np
from models import api, fill
from training_inputs import STEPS, batch

import paddle

layers, kind, folder = api(sys.argv[1]), sys.argv[2], sys.argv[3]
fluid = sys.argv[1] == "fluid"
os.makedirs(folder)
main, startup = layers.module.Program(), layers.module.Program()
with layers.module.program_guard(main, startup):
    image = layers.data("image", [None, 1, 8, 8], "float32")
    label = layers.data("label", [None, 1], "int64")
    word = layers.data("word", [None, 1], "int64")
    if "sparse" in sys.argv[4:]:
        seen = layers.flatten(layers.layers.embedding(word, [20, 6], is_sparse=True))
    else:
        seen = layers.flatten(layers.embedding(word, [20, 6]))
    if fluid:
        hidden = layers.norm(layers.conv(image, 4, 3, 1), "relu")
        hidden = layers.layers.pool2d(hidden, 2, "max", pool_stride=2)
        hidden = layers.layers.dropout(hidden, 0.0)
        hidden = layers.concat([layers.fc(hidden, 16, "relu"), seen])
        loss = layers.layers.softmax_with_cross_entropy(layers.fc(hidden, 10), label)
        loss = layers.layers.mean(loss)
        optimizers = {
            "sgd": lambda: layers.module.optimizer.SGD(0.1),
            "momentum": lambda: layers.module.optimizer.Momentum(
                0.1, 0.9, regularization=layers.module.regularizer.L2Decay(1e-3)
            ),
            "adam": lambda: layers.module.optimizer.Adam(0.01),
        }
    else:
        nn = paddle.static.nn
        hidden = nn.batch_norm(nn.conv2d(image, 4, 3, padding=1, bias_attr=False), act="relu")
        hidden = paddle.nn.functional.max_pool2d(hidden, 2, 2)
        hidden = layers.concat([layers.fc(layers.flatten(hidden), 16, "relu"), seen])
        loss = paddle.nn.functional.cross_entropy(layers.fc(hidden, 10), label)
        clip = paddle.nn.ClipGradByGlobalNorm(0.5)
        optimizers = {
            "sgd": lambda: paddle.optimizer.SGD(0.1, grad_clip=clip),
            "momentum": lambda: paddle.optimizer.Momentum(0.1, 0.9, weight_decay=1e-3),
            "adam": lambda: paddle.optimizer.Adam(0.01),
        }
    parameters = main.clone(for_test=True)  # without the optimizer's variables
    optimizers[kind]().minimize(loss)

executor = layers.executor()
executor.run(startup)
fill(layers, parameters, executor.place)
scope = layers.module.global_scope()
with open(os.path.join(folder, "program"), "wb") as stream:
    stream.write(main.desc.serialize_to_string())
if fluid:
    layers.io.save_persistables(executor, folder, main, filename="state")
else:
    names = [v for v in main.list_vars() if v.persistable]
    paddle.static.save_vars(executor, folder, main, vars=names, filename="state")
first = sorted(p.name for p in main.all_parameters())[0]
before = np.array(scope.find_var(first).get_tensor())
losses = [executor.run(main, feed=batch(i), fetch_list=[loss])[0] for i in range(STEPS)]
np.savez(
    os.path.join(folder, "result.npz"),
    before=before,
    losses=np.array(losses).reshape(-1),
    parameter=np.array(scope.find_var(first).get_tensor()),
)
with open(os.path.join(folder, "names"), "w") as stream:
    stream.write(loss.name + "\n" + first)
