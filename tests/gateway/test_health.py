"""Whether a provider answers is said once per change."""

from __future__ import annotations

import pytest

from team.gateway.health import Health
from team.ledger import Event, Kind

REFUSED = (0, "Cannot connect to host")


def told(*calls: tuple[int, str], provider: str = "anthropic") -> list[str]:
    health, news = Health(), []
    for n, (status, error) in enumerate(calls):
        data = {"provider": provider, "status": status, "error": error}
        new = health.feed(Event(n, 10.0 * n, Kind.MODEL_CALL, "agent-01", "agent-01.1", None, data))
        if new is not None:
            news.append(f"{n} {new.kind} {new.data.get('reason') or new.data.get('seconds')}")
    return news


@pytest.mark.parametrize(
    ("calls", "news"),
    [
        ([(200, ""), (400, "bad"), (429, "slow"), (200, "")], []),
        (
            [REFUSED, REFUSED, (200, ""), REFUSED],
            ["0 model.lost Cannot connect to host", "2 model.found 20.0", "3 model.lost Cannot connect to host"],
        ),
        ([(500, "e"), (200, ""), (500, "e"), (502, "e")], []),
        ([(500, "e"), (502, "e"), (529, "overloaded"), (503, "e"), (500, "e")], ["3 model.lost 503 e"]),
        ([(0, "cancelled"), (0, "the client went away"), (200, "cut"), (200, "cut"), (200, "cut")], []),
        ([REFUSED, (404, "no such model")], ["0 model.lost Cannot connect to host", "1 model.found 10.0"]),
    ],
)
def test_news(calls: list[tuple[int, str]], news: list[str]) -> None:
    assert told(*calls) == news
