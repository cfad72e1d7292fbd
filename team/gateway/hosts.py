"""Which hosts sessions may reach: the rules of ``[network]``, and addresses that no rule opens."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from team.config import Network
from team.errors import TeamError

DEFAULT_PORTS = frozenset({443, 80})
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# What `ipaddress` takes for public, or took in older versions, and is not: protocol assignments (Teredo among them),
# 6to4 relays and addresses, which carry any IPv4 address, documentation, and a cloud's services to its own machines.
_REFUSED = tuple(
    map(
        ipaddress.ip_network,
        "192.0.0.0/24 192.88.99.0/24 168.63.129.16/32 2001::/23 2002::/16 3fff::/20".split(),
    )
)
_UNICAST6 = ipaddress.IPv6Network("2000::/3")
"""The only IPv6 addresses given out so far; mapped, NAT64, unique local and the like are outside."""


@dataclass(frozen=True)
class Rule:
    """One entry of ``[network] allow``."""

    name: str
    """A host; after ``*.`` everything below it."""
    port: int | None = None
    """None: ports 443 and 80."""

    @classmethod
    def parse(cls, text: str) -> Rule:
        """The rule of an entry that the settings have found well formed."""
        name, _, port = text.partition(":")
        return cls(name, int(port) if port else None)

    def allows(self, host: str, port: int) -> bool:
        """Whether ``host`` (lower case, no final dot) may be reached at ``port`` by this rule."""
        return self._covers_name(host) and (port in DEFAULT_PORTS if self.port is None else port == self.port)

    def covers(self, other: Rule) -> bool:
        """Whether ``other`` allows nothing that this rule does not."""
        ports = other.port == self.port or (self.port is None and other.port in DEFAULT_PORTS)
        return ports and (self.name == other.name or self._covers_name(other.name.removeprefix("*")))

    def _covers_name(self, host: str) -> bool:
        if self.name.startswith("*."):
            return host.endswith(self.name[1:])
        return host == self.name


@dataclass(frozen=True)
class Rules:
    """All of ``[network]``."""

    rules: tuple[Rule, ...]
    open: bool = False

    @classmethod
    def of(cls, network: Network) -> Rules:
        return cls(tuple(map(Rule.parse, network.allow)), network.open)

    def __bool__(self) -> bool:
        """Whether anything at all may be reached."""
        return self.open or bool(self.rules)

    def allows(self, host: str, port: int) -> bool:
        """Whether ``host`` may be reached at ``port``."""
        return any(rule.allows(host, port) for rule in self.rules) or (self.open and port in DEFAULT_PORTS)


def within(asked: Network, bound: Network) -> Network:
    """``asked``, when the person's own ``bound`` has room for it. Raises :class:`TeamError` where it has not."""
    where, mend = "[network] of your own config.toml", "add it there, or leave it out here"
    if bound.open:
        return asked
    if asked.open:
        raise TeamError(
            f"team.toml: network.open: {where} does not say open = true; add it there, or leave it out here"
        )
    most = Rules.of(bound).rules
    for text in asked.allow:
        if not any(rule.covers(Rule.parse(text)) for rule in most):
            raise TeamError(f"team.toml: network.allow: {where} does not allow {text}; {mend}")
    return asked


def is_public(address: str) -> bool:
    """Whether ``address`` (as resolved) belongs to the internet at large, and not to this host or a network it is in.

    False for private, loopback, link-local, multicast, shared (carrier NAT) and reserved addresses, for the metadata
    services of clouds, for IPv6 addresses that carry an IPv4 address, and for every address of this host.
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if not found.is_global or found.is_multicast or found.is_reserved or any(found in net for net in _REFUSED):
        return False
    return (found.version == 4 or found in _UNICAST6) and not _is_ours(found)


def _is_ours(address: _Address) -> bool:
    """Whether this host has ``address``: a service that listens there may trust its own machine."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
