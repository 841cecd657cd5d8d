"""A small HTTP server with ranges, and with the faults that downloads must stand."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def tar_of(files: dict[str, bytes]) -> bytes:
    """Return a tar of files, by their names."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


class FileServer:
    """Serves a folder on loopback; its attributes may be changed while it runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cut_after = 0
        """Bytes after which every answer breaks off; 0: never."""
        self.has_ranges = True
        self.busy = 0
        """How many of the next requests are answered by 503."""
        self.bytes_sent = 0
        self.paths: list[str] = []
        handler = type("Handler", (_Handler,), {"files": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FileServer:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def write(self, name: str, content: bytes) -> str:
        """Put a file into the folder and return its line of filelist.txt."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return f"{name} {hashlib.md5(content).hexdigest()}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    files: FileServer

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        if self.files.busy:
            self.files.busy -= 1
            self.send_error(503)
            return
        path = self.files.folder / self.path.lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        content, asked = path.read_bytes(), self.headers.get("Range")
        status, total = 200, len(content)
        if asked and self.files.has_ranges:
            begin, end = asked.removeprefix("bytes=").split("-")
            status, content = 206, content[int(begin) : int(end) + 1 if end else None]
        self.send_response(status)
        if status == 206:
            last = int(begin) + len(content) - 1
            self.send_header("Content-Range", f"bytes {begin}-{last}/{total}")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if with_body:
            self.files.paths.append(self.path)
            if self.files.cut_after and len(content) > self.files.cut_after:
                content = content[: self.files.cut_after]
                self.close_connection = True
            self.files.bytes_sent += len(content)
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Keep the output of tests clean."""
