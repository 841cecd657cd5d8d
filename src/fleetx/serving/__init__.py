"""Serving saved models over HTTP: `fleetx serve MODEL_DIR`.

Read `app.py` for the routes, `batching.py` for how requests are joined, `model.py` for what is
served, `bodies.py` for the bodies of requests and answers.
"""

from fleetx.serving.errors import RequestError
from fleetx.serving.model import ServedModel, load_model
from fleetx.serving.tensor_spec import TensorSpec

__all__ = ["RequestError", "ServedModel", "TensorSpec", "load_model"]
