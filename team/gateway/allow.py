"""What of a model API is let through: a provider that fetches, runs or keeps things for an agent is an open door.

All of it is data. What is not listed is refused with the name of the setting that lets it through, which only the
person's own configuration can set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

import jiter

from team.clients import Api
from team.config import Gateway
from team.gateway.answers import Refusal
from team.text import one_line

Shape = Literal["messages", "count", "models", "responses", "chat"]


@dataclass(frozen=True)
class Route:
    """One call of one API. Its path is a constant: nothing of what a client sent becomes part of an address."""

    api: Api
    shape: Shape
    method: str
    path: str


ROUTES = {
    (r.method, r.path): r
    for r in (
        Route("anthropic", "messages", "POST", "/v1/messages"),
        Route("anthropic", "count", "POST", "/v1/messages/count_tokens"),
        Route("anthropic", "models", "GET", "/v1/models"),
        Route("openai", "responses", "POST", "/v1/responses"),
        Route("openai", "chat", "POST", "/v1/chat/completions"),
    )
}

_MESSAGES = frozenset(
    "model messages max_tokens system tools tool_choice metadata stop_sequences stream temperature top_k top_p "
    "thinking output_config output_format context_management cache_control diagnostics".split()
)
FIELDS: Mapping[Shape, frozenset[str]] = {
    "messages": _MESSAGES,
    "count": _MESSAGES,
    "responses": frozenset(
        "model input instructions tools tool_choice parallel_tool_calls max_output_tokens max_tool_calls reasoning "
        "text include stream stream_options temperature top_p top_logprobs truncation metadata client_metadata "
        "prompt_cache_key safety_identifier user store verbosity".split()
    ),
    "chat": frozenset(
        "model messages tools tool_choice parallel_tool_calls functions function_call max_tokens "
        "max_completion_tokens n stop stream stream_options temperature top_p presence_penalty frequency_penalty "
        "logit_bias logprobs top_logprobs response_format seed reasoning_effort verbosity metadata prompt_cache_key "
        "safety_identifier user store".split()
    ),
}
# Harmless with these values alone; anything else needs allow_fields.
ONLY: Mapping[str, tuple[Any, ...]] = {
    "store": (False, None),
    "speed": ("standard", None),
    "service_tier": ("auto", "standard_only", "default", None),
    "background": (False, None),
    "previous_response_id": (None,),
    "container": (None,),
    "mcp_servers": ([], None),
    "conversation": (None,),
    "prompt": (None,),
    "modalities": (["text"], None),
    "prompt_cache_retention": ("in_memory", None),  # a longer one may cost more, and the answer does not tell
    "n": (1, None),  # so many answers would cost so many times as much
}
TOOLS: Mapping[Api, tuple[str, ...]] = {
    # Those that run where the client runs; the search is one in the list of tools itself.
    "anthropic": ("custom", "bash_2*", "text_editor_2*", "memory_2*", "computer_2*", "tool_search_tool_*"),
    "openai": ("function", "custom", "local_shell", "apply_patch", "namespace", "grammar"),
}
BLOCKS: Mapping[Api, frozenset[str]] = {
    "anthropic": frozenset(
        "text image document search_result thinking redacted_thinking tool_use tool_result tool_reference "
        "server_tool_use tool_search_tool_result compaction tool_addition tool_removal content_block".split()
    ),
    "openai": frozenset(
        "message text input_text output_text summary_text reasoning_text refusal image_url input_image input_file "
        "file input_audio function_call function_call_output custom_tool_call custom_tool_call_output reasoning "
        "local_shell_call local_shell_call_output apply_patch_call apply_patch_call_output compaction "
        "additional_tools".split()
    ),
}
SOURCES = ("base64", "text", "content")
EDITS = ("clear_tool_uses_*", "clear_thinking_*")
"""Of ``context_management``; a compaction is billed beyond ``max_tokens``."""
INCLUDES = ("reasoning.encrypted_content", "message.output_text.logprobs")
BETAS = (
    "claude-code-*",
    "oauth-*",
    "interleaved-thinking-*",
    "dev-full-thinking-*",
    "redact-thinking-*",
    "thinking-*",
    "context-management-*",
    "context-1m-*",
    "fine-grained-tool-streaming-*",
    "token-efficient-tools-*",
    "advanced-tool-use-*",
    "tool-examples-*",
    "tool-search-tool-*",
    "mid-conversation-*",
    "prompt-caching-*",
    "extended-cache-ttl-*",
    "cache-diagnosis-*",
    "structured-outputs-*",
    "effort-*",
    "output-128k-*",
    "pdfs-*",
    "token-counting-*",
    "task-budgets-*",
    "model-context-window-exceeded-*",
    "computer-use-*",
)
# Of the headers only these go on; the key is ours, and the rest says who and where the client is.
HEADERS = (
    "accept",
    "content-type",
    "user-agent",
    "anthropic-version",
    "anthropic-dangerous-direct-browser-access",
    "x-app",
    "x-claude-code-*",
    "x-stainless-*",
    "x-client-request-id",
    "originator",
    "session_id",
    "conversation_id",
    "x-codex-*",
    "x-openai-internal-codex-responses-lite",  # without it, tools may not come as content
    "session-id",
    "thread-id",
    "x-session-*",
    "version",
)
MOST_DEEP, MOST_BLOCKS = 6, 200_000
_TEXT = frozenset("message text input_text output_text".split())
_TEXT_KEYS = frozenset("type role content text name tool_calls tool_call_id cache_control".split())


@dataclass
class Content:
    """What a request carries, as far as its cost cannot be told from its bytes."""

    images: int = 0
    documents: int = 0
    text_alone: bool = True
    """Nothing is there but text, all of which a provider reads: no thinking, say, that may be left out."""


@dataclass
class Allowed:
    """The rules: those above, and what the person's own configuration adds."""

    settings: Gateway = field(default_factory=Gateway)

    def parse(self, raw: bytes) -> dict[str, Any]:
        """The body. What is checked here must be what the provider reads: so no key twice, no number that is none,
        UTF-8 only, and no depth at which parsers differ."""
        try:
            body = jiter.from_json(raw, catch_duplicate_keys=True, allow_inf_nan=False)
        except ValueError as error:
            raise Refusal(400, "invalid_request_error", f"the body is not JSON: {one_line(str(error), 120)}") from None
        if not isinstance(body, dict):
            raise Refusal(400, "invalid_request_error", "the body is not a JSON object")
        return body

    def check(self, route: Route, body: dict[str, Any]) -> Content:
        """What ``body`` carries. Raises :class:`Refusal` for whatever is not let through."""
        self._check_fields(route, body)
        self._check_tools(route.api, body.get("tools"))
        content = Content()
        walk = _Walk(self, route.api, content)
        for name in ("system", "messages", "input"):
            if not isinstance(value := body.get(name), str | None):
                walk.blocks(value, name, 0)
        return content

    def betas(self, sent: Iterable[str]) -> tuple[list[str], list[str]]:
        """The beta headers that go on, and those that are dropped."""
        names = [n for line in sent for n in (part.strip() for part in line.split(",")) if n]
        known = (*BETAS, *self.settings.allow_betas)
        good = [n for n in names if _fits(n, known) and not set(n) & set(" \t;\"'")]  # one name, not several
        return good, [n for n in names if n not in good]

    def headers(self, sent: Mapping[str, str]) -> dict[str, str]:
        """Those of ``sent`` that go on, without the betas."""
        return {k: v for k, v in sent.items() if _fits(k.lower(), HEADERS)}

    def _check_fields(self, route: Route, body: dict[str, Any]) -> None:
        own = self.settings.allow_fields
        for name, value in body.items():
            if name in own:
                continue
            only = ONLY.get(name)
            if only is not None and not any(value is o or (o == value and type(o) is type(value)) for o in only):
                raise _no("body field", name, "allow_fields", name)
            if only is None and name not in FIELDS[route.shape]:
                raise _no("body field", name, "allow_fields", name)
        management = body.get("context_management")
        edits = management.get("edits") if isinstance(management, dict) else None
        if not isinstance(management, dict | None) or not isinstance(edits, list | None):
            raise Refusal(400, "invalid_request_error", "context_management: expected an object with a list of edits")
        for edit in _items(management, "edits") if isinstance(management, dict) else ():
            kind = edit.get("type") if isinstance(edit, dict) else edit
            if not _fits(str(kind), (*EDITS, *own)):
                raise _no("context_management edit", str(kind), "allow_fields", str(kind))
        for name in _items(body, "include"):
            if name not in INCLUDES and name not in own:
                raise _no("include", str(name), "allow_fields", str(name))

    def _check_tools(self, api: Api, tools: object) -> None:
        if tools is not None and not isinstance(tools, list):
            raise Refusal(400, "invalid_request_error", "tools: expected a list")
        for tool in tools or []:
            self._check_tool(api, tool)

    def _check_tool(self, api: Api, tool: object) -> None:
        if not isinstance(tool, dict):
            raise Refusal(400, "invalid_request_error", "tools: expected objects")
        kind = tool.get("type", "custom" if api == "anthropic" else "function")
        if kind is None and api == "anthropic":
            kind = "custom"
        if not isinstance(kind, str) or not _fits(kind, (*TOOLS[api], *self.settings.allow_tools)):
            raise _no("tool type", str(kind), "allow_tools", str(kind))
        if kind == "namespace":  # a group of tools
            self._check_tools(api, tool.get("tools"))


@dataclass
class _Walk:
    """Looks at every content block. Inputs of tools are not content: they may hold anything."""

    rules: Allowed
    api: Api
    content: Content
    seen: int = 0

    def blocks(self, value: object, where: str, depth: int) -> None:
        if value is None or isinstance(value, str):
            return
        if depth > MOST_DEEP:
            raise Refusal(400, "invalid_request_error", f"{where}: content is nested too deeply")
        for block in value if isinstance(value, list) else [value]:
            if not isinstance(block, str):
                self._block(block, where, depth)

    def _block(self, block: object, where: str, depth: int) -> None:
        self.seen += 1
        if not isinstance(block, dict) or self.seen > MOST_BLOCKS:
            raise Refusal(400, "invalid_request_error", f"{where}: expected content blocks")
        kind = block.get("type", "message" if "role" in block else None)
        if not isinstance(kind, str) or not (
            kind == "message" or kind in BLOCKS[self.api] or kind in self.rules.settings.allow_sources
        ):
            raise _no("content type", str(kind), "allow_sources", str(kind))
        self._source(block, kind)
        if kind not in _TEXT or not _TEXT_KEYS.issuperset(block):
            self.content.text_alone = False
        if kind == "tool_addition" and isinstance(tool := block.get("tool"), dict):
            self._added_tool(tool)
        if kind == "additional_tools":  # codex tells its tools here, not in the body's field
            self.rules._check_tools(self.api, block.get("tools"))
        for name in ("content", "output"):
            inner = block.get(name)
            if isinstance(inner, list | dict) and not (name == "output" and isinstance(inner, dict)):
                self.blocks(inner, where, depth + 1)

    def _added_tool(self, tool: dict[str, Any]) -> None:
        if tool.get("type") == "tool_definition":
            self.rules._check_tool(self.api, tool.get("definition"))
        elif tool.get("type") != "tool_reference":
            raise _no("tool type", str(tool.get("type")), "allow_tools", str(tool.get("type")))

    def _source(self, block: dict[str, Any], kind: str) -> None:
        """Where an image or document comes from: only what the request itself holds."""
        if kind in ("image", "input_image", "image_url"):
            self.content.images += 1
        if kind in ("document", "input_file", "file"):
            self.content.documents += 1
        source = block.get("source")
        if isinstance(source, list):
            raise Refusal(400, "invalid_request_error", f"{kind}: source: expected an object")
        if isinstance(source, dict):
            if source.get("type") not in (*SOURCES, *self.rules.settings.allow_sources):
                raise _no("source", str(source.get("type")), "allow_sources", str(source.get("type")))
            if source.get("type") == "content":
                self.blocks(source.get("content"), kind, 1)
        inner = block.get("file")
        for holder in (block, inner) if isinstance(inner, dict) else (block,):
            for name in ("file_id", "file_url"):
                self._elsewhere(holder, name, "file" if name == "file_id" else "url")
        url = block.get("image_url")
        url = url.get("url") if isinstance(url, dict) else url
        if url is not None and not str(url).startswith("data:"):
            self._elsewhere({"image_url": url}, "image_url", "url")

    def _elsewhere(self, holder: dict[str, Any], name: str, source: str) -> None:
        if holder.get(name) is not None and source not in self.rules.settings.allow_sources:
            raise _no("source", name, "allow_sources", source)


def _items(holder: Mapping[str, Any], name: str) -> list[Any]:
    value = holder.get(name)
    return value if isinstance(value, list) else []


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, p) for p in patterns)


def _no(what: str, name: str, setting: str, value: str) -> Refusal:
    said = one_line(name, 60)
    return Refusal(
        403,
        "permission_error",
        f"{what} '{said}' is not let through by team; to allow it, the person who runs the team writes "
        f'{setting} = ["{one_line(value, 60)}"] under [gateway] in ~/.config/team/config.toml',
    )
