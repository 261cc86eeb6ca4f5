"""Request bodies and answer parsing for remote servers, in the three styles that they understand.

    infill     POST /infill: prefix and suffix unchanged; the server adds the markers and truncates the text
    template   POST /v1/completions: one prompt, built with the markers of the model's card
    suffix     POST /v1/completions with `prompt` and `suffix`: the server adds its own markers

A next edit is a whole prompt, answered with the log-probability of each token: POST /completion at our own engine, and
at llama.cpp with `n_probs`; POST /v1/completions with `logprobs` elsewhere. Its characters are counted by the texts of
the tokens, because text that may begin a stop string arrives later than its tokens. An answer without log-probabilities
gives no edit: nothing would tell how sure the model is.

In the last two styles, all text before the cursor stands before the first marker. A remote server does no token
healing for a half-typed word, as our engine does, and models have learnt words cut in two at that marker. (Without
token healing, 10 of 63 lines came out exactly right in this order, and 10 with the current line behind the last
marker; of the lines cut in mid-word 3 against 1: docs/benchmarks.md. A small sample.) The text never
begins with a family's first token: servers add it. Only fields that OpenAI describes are sent, except to servers that
are known to accept more.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
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
LIMITS = ("length", "limit")  # a server's words for the end at max_tokens; every other end is the model's
EventParts = tuple[str, tuple[tuple[int, float], ...], str]  # text, log-probabilities, "" or the reason that it ends
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


def complete(
    http: RemoteHttp, server: RemoteServerType, request: FimRequest, refused_fields: set[str]
) -> AsyncGenerator[StreamPiece, None]:
    """The completion, piece by piece; the last piece carries the CompletionCost. Raises EngineError.

    `refused_fields`: optional fields that this server refused before; this function adds to it.
    """
    if server.style != INFILL:
        return _complete_with_retries(http, server, request, refused_fields)
    body = infill_codec.infill_body(request)
    if server.kind != "speclsp":
        body = {name: value for name, value in body.items() if name not in OWN_FIELDS}
    return _infill_pieces(http, "infill", body, request)


def complete_edit(
    http: RemoteHttp, server: RemoteServerType, request: FimRequest, refused_fields: set[str]
) -> AsyncGenerator[StreamPiece, None]:
    """The answer to a whole prompt, as `complete`, with the log-probability of each token."""
    path, body = edit_request(server, request)
    body = {name: value for name, value in body.items() if name not in refused_fields}
    if server.kind == "speclsp":
        return _infill_pieces(http, path, body, request)
    return _completion_pieces(http, path, body, request, request.stop + server.stop, parse_edit_event)


async def _infill_pieces(
    http: RemoteHttp, path: str, body: Mapping[str, object], request: FimRequest
) -> AsyncGenerator[StreamPiece, None]:
    """The pieces of an answer in the format of /infill."""
    async with aclosing(http.post_events(path, body, request.deadline_ms, is_last, session_header(request))) as events:
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
    has_begun, path = False, f"{server.api}/completions"
    for _ in (*OPTIONAL, ""):
        body = {name: value for name, value in completion_body(server, request).items() if name not in refused_fields}
        try:
            async with aclosing(
                _completion_pieces(http, path, body, request, server.stop, parse_completion_event)
            ) as pieces:
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


async def _completion_pieces(
    http: RemoteHttp,
    path: str,
    body: Mapping[str, object],
    request: FimRequest,
    stops: Sequence[str],
    parse: Callable[[Mapping[str, Any]], EventParts],
) -> AsyncGenerator[StreamPiece, None]:
    """The pieces of an answer that ends with a finish reason, or at a stop string."""
    stop_filter, tokens = StopStringFilter(stops), 0
    async with aclosing(http.post_events(path, body, request.deadline_ms, is_last, session_header(request))) as events:
        async for event in events:
            new_text, logprobs, reason = parse(event) if event is not DONE else ("", (), "stop")
            text, ended = stop_filter.add(new_text)
            tokens += len(logprobs) or bool(text)  # servers send one event for each token, or nearly
            if text or logprobs:
                yield StreamPiece(text=text, tokens=len(logprobs) or 1, logprobs=logprobs)
            if ended or reason:
                if not ended and (rest := stop_filter.rest()):
                    yield StreamPiece(text=rest)
                stop_type = "limit" if reason in LIMITS and not ended else "eos"
                yield StreamPiece(cost=CompletionCost(stop_type=stop_type))
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


def edit_request(server: RemoteServerType, request: FimRequest) -> tuple[str, dict[str, object]]:
    """The path and the body of a request for a next edit."""
    if server.kind == "speclsp":
        return "completion", infill_codec.request_body(request)
    shared = {"prompt": request.raw_prompt, "temperature": 0.0, "seed": request.seed, "stream": True}
    stops = [*request.stop, *server.stop]
    if server.kind == "llama.cpp":
        own = {"n_predict": request.max_tokens, "n_probs": 1, "cache_prompt": True, "stop": stops}
        return "completion", shared | own
    own = {"model": server.model, "max_tokens": request.max_tokens, "logprobs": 1}
    if server.accepts_extra_fields:
        own |= {"stop": stops, "skip_special_tokens": False}
    else:
        own["stop"] = stops[:MAX_STOPS]
    return f"{server.api}/completions", shared | own


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


def parse_completion_event(event: Mapping[str, Any]) -> EventParts:
    """The new text, and the reason that the completion ends with it."""
    return text_of(event), (), finish_reason_of(event)


def parse_edit_event(event: Mapping[str, Any]) -> EventParts:
    """The new text in either API's field, the log-probabilities of its tokens, and the reason that it ends there."""
    content = event.get("content")
    text = content if isinstance(content, str) else text_of(event)
    reason = str(event.get("stop_type") or "eos") if event.get("stop") is True else finish_reason_of(event)
    return text, tuple(logprobs_of(event)), reason


def logprobs_of(event: Mapping[str, Any]) -> Iterator[tuple[int, float]]:
    """(characters, log-probability) of each new token, as far as the server reports them."""
    listed = event.get("completion_probabilities")
    if isinstance(listed, list):
        pairs = [(entry.get("token"), entry.get("logprob")) for entry in listed if isinstance(entry, Mapping)]
    else:
        reported = choice_of(event).get("logprobs")
        reported = reported if isinstance(reported, Mapping) else {}
        tokens, logprobs = reported.get("tokens"), reported.get("token_logprobs")
        if not isinstance(tokens, list) or not isinstance(logprobs, list):
            return
        pairs = list(zip(tokens, logprobs, strict=False))
    for token, logprob in pairs:
        if isinstance(token, str) and isinstance(logprob, int | float) and not math.isnan(logprob):
            # a part of a character has no text of its own, or a placeholder
            characters = 0 if token.startswith("bytes:") or token == "\N{REPLACEMENT CHARACTER}" else len(token)
            yield characters, min(float(logprob), 0.0)


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
