"""Request bodies and answer parsing for remote servers, in the three styles that they understand.

    infill     POST /infill: prefix and suffix unchanged; the server adds the markers and truncates the text
    template   POST /v1/completions: one prompt, built with the markers of the model's card
    suffix     POST /v1/completions with `prompt` and `suffix`: the server adds its own markers

In the last two styles, all text before the cursor stands before the first marker. A remote server does no token
healing for a half-typed word, as our engine does, and models have learnt words cut in two at that marker. (Without
token healing, 10 of 63 lines came out exactly right in this order, and 10 with the current line behind the last
marker; of the lines cut in mid-word 3 against 1: docs/benchmarks.md. A small sample.) The text never
begins with a family's first token: servers add it. Only fields that OpenAI describes are sent, except to servers that
are known to accept more.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from speclsp.errors import EngineError
from speclsp.lsp.backend import infill_codec
from speclsp.lsp.backend.engine_http import ConnectionLost, InvalidResponse
from speclsp.lsp.backend.remote.remote_http import DONE, HttpRefused, RemoteHttp
from speclsp.lsp.backend.types import CompletionCost, FimRequest, StreamPiece
from speclsp.plain_text import first_stop, longest_stop_start
from speclsp.weights.cards import Fim

INFILL, TEMPLATE, SUFFIX = "infill", "template", "suffix"
MAX_STOPS = 4  # the limit of OpenAI, and of TGI by default
OWN_FIELDS = ("session", "previous")  # fields of /infill that only our own engine knows
OPTIONAL = ("seed", "stop", "skip_special_tokens")  # left out when a server refuses them by name


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteServerType:
    """Type of a server, as detected: its software, its model, and the way to send requests."""

    kind: str = ""  # "vllm" | "sglang" | "llama.cpp" | "tgi" | "ollama" | "speclsp" | "": unknown
    style: str = TEMPLATE
    model: str = ""  # by the name that the server uses
    card_name: str = ""  # of the model, or its family's
    fim: Fim = field(default_factory=Fim)
    stop: tuple[str, ...] = ()  # strings that end a completion
    api: str = "v1"  # the path of its OpenAI API
    edit_format: str = ""  # of its model; "" for none

    @property
    def accepts_extra_fields(self) -> bool:
        """True if it accepts many stops, and `skip_special_tokens` (keeps markers in the text for `stop` to find)."""
        return self.kind in ("vllm", "sglang")


async def complete(
    http: RemoteHttp, server: RemoteServerType, request: FimRequest, refused_fields: set[str]
) -> AsyncGenerator[StreamPiece, None]:
    """The completion, piece by piece; the last piece carries the CompletionCost. Raises EngineError.

    `refused_fields`: optional fields that this server refused before; this function adds to it.
    """
    if server.style == INFILL:
        pieces = _infill(http, server, request)
    else:
        pieces = _complete_with_retries(http, server, request, refused_fields)
    async with aclosing(pieces) as stream:
        async for piece in stream:
            yield piece


async def _infill(http: RemoteHttp, server: RemoteServerType, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
    body = infill_codec.infill_body(request)
    if server.kind != "speclsp":
        body = {name: value for name, value in body.items() if name not in OWN_FIELDS}
    async with aclosing(
        http.post_events("infill", body, request.deadline_ms, is_last, session_header(request))
    ) as events:
        async for event in events:
            if event is not DONE:
                yield infill_codec.parse_piece(event)
                if infill_codec.is_last(event):
                    return
    raise ConnectionLost("its answer ended before its last piece.")


async def _complete_with_retries(
    http: RemoteHttp, server: RemoteServerType, request: FimRequest, refused_fields: set[str]
) -> AsyncGenerator[StreamPiece, None]:
    """POST /v1/completions, again without an optional field that the server refuses by name."""
    has_begun = False
    for _ in (*OPTIONAL, ""):
        body = {name: value for name, value in completion_body(server, request).items() if name not in refused_fields}
        try:
            async with aclosing(_complete(http, server, request, body)) as pieces:
                async for piece in pieces:
                    has_begun = True
                    yield piece
            return
        except HttpRefused as error:
            named = {name for name in OPTIONAL if name in body and name in error.server_text}
            if has_begun or not named or error.status not in (400, 422):
                raise
            refused_fields |= named
    raise EngineError("it refuses the request.")  # not reached: each attempt leaves out at least one field


async def _complete(
    http: RemoteHttp, server: RemoteServerType, request: FimRequest, body: Mapping[str, object]
) -> AsyncGenerator[StreamPiece, None]:
    """POST /v1/completions."""
    stops, tokens = StopStringFilter(server.stop), 0
    path = f"{server.api}/completions"
    async with aclosing(http.post_events(path, body, request.deadline_ms, is_last, session_header(request))) as events:
        async for event in events:
            finish_reason = "stop" if event is DONE else finish_reason_of(event)
            text, ended = stops.add(text_of(event)) if event is not DONE else ("", False)
            if text:
                tokens += 1  # servers send one event for each token, or nearly
                yield StreamPiece(text=text, tokens=1)
            if ended or finish_reason:
                if not ended and (rest := stops.rest()):
                    yield StreamPiece(text=rest)
                stop = "limit" if finish_reason == "length" and not ended else "eos"
                yield StreamPiece(cost=CompletionCost(stop_type=stop, tokens=tokens))
                return
            if tokens > 2 * request.max_tokens + 16:
                raise InvalidResponse("it goes on past max_tokens.")
    raise ConnectionLost("its answer ended before its last piece.")


def completion_body(server: RemoteServerType, request: FimRequest) -> dict[str, object]:
    """The body of /v1/completions."""
    body: dict[str, object] = {
        "model": server.model,
        "prompt": fim_prompt(server.fim, request),
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "seed": request.seed,
        "stream": True,
    }
    if server.style == SUFFIX:
        body["prompt"] = request.prefix + request.line_prefix
        body["suffix"] = request.suffix or "\n"  # without a suffix, Ollama treats the prompt as a chat
    elif server.accepts_extra_fields:
        body |= {"stop": list(server.stop), "skip_special_tokens": False}
    elif server.stop:
        body["stop"] = list(server.stop[:MAX_STOPS])
    return body


def fim_prompt(fim: Fim, request: FimRequest) -> str:
    """The request with the markers of a model family. A family without markers continues the text before the cursor."""
    extra = ""
    if fim.file_sep and request.extra:
        extra = f"{fim.repo}repo\n" if fim.repo else ""
        extra += "".join(f"{fim.file_sep}{path}\n{text}\n" for path, text in request.extra)
        extra += f"{fim.file_sep}{request.path}\n"
    before, after = request.prefix + request.line_prefix, request.suffix
    if not fim.prefix:
        return before
    if fim.order == "spm":
        return f"{extra}{fim.suffix}{after}{fim.prefix}{before}{fim.middle}"
    return f"{extra}{fim.prefix}{before}{fim.suffix}{after}{fim.middle}"


def stops_of(fim: Fim, stop_tokens: Sequence[str]) -> tuple[str, ...]:
    """Stop strings of a completion, the likeliest first, because servers limit their number."""
    first = (fim.eot, fim.file_sep, fim.prefix, fim.pad)
    return tuple(dict.fromkeys(text for text in (*first, *stop_tokens, fim.suffix, fim.middle, fim.repo) if text))


def session_header(request: FimRequest) -> dict[str, str]:
    """The editor window's random name, so that a router can choose the replica whose cache holds the text."""
    return {"x-session-id": request.session} if request.session else {}


def is_last(event: Mapping[str, Any]) -> bool:
    """True if only events without a use follow."""
    return infill_codec.is_last(event) or bool(finish_reason_of(event))


def finish_reason_of(event: Mapping[str, Any]) -> str:
    """Reason that the completion ends with this event; "" when it continues."""
    choice = choice_of(event)
    return str(choice.get("finish_reason") or "")


def text_of(event: Mapping[str, Any]) -> str:
    text = choice_of(event).get("text")
    return text if isinstance(text, str) else ""


def choice_of(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first choice; events such as usage have none."""
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else {}
    return choice if isinstance(choice, Mapping) else {}


class StopStringFilter:
    """Truncates a streamed text at the first stop string, also when a stop string is split between pieces."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._pending = ""  # text that may be the beginning of a stop string

    def add(self, text: str) -> tuple[str, bool]:
        """(new text that can be shown, whether a stop string has ended the text)."""
        text, self._pending = self._pending + text, ""
        if (stop := first_stop(text, self._stops)) is not None:
            return text[:stop], True
        certain = len(text) - longest_stop_start(text, self._stops)
        self._pending = text[certain:]
        return text[:certain], False

    def rest(self) -> str:
        """The text that was withheld, once the stream has ended."""
        rest, self._pending = self._pending, ""
        return rest
