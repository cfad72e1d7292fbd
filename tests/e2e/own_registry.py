"""Registries of our own for Go modules and crates: plain files behind HTTPS on loopback, for tests of the network.

A Go module proxy and a crate index (a bare repository) are both no more than files. The certificate is one that only
the test's own project trusts.
"""

from __future__ import annotations

import hashlib
import io
import json
import ssl
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import trustme

HOST = "registry.test"
MODULE = "registry.test/probe"
CRATE = "team-probe"


@dataclass
class Registry:
    """Both registries in ``directory``; the certificate's authority is ``authority``."""

    directory: Path
    authority: trustme.CA = field(default_factory=trustme.CA)
    asked: list[str] = field(default_factory=list)
    """Paths that were asked for, in order."""

    @contextmanager
    def serving(self) -> Iterator[int]:
        """Serve on loopback, beside whatever this thread does; the port."""
        asked = self.asked

        class Files(SimpleHTTPRequestHandler):
            def log_request(self, code: object = "-", size: object = "-") -> None:
                asked.append(self.path)

        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(self.directory)))
        port = server.server_port
        fill_modules(self.directory / "modules" / MODULE / "@v")
        fill_crates(self.directory, f"https://{HOST}:{port}")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert(HOST).configure_cert(context)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield port
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def fill_modules(directory: Path) -> None:
    """One module, as a module proxy keeps it."""
    directory.mkdir(parents=True)
    mod = f"module {MODULE}\n\ngo 1.19\n"
    (directory / "list").write_text("v1.0.0\n")
    (directory / "v1.0.0.info").write_text(json.dumps({"Version": "v1.0.0", "Time": "2026-01-01T00:00:00Z"}))
    (directory / "v1.0.0.mod").write_text(mod)
    with zipfile.ZipFile(directory / "v1.0.0.zip", "w") as file:
        file.writestr(f"{MODULE}@v1.0.0/go.mod", mod)
        file.writestr(f"{MODULE}@v1.0.0/probe.go", "package probe\n")


def fill_crates(directory: Path, url: str) -> None:
    """One crate, and its index as a repository that git reads from plain files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as file:
        manifest = f'[package]\nname = "{CRATE}"\nversion = "1.0.0"\nedition = "2021"\n'
        for name, text in (("Cargo.toml", manifest), ("src/lib.rs", "// a probe\n")):
            info = tarfile.TarInfo(f"{CRATE}-1.0.0/{name}")
            info.size = len(text)
            file.addfile(info, io.BytesIO(text.encode()))
    (directory / "crates").mkdir()
    (directory / "crates" / f"{CRATE}-1.0.0.crate").write_bytes(packed.getvalue())
    index = directory / "tree"
    (index / CRATE[:2] / CRATE[2:4]).mkdir(parents=True)
    (index / "config.json").write_text(json.dumps({"dl": f"{url}/crates/{{crate}}-{{version}}.crate"}))
    line = {"name": CRATE, "vers": "1.0.0", "deps": [], "features": {}, "yanked": False}
    line["cksum"] = hashlib.sha256(packed.getvalue()).hexdigest()
    (index / CRATE[:2] / CRATE[2:4] / CRATE).write_text(json.dumps(line) + "\n")
    git = ("git", "-c", "user.name=T", "-c", "user.email=t@example.org", "-C", str(index))
    for args in (
        ("init", "-q", "-b", "master"),
        ("add", "-A"),
        ("commit", "-q", "-m", "index"),
        ("update-server-info",),
    ):
        subprocess.run([*git, *args], check=True)
    (index / ".git").rename(directory / "index")
