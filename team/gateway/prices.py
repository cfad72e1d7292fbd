"""What tokens cost: a table in data, with a date; amounts are whole picodollars, so that sums are exact."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import resources

from team import config
from team.text import one_line

PICO = 10**12
_PER_TOKEN = 10**6
"""Picodollars a token, where a million tokens cost a dollar."""
# claude-x-20250929, gpt-x-2026-03-05, claude-x-latest, and Claude Code's own mark for a long context, claude-x[1m]
VARIANT = re.compile(r"(-\d{8}|-\d{4}-\d\d-\d\d|-latest|\[1m\])\Z")


@dataclass(frozen=True)
class Usage:
    """Tokens of one answer, or of many; no token is in two fields but ``reasoning``, which is part of ``output``."""

    input: int = 0
    output: int = 0
    cache_write: int = 0
    """Kept 5 minutes."""
    cache_write_1h: int = 0
    cache_read: int = 0
    reasoning: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{name: value + getattr(other, name) for name, value in vars(self).items()})

    @property
    def prompt(self) -> int:
        """Everything that went in."""
        return self.input + self.cache_write + self.cache_write_1h + self.cache_read

    @property
    def tokens(self) -> int:
        """Everything, as budgets in tokens count it."""
        return self.prompt + self.output


@dataclass(frozen=True)
class Price:
    """The price of one model."""

    listed: config.Price

    @cached_property
    def _rates(self) -> tuple[int, int, int, int]:
        """Picodollars a token: input, 5-minute write, 1-hour write, read."""
        p = self.listed
        write = p.input if p.cache_write is None else p.cache_write
        hour = write if p.cache_write_1h is None else p.cache_write_1h
        read = p.input if p.cache_read is None else p.cache_read
        return tuple(round(x * _PER_TOKEN) for x in (p.input, write, hour, read))  # type: ignore[return-value]

    def cost(self, usage: Usage) -> int:
        """Picodollars of ``usage``, that of a single request."""
        into, write, hour, read = self._rates
        went_in = usage.input * into + usage.cache_write * write
        went_in += usage.cache_write_1h * hour + usage.cache_read * read
        more_in, more_out = self._more(usage.prompt)
        return round(went_in * more_in) + usage.output * round(self.listed.output * _PER_TOKEN * more_out)

    def dearest_input(self, tokens: int, *, hour: bool) -> int:
        """Picodollars of ``tokens`` of input where none was in the cache; ``hour``: they may be kept an hour."""
        rates = self._rates if hour else (self._rates[0], self._rates[1], self._rates[3])
        return round(tokens * max(rates) * self._more(tokens)[0])

    def output_rate(self, prompt: int) -> int:
        """Picodollars a token of output, after a prompt of so many tokens."""
        return round(self.listed.output * _PER_TOKEN * self._more(prompt)[1])

    def _more(self, prompt: int) -> tuple[float, float]:
        p = self.listed
        return (p.long_input, p.long_output) if p.long_above is not None and prompt > p.long_above else (1.0, 1.0)


class Prices:
    """The table that comes with ``team``, and what the person's own configuration says instead."""

    def __init__(self, own: Mapping[str, config.Price] | None = None) -> None:
        table = tomllib.loads(resources.files(__package__).joinpath("prices.toml").read_text("utf-8"))
        self.date: str = table["date"]
        self._known = {name: Price(config.Price.model_validate(p)) for name, p in table["models"].items()}
        self._known |= {name: Price(p) for name, p in (own or {}).items()}

    def of(self, model: str) -> Price | None:
        """The price of ``model``, by its name or its name without a date; None where nobody told it."""
        while model not in self._known:
            shorter = VARIANT.sub("", model)
            if shorter == model:
                return None
            model = shorter
        return self._known[model]


def how_to_price(model: str) -> str:
    """What the person does about a model without a price, while the budget is in dollars."""
    name = one_line(model, 80)
    return (
        f"model '{name}' has no price, and the budget is in dollars; write [gateway.prices.\"{name}\"] with input and "
        "output (dollars per million tokens) in ~/.config/team/config.toml"
    )


def usd(pico: int) -> float:
    """``pico`` in dollars."""
    return pico / PICO


def from_usd(dollars: float) -> int:
    """``dollars`` in picodollars."""
    return round(dollars * PICO)
