"""OpenAI's API: the body of /v1/completions, its answers, and the list of models."""

from __future__ import annotations

import time
from collections.abc import Sequence

from speclsp.config import Config
from speclsp.engine.api import Request, Result
from speclsp.engine.http import json_fields
from speclsp.engine.http.json_fields import Json, ParsedRequest
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
    request = Request(
        raw_prompt=None if has_suffix else prompt,
        prefix=prompt[:line_start] if has_suffix else "",
        line_prefix=prompt[line_start:] if has_suffix else "",
        suffix=fields.text("suffix"),
        max_tokens=json_fields.max_tokens(fields, fields.first_present("max_tokens", "n_predict")),
        speculate=config.engine.speculative_decoding,
        n=n,
        **json_fields.common(fields, n, top_p=1.0),
    )
    usage = fields.inner("stream_options").flag("include_usage", False)
    stream = fields.flag("stream", False)
    return ParsedRequest(request=request, stream=stream, include_usage=usage)


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────


def answer_json(number: int, results: Sequence[Result], model: str, queue_ms: float) -> Json:
    """An answer that is not streamed."""
    choices = [choice_json(index, result.text, result) for index, result in enumerate(results)]
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


def choice_json(index: int, text: str, result: Result | None = None) -> Json:
    """One choice; `result` ends it."""
    reason = FINISH_REASON.get(result.stop_type, "stop") if result else None
    return {"index": index, "text": text, "logprobs": None, "finish_reason": reason}


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
