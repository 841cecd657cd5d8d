"""The peer of `fleetx serve`: a plain FastAPI endpoint around the same model.

    serving_plain.py MODEL PORT thread|loop

"thread" is a `def` endpoint, which FastAPI runs in one of its threads; "loop" an `async def` one.
"""

import sys

import uvicorn
from fastapi import Depends, FastAPI, Request, Response
from safetensors.numpy import load, save

from fleetx.serving.model import load_model

MODEL = load_model(sys.argv[1])
app = FastAPI()


async def raw_body(request: Request) -> bytes:
    return await request.body()


def answer(body: bytes) -> Response:
    return Response(save(MODEL.run(load(body))), media_type="application/vnd.safetensors")


if sys.argv[3] == "thread":

    @app.post("/v1/predict")
    def predict(body: bytes = Depends(raw_body)) -> Response:
        return answer(body)

else:

    @app.post("/v1/predict")
    async def predict_in_loop(request: Request) -> Response:
        return answer(await request.body())


if __name__ == "__main__":
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[2]),
        loop="uvloop",
        http="httptools",
        log_level="warning",
        access_log=False,
    )
