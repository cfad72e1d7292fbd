"""What ``team-cc`` keeps between calls: objects made, which file each unit became, and what could not be compiled.

An entry is found by compiler, arguments and folder, and holds if every file that its compilation read is what it was
then. There is one for each of these, so the cache stays as large as one build with each compiler. The project's own
path is taken out of keys and names: copies of one project in several folders share a cache, except for objects that
hold that path.

Part of every call: nothing here may import what is slow to import. Whatever goes wrong with the cache, the compiler
runs instead.
"""

from __future__ import annotations

import os
from _blake2 import blake2b

_FORMAT = b"team-cc 1"
_ROOT, _MAKE_ROOT = "\0root\0", "\0make\0"  # stand for the project's path, and for it as make writes it
_ENVIRONMENT = (
    "CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH OBJC_INCLUDE_PATH GCC_EXEC_PREFIX COMPILER_PATH SOURCE_DATE_EPOCH "
    "TEAM_ORACLE_VERSION"
).split()


class Files:
    """Names within a project and back."""

    def __init__(self, root: str) -> None:
        """``root``: absolute, no link in it."""
        self.root = root
        self._places = {_ROOT: root}
        if " " in root:
            self._places[_MAKE_ROOT] = root.replace(" ", "\\ ")
        self.cwd = os.getcwd()

    def name(self, path: str) -> str:
        """``path`` relative to the project; absolute where it is outside. Links of folders are followed."""
        folder, base = os.path.split(os.path.join(self.cwd, path))
        real = os.path.join(os.path.realpath(folder), base)
        for full in (real, os.path.normpath(os.path.join(folder, base))):
            if full.startswith(self.root + "/"):
                return full[len(self.root) + 1 :]
        return real

    def path(self, name: str) -> str:
        """The file that :meth:`name` called so."""
        return os.path.join(self.root, name)

    def hide(self, text: str) -> str:
        """``text`` without the project's path."""
        for sign, place in self._places.items():
            text = text.replace(place + "/", sign + "/").replace(place + "\n", sign + "\n")
        return text

    def show(self, text: str) -> str:
        """What :meth:`hide` made of ``text``, undone."""
        for sign, place in self._places.items():
            text = text.replace(sign, place)
        return text


class Key:
    """What a compilation is kept under."""

    def __init__(self, files: Files, compiler: list[str], words: list[str], outputs: list[str]) -> None:
        parts = [identity(word) for word in compiler]
        parts += [os.environ.get(name, "") for name in _ENVIRONMENT]
        parts += [files.hide(word + "\n") for word in [files.cwd, *words, *outputs]]
        text = "\0".join([f"{len(parts)} {len(words)}", *parts]).encode("utf-8", "surrogateescape")
        self.shared = blake2b(text, digest_size=16).hexdigest()
        self.bound = blake2b(text + files.root.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
        """For objects that hold the project's path."""


class Entry:
    """What a compilation that succeeded read and made."""

    def __init__(self, read: list[tuple[str, str]], errors: bytes, made: list[bytes]) -> None:
        self.read = read
        """Names of files and what was in them, see :func:`fingerprint`."""
        self.errors = errors
        """Standard error: warnings."""
        self.made = made
        """What the files hold that it made, in the order of its outputs."""

    def holds(self, files: Files) -> bool:
        """Whether all that was read is as it was."""
        return all(fingerprint(files, name) == was for name, was in self.read)

    def packed(self) -> bytes:
        blobs = [self.errors, *self.made]
        lines = ["\0".join((name, was)) for name, was in self.read]
        head = "\n".join([f"{len(lines)} {' '.join(str(len(blob)) for blob in blobs)}", *lines, ""])
        body = head.encode("utf-8", "surrogateescape") + b"".join(blobs)
        return b"%s %s\n%s" % (_FORMAT, blake2b(body, digest_size=16).hexdigest().encode(), body)


def unpack(data: bytes) -> Entry | None:
    """The entry packed in ``data``; None where it is cut short or not an entry."""
    first, _, body = data.partition(b"\n")
    if first != b"%s %s" % (_FORMAT, blake2b(body, digest_size=16).hexdigest().encode()):
        return None
    sizes, _, rest = body.partition(b"\n")
    count, *lengths = (int(number) for number in sizes.split())
    read = []
    for _each in range(count):
        line, _, rest = rest.partition(b"\n")
        name, _, was = line.decode("utf-8", "surrogateescape").partition("\0")
        read.append((name, was))
    blobs = []
    for length in lengths:
        blobs.append(rest[:length])
        rest = rest[length:]
    return Entry(read, blobs[0], blobs[1:])


class Cache:
    """The folder of it all."""

    def __init__(self, folder: str, files: Files) -> None:
        self.folder = folder
        self.files = files
        for name in ("objects", "tmp", "failed", "probe"):
            os.makedirs(os.path.join(folder, name), exist_ok=True)

    def find(self, key: Key) -> Entry | None:
        """What is known of a compilation, if it still holds."""
        for name in (key.shared, key.bound):
            try:
                with open(self._object(name), "rb") as file:
                    entry = unpack(file.read())
            except OSError:
                continue
            if entry and entry.holds(self.files):
                return entry
        return None

    def store(self, key: Key, entry: Entry, *, bound: bool) -> None:
        """Keep ``entry``; ``bound``: for this folder of the project alone."""
        self._write(self._object(key.bound if bound else key.shared), entry.packed())

    def record(self, unit: str, output: str) -> None:
        """Write down that ``output`` is made of ``unit``, both as :meth:`Files.name` has them."""
        append(os.path.join(self.folder, "made"), f"{unit}\t{output}")

    def failed(self, unit: str, which: str, code: int, errors: bytes) -> None:
        """Write down that the compiler ``which`` could not compile ``unit``."""
        text = f"{unit}\n{which}\n{code}\n".encode("utf-8", "surrogateescape") + errors[:4096]
        self._write(self._failed(unit, which), text)

    def mended(self, unit: str, which: str) -> None:
        """Forget :meth:`failed`."""
        remove(self._failed(unit, which))

    def temporary(self, suffix: str) -> str:
        """A file name of our own."""
        return os.path.join(self.folder, "tmp", f"{os.getpid()}-{os.urandom(4).hex()}{suffix}")

    def probed(self, compiler: list[str]) -> str:
        """The file that says whether ``compiler`` can name the files that it reads."""
        text = "\0".join(identity(word) for word in compiler).encode("utf-8", "surrogateescape")
        return os.path.join(self.folder, "probe", blake2b(text, digest_size=16).hexdigest())

    def _object(self, name: str) -> str:
        return os.path.join(self.folder, "objects", name)

    def _failed(self, unit: str, which: str) -> str:
        text = f"{which} {unit}".encode("utf-8", "surrogateescape")
        return os.path.join(self.folder, "failed", blake2b(text, digest_size=16).hexdigest())

    def _write(self, path: str, data: bytes) -> None:
        temporary = self.temporary("")
        try:
            write(temporary, data)
            os.replace(temporary, path)
        except OSError:  # no room: then not
            remove(temporary)


def identity(word: str) -> str:
    """Stands for a word of a compiler's command: where it is a program, changes when that does."""
    try:
        path = os.path.realpath(word if "/" in word else which(word))
        found = os.stat(path)
    except OSError:
        return word
    return f"{word} {path} {found.st_size} {found.st_mtime_ns}"


def which(program: str) -> str:
    """Where PATH has ``program``; FileNotFoundError if nowhere."""
    for folder in os.environ.get("PATH", os.defpath).split(":"):
        path = os.path.join(folder or ".", program)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    raise FileNotFoundError(program)


def fingerprint(files: Files, name: str) -> str:
    """What is in a file: its content where it is the project's, else size and time; empty if it cannot be read."""
    try:
        if name.startswith("/"):
            found = os.stat(name)
            return f"{found.st_size} {found.st_mtime_ns}"
        with open(files.path(name), "rb") as file:
            return blake2b(file.read(), digest_size=16).hexdigest()
    except OSError:
        return ""


def dependencies(text: str) -> list[str]:
    """The files that the first rule of a dependency file names; spaces as make writes them."""
    rule = text.replace("\\\n", " ").partition("\n")[0]
    names = rule.partition(": ")[2].replace("\\ ", "\0").replace("\\#", "#").replace("$$", "$").split()
    return [name.replace("\0", " ") for name in names]


def append(path: str, line: str) -> None:
    """Add a line to a file; whole, however many do so at once."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        os.write(handle, (line + "\n").encode("utf-8", "surrogateescape"))
    finally:
        os.close(handle)


def write(path: str, data: bytes) -> None:
    """Make a file."""
    with open(path, "wb") as file:
        file.write(data)


def remove(path: str) -> None:
    """Remove a file if it is there."""
    try:  # noqa: SIM105 - contextlib is slow to import
        os.unlink(path)
    except OSError:
        pass
