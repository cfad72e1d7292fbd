"""The one door from a session to a model: allow, price, pace, reserve, forward, meter, settle, record."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

from team import places
from team.clients import Outcome
from team.config import Budget, Settings, UserSettings
from team.errors import TeamError
from team.gateway import ask as asking
from team.gateway import counting
from team.gateway.allow import Allowed, Route
from team.gateway.answers import Refusal, answer, api_of
from team.gateway.ask import Ask
from team.gateway.books import Booking, Books, Entry, Result
from team.gateway.breaker import Breaker, Broken
from team.gateway.budget import Amount, Busy, Spent, Who
from team.gateway.exchange import NOT_RETURNED, Answer, Client, Exchange, Sent
from team.gateway.pace import Pace, TooLong
from team.gateway.prices import Prices, how_to_price
from team.gateway.providers import OAUTH_BETA, Provider, is_loopback, providers
from team.gateway.reset import clock_words, seconds
from team.ledger import Kind, Ledger
from team.plan import Key
from team.text import mask, one_line

ANSWER_SECONDS = 600.0
"""How long a provider may say nothing: before its answer, and in the middle of it."""
DRAIN_SECONDS = 30.0
"""How long the gateway's end waits for answers under way, so that their count is known."""
READ_BYTES = 1 << 14
"""About so much of an answer is kept for a client that reads more slowly than the provider sends. With aiohttp's own
default a stream costs more than 1 MB."""
SURE_SECONDS = 1.0
"""Between two requests with a key that is refused."""
TRUSTED_SECONDS = 300.0
"""A key that worked so recently is not at fault when a single request is forbidden."""
REFUSALS_KEPT = 200
"""Refused requests of one session in the ledger; a session can make as many as it likes."""
_LIMITED = frozenset({429, 529})
_NO_KEY = frozenset({401, 403})


def _nothing(text: str) -> None:
    """Where nobody listens."""


@dataclass(eq=False)
class Caller:
    """Who asks. Made by the session, one for its whole life."""

    agent: str
    role: str
    session: str
    task: Callable[[], str | None] = lambda: None
    """What it holds now."""
    end: Callable[[Outcome, str], None] = lambda outcome, reason: None
    """Ends the session: OUT_OF_BUDGET, RATE_LIMITED, FAILED by the circuit breaker, or KILLED for want of a key."""
    stop_team: Callable[[str], None] = _nothing
    """The key is refused for good."""
    say: Callable[[str], None] = _nothing
    """A line for the session's log."""
    said: set[str] = field(default_factory=set)
    """What was said once and need not be said again."""
    breaker: Breaker | None = None
    refused: int = 0

    @property
    def who(self) -> Who:
        return Who(self.agent, self.role, self.session)

    def say_once(self, text: str) -> None:
        if text not in self.said and len(self.said) < 1000:
            self.said.add(text)
            self.say(text)


@dataclass
class _Purse:
    """One key, in this process."""

    pace: Pace
    worked: float | None = None
    """When a request with it was last answered (monotonic)."""


class Gateway:
    """One for the whole team, for as long as the supervisor runs: an async context manager.

    ``budget`` is what team.toml and the command line say; the person's own configuration bounds it.
    ``base_url`` and ``key`` stand for those of the person's configuration, in rehearsals and tests; ``which`` tells
    the providers that may be asked at all.
    """

    def __init__(
        self,
        ledger: Ledger,
        settings: Settings | None = None,
        user: UserSettings | None = None,
        *,
        budget: Budget | None = None,
        base_url: str | None = None,
        key: Key | None = None,
        which: Callable[[Provider], bool] = lambda provider: True,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._user = settings or Settings(), user or UserSettings()
        self._clock = clock
        self._allowed = Allowed(self._user.gateway)
        self._prices = Prices(self._user.gateway.prices)
        self._providers = [p for p in providers(self._user, environ, base_url=base_url, key=key) if which(p)]
        limits = (self._settings.budget if budget is None else budget).lower(self._user.budget)
        self.books = Books(ledger, limits, self._prices, clock)
        self._purses: dict[str, _Purse] = {}
        self._https: dict[bool, aiohttp.ClientSession] = {}
        self._running: set[asyncio.Task[web.StreamResponse]] = set()
        self._stopped = ""

    async def __aenter__(self) -> Gateway:
        await asyncio.to_thread(self.books.restore)
        for local in (True, False):
            self._https[local] = aiohttp.ClientSession(
                auto_decompress=False,
                # A corporate proxy: HTTPS_PROXY and NO_PROXY of the host. It has no way to a model on this machine.
                trust_env=not local,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=ANSWER_SECONDS),
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=READ_BYTES,
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.drain(DRAIN_SECONDS)
        for http in self._https.values():
            await http.close()
        await self.books.end()

    # -- from outside -----------------------------------------------------------------------------------------

    @property
    def budget(self) -> Budget:
        """The limits that hold."""
        return self.books.accounts.limits

    def set_budget(self, budget: Budget) -> None:
        """From now on, within the bound of the person's own configuration; whoever waits for room is asked again."""
        self.books.accounts.limits = budget.lower(self._user.budget)

    def exhausted(self, agent: str, role: str) -> str:
        """Which limit leaves a new session of ``agent`` nothing to spend, in words; empty where there is room."""
        return self.books.accounts.exhausted(Who(agent, role, ""))

    async def wait_for_room(self, agent: str, role: str, seconds: float) -> None:
        """Return when a new session of ``agent`` may have something to spend, or after ``seconds``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.exhausted(agent, role):
                    await self.books.accounts.wait_for_change()

    def paused_until(self) -> float:
        """Until when every key is paused (seconds since the epoch); 0 where one can be used."""
        pauses = [p.pace.pause().until for p in self._purses.values()]
        until = min(pauses, default=0.0)
        return until if until > self._clock() else 0.0

    def secrets(self) -> list[str]:
        """Every key in use, to be masked wherever text is written."""
        return [s for p in self._providers for s in p.keys.secrets()]

    async def drain(self, seconds: float) -> None:
        """Wait for answers under way; what is not over after ``seconds`` is booked as reserved."""
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)
        for task in list(self._running):
            task.cancel()
        if self._running:
            await asyncio.gather(*self._running, return_exceptions=True)

    async def handle(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Answer ``request`` of a model API for ``caller``. The answer is read to its end whatever becomes of the
        client, or of the task that called this."""
        if request.method == "HEAD":
            return web.Response()
        task = asyncio.create_task(self._answer(request, caller))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    # -- one request ------------------------------------------------------------------------------------------

    async def _answer(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        api = api_of(request.path)
        try:
            if self._stopped:
                raise self._no_more(caller)
            route = asking.route_of(request, self._providers)
            api = route.api
            ask = await self._read(request, route, caller)
            self._break_circles(ask, caller)
            return await self._ask_until_answered(request, ask, caller)
        except Refusal as refusal:
            await self._note_refusal(request.path, refusal, caller)
            return answer(api, refusal)

    async def _read(self, request: web.Request, route: Route, caller: Caller) -> Ask:
        raw = b"" if route.method == "GET" else await asking.read(request)
        wanted = self._settings.models.get(caller.role)
        ask = asking.make(route, raw, self._allowed, self._providers, self._prices, wanted)
        if ask.shape is not None and ask.price is None and self.budget.in_dollars:
            raise Refusal(403, "team_unpriced", how_to_price(ask.model))
        return ask

    def _break_circles(self, ask: Ask, caller: Caller) -> None:
        if ask.shape is None:
            return
        if caller.breaker is None:
            caller.breaker = Breaker(self._settings.breaker)
        try:
            if warning := caller.breaker.look(ask.body):
                caller.say(f"going round in circles? {warning}")
        except Broken as broken:
            caller.end(Outcome.FAILED, str(broken))
            raise Refusal(403, "team_breaker", f"this session is ended: {broken}") from None

    async def _ask_until_answered(self, request: web.Request, ask: Ask, caller: Caller) -> web.StreamResponse:
        """Through pauses and the refresh of a key, until the provider has answered or the patience is over."""
        client = Client(request)
        until = time.monotonic() + self._user.gateway.patience
        tries = 0

        def left() -> float:
            return max(0.0, until - time.monotonic())

        while True:
            if client.gone:
                raise Refusal(499, "team_gone", "the client went away")
            key = await self._key(ask.provider)
            if key is None and not is_loopback(ask.provider.base_url):
                raise Refusal(403, "permission_error", f"there is no key for {ask.provider.name} on the host")
            purse = self._purse(ask.provider, key)
            try:
                async with purse.pace.turn(left(), self._user.gateway.longest_pause):
                    got = await self._once(request, ask, caller, client, key, left())
            except TooLong as late:
                raise self._too_long(late, caller) from None
            tries += 1
            if got.status in _LIMITED:
                await self._hold(ask.provider, purse, got, caller)
            elif got.status in _NO_KEY:
                if not await self._key_may_work(ask.provider, key, purse, got, caller, tries):
                    return _copy(got)
            else:
                return self._passed(purse, client, got)

    def _passed(self, purse: _Purse, client: Client, got: Answer) -> web.StreamResponse:
        if got.refusal is not None:
            raise got.refusal
        if got.error in ("overloaded_error", "rate_limit_error"):  # in mid-stream
            purse.pace.hold(None, got.error)
        elif 200 <= got.status < 300:
            purse.worked = time.monotonic()
            purse.pace.worked()
        return client.response if client.response is not None else web.Response(status=499)

    async def _once(
        self, request: web.Request, ask: Ask, caller: Caller, client: Client, key: Key | None, patience: float
    ) -> Answer:
        """Reserve, forward, settle."""
        headers = self._headers(request, ask, key, caller)
        booking = await self._reserve(ask, caller, key, headers, patience)
        got = Answer(unknown=True, error="cancelled")
        try:
            if client.gone:
                got = Answer(error="the client went away")
                raise Refusal(499, "team_gone", "the client went away")

            def on_answer(status: int) -> None:
                booking.answered()
                if status not in _LIMITED | _NO_KEY:
                    ask.forget()  # it will not be asked again, and the answer may take long

            exchange = Exchange(self._http(ask.provider), self._sent(request, ask, headers), ask.shape)
            got = await exchange.run(client, _LIMITED | _NO_KEY, on_answer)
        finally:
            result = Result(got.status, got.usage, got.unknown and ask.shape is not None, got.error)
            await self.books.close(booking, result)
        if client.response is not None:
            await client.finish()
        return got

    # -- the budget -------------------------------------------------------------------------------------------

    async def _reserve(
        self, ask: Ask, caller: Caller, key: Key | None, headers: Mapping[str, str], patience: float
    ) -> Booking:
        task, billed = caller.task(), ask.provider.pays(key)
        path, model, size = ask.route.path, one_line(ask.model, 80), len(ask.raw)
        entry = Entry(caller.who, task, ask.provider.name, path, model, size, ask.price, billed, ask.size.text)
        if ask.shape is None:
            return Booking(entry, None)
        guesses = self.books.guesses
        counted: int | None = None
        asked = False

        async def tighten(room: Amount) -> Amount | None:
            """Look closer: let the provider count, and bound the answer by what is left."""
            nonlocal counted, asked
            if not asked:
                asked, counted = True, await counting.count(self._http(ask.provider), ask, headers)
            output = guesses.closer(model, ask.size, ask.price, counted, room)
            if output is None:
                return None
            ask.shorten(output)
            return guesses.bounded(model, ask.size, ask.price, counted, output)

        worst, ample = guesses.worst(model, ask.size, ask.price), guesses.long_enough(model, ask.size)
        smaller = None if ample is None else guesses.shorter(model, ask.size, ask.price, ample)
        typical, most = guesses.typical(model), ask.size.max_output
        try:
            booking = await self.books.open(entry, worst, typical, tighten, patience, most, smaller)
        except Spent as spent:
            caller.end(Outcome.OUT_OF_BUDGET, f"team_budget: {spent}")
            raise Refusal(
                403, "team_budget", f"team_budget: {spent}; the person who runs the team can raise it"
            ) from None
        except Busy as busy:
            raise Refusal(429, "rate_limit_error", f"{busy}", headers={"retry-after": "5"}) from None
        if ample is not None and booking.reservation is not None and booking.reservation.worst is smaller:
            ask.shorten(ample)
        return booking

    # -- limits of the provider -------------------------------------------------------------------------------

    async def _hold(self, provider: Provider, purse: _Purse, got: Answer, caller: Caller) -> None:
        if "insufficient_quota" in got.error:  # OpenAI's 429 for an account without money
            self._stop(caller, f"{provider.name} says: {got.error}")
            raise self._no_more(caller)
        text = got.body.decode("utf-8", "replace")
        wait = seconds(got.headers, text, self._clock())
        before = purse.pace.pause().until
        reason = f"{provider.name} answered {got.status}: {got.error}"
        pause = await asyncio.to_thread(purse.pace.hold, wait, one_line(reason))
        if pause.until > before:
            left = pause.until - self._clock()
            caller.say(f"all wait {left:.0f} s, until {clock_words(pause.until)}: {one_line(reason)}")
            await self.books.note(
                Kind.MODEL_PAUSED,
                caller.who,
                provider=provider.name,
                seconds=round(left, 1),
                until=pause.until,
                reason=pause.reason,
            )

    def _too_long(self, late: TooLong, caller: Caller) -> Refusal:
        pause = late.pause
        left = max(0.0, pause.until - self._clock())
        said = f"the provider's limit holds until {clock_words(pause.until)} ({pause.reason})"
        if left > self._user.gateway.longest_pause:
            caller.end(Outcome.RATE_LIMITED, said)
        return Refusal(429, "rate_limit_error", said, headers={"retry-after": str(max(1, round(min(left, 60.0))))})

    # -- the key ----------------------------------------------------------------------------------------------

    async def _key(self, provider: Provider) -> Key | None:
        try:
            return await provider.keys.get()
        except TeamError as error:
            raise Refusal(503, "api_error", one_line(str(error))) from None

    async def _key_may_work(
        self, provider: Provider, key: Key | None, purse: _Purse, got: Answer, caller: Caller, tries: int
    ) -> bool:
        """Whether asking again makes sense after a 401 or 403. Where it does not, and the key is at fault, the team
        stops: every other request would be refused, too."""
        with suppress(TeamError):
            if got.status == 401 and await provider.keys.refresh(key):
                return tries < 3
        if tries < 2:
            await asyncio.sleep(SURE_SECONDS)
            return True
        fine = purse.worked is not None and time.monotonic() - purse.worked < TRUSTED_SECONDS
        if not (got.status == 403 and fine):
            self._stop(caller, f"{provider.name} refuses the key ({got.status}): {got.error}")
        return False

    def _stop(self, caller: Caller, reason: str) -> None:
        if not self._stopped:
            self._stopped = one_line(mask(reason, self.secrets()))
            caller.stop_team(self._stopped)
        caller.end(Outcome.KILLED, self._stopped)  # no fault of its own, and nothing to think with

    def _no_more(self, caller: Caller) -> Refusal:
        """What is answered once the team stops for want of a key that works."""
        caller.end(Outcome.KILLED, self._stopped)
        return Refusal(403, "team_stopped", self._stopped)

    # -- what is sent -----------------------------------------------------------------------------------------

    def _headers(self, request: web.Request, ask: Ask, key: Key | None, caller: Caller) -> dict[str, str]:
        headers = self._allowed.headers(request.headers)
        headers["Accept-Encoding"] = "identity"
        betas, dropped = self._allowed.betas(request.headers.getall("anthropic-beta", []))
        for name in dropped:
            caller.say_once(f"dropped the beta header '{one_line(name, 60)}' ([gateway] allow_betas lets it through)")
        if ask.provider.api == "anthropic":
            if key is not None and key.bearer and OAUTH_BETA not in betas and not is_loopback(ask.provider.base_url):
                betas.append(OAUTH_BETA)
            if betas:
                headers["anthropic-beta"] = ",".join(betas)
        return headers | ask.provider.authorization(key)

    def _sent(self, request: web.Request, ask: Ask, headers: Mapping[str, str]) -> Sent:
        query = {"beta": "true"} if request.query.get("beta") == "true" else {}
        url = ask.provider.base_url + ask.route.path
        return Sent(ask.route.method, url, headers, query, ask.raw, self.secrets())

    def _http(self, provider: Provider) -> aiohttp.ClientSession:
        return self._https[is_loopback(provider.base_url)]

    def _purse(self, provider: Provider, key: Key | None) -> _Purse:
        name = provider.purse(key)
        if name not in self._purses:
            file = places.state_home() / "pace" / f"{name}.json"
            self._purses[name] = _Purse(Pace(file, self._clock))
        return self._purses[name]

    async def _note_refusal(self, path: str, refusal: Refusal, caller: Caller) -> None:
        caller.refused += 1
        reason = one_line(mask(refusal.message, self.secrets()))
        caller.say_once(f"model call refused ({refusal.status}): {reason}")
        if caller.refused <= REFUSALS_KEPT:
            told = {"role": caller.role, "path": one_line(path, 80), "status": refusal.status}
            await self.books.note(Kind.MODEL_REFUSED, caller.who, **told, rule=refusal.kind, reason=reason)


def _copy(got: Answer) -> web.Response:
    """An error that was read first, passed on as it is."""
    kept = {k: v for k, v in got.headers.items() if k.lower() not in NOT_RETURNED}
    return web.Response(status=got.status, body=got.body, headers=kept)
