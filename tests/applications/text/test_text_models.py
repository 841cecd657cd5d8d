"""Text and recommendation models: the program and the module are the same network, and learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tiny_models import CASES

from fleetx import static
from fleetx.applications.bert import BertGiant, BertHuge
from fleetx.applications.criteo_model import CriteoSizes
from fleetx.applications.deepfm import DeepFMModule
from fleetx.applications.simnet import SimNetSizes, TextMatch
from fleetx.applications.wide_and_deep import WideAndDeep
from fleetx.applications.word2vec import SkipGram, Word2vecSizes
from fleetx.ps.client.embedding import RowModule


@pytest.mark.parametrize("name", CASES)
def test_program_and_module_give_the_same_numbers_and_learn(name):
    case = CASES[name]
    torch.manual_seed(0)
    model = case.make()
    with static.scope_guard(static.Scope()):
        static.optimizer.SGD(0.1).minimize(model.loss)
        executor = static.Executor(static.CPUPlace())
        executor.run(model.startup_prog)
        module = model.make_module()
        model.load_module_state(module.state_dict())
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        feed, batch = case.batch(np.random.RandomState(0))
        losses = []
        for _ in range(8):
            found, *_ = executor.run(
                model.main_prog, feed=feed, fetch_list=[model.loss, *model.target]
            )
            optimizer.zero_grad()
            loss = case.loss(module, batch)
            loss.backward()
            optimizer.step()
            assert found.shape == (1,)
            np.testing.assert_allclose(found[0], loss.item(), rtol=0, atol=1e-5)
            losses.append(found[0])
        assert losses[-1] < losses[0]
        state, expected = model.to_module().state_dict(), module.state_dict()
        assert state.keys() == expected.keys()
        for key, value in expected.items():
            torch.testing.assert_close(state[key], value, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_weights_go_through_files(name, tmp_path):
    model = CASES[name].make()
    with static.scope_guard(static.Scope()):
        static.Executor(static.CPUPlace()).run(model.startup_prog)
        before = model.module_state()
        model.save_params(tmp_path / "paddle")
        model.save_params(tmp_path / "model.safetensors")
    for place in ("paddle", "model.safetensors"):
        with static.scope_guard(static.Scope()):
            static.Executor(static.CPUPlace()).run(model.startup_prog)
            model.load_params(tmp_path / place)
            after = model.module_state()
        assert all(torch.equal(before[key], after[key]) for key in before), place


def test_files_of_the_package_transformers_load(tmp_path):
    model = CASES["bert"].make()
    static.Executor(static.CPUPlace()).run(model.startup_prog)
    torch.manual_seed(0)
    module = model.make_module()
    module.save_pretrained(tmp_path / "now")
    state = module.state_dict()
    # The files that were published first have other names, and the tied weights twice.
    names = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    old = {}
    for key, value in state.items():
        end = ".".join(key.split(".")[-2:])
        old[key.removesuffix(end) + names.get(end, end)] = value.clone()
    old["bert.embeddings.position_ids"] = torch.arange(32)
    save_file(old, tmp_path / "old.safetensors")
    for name in ("now", "old.safetensors"):
        model.load_params(tmp_path / name)
        loaded = model.to_module().state_dict()
        assert all(torch.equal(loaded[key], value) for key, value in state.items()), name
        static.Executor(static.CPUPlace()).run(model.startup_prog)


def test_checkpoints_are_the_outputs_of_layers():
    for name, count in (("bert", 2), ("transformer", 4)):
        model = CASES[name].make()
        assert len(model.checkpoints) == count
        assert all(model.main_prog.global_block().has_var(each) for each in model.checkpoints)


def test_sizes_of_bert_that_do_not_exist_are_refused():
    for kind in (BertHuge, BertGiant):
        with pytest.raises(ValueError, match="lang='en'"):
            kind("ch")
    with pytest.raises(ValueError, match="'ch' or 'en', not 'fr'"):
        BertHuge("fr")
    with pytest.raises(ValueError, match="multiple of heads=7"):
        BertHuge(heads=7)


def test_rows_of_modules_may_be_tables_of_servers():
    small = CriteoSizes(ids=11, row=2, hidden=(4,))
    for module in (
        WideAndDeep(small, on_servers=True),
        DeepFMModule(small, on_servers=True),
        SkipGram(Word2vecSizes(words=9, row=2), on_servers=True),
        TextMatch(SimNetSizes(words=9, row=2, hidden=3), on_servers=True),
    ):
        assert any(isinstance(part, RowModule) for part in module.modules())
        assert not any(isinstance(part, torch.nn.Embedding) for part in module.modules())
