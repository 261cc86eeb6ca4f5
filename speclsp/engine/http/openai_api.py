"""OpenAI's API: the body of /v1/completions, its answers, and the list of models."""

from __future__ import annotations

import time
from collections.abc import Sequence

from speclsp.config import Config
from speclsp.engine.api import Request, Result, TokenLogprobs
from speclsp.engine.http import json_fields
from speclsp.engine.http.json_fields import BadField, Json, ParsedRequest
from speclsp.errors import InputError

FINISH_REASON = {"eos": "stop", "word": "stop", "limit": "length", "deadline": "length", "cancelled": "length"}


def completions(body: bytes, config: Config) -> ParsedRequest:
    """Parse the body of POST /v1/completions: fill-in-the-middle when there is a suffix. Raises InputError."""
    fields = json_fields.read(body)
    if not fields.has("prompt"):
        raise InputError("the body has no prompt: send the text to complete.")
    prompt, has_suffix = json_fields.prompt(fields), fields.has("suffix")
    line_start = prompt.rfind("\n") + 1
    n = fields.integer(fields.first_present("n", "n_cmpl"), 1, 1, json_fields.MAX_ALTERNATIVES)
    if fields.integer("best_of", n, 1, json_fields.MAX_ALTERNATIVES) != n:
        raise BadField("best_of", fields.body["best_of"], f"n ({n}), the number of completions to compute")
    likely = fields.integer("logprobs", 0, 0, json_fields.MAX_LIKELY) if fields.has("logprobs") else None
    echo = fields.flag("echo", False)
    if echo and likely is not None:
        raise BadField("echo", True, "false with logprobs, because prompt tokens have no logprobs")
    if echo and len(prompt) > json_fields.MAX_ECHO:
        raise BadField("echo", True, f"false with a prompt of more than {json_fields.MAX_ECHO} characters")
    request = Request(
        raw_prompt=None if has_suffix else prompt,
        prefix=prompt[:line_start] if has_suffix else "",
        line_prefix=prompt[line_start:] if has_suffix else "",
        suffix=fields.text("suffix"),
        max_tokens=json_fields.max_tokens(fields, fields.first_present("max_tokens", "n_predict")),
        speculate=config.engine.speculative_decoding,
        n=n,
        logprobs=likely,
        **json_fields.common(fields, n, top_p=1.0),
    )
    usage = fields.inner("stream_options").flag("include_usage", False)
    stream = fields.flag("stream", False)
    return ParsedRequest(request=request, stream=stream, include_usage=usage, echo=prompt if echo else "")


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────


def answer_json(parsed: ParsedRequest, number: int, results: Sequence[Result], model: str, queue_ms: float) -> Json:
    """An answer that is not streamed."""
    choices = [
        choice_json(index, parsed.echo + result.text, result, parsed.request.logprobs, likely=result.likely)
        for index, result in enumerate(results)
    ]
    return {
        **chunk_json(number, model, choices),
        "usage": usage_json(results),
        **json_fields.costs_json(results, queue_ms),
    }


def chunk_json(number: int, name: str, choices: Sequence[Json]) -> Json:
    """An answer, or one streamed chunk of it."""
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
    likely: Sequence[TokenLogprobs] = (),
    offset: int = 0,
) -> Json:
    """One choice; `result` ends it. `likely`: of its tokens, which begin `offset` characters into the completion."""
    reason = FINISH_REASON.get(result.stop_type, "stop") if result else None
    logprobs_object = None if logprobs is None else logprobs_json(likely, logprobs, offset)
    return {"index": index, "text": text, "logprobs": logprobs_object, "finish_reason": reason}


def logprobs_json(likely: Sequence[TokenLogprobs], wanted: int, offset: int) -> Json:
    """Four lists of equal length, one entry for each token. Offsets count characters of the completion."""
    offsets = []
    for token in likely:
        offsets.append(offset)
        offset += len(token.text)
    return {
        "tokens": [token.text for token in likely],
        "token_logprobs": [token.logprob for token in likely],
        "top_logprobs": [top_json(token) for token in likely] if wanted else None,
        "text_offset": offsets,
    }


def top_json(likely: TokenLogprobs) -> Json:
    """Log-probabilities of the likeliest tokens and the chosen one, by text. Of two with one text, the likelier."""
    by_text: Json = {}
    for _, text, logprob in (*likely.top, (likely.token, likely.text, likely.logprob)):
        by_text.setdefault(text, logprob)
    return by_text


def usage_json(results: Sequence[Result]) -> Json:
    """Tokens read and written; the prompt counts once."""
    prompt, completion = results[0].prompt_tokens, sum(len(result.tokens) for result in results)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": results[0].cached_tokens},
    }


# ── models ───────────────────────────────────────────────────────────────────────────────────────────────


def model_json(model: str, context_tokens: int, trained_tokens: int, created_s: int) -> Json:
    """The model served here. Its context is given under vLLM's name and llama.cpp's. `trained_tokens`: 0 if unknown."""
    meta = {"n_ctx": context_tokens} | ({"n_ctx_train": trained_tokens} if trained_tokens else {})
    return {
        "id": model,
        "object": "model",
        "created": created_s,
        "owned_by": "speclsp",
        "max_model_len": context_tokens,
        "meta": meta,
    }
