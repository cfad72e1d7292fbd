"""Settings, typed. Every default works with no file at all.

``team.toml`` is read from the user's work tree only, never from upstream. What could reach the host or money
(keys, endpoints) is read from the person's own configuration, ``~/.config/team/config.toml``.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, field_validator

from team.oracle.settings import OracleSettings, parse_oracle
from team.sampler.settings import TestSettings, parse_test
from team.schedule import Every, parse_every
from team.units import parse_size, parse_span


def _inside_container(path: str) -> str:
    if not path.startswith("/") or ".." in path.split("/") or path in ("/", "/workspace", "/upstream"):
        raise ValueError("a cache is an absolute path in the container, like '/home/agent/.cargo'")
    return path


def _in_tree(path: str) -> str:
    if not path or path.startswith("/") or {"..", ".git"} & set(path.split("/")):
        raise ValueError("expected the path of a file inside the project, like 'NOTES.md'")
    return path


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a name; without a line here the client chooses")
    return text


_LABEL = r"(?!-)[a-z0-9_-]{1,63}(?<!-)"
_HOST_RULE = re.compile(rf"(?:\*\.{_LABEL}\.)?(?:{_LABEL}\.)*{_LABEL}(?::([0-9]{{1,5}}))?\Z")


def _host_rule(text: str) -> str:
    rule = text.lower()
    match = _HOST_RULE.match(rule)
    if not match or len(rule) > 260 or (match[1] and not 0 < int(match[1]) < 65536):
        raise ValueError(
            "a host is a name without scheme or path, like 'example.org', '*.example.org' or 'example.org:8443'"
        )
    return rule


Size = Annotated[int, BeforeValidator(parse_size), Field(ge=0)]
Span = Annotated[float, BeforeValidator(parse_span), Field(ge=0)]
Model = Annotated[str, AfterValidator(_name)]


class _Table(BaseModel):
    """Strict: ``true`` is no number, ``"4"`` no count, and ``"no"`` not false."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False, strict=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _lists_are_tuples(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value


class Session(_Table):
    """``[session]``: what one session may do, and for how long."""

    setup: str = ""
    """Shell command run in the container after the clone and before the client."""
    cache: tuple[Annotated[str, AfterValidator(_inside_container)], ...] = ()
    """Paths in the container kept from session to session of one agent, never shared between agents."""
    memory: Size = Field(default=4 << 30, ge=64 << 20)
    pids: int = Field(default=1024, ge=64)
    cpus: float | None = Field(default=None, gt=0)
    disk: Size = Field(default=10 << 30, ge=64 << 20)
    max_time: Span = 4 * 3600.0
    """The longest a session may run."""
    setup_time: Span = 15 * 60.0
    """From the container's start to the client's exec: clone and setup."""
    first_event: Span = 120.0
    """From the client's exec to its first line."""
    silence: Span = 30 * 60.0
    """Between two lines; waiting for the model or for a landing is not silence."""
    after_result: Span = 30.0
    """From the client's result to its exit."""
    land_time: Span = 120.0
    """How long sessions may still land after ctrl-C or ``team down``."""


class Image(_Table):
    """``[image]``: what the sessions' containers are made from."""

    dockerfile: str = ""
    """Dockerfile in the work tree that extends ours: it begins with ``ARG BASE`` and ``FROM ${BASE}``."""
    base: str = ""
    """Base image with Debian or Ubuntu in it, instead of the default."""
    ca: str = ""
    """File with the CA certificates of a corporate proxy, for builds and sessions."""


Test = Annotated[InstanceOf[TestSettings], BeforeValidator(parse_test)]
"""``[test]``: how the project is tested. Typed in the sampler's room, since containers read it without pydantic."""

Oracle = Annotated[InstanceOf[OracleSettings], BeforeValidator(parse_oracle)]
"""``[oracle]``: what is mixed, built and checked. Typed in the oracle's room, for the same reason."""


class Landing(_Table):
    """``[landing]``: bounds for what an agent may push."""

    max_push: Size = 100 << 20
    """Bytes of one push as sent."""
    max_inflated: Size = 1 << 30
    """Bytes of all new objects of one push, unpacked."""
    max_file: Size = 20 << 20
    max_binary: Size = 5 << 20
    """Bytes of one file that is no text; a person may push larger ones."""
    max_entries: int = Field(default=200_000, ge=1)
    """Files in a tree."""
    max_depth: int = Field(default=40, ge=1)
    """Directories below each other."""
    max_commits: int = Field(default=2_000, ge=1)
    """New commits in one push."""
    max_path: int = Field(default=1024, ge=16)
    """Bytes of one path."""
    session_quota: Size = 2 << 30
    """Bytes that one session may push in all."""
    claims: int = Field(default=1, ge=1)
    """Live claims a session."""
    secrets: bool = True
    """Whether new files that hold what looks like a key or token are refused."""


def _pattern(text: str) -> str:
    try:
        groups = re.compile(text).groups if text else 1
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    if groups != 1:
        raise ValueError(r"one group must hold the number of tests, like '(\d+) passed'")
    return text


class Gate(_Table):
    """``[gate]``: the check that work must pass before it lands. Locks and tickets never wait for it."""

    check: str = ""
    """Shell command, run at the merged commit in a fresh container; exit code 0 lets it land. Empty: no gate."""
    timeout: Span = Field(default=15 * 60.0, gt=0)
    """Of one check, its setup included."""
    wait: Span = 60.0
    """How long a push waits for its verdict before it is answered with ``queued``."""
    batch: int = Field(default=32, ge=1, le=256)
    """Pushes that are checked together."""
    parallel: int = Field(default=4, ge=1, le=64)
    """Checks at once, while a bad push is searched for."""
    check_new: bool = True
    """Whether a task whose lock has a line ``check: COMMAND`` lands only if that fails before and passes after."""
    tampering: Literal["report", "hold", "refuse"] = "report"
    """What happens to a push that deletes, skips, loosens or empties tests."""
    junit: str = ""
    """JUnit file (or glob) that the check writes: zero tests, or fewer than before, is red."""
    count: Annotated[str, AfterValidator(_pattern)] = ""
    """Regular expression for the lines in which the check tells how many tests ran; its group is summed up."""


class Network(_Table):
    """``[network]``: what sessions may reach, through a proxy at their door. Nothing by default.

    In the person's own configuration it is a bound: no project may ask for more.
    """

    allow: tuple[Annotated[str, AfterValidator(_host_rule)], ...] = ()
    """Hosts: ``name``, ``*.name`` (all below it, not itself) or ``name:port``. Ports 443 and 80 where none is named."""
    open: bool = False
    """Every public host. The port rule of ``allow`` holds."""


class Logs(_Table):
    """``[logs]``: bounds for ``agent_logs/``."""

    max_file: Size = 20 << 20
    """Bytes of one log file; then it is rotated once."""
    max_agent: Size = 500 << 20
    """Bytes of all logs of one agent; the oldest are removed."""


class Command(_Table):
    """``[command]``: the client ``command``."""

    argv: tuple[str, ...] = ()
    """What runs in the container for each session; the prompt is on its standard input."""


Dollars = Annotated[float, Field(ge=0, le=1e9)]


class Limit(_Table):
    """How much may be spent; what is not set has no limit."""

    usd: Dollars | None = None
    """At list price."""
    tokens: int | None = Field(default=None, ge=0)
    """Input, output, cache writes and cache reads together."""

    def lower(self, other: Limit) -> Limit:
        """The smaller of both, field by field."""
        return Limit(usd=_lower(self.usd, other.usd), tokens=_lower(self.tokens, other.tokens))


class Budget(Limit):
    """``[budget]``: what the team may spend on models in all, since the project's first ``team up``."""

    day: Limit = Limit()
    """Of each day, by the clock of this machine."""
    agent: Limit = Limit()
    """Of each agent."""
    session: Limit = Limit()
    """Of each session."""
    roles: dict[str, Limit] = {}
    """Of all agents of a role."""

    def lower(self, other: Limit) -> Budget:
        """The smaller of both, field by field; a plain limit bounds the team."""
        team = super().lower(other)
        if not isinstance(other, Budget):
            return self.model_copy(update={"usd": team.usd, "tokens": team.tokens})
        names = sorted({*self.roles, *other.roles})
        return Budget(
            usd=team.usd,
            tokens=team.tokens,
            day=self.day.lower(other.day),
            agent=self.agent.lower(other.agent),
            session=self.session.lower(other.session),
            roles={n: self.roles.get(n, Limit()).lower(other.roles.get(n, Limit())) for n in names},
        )

    @property
    def empty(self) -> bool:
        """Whether it bounds nothing."""
        return all(v is None for limit in self.limits() for v in (limit.usd, limit.tokens))

    @property
    def in_dollars(self) -> bool:
        """Whether any limit is in dollars, so that a model needs a price."""
        return any(limit.usd is not None for limit in self.limits())

    def limits(self) -> tuple[Limit, ...]:
        """Every limit in it."""
        return (self, self.day, self.agent, self.session, *self.roles.values())


_Number = TypeVar("_Number", int, float)


def _lower(a: _Number | None, b: _Number | None) -> _Number | None:
    return b if a is None else a if b is None else min(a, b)


class Breaker(_Table):
    """``[breaker]``: when a session goes round in circles. Seen from its model calls, whatever the client."""

    repeats: int = Field(default=3, ge=2)
    """The same tool call with the same input so many times running: a warning in the log."""
    most: int = Field(default=5, ge=2)
    """So many times running: the session ends as failed."""
    turns: int | None = Field(default=None, ge=1)
    """Model calls of one session."""
    polling: tuple[str, ...] = (
        *("*sleep*", "*git push*", "*git pull*", "*git fetch*", "*team tasks*"),
        *("BashOutput:*", "TaskOutput:*", "*write_stdin*", "wait:*", "wait_agent:*"),
    )
    """Calls (globs on ``NAME: INPUT`` of a tool) that may repeat: they wait for something."""


class PolicyRule(_Table):
    """One line of ``[policy]``: what may happen to calls of ``tool`` with input like ``pattern`` (globs)."""

    verdict: Literal["allow", "ask", "deny"]
    tool: str = Field(default="*", min_length=1)
    pattern: str = Field(default="*", min_length=1)
    note: str = ""
    """What the agent is told when it is not allowed."""


class Policy(_Table):
    """``[policy]``: which tool calls the built-in client makes, asks a person for, or leaves. The first rule counts."""

    default: Literal["allow", "ask", "deny"] = "allow"
    """For calls that no rule matches."""
    rules: tuple[PolicyRule, ...] = Field(default=(), max_length=200)


Schedule = Annotated[InstanceOf[Every], BeforeValidator(parse_every)]


class Role(_Table):
    """``[role.NAME]``: when a role works, and what it goes by."""

    every: Schedule | None = None
    """When its next session starts: ``"20 landings"`` of others, or ``"2h"``, after its last one began. Without one:
    as the role's default; a role without any goes on as workers do."""
    benchmark: str = ""
    """Shell command whose time is measured: told to the role, and run by the host before and after what it lands."""


EVERY = {
    "review": Every(landings=8),
    "docs": Every(landings=15),
    "dedup": Every(landings=20),
    "performance": Every(landings=30),
    "quality": Every(landings=40),
}
"""The schedule of each role that comes with team and has one."""


class Builtin(_Table):
    """``[builtin]``: the client ``builtin``."""

    max_tokens: int = Field(default=32_000, ge=1024, le=128_000)
    """Of one answer."""
    window: int = Field(default=0, ge=0)
    """Tokens of context that a session may fill; 0: what the model has, at most 200,000."""
    full: float = Field(default=0.75, gt=0.1, le=0.95)
    """At this share of the window the session hands over: a note in the repository, and its end or a compaction."""
    when_full: Literal["end", "compact"] = "end"
    """Whether a fresh session goes on from the files, or this one from its own note."""
    notes: Annotated[str, AfterValidator(_in_tree)] = "NOTES.md"
    """File of the project that a hand-over's note is written to."""
    thinking: Literal["", "adaptive"] = ""
    """``adaptive`` asks the model to think; empty: as it does by itself."""
    effort: Literal["", "low", "medium", "high", "xhigh", "max"] = ""
    """How much effort the model puts into an answer, where it knows that."""
    turns: int | None = Field(default=500, ge=1)
    """Model calls of one session."""
    tokens: int | None = Field(default=None, ge=1)
    """Tokens of one session, in and out, read from cache or not."""
    seconds: Span | None = None
    """From the client's start."""


class Settings(_Table):
    """All of ``team.toml``."""

    agents: int = Field(default=4, ge=1, le=256)
    """Workers that ``team up`` starts."""
    roles: tuple[str, ...] = ()
    """Seats on top of the workers, each ``name`` or ``name:count``."""
    role: dict[str, Role] = {name: Role(every=every) for name, every in EVERY.items()}
    """Schedule and purpose of a role; one that is not in here has its default."""
    client: str = "claude-code"
    model: Model | None = None
    models: dict[str, Model] = {}
    """The model of a role; its requests for another one are changed to it."""
    protected: tuple[str, ...] = ()
    """More paths (globs) that no agent may change, on top of the default list."""
    session: Session = Session()
    image: Image = Image()
    test: Test = TestSettings()
    oracle: Oracle = OracleSettings()
    landing: Landing = Landing()
    gate: Gate = Gate()
    network: Network = Network()
    logs: Logs = Logs()
    command: Command = Command()
    budget: Budget = Budget()
    breaker: Breaker = Breaker()
    policy: Policy = Policy()
    builtin: Builtin = Builtin()

    def role_of(self, name: str) -> Role:
        """The settings of a role, its default schedule filled in."""
        role = self.role.get(name, Role())
        return role if role.every is not None else role.model_copy(update={"every": EVERY.get(name)})


class Price(_Table):
    """What a model costs: US dollars per million tokens."""

    input: Dollars
    output: Dollars
    cache_write: Dollars | None = None
    """Kept 5 minutes; as ``input`` where not given."""
    cache_write_1h: Dollars | None = None
    """Kept an hour; as ``cache_write`` where not given."""
    cache_read: Dollars | None = None
    """As ``input`` where not given."""
    long_above: int | None = Field(default=None, ge=1)
    """Input tokens of one request above which the whole request costs more."""
    long_input: float = Field(default=1.0, ge=1)
    """How many times more, for everything that is input."""
    long_output: float = Field(default=1.0, ge=1)
    max_output: int = Field(default=128_000, ge=1)
    """Tokens of the longest answer, where a request does not bound it."""
    context: int = Field(default=1_000_000, ge=1)
    """Tokens that fit into one request."""


class Provider(_Table):
    """``[gateway.providers.NAME]``: one more place with models."""

    api: Literal["anthropic", "openai"]
    base_url: str = Field(pattern=r"^https?://[^\s/@]+(/[^\s@]*)?$")
    key_env: str = Field(default="", pattern=r"^([A-Za-z_][A-Za-z0-9_]{0,80})?$")
    """Name of the environment variable that holds the key."""
    key_file: str = ""
    """File that holds the key."""
    key_command: tuple[str, ...] = ()
    """Command that prints the key, for vaults; run again when the key is refused."""
    bearer: bool = False
    """The key is sent as ``Authorization: Bearer`` (always so for ``openai``)."""
    models: tuple[str, ...] = ("*",)
    """Which models (globs) are asked for here; the first provider that fits is taken."""
    billed: bool = True
    """Whether its tokens are paid for one by one; else costs are shown as list price."""


class Gateway(_Table):
    """``[gateway]`` in the person's own configuration: where the model is and which key pays."""

    base_url: str = "https://api.anthropic.com"
    key_env: str = "ANTHROPIC_API_KEY"
    """Name of the environment variable that holds the key."""
    token_env: str = "ANTHROPIC_AUTH_TOKEN"
    """Name of the environment variable that holds a bearer token, used where no key is set."""
    key_file: str = ""
    """File that holds the key, used where neither variable is set."""
    key_command: tuple[str, ...] = ()
    """Command that prints the key, for vaults, used where none of the others is set."""
    providers: dict[str, Provider] = {}
    prices: dict[str, Price] = {}
    """Prices of models that are not in the table that comes with team, or that differ from it."""
    allow_fields: tuple[str, ...] = ()
    """Body fields that are let through beside the known ones."""
    allow_tools: tuple[str, ...] = ()
    """Tool types (globs) that are let through beside those that run in the container."""
    allow_sources: tuple[str, ...] = ()
    """Sources of images and documents that are let through: ``url``, ``file``."""
    allow_betas: tuple[str, ...] = ()
    """Beta headers (globs) that are let through beside the known ones."""
    patience: Span = 240.0
    """How long a request waits for a pause or for room in the budget; below the time-out of every client."""
    longest_pause: Span = 15 * 60.0
    """When the provider asks for a longer pause, sessions end as rate_limited, and new ones start after it."""


class UserSettings(_Table):
    """All of ``~/.config/team/config.toml``."""

    gateway: Gateway = Gateway()
    budget: Budget = Budget()
    """The upper bound: where team.toml or a flag says more, this counts."""
    network: Network = Network(open=True)
    """The most that any project's ``[network]`` may ask for; without one here, no bound."""


def as_json(settings: BaseModel) -> dict[str, Any]:
    """``settings`` as plain data."""
    return settings.model_dump(mode="json")
