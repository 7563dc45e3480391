"""A local HTTP server that can cut, delay, redirect and lie."""

import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

PAGE = b"<!DOCTYPE html><html><body>Please sign in</body></html>"
DRIVE_PAGE = b"""<!DOCTYPE html><html><body><form id="download-form" action="/confirmed/file"
method="get"><input type="hidden" name="id" value="1x"><input type="hidden" name="confirm"
value="t"></form></body></html>"""


class FaultyServer(ThreadingHTTPServer):
    """Serves `files` by path, and honestly once the `faults` of a path are used up.

    `requests` are the paths and Range headers it was asked for; `sizes_sent` are bytes of bodies.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.files, self.etags, self.faults = {}, {}, {}
        self.requests, self.sizes_sent = [], []
        self.seconds_per_block = 0.0

    def handle_error(self, request, client_address):
        """A client that has gone is no error of a test."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 0

    def log_message(self, *_):
        pass

    def do_GET(self):
        server, path = self.server, urlsplit(self.path).path
        self.sizes_sent = server.sizes_sent  # of this test, if it ends before the response does
        server.requests.append((self.path, self.headers.get("Range")))
        faults = server.faults.get(path)
        fault = faults.pop(0) if faults else "honest"
        content = server.files.get(path)
        if content is None:
            self.answer(404, b"no such file")
        elif fault.startswith("status "):
            _, status, *retry_after = fault.split(" ", 2)
            self.answer(int(status), b"", {"Retry-After": retry_after[0]} if retry_after else {})
        elif fault.startswith("redirect "):
            self.answer(302, b"", {"Location": fault.split(" ")[1]})
        elif fault in ("page", "page without a type", "drive page"):
            page = DRIVE_PAGE if fault == "drive page" else PAGE
            kind = "application/octet-stream" if fault == "page without a type" else "text/html"
            self.answer(200, page, {"Content-Type": kind})
        elif fault == "packed":
            self.answer(200, content, {"Content-Encoding": "gzip"})
        else:
            self.send_file(path, content, fault)

    def answer(self, status, body, headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_file(self, path, content, fault):
        server, etag = self.server, self.server.etags.get(path)
        if fault.startswith("changed"):  # a new version of the same size, from now on
            server.files[path] = content = content[:8] + bytes(reversed(content[8:]))
            server.etags[path] = etag = etag and etag[:-1] + 'x"'
        start, wanted = 0, self.headers.get("Range")
        same = self.headers.get("If-Range") in (None, etag)
        if wanted and fault != "no range" and (same or fault.endswith("careless")):
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            if start >= len(content):
                self.answer(416, b"", {"Content-Range": f"bytes */{len(content)}"})
                return
        first = start + 1 if fault == "wrong range" and start else start
        rest = content[first:]
        if fault == "garbled":
            rest = rest[: len(rest) // 2] + b"\0" * (len(rest) - len(rest) // 2)
        self.send_response(206 if start else 200)
        if etag:
            self.send_header("ETag", etag)
        if start:
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        length = {"too long": len(rest) + 7, "too short": len(rest) // 2}.get(fault, len(rest))
        if fault in ("no length", "no length, cut"):
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        self.close_connection = fault != "honest"
        half = len(rest) // 2
        parts = {"cut": half, "no length, cut": half, "too short": half, "slow": half}
        with suppress(OSError):
            self.send_slowly(rest[: parts.get(fault, len(rest))])
            if fault == "slow":
                time.sleep(0.6)
                self.send_slowly(rest[half:])

    def send_slowly(self, body):
        for start in range(0, len(body), 2**16):
            self.wfile.write(body[start : start + 2**16])
            self.sizes_sent.append(len(body[start : start + 2**16]))
            time.sleep(self.server.seconds_per_block)


@contextmanager
def faulty_server():
    with FaultyServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
