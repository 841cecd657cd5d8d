"""Ready-to-train models, each as a static program and as an ordinary `nn.Module`.

`static_model.py` defines the interface of a static model; `weights.py` moves weights between files,
programs and modules. A name is imported on first use, so that a model costs only its own imports.
"""

import importlib
from typing import Any

_NAMES = {
    "bert_for_pretraining": "bert_module",
    "BertBase": "bert",
    "BertGiant": "bert",
    "BertHuge": "bert",
    "BertLarge": "bert",
    "BertSizes": "bert_sizes",
    "CriteoSizes": "criteo_model",
    "DeepFM": "deepfm",
    "DeepFMModule": "deepfm",
    "lead_loss": "simnet",
    "MultiSlotCTR": "wide_and_deep",
    "noise_contrast": "word2vec",
    "Resnet50": "resnet",
    "Resnet50Mlperf": "resnet",
    "SimNet": "simnet",
    "SimNetSizes": "simnet",
    "SkipGram": "word2vec",
    "StaticModel": "static_model",
    "TextMatch": "simnet",
    "Transformer": "transformer",
    "TransformerSizes": "transformer_module",
    "TranslationTransformer": "transformer_module",
    "VGG16": "vgg",
    "WideAndDeep": "wide_and_deep",
    "Word2vec": "word2vec",
    "Word2vecSizes": "word2vec",
}

__all__ = [*_NAMES]


def __getattr__(name: str) -> Any:
    """Import a model, or the module of one, on first use."""
    if name in _NAMES.values():
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _NAMES:
        raise AttributeError(
            f"fleetx.applications has no model {name!r}; it has: {', '.join(sorted(_NAMES))}"
        )
    return getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)


def __dir__() -> list[str]:
    """List the models too, although they may not be imported yet."""
    return sorted({*globals(), *_NAMES})
