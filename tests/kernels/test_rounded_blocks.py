"""Differences in 8 or 4 bits: what messages stand for, and the same bits with and without the
compiled module."""

import pytest
import torch

from compiled_or_not import need_compiled_modules
from fleetx.kernels import rounded_blocks

SIZES = [0, 1, 2, 255, 256, 257, 1000]


@pytest.fixture
def fallback(monkeypatch):
    """Call a function of the module with torch's operations only."""
    need_compiled_modules("fleetx.kernels._rounded")

    def call(function, *arguments):
        with monkeypatch.context() as patch:
            patch.setattr(rounded_blocks, "_rounded", None)
            return function(*arguments)

    return call


def unusual(size: int, kind: str) -> torch.Tensor:
    """Return numbers of very different magnitudes, with an entry or a range that is unusual."""
    values = torch.randn(size) * 10.0 ** torch.randint(-9, 9, (size,))
    if kind == "tiny":
        return values * 1e-40
    if kind == "zero":
        return values.zero_()
    if kind == "ties":  # 63.5 scales of a block whose largest magnitude is 127
        return torch.tensor([127.0, 63.5, -62.5, 0.5, -0.5]).repeat(size // 5 + 1)[:size]
    if kind != "plain":
        values[size // 2 :][:1] = float(kind)
    return values


@pytest.mark.parametrize("bits", rounded_blocks.BITS)
@pytest.mark.parametrize("kind", ["plain", "tiny", "zero", "ties", "inf", "-inf", "nan"])
@pytest.mark.parametrize("size", SIZES)
def test_the_compiled_functions_give_the_same_bits(fallback, size, kind, bits):
    values, more = unusual(size, kind), unusual(size, "plain" if kind != "ties" else "zero")
    mine, other = values.clone(), values.clone()
    messages = [rounded_blocks.take_message(mine, bits, more)]
    messages.append(fallback(rounded_blocks.take_message, other, bits, more))
    assert messages[0].tolist() == messages[1].tolist()
    torch.testing.assert_close(mine, other, rtol=0, atol=0, equal_nan=True)
    messages.append(rounded_blocks.take_message(mine, bits))
    total, expected = torch.empty(size), torch.empty(size)
    rounded_blocks.add_messages(total, bits, messages)
    fallback(rounded_blocks.add_messages, expected, bits, messages)
    torch.testing.assert_close(total, expected, rtol=0, atol=0, equal_nan=True)


def test_messages_are_where_the_tensor_is():
    with torch.device("meta"):
        message = rounded_blocks.take_message(torch.ones(300, device="cpu"), 8)
    assert message.device.type == "cpu"


@pytest.mark.parametrize("bits", rounded_blocks.BITS)
def test_messages_and_additions_of_other_sizes_are_refused(bits):
    size = rounded_blocks.message_bytes(300, bits)
    for message in (torch.zeros(size - 1, dtype=torch.uint8), torch.zeros(size)):
        with pytest.raises(ValueError, match=rf"300 entries in {bits} bits has {size} bytes"):
            rounded_blocks.add_messages(torch.empty(300), bits, [message])
    with pytest.raises(ValueError, match="299 entries cannot be added to 300"):
        rounded_blocks.take_message(torch.ones(300), bits, torch.ones(299))


@pytest.mark.parametrize("bits", rounded_blocks.BITS)
def test_the_compiled_functions_touch_nothing_else(bits):
    need_compiled_modules("fleetx.kernels._rounded")
    memory, more = torch.randn(1000), torch.randn(300)
    before = memory.clone()
    message = rounded_blocks.take_message(memory[100:400], bits, more)
    assert torch.equal(memory[:100], before[:100])
    assert torch.equal(memory[400:], before[400:])
    total = torch.full((500,), 7.0)
    rounded_blocks.add_messages(total[100:400], bits, [message])
    assert (total[:100] == 7).all()
    assert (total[400:] == 7).all()
    torch.testing.assert_close(total[100:400] + memory[100:400], before[100:400] + more)


def test_the_compiled_functions_reject_other_widths():
    need_compiled_modules("fleetx.kernels._rounded")
    from fleetx.kernels import _rounded

    with pytest.raises(ValueError, match="to 16 bits, only to 8 or 4"):
        _rounded.round_values(0, 0, 0, 16, 0)
    with pytest.raises(ValueError, match="cannot round -1 numbers"):
        _rounded.add_messages(0, -1, 8, [])
    with pytest.raises(TypeError):
        _rounded.add_messages(0, 0, 8, ["message"])


@pytest.mark.parametrize("bits", rounded_blocks.BITS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", SIZES)
def test_an_error_is_at_most_half_a_scale(bits, dtype, size):
    tensor = torch.randn(size, dtype=dtype) * 10.0 ** torch.randint(-9, 9, (size,))
    lost = tensor.clone()
    message = rounded_blocks.take_message(lost, bits)
    assert message.numel() == rounded_blocks.message_bytes(size, bits)
    restored = torch.empty_like(tensor)
    rounded_blocks.add_messages(restored, bits, [message])
    torch.testing.assert_close(restored + lost, tensor)
    for before, after in zip(tensor.split(256), restored.split(256), strict=True):
        if len(before):
            scale = before.abs().max() / (2 ** (bits - 1) - 1)
            assert (before - after).abs().max() <= scale * 0.5001


def test_blocks_that_are_not_finite_show_it():
    tensor = torch.zeros(300)
    tensor[1] = torch.inf
    restored = torch.empty(300)
    rounded_blocks.add_messages(restored, 8, [rounded_blocks.take_message(tensor, 8)])
    assert restored[:256].isnan().all()
    assert (restored[256:] == 0).all()
