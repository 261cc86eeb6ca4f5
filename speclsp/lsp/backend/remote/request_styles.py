"""Request bodies and answer parsing for remote servers, in the two styles that they understand.

    infill        POST /infill: prefix and suffix unchanged; the server adds the markers and truncates the text
    completions   POST /v1/completions: one prompt, built with the markers of the model's card ("template"), or `prompt`
                  and `suffix`, to which the server adds its own markers ("suffix")

A next edit is a whole prompt for POST /completion of our own engine, or of llama.cpp, whose `n_probs` reports the
log-probability of each token.

In the second style, all text before the cursor stands before the first marker. A remote server does no token healing
for a half-typed word, as our engine does, and models have learnt words cut in two at that marker. (Without token
healing, 10 of 63 lines came out exactly right in this order, and 10 with the current line behind the last marker; of
the lines cut in mid-word 3 against 1. A small sample.) The text never begins with a family's first
token: servers add it. Only fields that OpenAI describes are sent, except to servers that are known to accept more.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from speclsp.lsp.backend import infill_codec
from speclsp.lsp.backend.engine_http import ConnectionLost
from speclsp.lsp.backend.remote.remote_http import RemoteHttp
from speclsp.lsp.backend.types import CompletionCost, FimRequest, StreamPiece
from speclsp.plain_text import first_stop, longest_stop_start
from speclsp.weights.cards import Fim

INFILL, TEMPLATE, SUFFIX = "infill", "template", "suffix"
MAX_STOPS = 4  # the limit of OpenAI, and of TGI by default
OWN_FIELDS = ("session", "previous")  # fields of /infill that only our own engine knows
LIMITS = ("length", "limit")  # a server's words for the end at max_tokens; every other end is the model's


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteServerType:
    """Type of a server, as detected: its software, its model, and the way to send requests."""

    kind: str = ""  # "vllm" | "sglang" | "llama.cpp" | "ollama" | "speclsp" | "": unknown
    style: str = TEMPLATE
    model: str = ""  # by the name that the server uses
    card_name: str = ""  # of the model, or its family's
    fim: Fim = field(default_factory=Fim)
    stop: tuple[str, ...] = ()  # strings that end a completion
    edit_format: str = ""  # of its model, at a server that reports log-probabilities; "" for none

    @property
    def accepts_extra_fields(self) -> bool:
        """True if it accepts many stops, and `skip_special_tokens` (keeps markers in the text for `stop` to find)."""
        return self.kind in ("vllm", "sglang")


def complete(http: RemoteHttp, server: RemoteServerType, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
    """The completion, piece by piece; the last piece carries the CompletionCost. Raises EngineError."""
    if request.raw_prompt is not None:
        return _infill_pieces(http, "completion", edit_body(server, request), request)
    if server.style == INFILL:
        body = infill_codec.infill_body(request)
        if server.kind != "speclsp":
            body = {name: value for name, value in body.items() if name not in OWN_FIELDS}
        return _infill_pieces(http, "infill", body, request)
    return _completion_pieces(http, server, request)


async def _infill_pieces(
    http: RemoteHttp, path: str, body: Mapping[str, object], request: FimRequest
) -> AsyncGenerator[StreamPiece, None]:
    """The pieces of an answer in the format of /infill and /completion."""
    async with aclosing(http.post_events(path, body, request.deadline_ms, is_last, session_header(request))) as events:
        async for event in events:
            piece = infill_codec.parse_piece(event)
            yield replace(piece, logprobs=logprobs) if (logprobs := token_logprobs(event)) else piece
            if is_last(event):
                return
    raise ConnectionLost("its answer ended before its last piece.")


async def _completion_pieces(
    http: RemoteHttp, server: RemoteServerType, request: FimRequest
) -> AsyncGenerator[StreamPiece, None]:
    """The pieces of an answer of /v1/completions, which ends with a finish reason, or at a stop string."""
    stop_filter, body, header = StopStringFilter(server.stop), completion_body(server, request), session_header(request)
    posting = http.post_events("v1/completions", body, request.deadline_ms, is_last, header)
    async with aclosing(posting) as events:
        async for event in events:
            new_text = choice_of(event).get("text")
            text, ended = stop_filter.add(new_text if isinstance(new_text, str) else "")
            if text:
                yield StreamPiece(text=text, tokens=1)
            if ended or is_last(event):
                if not ended and (rest := stop_filter.rest()):
                    yield StreamPiece(text=rest)
                at_limit = not ended and choice_of(event).get("finish_reason") in LIMITS
                yield StreamPiece(cost=CompletionCost(stop_type="limit" if at_limit else "eos"))
                return
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


def edit_body(server: RemoteServerType, request: FimRequest) -> dict[str, object]:
    """The body of /completion for a next edit."""
    if server.kind == "speclsp":
        return infill_codec.request_body(request)
    return {
        "prompt": request.raw_prompt,
        "temperature": 0.0,
        "seed": request.seed,
        "stream": True,
        "n_predict": request.max_tokens,
        "n_probs": 1,
        "cache_prompt": True,
        "stop": list(server.stop),
    }


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
    return infill_codec.is_last(event) or bool(choice_of(event).get("finish_reason"))


def choice_of(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first choice; events such as usage have none."""
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else {}
    return choice if isinstance(choice, Mapping) else {}


def token_logprobs(event: Mapping[str, Any]) -> tuple[tuple[int, float], ...]:
    """(characters, log-probability) of each new token that llama.cpp reports."""
    listed = event.get("completion_probabilities")
    entries = [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []
    pairs = [(entry.get("token"), entry.get("logprob")) for entry in entries]
    return tuple(
        (len(token.removesuffix("\N{REPLACEMENT CHARACTER}")), min(float(logprob), 0.0))  # it is a part of a character
        for token, logprob in pairs
        if isinstance(token, str) and isinstance(logprob, int | float) and logprob == logprob
    )


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
