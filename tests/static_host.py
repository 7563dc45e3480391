"""A host of static files, as simple as any, for tests and figures of the page."""

import threading
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class StaticHost:
    """A host of the files of a folder, at a path of its own, with headers that all files get.

    With `redirects`, index.html has the address of its folder only.
    """

    def __init__(self, folder, *, headers=(), redirects=False):
        self.folder, self.headers = Path(folder), dict(headers)
        self.redirects = redirects
        self.paths = []
        root = self.folder.parent
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), partial(_StaticHandler, self, directory=root)
        )
        self._server.daemon_threads = True
        port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{port}/{self.folder.name}"  # which redirects to a folder

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        """Cut the network, as far as this page knows it."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


class _StaticHandler(SimpleHTTPRequestHandler):
    def __init__(self, host, *args, **settings):
        self._host = host
        super().__init__(*args, **settings)

    def do_GET(self):
        self._host.paths.append(self.path)
        with suppress(ConnectionError):  # the browser has gone
            if self._host.redirects and self.path.endswith("/index.html"):
                self.send_response(308)
                self.send_header("Location", self.path.removesuffix("index.html"))
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                super().do_GET()

    def end_headers(self):
        for name, value in self._host.headers.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *_):
        pass
