"""The functions of paddle.static.io and of the core that real 2.x programs call by these names."""

import paddle
import paddle.fluid as fluid
from paddle import static


def test_private_serializers_and_pruned_descriptions() -> None:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        x = static.data("x", [None, 4])
        out = static.nn.fc(x, 3)
        paddle.optimizer.SGD(0.1).minimize(paddle.mean(out))
    executor = static.Executor(paddle.CPUPlace())
    with static.scope_guard(static.Scope()):
        executor.run(startup)
        normal = static.normalize_program(main, [x], [out])
        values = static.serialize_persistables([x], [out], executor, program=main)
        assert static.io._serialize_persistables(normal, executor) == values
    copy = static.deserialize_program(static.io._serialize_program(normal))
    assert [op.type for op in copy.global_block().ops] == [
        op.type for op in normal.global_block().ops
    ]
    names = {var.name for var in static.io.get_program_persistable_vars(copy)}
    assert names == {p.name for p in fluid.io.get_program_parameter(main)}
    pruned, numbers = fluid.core.prune_backward(main.desc)
    block = pruned.block(0)
    types = [block.op(i).type() for i in range(block.op_size())]
    assert types == ["mul", "elementwise_add", "reduce_mean"]
    assert numbers == {0: 0}
    assert main.desc.block(0).op_size() > len(types)
