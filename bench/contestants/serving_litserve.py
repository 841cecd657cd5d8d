"""The peer of `fleetx serve`: litserve with batching around the same model.

serving_litserve.py MODEL PORT MAX_BATCH MAX_DELAY
"""

import sys
from typing import Annotated, Any

import litserve
import numpy as np
from fastapi import Depends, Request, Response
from safetensors.numpy import load, save


async def raw_body(request: Request) -> bytes:
    return await request.body()


class Served(litserve.LitAPI):
    """The model behind the steps of litserve; every request holds one row."""

    def setup(self, device: Any) -> None:
        from fleetx.serving.model import load_model

        self.model = load_model(sys.argv[1])
        (self.input,) = [spec.name for spec in self.model.inputs]
        (self.output,) = [spec.name for spec in self.model.outputs]

    def decode_request(self, request: Annotated[bytes, Depends(raw_body)]) -> Any:
        return load(request)[self.input][0]

    def batch(self, inputs: list[Any]) -> Any:
        return np.stack(inputs)

    def predict(self, x: Any) -> Any:
        return self.model.run({self.input: x})[self.output]

    def unbatch(self, output: Any) -> list[Any]:
        return list(output)

    def encode_response(self, output: Any) -> Response:
        body = save({self.output: output[None]})
        return Response(body, media_type="application/vnd.safetensors")


if __name__ == "__main__":
    api = Served(
        max_batch_size=int(sys.argv[3]),
        batch_timeout=float(sys.argv[4]),
        api_path="/v1/predict",
    )
    server = litserve.LitServer(api, accelerator="cpu", devices=1, timeout=60, fast_queue=True)
    server.run(
        host="127.0.0.1",
        port=int(sys.argv[2]),
        num_api_servers=1,
        generate_client_file=False,
        log_level="warning",
        access_log=False,
    )
