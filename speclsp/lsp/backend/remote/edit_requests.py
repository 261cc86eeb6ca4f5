"""Requests for next edits at a remote server: a whole prompt, answered with the log-probability of each token.

    speclsp      POST /completion, as for the local engine
    llama.cpp    POST /completion with `n_probs`
    others       POST /v1/completions with `logprobs`

Characters are counted by the texts of the tokens, because text that may begin a stop string arrives later than its
tokens. An answer without log-probabilities gives no edit: nothing would tell how sure the model is.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from typing import Any

from speclsp.lsp.backend import infill_codec
from speclsp.lsp.backend.engine_http import ConnectionLost, InvalidResponse
from speclsp.lsp.backend.remote.remote_http import DONE, RemoteHttp
from speclsp.lsp.backend.remote.request_styles import (
    MAX_STOPS,
    RemoteServerType,
    StopStringFilter,
    choice_of,
    finish_reason_of,
    is_last,
    session_header,
    text_of,
)
from speclsp.lsp.backend.types import CompletionCost, FimRequest, StreamPiece

STOP_TYPES = {"length": "limit", "limit": "limit"}  # by the server's own word; every other end is the model's


async def complete(
    http: RemoteHttp, server: RemoteServerType, request: FimRequest, refused_fields: set[str]
) -> AsyncGenerator[StreamPiece, None]:
    """The answer, piece by piece; the last piece carries the CompletionCost. Raises EngineError."""
    path, body = request_of(server, request)
    body = {name: value for name, value in body.items() if name not in refused_fields}
    stops, tokens = StopStringFilter(request.stop + server.stop), 0
    async with aclosing(http.post_events(path, body, request.deadline_ms, is_last, session_header(request))) as events:
        async for event in events:
            if server.kind == "speclsp" and event is not DONE:
                yield infill_codec.parse_piece(event)
                if infill_codec.is_last(event):
                    return
                continue
            reason = end_of(event)
            logprobs = tuple(logprobs_of(event))
            text, ended = stops.add(text_in(event)) if event is not DONE else ("", False)
            tokens += len(logprobs) or bool(text)
            if text or logprobs:
                yield StreamPiece(text=text, tokens=len(logprobs) or 1, logprobs=logprobs)
            if ended or reason:
                if not ended and (rest := stops.rest()):
                    yield StreamPiece(text=rest)
                stop_type = "eos" if ended else STOP_TYPES.get(reason, "eos")
                yield StreamPiece(cost=CompletionCost(stop_type=stop_type, tokens=tokens))
                return
            if tokens > 2 * request.max_tokens + 16:
                raise InvalidResponse("it goes on past max_tokens.")
    raise ConnectionLost("its answer ended before its last piece.")


def request_of(server: RemoteServerType, request: FimRequest) -> tuple[str, dict[str, object]]:
    """The path and the body."""
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


def text_in(event: Mapping[str, Any]) -> str:
    """The new text, in either API's field."""
    content = event.get("content")
    return content if isinstance(content, str) else text_of(event)


def end_of(event: Mapping[str, Any]) -> str:
    """The server's word for the end of the answer; "" while it goes on."""
    if event is DONE:
        return "stop"
    return str(event.get("stop_type") or "eos") if event.get("stop") is True else finish_reason_of(event)


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
