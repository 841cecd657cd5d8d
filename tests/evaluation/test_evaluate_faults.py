"""Faults of a real server: each is found and named."""

import re

import pytest

from fleetx import cli


def evaluate(capsys, model, data, url, *more):
    """Run the command; return its exit status and what it printed, in one line."""
    status = cli.main(["evaluate", str(model), "--data", str(data), "--against", url, *more])
    printed = capsys.readouterr()
    return status, re.sub(r"\s+", " ", printed.out + printed.err)


FAULTS = {
    "shifted": "a change of single outputs: index 417 of 1000 .* is shifted by .0.001 in 40 of 40",
    "channels": "swapped channels: .* swap the channels .BGR for RGB.",
    "unnormalised": "another preprocessing: .* leave out mean and deviation",
    "bytes": "another preprocessing: .* pixels of 0 to 255 without mean",
    "unnormalised_bgr": "another preprocessing: the endpoint seems to swap .*, and to leave out",
    "odd_scale": "another preprocessing: .* multiplied by 0.43 and shifted by 0.21",
    "mirrored": "another layout of the input: .* mirror the pictures",
    "old": "another model version: the endpoint reports checksum .* .version 2023-07., the",
    "old_silent": "(another model version|nothing known).*no tried change of inputs or outputs",
    "swapped": "another order of the outputs: .* places 3 and 700 of 1000 are swapped",
    "rotated": "another order of the outputs: .* shifted by 1 of 1000",
    "reversed_rows": "a mix-up of the samples .* 'picture-000.png' gets the vector of 'picture-0",
    "softmax": "another last step: the endpoint applies softmax",
    "float16": "lower precision: .* with float16",
    "bfloat16": "lower precision: .* with bfloat16",
    "decimals": "lower precision: .* with 3 decimals",
    "doubled": "another scale of the outputs: .* = 2 × expected",
    "constant": "an endpoint that ignores its inputs",
    "random": "nothing known",
    "not_a_number": "a change of single outputs: index 5 of 1000 .* is not finite on one side",
    "short": "another model or .* has rows of shape 10 in the response, but 1000 in the saved",
    "one_row": "another model or .* of the response has 1 rows for 32 samples",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found_and_named(fault, faulty, models, pictures, capsys):
    status, printed = evaluate(capsys, models[0], pictures, f"{faulty}/raw/{fault}")
    assert status == 1
    assert "DIFFERENT: 40 of 40 samples" in printed
    assert re.search("It looks like " + FAULTS[fault], printed), printed


def test_an_old_model_that_is_at_hand_is_recognised(faulty, models, pictures, capsys):
    now, old = models
    status, printed = evaluate(
        capsys, now, pictures, f"{faulty}/raw/old_silent", "--previous", str(old)
    )
    assert status == 1
    assert f"another model version: {old} gives exactly the endpoint" in printed


def test_few_wrong_samples_are_counted(faulty, models, pictures, capsys):
    status, printed = evaluate(capsys, models[0], pictures, f"{faulty}/raw/one_sample")
    assert status == 1
    assert "DIFFERENT: 2 of 40 samples" in printed
    assert "2 of 40 samples differ; if it is not their content" in printed
    assert "picture-016.png: " in printed


@pytest.mark.parametrize("kind", ["raw", "json", "kserve"])
def test_right_answers_agree_through_every_adapter(kind, faulty, models, pictures, capsys):
    status, printed = evaluate(
        capsys, models[0], pictures, f"{faulty}/{kind}/none", "--adapter", kind, "--request", "9"
    )
    assert status == 0, printed
    assert "SAME" in printed
    assert "0 of 40" in printed


def test_own_adapter_in_a_file(faulty, models, pictures, tmp_path, capsys):
    adapter = tmp_path / "mine.py"
    adapter.write_text(
        "import json\n"
        "import numpy as np\n"
        "def encode(inputs):\n"
        "    rows = inputs['picture'].reshape(len(inputs['picture']), -1)\n"
        "    return json.dumps({'rows': rows.tolist()}).encode(), {'X-Rows': str(len(rows))}\n"
        "def decode(body):\n"
        "    return np.frombuffer(body, '<f4').reshape(-1, 1000)\n"
    )
    url = f"{faulty}/own/none"
    status, printed = evaluate(capsys, models[0], pictures, url, "--adapter", str(adapter))
    assert status == 0, printed
    status, _ = evaluate(
        capsys, models[0], pictures, f"{faulty}/own/shifted", "--adapter", str(adapter)
    )
    assert status == 1


def test_tolerance_decides(faulty, models, pictures, capsys):
    url = f"{faulty}/raw/shifted"
    assert evaluate(capsys, models[0], pictures, url, "--tolerance", "2e-3")[0] == 0
    assert evaluate(capsys, models[0], pictures, url, "--tolerance", "5e-4")[0] == 1
    status, printed = evaluate(capsys, models[0], pictures, url, "--tolerance", "x=1")
    assert status == 2
    assert "--tolerance names 'x', but the model's outputs are" in printed
