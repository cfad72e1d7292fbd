"""The pack of a push: read within bounds, and measured before git unpacks it."""

from __future__ import annotations

import mmap
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from team.upstream.refusal import Refused
from team.upstream.wire import Garbage

_CHUNK = 1 << 16
_BLOB, _OFS_DELTA, _REF_DELTA = 3, 6, 7


@dataclass(frozen=True)
class Pack:
    """A spooled pack. ``inflated`` counts the bytes of all its objects once unpacked."""

    path: Path
    size: int
    objects: int
    inflated: int


def drain(stream: BinaryIO, most: int) -> int:
    """Read and drop up to ``most`` bytes, so that the client hears our answer instead of a broken pipe."""
    count = 0
    while count < most and (chunk := stream.read(_CHUNK)):
        count += len(chunk)
    return count


def spool(stream: BinaryIO, path: Path, most: int) -> int:
    """Copy the rest of ``stream`` to ``path``; returns its size in bytes. Raises :class:`Refused` past ``most``."""
    size = 0
    with path.open("xb") as file:
        while chunk := stream.read(_CHUNK):
            size += len(chunk)
            if size > most:
                drain(stream, 8 * most)
                raise Refused(
                    "size",
                    f"this push is larger than {most} bytes ([landing] max_push); push less, without large files",
                )
            file.write(chunk)
    return size


def measure(path: Path, size: int, *, inflated: int, objects: int) -> Pack:
    """Walk through the pack without keeping anything of it.

    Raises :class:`Refused` where it would unpack to more than ``inflated`` bytes or ``objects`` objects, and
    :class:`Garbage` where it is no pack.
    """
    if size < 32:
        raise Garbage("not a git push: there is no pack")
    with path.open("rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    if bytes(data[:4]) != b"PACK" or int.from_bytes(data[4:8], "big") not in (2, 3):
        raise Garbage("not a git push: there is no pack")
    count = int.from_bytes(data[8:12], "big")
    if count > objects:
        raise Refused("objects", f"this push has {count} objects, at most {objects} are taken; push less at a time")
    position, total, end = 12, 0, size - 20
    for _ in range(count):
        position, length = _entry(data, position, end, inflated - total)
        total += length
        if total > inflated:
            raise Refused(
                "inflated", f"this push unpacks to more than {inflated} bytes ([landing] max_inflated); push less"
            )
    if position != end:
        raise Garbage("the pack is damaged: bytes after its last object")
    return Pack(path, size, count, total)


def _entry(data: memoryview, position: int, end: int, most: int) -> tuple[int, int]:
    """Position after the entry that begins at ``position``, and the bytes that it unpacks to."""
    try:
        byte = data[position]
        kind, length, shift = (byte >> 4) & 7, byte & 15, 4
        while byte & 0x80:
            position += 1
            byte = data[position]
            length |= (byte & 0x7F) << shift
            shift += 7
        position += 1
        if kind == _OFS_DELTA:
            while data[position] & 0x80:
                position += 1
            position += 1
        elif kind == _REF_DELTA:
            position += 20
    except IndexError:
        raise Garbage("the pack is damaged: it ends too early") from None
    if kind in (0, 5) or shift > 60:
        raise Garbage("the pack is damaged: unknown kind of object")
    if length > most:
        return end, length
    position, head = _inflate(data, position, end, length)
    return position, length + (_result_size(head) if kind >= _OFS_DELTA else 0)


def _inflate(data: memoryview, position: int, end: int, length: int) -> tuple[int, bytes]:
    """Position after one zlib stream of ``length`` bytes inflated, and its first bytes."""
    stream, count, head = zlib.decompressobj(), 0, b""
    step = min(_CHUNK, length + (length >> 8) + 32)
    try:
        while not stream.eof:
            piece = data[position : min(position + step, end)]
            if not piece:
                raise Garbage("the pack is damaged: it ends too early")
            out = stream.decompress(piece, length - count + 1)
            position += len(piece) - len(stream.unconsumed_tail) - len(stream.unused_data)
            count += len(out)
            if len(head) < 20:
                head += out[:20]
            if count > length:
                raise Garbage("the pack is damaged: an object is longer than it says")
    except zlib.error:
        raise Garbage("the pack is damaged: an object does not unpack") from None
    if count != length:
        raise Garbage("the pack is damaged: an object is shorter than it says")
    return position, head


def _result_size(delta: bytes) -> int:
    """The size of the object that a delta makes: the second number at its head."""
    numbers, value, shift = [], 0, 0
    for byte in delta:
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            numbers.append(value)
            value = shift = 0
            if len(numbers) == 2:
                return numbers[1]
    raise Garbage("the pack is damaged: a delta has no sizes")
