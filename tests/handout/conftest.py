"""Repositories with a history made for the test, read as upstream's are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from team.config import Settings
from team.git import git, line
from team.handout import Context, Handout, hand_out
from team.ledger import Kind, Ledger


@dataclass
class Past:
    """A repository that grows by landings."""

    path: Path
    ledger: Ledger
    count: int = 0

    def land(self, files: Mapping[str, str | bytes | None], message: str = "work") -> str:
        """One more commit on main: these files, or None for one that goes. Returns the commit."""
        self.count += 1
        body = [
            f"commit refs/heads/main\ncommitter A <a@b> {1_700_000_000 + self.count} +0000\n".encode(),
            _data(message),
        ]
        if self.count > 1:
            body.append(b"from refs/heads/main^0\n")
        for path, content in files.items():
            if content is None:
                body.append(f"D {path}\n".encode())
            else:
                body += [f"M 100644 inline {path}\n".encode(), _data(content)]
        git("fast-import", "--quiet", at=self.path, stdin=b"".join(body))
        return self.head()

    def head(self) -> str:
        return line("rev-parse", "main", at=self.path)

    def reviewed(self, role: str = "review") -> None:
        """A session of ``role`` began here and got done."""
        self.ledger.append(Kind.SESSION_STARTING, agent=f"{role}-01", session="x.1", n=1, role=role, base=self.head())
        self.ledger.append(Kind.SESSION_ENDING, session="x.1", outcome="done", reason="", exit=0)

    def handed(self, role: str, settings: Settings = Settings()) -> Handout | None:  # noqa: B008 - frozen
        return hand_out(role, Context(self.path, self.head(), self.ledger, settings, f"{role}-01"))

    def told(self, role: str, settings: Settings = Settings()) -> str:  # noqa: B008 - frozen
        found = self.handed(role, settings)
        assert found is not None
        return found.text


def _data(content: str | bytes) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    return b"data %d\n%s\n" % (len(raw), raw)


@pytest.fixture
def past(tmp_path: Path) -> Iterator[Past]:
    path = tmp_path / "upstream.git"
    git("init", "-q", "--bare", "-b", "main", str(path), at=tmp_path)
    with closing(Ledger(tmp_path / "ledger.db")) as ledger:
        yield Past(path, ledger)
