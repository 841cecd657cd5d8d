"""Serving saved models over HTTP: `fleetx serve MODEL_DIR`.

Read `app.py` for the routes, `batching.py` for dynamic batching, `model.py` for the served model,
`bodies.py` for the bodies of requests and responses. Names are imported on first use: the command
line needs only the options of this package.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetx.serving.app import create_app
    from fleetx.serving.model import ServedModel, load_model
    from fleetx.serving.request_error import RequestError
    from fleetx.serving.serve_settings import ServeSettings
    from fleetx.serving.tensor_spec import TensorSpec

_PLACES = {
    "RequestError": "request_error",
    "ServeSettings": "serve_settings",
    "ServedModel": "model",
    "TensorSpec": "tensor_spec",
    "create_app": "app",
    "load_model": "model",
}

__all__ = [
    "RequestError",
    "ServeSettings",
    "ServedModel",
    "TensorSpec",
    "create_app",
    "load_model",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name in _PLACES:
        return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    raise AttributeError(f"package {__name__!r} has no attribute {name!r}")
