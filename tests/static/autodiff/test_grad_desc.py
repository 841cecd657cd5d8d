"""The gradient op of a single op, by itself."""

from fleetx import static
from fleetx.static import layers
from fleetx.static.autodiff.grad_desc import gradient_ops, has_gradient
from fleetx.static.graph.op_registry import EMPTY_NAME


def test_reads_gradients_of_results_and_writes_those_of_inputs():
    main = static.Program()
    with static.program_guard(main, static.Program()), static.unique_name.guard():
        x = layers.data("x", [4])
        layers.batch_norm(layers.fc(x, 3))
    block = main.global_block()
    norm = next(op for op in block.ops if op.type == "batch_norm")
    before = len(block.ops)
    (grad,), variables = gradient_ops(norm, set())
    assert len(block.ops) == before
    assert grad.type == "batch_norm_grad"
    (y,) = norm.output("Y")
    given = [name for name in grad.input_arg_names if name.endswith("@GRAD")]
    assert given == [y + "@GRAD"]  # neither running statistics nor saved ones
    inputs = [norm.input(slot)[0] for slot in ("X", "Scale", "Bias")]
    assert set(variables.values()) == set(inputs)
    (grad,), variables = gradient_ops(norm, {inputs[0]})
    assert set(variables.values()) == set(inputs[1:])


def test_inputs_of_one_slot_may_get_gradients_one_by_one():
    main = static.Program()
    with static.program_guard(main, static.Program()):
        layers.concat([layers.data("a", [4]), layers.data("b", [4])])
    (grad,), variables = gradient_ops(main.global_block().ops[-1], {"a"})
    assert grad.output("X@GRAD") == [EMPTY_NAME, "b@GRAD"]
    assert variables == {"b@GRAD": "b"}


def test_ops_without_gradients_have_no_gradient_ops():
    main = static.Program()
    with static.program_guard(main, static.Program()):
        layers.argmax(layers.data("x", [4]))
    assert gradient_ops(main.global_block().ops[-1], set()) == ([], {})
    assert not has_gradient("arg_max")
    assert not has_gradient("no_such_op")
    assert has_gradient("relu")
    assert has_gradient("relu_grad")
    assert not has_gradient("relu_grad_grad")
