"""What the hostile scripts share. They run inside a session's container: standard library and git only.

Each attack prints ``ATTACK <name> <result as JSON>``; the tests on the host judge the results.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import zlib
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha1
from pathlib import Path

ZERO = "0" * 40
DIRECTORY = "40000"
KINDS = {"commit": 1, "tree": 2, "blob": 3}
TOKEN = os.environ.get("TEAM_TOKEN", "")
Attack = Callable[[], object]
_ATTACKS: list[Attack] = []


def attack(function: Attack) -> Attack:
    """Mark ``function`` as an attack of this script; its return value is its result."""
    _ATTACKS.append(function)
    return function


def run_all() -> None:
    """Make every attack, in order. One that raises says so in its result."""
    for function in _ATTACKS:
        try:
            result = function()
        except BaseException as error:
            result = {"raised": f"{type(error).__name__}: {error}"[:500]}
        tell(function.__name__, result)


def tell(name: str, result: object) -> None:
    """Print one result, in as many lines as the log needs to show all of it."""
    text = json.dumps(result)
    for start in range(0, len(text), 1500):
        print(f"ATTACK {name} {text[start : start + 1500]}", flush=True)


def sh(*argv: str, stdin: bytes = b"", env: Mapping[str, str] | None = None, seconds: float = 60) -> tuple[int, str]:
    """Exit code and output of a program."""
    done = subprocess.run(
        argv,
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=seconds,
        env={**os.environ, **(env or {})},
    )
    return done.returncode, done.stdout.decode("utf-8", "replace").strip()


def git(*args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> str:
    """What git prints; raises where it fails."""
    code, said = sh("git", *args, stdin=stdin, env=env)
    if code:
        raise RuntimeError(f"git {' '.join(args)[:80]}: {said[:300]}")
    return said


def push(*args: str, env: Mapping[str, str] | None = None) -> list[object]:
    """``[exit code, the line that says why]`` of a git push."""
    code, said = sh("git", "push", *args, env=env)
    lines = [text.strip() for text in said.splitlines() if "!" in text or "remote:" in text or "fatal" in text]
    return [code, " / ".join(lines)[:300]]


def tip() -> str:
    """Where upstream's main is now."""
    return Path("/upstream/refs/heads/main").read_text().strip()


# -- objects by hand, since a process for each would take minutes ------------------------------------------------

Entry = tuple[str, str]
"""Mode and object."""
Files = Mapping[str | bytes, bytes | Entry | None]
_MADE: dict[str, tuple[str, bytes]] = {}


def object_id(kind: str, content: bytes) -> str:
    """The name of an object."""
    return sha1(f"{kind} {len(content)}\0".encode() + content).hexdigest()


def put(kind: str, content: bytes) -> str:
    """Make an object, in the clone too."""
    oid = object_id(kind, content)
    _MADE[oid] = kind, content
    path = Path(".git/objects", oid[:2], oid[2:])
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        path.write_bytes(zlib.compress(f"{kind} {len(content)}\0".encode() + content, 1))
    return oid


def get(oid: str) -> tuple[str, bytes]:
    """Kind and content of an object of ours or of the clone."""
    if oid not in _MADE:
        kind = git("cat-file", "-t", oid)
        done = subprocess.run(["git", "cat-file", kind, oid], capture_output=True, check=True)
        return kind, done.stdout
    return _MADE[oid]


def blob(content: bytes) -> str:
    """A blob."""
    return put("blob", content)


def raw_tree(*rows: tuple[str, bytes, str]) -> str:
    """A tree with any names at all: ``(mode, name, oid)``, in this order."""
    return put("tree", b"".join(f"{mode} ".encode() + name + b"\0" + bytes.fromhex(oid) for mode, name, oid in rows))


def tree_of(commit: str) -> str:
    """The tree of a commit."""
    return get(commit)[1].split(b"\n", 1)[0].split()[1].decode()


def rows_of(tree: str) -> dict[bytes, Entry]:
    """The entries of a tree."""
    data, rows = get(tree)[1] if tree else b"", {}
    while data:
        head, _, rest = data.partition(b"\0")
        mode, _, name = head.partition(b" ")
        rows[name] = mode.decode(), rest[:20].hex()
        data = rest[20:]
    return rows


def sorted_tree(rows: Mapping[bytes, Entry] | list[tuple[bytes, Entry]]) -> str:
    """A tree of ``rows``, where git sorts them."""
    pairs = list(rows.items()) if isinstance(rows, Mapping) else rows
    pairs.sort(key=lambda row: row[0] + b"/" if row[1][0] == DIRECTORY else row[0])
    return raw_tree(*((mode, name, oid) for name, (mode, oid) in pairs))


def edited(tree: str, files: Mapping[bytes, Entry | None]) -> str:
    """``tree`` with ``files`` put in place or, where None, removed; empty where nothing is left."""
    rows, below = rows_of(tree), dict[bytes, dict[bytes, Entry | None]]()
    for path, entry in files.items():
        name, _, rest = path.partition(b"/")
        if rest:
            below.setdefault(name, {})[rest] = entry
        elif entry is None:
            rows.pop(name, None)
        else:
            rows[name] = entry
    for name, inner in below.items():
        mode, old = rows.get(name, ("", ""))
        sub = edited(old if mode == DIRECTORY else "", inner)
        if sub:
            rows[name] = DIRECTORY, sub
        elif mode == DIRECTORY:
            del rows[name]
    return sorted_tree(rows) if rows else ""


def commit(files: Files, message: str = "work", parent: str = "", env: Mapping[str, str] | None = None) -> str:
    """A commit on ``parent`` (upstream's main) with ``files`` put in place: content, (mode, oid), or None to remove."""
    parent, entries = parent or tip(), dict[bytes, Entry | None]()
    for path, content in files.items():
        raw = path.encode("utf-8", "surrogateescape") if isinstance(path, str) else path
        entries[raw] = ("100644", blob(content)) if isinstance(content, bytes) else content
    return commit_tree(edited(tree_of(parent), entries), message, [parent], env)


def commit_tree(
    tree: str, message: str = "work", parents: Sequence[str] | None = None, env: Mapping[str, str] | None = None
) -> str:
    """A commit of ``tree``, by default on upstream's main; ``env`` names another author or committer."""
    above = "".join(f"parent {p}\n" for p in ([tip()] if parents is None else parents))
    return put("commit", f"tree {tree}\n{above}{signature(env)}\n{message}\n".encode("utf-8", "surrogateescape"))


def signature(env: Mapping[str, str] | None = None) -> str:
    """The lines of a commit that say who and when."""
    who = {**os.environ, **(env or {})}
    lines = ""
    for role in ("author", "committer"):
        name, email = (who[f"GIT_{role.upper()}_{part}"] for part in ("NAME", "EMAIL"))
        lines += f"{role} {name} <{email}> {1_700_000_000 + len(_MADE)} +0000\n"
    return lines


def pack_for(head: str) -> bytes:
    """A pack of all objects of ours that ``head`` needs."""
    seen, stack = dict[str, None](), [head]
    while stack:
        oid = stack.pop()
        if oid in seen or oid not in _MADE:
            continue
        seen[oid] = None
        kind, content = _MADE[oid]
        if kind == "tree":
            stack += [entry for _, entry in rows_of(oid).values()]
            stack += [content[i + 1 : i + 21].hex() for i, c in enumerate(content) if c == 0]  # whatever its form
        elif kind == "commit":
            stack += [line.split()[1].decode() for line in content.split(b"\n\n")[0].split(b"\n")[:4] if b" " in line]
    return pack(*(packed(KINDS[_MADE[oid][0]], _MADE[oid][1]) for oid in seen))


def offer(oid: str, ref: str = "refs/for/main") -> list[object]:
    """Push ``oid`` to ``ref``, by hand: ``[status, what was said]``."""
    return list(raw_push([(ZERO, oid, ref)], pack_for(oid)))


# -- HTTP by hand ---------------------------------------------------------------------------------------------


def http(raw: bytes, seconds: float = 20) -> tuple[int, bytes]:
    """Send ``raw`` to the door as it is; status (0: no answer) and everything that came back."""
    answer = b""
    with socket.create_connection(("127.0.0.1", 8787), timeout=seconds) as link:
        try:
            link.sendall(raw)
            while chunk := link.recv(1 << 16):
                answer += chunk
                if len(answer) > 1 << 22:
                    break
        except (TimeoutError, ConnectionError):
            pass
    words = answer.split(b" ", 2)
    return (int(words[1]) if len(words) > 1 and words[1].isdigit() else 0), answer


def request(method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a request with this session's token; ``headers`` replace, add, or remove by ``-``."""
    fields = {"Host": "door", "Connection": "close", "x-api-key": TOKEN, "Content-Length": str(len(body))}
    fields |= headers or {}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value != "-")
    return f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + body


# -- git's protocol by hand ------------------------------------------------------------------------------------


def pkt(data: bytes) -> bytes:
    """One pkt-line."""
    return f"{len(data) + 4:04x}".encode() + data


def pack_header(kind: int, size: int) -> bytes:
    """Type and inflated size of an object in a pack."""
    out, byte, size = bytearray(), (kind << 4) | (size & 15), size >> 4
    while size:
        out.append(byte | 0x80)
        byte, size = size & 0x7F, size >> 7
    return bytes([*out, byte])


def pack(*objects: bytes) -> bytes:
    """A pack of ``objects``, each already with its header and deflated."""
    data = b"PACK" + struct.pack(">II", 2, len(objects)) + b"".join(objects)
    return data + sha1(data).digest()


def packed(kind: int, content: bytes) -> bytes:
    """An honest object for :func:`pack`: 1 commit, 2 tree, 3 blob."""
    return pack_header(kind, len(content)) + zlib.compress(content)


def raw_push(
    commands: Sequence[tuple[str, str, str]], data: bytes, headers: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """POST a push to the door, built by hand: ``(old, new, ref)`` and a pack. HTTP status and what was said."""
    lines = [f"{old} {new} {ref}" for old, new, ref in commands]
    body = b"".join(
        pkt(text.encode() + (b"\0 report-status side-band-64k agent=hostile" if n == 0 else b"") + b"\n")
        for n, text in enumerate(lines)
    )
    fields = {"Content-Type": "application/x-git-receive-pack-request"} | dict(headers or {})
    status, answer = http(request("POST", "/git/upstream/git-receive-pack", body + b"0000" + data, fields), 60)
    said = answer.partition(b"\r\n\r\n")[2].decode("utf-8", "replace")
    return status, "".join(c if c.isprintable() else " " for c in said)[:300]
