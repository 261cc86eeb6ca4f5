"""OpenAI's words: the body of /v1/completions, its answers, and the list of models."""

from __future__ import annotations

import time
from collections.abc import Sequence

from speclsp.config import Config
from speclsp.engine.api import Likely, Request, Result
from speclsp.engine.http import json_fields
from speclsp.engine.http.json_fields import BadField, Json, ParsedRequest
from speclsp.errors import InputError

FINISH_REASON = {"eos": "stop", "word": "stop", "limit": "length", "deadline": "length", "cancelled": "length"}


def completions(body: bytes, config: Config) -> ParsedRequest:
    """What a POST /v1/completions asks for: fill in the middle when there is a suffix. Raises InputError."""
    fields = json_fields.read(body)
    if not fields.has("prompt"):
        raise InputError("the body has no prompt: send the text to complete.")
    prompt, middle = json_fields.prompt(fields), fields.has("suffix")
    line = prompt.rfind("\n") + 1
    n = fields.whole(fields.either("n", "n_cmpl"), 1, 1, json_fields.MAX_ALTERNATIVES)
    if fields.whole("best_of", n, 1, json_fields.MAX_ALTERNATIVES) != n:
        raise BadField("best_of", fields.body["best_of"], f"n ({n}), as no more than the n are made")
    likely = fields.whole("logprobs", 0, 0, json_fields.MAX_LIKELY) if fields.has("logprobs") else None
    echo = fields.flag("echo", False)
    if echo and likely is not None:
        raise BadField("echo", True, "false with logprobs, as there are none of the prompt's tokens")
    request = Request(
        raw_prompt=None if middle else prompt,
        prefix=prompt[:line] if middle else "",
        line_prefix=prompt[line:] if middle else "",
        suffix=fields.text("suffix"),
        max_tokens=json_fields.max_tokens(fields, fields.either("max_tokens", "n_predict"), config),
        top_p=fields.number("top_p", 1.0, 0, 1, above=True),
        speculate=config.engine.speculation,
        heal=likely is None,  # respelled tokens are not the text's
        n=n,
        logprobs=likely,
        **json_fields.common(fields),
    )
    usage = fields.inner("stream_options").flag("include_usage", False)
    stream = fields.flag("stream", False)
    return ParsedRequest(request=request, stream=stream, include_usage=usage, echo=prompt if echo else "")


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────


def whole_json(ask: ParsedRequest, number: int, results: Sequence[Result], pair: str, queue_ms: float) -> Json:
    """An answer that is not streamed."""
    choices = [
        choice_json(index, ask.echo + result.text, result, ask.request.logprobs, likely=result.likely)
        for index, result in enumerate(results)
    ]
    name = json_fields.served(pair, results)
    return {
        **chunk_json(number, name, choices),
        "usage": usage_json(results),
        **json_fields.costs_json(results, queue_ms),
    }


def chunk_json(number: int, name: str, choices: Sequence[Json]) -> Json:
    """One answer, or one streamed chunk of it."""
    return {
        "id": f"cmpl-{number}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": name,
        "choices": list(choices),
    }


def choice_json(
    index: int,
    text: str,
    result: Result | None = None,
    logprobs: int | None = None,
    likely: Sequence[Likely] = (),
    offset: int = 0,
) -> Json:
    """One of the choices; `result` ends it. `likely`: of the tokens here, `offset` characters into the completion."""
    reason = FINISH_REASON.get(result.stop_type, "stop") if result else None
    told = None if logprobs is None else logprobs_json(likely, logprobs, offset)
    return {"index": index, "text": text, "logprobs": told, "finish_reason": reason}


def logprobs_json(likely: Sequence[Likely], wanted: int, offset: int) -> Json:
    """Four lists of the same length, an entry for each token. Offsets are counted in the completion's characters."""
    offsets = []
    for one in likely:
        offsets.append(offset)
        offset += len(one.text)
    return {
        "tokens": [one.text for one in likely],
        "token_logprobs": [one.logprob for one in likely],
        "top_logprobs": [top_json(one) for one in likely] if wanted else None,
        "text_offset": offsets,
    }


def top_json(likely: Likely) -> Json:
    """The likeliest tokens by their text, and the chosen one. Of two with the same text, the likelier."""
    told: Json = {}
    for _, text, logprob in (*likely.top, (likely.token, likely.text, likely.logprob)):
        told.setdefault(text, logprob)
    return told


def usage_json(results: Sequence[Result]) -> Json:
    """What was read and written, in tokens; the prompt counts once."""
    prompt, completion = results[0].prompt_tokens, sum(len(result.tokens) for result in results)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": results[0].cached_tokens},
    }


# ── models ───────────────────────────────────────────────────────────────────────────────────────────────────


def model_json(pair: str, config: Config, since: int) -> Json:
    """The one model there is. Its context is told in vLLM's word and in llama.cpp's."""
    context = config.engine.context_tokens
    return {
        "id": pair,
        "object": "model",
        "created": since,
        "owned_by": "speclsp",
        "max_model_len": context,
        "meta": {"n_ctx": context, "n_ctx_train": context},
    }
