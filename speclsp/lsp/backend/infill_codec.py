"""Format of /infill, which llama.cpp and speclsp's own engine speak: FimRequest to JSON, JSON event to StreamPiece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from speclsp.lsp.backend.engine_http import InvalidResponse
from speclsp.lsp.backend.types import CompletionCost, FimRequest, StreamBranch, StreamPiece, StreamStart


def route(request: FimRequest) -> str:
    return "/infill" if request.raw_prompt is None else "/completion"


def request_body(request: FimRequest) -> dict[str, object]:
    """The body of POST /completion for a whole prompt, else of POST /infill."""
    body = infill_body(request)
    if request.raw_prompt is None:
        return body
    kept = {name: value for name, value in body.items() if not name.startswith("input_")}
    return kept | {"prompt": request.raw_prompt, "heal": False}


def infill_body(request: FimRequest) -> dict[str, object]:
    """The body of POST /infill, in llama.cpp's field names where it has them."""
    return {
        "input_prefix": request.prefix,
        "prompt": request.line_prefix,
        "input_suffix": request.suffix,
        "input_extra": [{"filename": name, "text": text} for name, text in request.extra],
        "filename": request.path,
        "n_predict": request.max_tokens,
        "t_max_predict_ms": request.deadline_ms,
        "temperature": request.temperature,
        "seed": request.seed,
        "session": request.session,
        "previous": request.previous,
        "stream": True,
        "round_logprobs": True,
        "cache_prompt": True,
        **({"begin": list(request.begin)} if request.begin else {}),
        **({"n_branches": request.branches} if request.branches else {}),
        **({"idle": True} if request.idle else {}),
        **({} if request.speculate else {"speculation": {"enabled": False}}),
    }


def is_last(event: Mapping[str, Any]) -> bool:
    return bool(event.get("stop"))


def parse_piece(event: Mapping[str, Any]) -> StreamPiece:
    """One event of /infill; the last one carries the CompletionCost. Raises InvalidResponse."""
    try:
        return _parse_last(event) if is_last(event) else _parse_round(event)
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise InvalidResponse("its answer is not a valid /infill answer.") from error


def _parse_round(event: Mapping[str, Any]) -> StreamPiece:
    tokens, round_facts, branches = event.get("tokens"), event.get("round") or {}, event.get("branches")
    ids = tokens if isinstance(tokens, list) else []
    has_ids = all(type(token) is int for token in ids)  # not at every server
    return StreamPiece(
        text=str(event.get("content") or ""),
        tokens=len(ids),
        source=str(round_facts.get("source") or ""),
        drafted=int(round_facts.get("drafted") or 0),
        accepted=int(round_facts.get("accepted") or 0),
        ms=float(round_facts.get("ms") or 0.0),
        logprobs=_parse_logprobs(round_facts.get("characters") or (), round_facts.get("logprobs") or ()),
        ids=tuple(ids) if has_ids else (),
        branches=tuple(map(_parse_branch, branches)) if branches is not None else None,
        start=_parse_start(event["start"]) if event.get("start") else None,
    )


def _parse_last(event: Mapping[str, Any]) -> StreamPiece:
    timings = event.get("timings") or {}
    cost = CompletionCost(
        stop_type=str(event.get("stop_type") or ""),
        prompt_tokens=int(timings.get("prompt_n") or 0) + int(timings.get("cache_n") or 0),
        cached_tokens=int(timings.get("cache_n") or 0),
    )
    return StreamPiece(text=str(event.get("content") or ""), cost=cost)


def _parse_logprobs(characters: Sequence[object], logprobs: Sequence[object]) -> tuple[tuple[int, float], ...]:
    """(characters, log-probability) of each token of a round. Raises TypeError, ValueError."""
    pairs = zip(characters, logprobs, strict=True)
    tokens = tuple((_checked(count, int), float(_checked(logprob, int, float))) for count, logprob in pairs)
    if any(count < 0 or not logprob <= 0.01 for count, logprob in tokens):  # rounding can lift a certain token above 0
        raise ValueError("no number of characters, or no logarithm of a probability")
    return tokens


def _parse_branch(branch: Mapping[str, Any]) -> StreamBranch:
    """An alternative at one position. Raises TypeError, ValueError, AttributeError."""
    at, chars, token = (_checked(branch.get(name), int) for name in ("at", "chars", "id"))
    p = float(_checked(branch.get("p"), int, float))
    if min(at, chars, token) < 0 or not 0 <= p <= 1.01:
        raise ValueError("no position, or no probability")
    return StreamBranch(at=at, chars=chars, token=token, text=str(branch.get("text") or ""), p=p)


def _parse_start(start: Mapping[str, Any]) -> StreamStart:
    """The cost up to the first round."""
    counts = {name: int(start.get(name) or 0) for name in ("prompt_tokens", "cached_tokens", "left_out_tokens")}
    times = {name: float(start.get(name) or 0.0) for name in ("queue_ms", "prompt_ms")}
    return StreamStart(**counts, **times)  # type: ignore[arg-type]


def _checked(value: object, *types: type) -> Any:
    """`value`, a JSON number of one of these types, no truth value. Raises TypeError."""
    if type(value) not in types:
        raise TypeError("not a number, or not a whole one")
    return value
