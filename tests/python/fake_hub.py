"""A hub on this machine: as much of its HTTP interface as huggingface-hub uses, with faults."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "c" * 40


@dataclass
class Repository:
    """What the hub has under one name.

    Attributes:
        files: content by name; names that end in a suffix of `large` are stored outside of git.
        revisions: commits by branch or tag.
        gated: whether nobody has accepted its terms.
    """

    files: dict[str, bytes]
    revisions: dict[str, str] = field(default_factory=lambda: {"main": COMMIT})
    gated: bool = False
    large: tuple[str, ...] = (".gguf", ".safetensors", "tokenizer.json")

    def commit_of(self, revision: str) -> str | None:
        """Return the commit that a revision means."""
        if revision in self.revisions.values():
            return revision
        return self.revisions.get(revision)

    def entry(self, name: str) -> dict[str, Any]:
        """Return what the hub says of a file."""
        data = self.files[name]
        blob = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
        said: dict[str, Any] = {"size": len(data), "blobId": blob, "oid": blob}
        if name.endswith(self.large):
            sha256 = hashlib.sha256(data).hexdigest()
            lfs = {"sha256": sha256, "oid": sha256, "size": len(data), "pointerSize": 133}
            said["lfs"] = lfs
        return said


class FakeHub:
    """Serves repositories on 127.0.0.1 until it is closed.

    Attributes:
        repositories: by ``owner/name``.
        cuts: by file name, after how many bytes of the next answers the line goes dead, one
            number for each.
        spoiled: names of files of which one byte comes wrong.
        served: (file name, first byte, bytes sent) of each download.
        requests: how many there were of any kind.
    """

    def __init__(self) -> None:
        """Start serving."""
        self.repositories: dict[str, Repository] = {}
        self.cuts: dict[str, list[int]] = {}
        self.spoiled: set[str] = set()
        self.served: list[tuple[str, int, int]] = []
        self.requests = 0
        hub = self

        class Handler(_Handler):
            fake = hub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        """Stop serving: from now on nobody listens."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    fake: FakeHub
    protocol_version = "HTTP/1.0"  # a connection for each request: none outlives the hub

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, *, body: bool) -> None:
        self.fake.requests += 1
        path = unquote(urlsplit(self.path).path)
        api = re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/(.+)", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        match = api or file
        repository = self.fake.repositories.get(match[1]) if match else None
        if match is None or repository is None:
            self._refuse(404, "RepoNotFound")
            return
        if repository.gated:
            self._refuse(403, "GatedRepo")
            return
        commit = repository.commit_of(match[3] if api else match[2])
        if commit is None:
            self._refuse(404, "RevisionNotFound")
        elif api and match[2] == "revision":
            names = [{"rfilename": n, **repository.entry(n)} for n in repository.files]
            self._send_json({"id": match[1], "sha": commit, "siblings": names})
        elif api:
            names = [{"type": "file", "path": n, **repository.entry(n)} for n in repository.files]
            self._send_json(names)
        elif match[3] not in repository.files:
            self._refuse(404, "EntryNotFound")
        else:
            self._send_file(repository, commit, match[3], body=body)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send_json(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _send_file(self, repository: Repository, commit: str, name: str, *, body: bool) -> None:
        entry, data = repository.entry(name), repository.files[name]
        if name in self.fake.spoiled:
            data = bytes([data[0] ^ 1]) + data[1:]
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        first = int(wanted[1]) if wanted else 0
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        self.send_header("X-Repo-Commit", commit)
        self.send_header("ETag", f'"{entry["lfs"]["sha256"] if "lfs" in entry else entry["oid"]}"')
        self.send_header("Content-Length", str(len(data) - first))
        self.end_headers()
        if not body:
            return
        cuts = self.fake.cuts.get(name)
        sent = data[first:] if not cuts else data[first : first + cuts.pop(0)]
        self.fake.served.append((name, first, len(sent)))
        self.wfile.write(sent)
