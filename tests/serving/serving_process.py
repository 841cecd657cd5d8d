"""A real `fleetx serve` process, and requests to it."""

import http.client
import json
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import numpy as np

import warm_start
from waiting import LIMIT, wait_until

RAW = "application/vnd.safetensors"
JSON = "application/json"
SAMPLE = re.compile(r'(\w+(?:\{\w+="[^"]*"(?:,\w+="[^"]*")*\})?) (\S+)')


class Answer:
    """What a server answered."""

    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    def json(self):
        return json.loads(self.body)


class Server:
    """A running server."""

    def __init__(self, process, port, said=""):
        self.process, self.port, self.said = process, port, said

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)

    def ask(self, method, path, body=None, headers=None):
        connection = self.connect()
        try:
            connection.request(method, path, body, headers or {})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def predict(self, inputs, headers=None):
        """Ask by JSON."""
        lists = {name: np.asarray(value).tolist() for name, value in inputs.items()}
        body = json.dumps({"inputs": lists})
        return self.ask("POST", "/v1/predict", body, {"Content-Type": JSON, **(headers or {})})

    def predict_raw(self, body, headers=None):
        return self.ask("POST", "/v1/predict", body, {"Content-Type": RAW, **(headers or {})})

    def metrics(self):
        """Return all samples by name with labels."""
        found = {}
        for line in self.ask("GET", "/metrics").body.decode().splitlines():
            if line.startswith("#"):
                assert re.fullmatch(r"# (HELP|TYPE) \w+ .+", line), line
                continue
            sample = SAMPLE.fullmatch(line)
            assert sample, line
            found[sample[1]] = float(sample[2])
        return found

    def wait_for(self, name, value):
        """Ask for the metrics until a sample has a value."""
        wait_until(lambda: self.metrics().get(name) == value, f"{name} to become {value}")

    def listens(self):
        """Tell whether new connections are accepted."""
        connection = self.connect()
        try:
            connection.connect()
        except ConnectionError:  # refused, or reset by a socket that was just being closed
            return False
        finally:
            connection.close()
        return True

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LIMIT)


def command(*arguments):
    return [sys.executable, "-W", "ignore", "-m", "fleetx", "serve", *map(str, arguments)]


def environment():
    return warm_start.environment()


@contextmanager
def serving(*arguments, stderr=None):
    """Start a server on a free port and end it; `stderr` is a file for what it logs."""
    process = subprocess.Popen(
        command(*arguments, "--port", 0),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    try:
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert found, f"the server said {line!r}"
        server = Server(process, int(found[1]), line)
        server.wait_for("fleetx_ready", 1.0)
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()
