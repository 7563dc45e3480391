"""A local stand-in for the Hugging Face Hub: the requests that downloads and uploads make."""

import base64
import hashlib
import json
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


class LocalHub(ThreadingHTTPServer):
    """Repositories as {name: {revision: commit}}, commits as {commit: {path: content}}.

    Of the files in `faults` it sends a half, and then cuts ("cut") or waits ("stall"), once;
    it answers "status 500" each time. Names in `gated` and `private` are kept from everybody, and
    shown as private. `requests` are the methods, paths and Range headers it was asked for.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.repositories, self.commits = {}, {}
        self.gated, self.private, self.faults, self.requests = set(), set(), {}, []

    def commit(self, repo, files, revision="main"):
        """Make these the files of a revision."""
        content = repr((repo, sorted(files.items()))).encode()
        commit = hashlib.sha1(content).hexdigest()
        self.commits[commit] = dict(files)
        self.repositories.setdefault(repo, {})[revision] = commit
        return commit

    def files(self, repo, revision="main"):
        return self.commits[self.repositories[repo][revision]]

    def downloaded(self, repo):
        """The files that were asked for since the last call."""
        prefix = f"/{repo}/resolve/"
        paths = [p for method, p, _ in self.requests if method == "GET" and p.startswith(prefix)]
        self.requests.clear()
        return sorted({path.removeprefix(prefix).partition("/")[2] for path in paths})

    def handle_error(self, request, client_address):
        """A client that has gone is no error of a test."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        parts = self.begin()
        if parts[:2] == ["api", "models"]:
            repo, what = "/".join(parts[2:4]), parts[4:] or ["revision", "main"]
            files = self.find(repo, unquote(what[1]))
            if files is None:
                return
            if what[0] == "tree":
                self.answer([
                    {"type": "file", "path": path, "size": len(content), "oid": etag(content)}
                    for path, content in files.items()
                ])  # fmt: skip
            else:
                self.answer({
                    "id": repo, "sha": self.sha, "private": repo in self.server.private,
                    "siblings": [{"rfilename": path} for path in files], "tags": [],
                })  # fmt: skip
        else:  # /user/model/resolve/revision/path
            repo, path = "/".join(parts[:2]), unquote("/".join(parts[4:]))
            files = self.find(repo, unquote(parts[3]))
            if repo in self.server.gated:
                self.answer({}, 403, {"X-Error-Code": "GatedRepo"})
            elif files is not None:
                self.send_file(path, files[path])

    def do_POST(self):
        parts = self.begin()
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server, repo = self.server, "/".join(parts[2:4])
        if parts[1:] == ["repos", "create"]:
            asked = json.loads(body)
            repo = f"{asked.get('organization') or 'somebody'}/{asked['name']}"
            if repo in server.gated:
                return self.answer({}, 403, {"X-Error-Message": "You cannot write here"})
            exists = repo in server.repositories
            if not exists:
                server.commit(repo, {".gitattributes": b""})
                server.private |= {repo} if asked.get("visibility") == "private" else set()
            self.answer({"url": f"{server.url}/{repo}"}, 409 if exists else 200)
        elif parts[1:] == ["validate-yaml"]:
            self.answer({"errors": [], "warnings": []})
        elif parts[4] == "branch":
            revisions, branch = server.repositories[repo], unquote(parts[5])
            exists = branch in revisions
            revisions.setdefault(branch, revisions["main"])
            self.answer({}, 409 if exists else 200)
        elif parts[4] == "preupload":
            files = json.loads(body)["files"]
            self.answer({"files": [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files
            ]})  # fmt: skip
        else:  # commit
            revision = unquote(parts[5])
            files = dict(server.files(repo, revision))
            for operation in map(json.loads, body.splitlines()):
                value = operation["value"]
                if operation["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                elif operation["key"] == "deletedFile":
                    del files[value["path"]]
            commit = server.commit(repo, files, revision)
            url = f"{server.url}/{repo}/commit/{commit}"
            self.answer({"success": True, "commitOid": commit, "commitUrl": url})
        return None

    def begin(self):
        path = urlsplit(self.path).path
        self.server.requests.append((self.command, path, self.headers.get("Range")))
        return path.strip("/").split("/")

    def find(self, repo, revision):
        """The files of a revision, whose commit is `sha`; or an answer, and None."""
        revisions = self.server.repositories.get(repo)
        if revisions is None:
            return self.answer({}, 404, {"X-Error-Code": "RepoNotFound"})
        self.sha = revisions.get(revision, revision)
        if self.sha not in revisions.values():
            return self.answer({}, 404, {"X-Error-Code": "RevisionNotFound"})
        return self.server.commits[self.sha]

    def answer(self, value, status=200, headers=None):
        body = json.dumps(value).encode()
        self.send_response(status)
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_file(self, path, content):
        fault = None
        if self.command == "GET":
            fault = self.server.faults.get(path)
            if fault == "status 500":
                return self.answer({}, 500)
            self.server.faults.pop(path, None)
        total, asked = len(content), self.headers.get("Range")
        start = int(asked.removeprefix("bytes=").split("-")[0]) if asked else 0
        content = content[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
        self.send_header("ETag", f'"{etag(content)}"' if not start else '""')
        self.send_header("X-Repo-Commit", self.sha)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            with suppress(OSError):
                self.wfile.write(content[: len(content) // 2] if fault else content)
                self.wfile.flush()
                if fault == "stall":
                    time.sleep(60)
            self.close_connection = fault is not None
        return None


def etag(content):
    return hashlib.sha1(content).hexdigest()


@contextmanager
def local_hub():
    with LocalHub() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
