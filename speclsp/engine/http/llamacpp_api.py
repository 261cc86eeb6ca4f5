"""llama.cpp's API: the bodies of /infill and /completion, their answers, and the object of /props."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from speclsp import __version__
from speclsp.config import Config
from speclsp.engine.api import Branch, Extra, Piece, Request, Result, Start
from speclsp.engine.http import json_fields
from speclsp.engine.http.json_fields import ANY, UNLIMITED, Fields, Json, ParsedRequest
from speclsp.errors import InputError

TOP_K, TOP_P = 40, 0.95  # defaults
WARM_UP = "(warm-up)"  # the session of requests that only fill the cache and name none


def infill(body: bytes, config: Config) -> ParsedRequest:
    """Parse the body of POST /infill. Raises InputError naming the wrong field."""
    fields = json_fields.read(body)
    if not any(map(fields.has, ("input_prefix", "input_suffix", "prompt"))):
        raise InputError("the body has no input_prefix, prompt or input_suffix: send the text around the cursor.")
    extra = fields.objects("input_extra", most=config.engine.context_tokens)  # the last are the most relevant
    return to_request(
        fields,
        config,
        prefix=fields.text("input_prefix"),
        line_prefix=fields.text("prompt"),
        suffix=fields.text("input_suffix"),
        filename=fields.text("filename"),
        extra=tuple(Extra(filename=item.text("filename"), text=item.text("text")) for item in extra),
    )


def completion(body: bytes, config: Config) -> ParsedRequest:
    """Parse the body of POST /completion: the prompt is completed unchanged, markers included. Raises InputError."""
    fields = json_fields.read(body)
    if not fields.has("prompt"):
        raise InputError("the body has no prompt: send the text to complete.")
    return to_request(fields, config, raw_prompt=json_fields.prompt(fields))


def to_request(fields: Fields, config: Config, **text: Any) -> ParsedRequest:
    """The request of either body. `text`: the Request fields that hold its prompt."""
    speculation = fields.inner("speculation")
    n = fields.integer(fields.first_present("n_cmpl", "n"), 1, 1, json_fields.MAX_ALTERNATIVES)
    shared = json_fields.common(fields, n, top_p=TOP_P)
    tokens = json_fields.max_tokens(fields, fields.first_present("n_predict", "max_tokens"))
    stream = fields.flag("stream", False)
    limit_ms = max(0, min(fields.integer("t_max_predict_ms", 0, *ANY), UNLIMITED)) if tokens else 0
    line_ms = 0 if stream or n > 1 else limit_ms  # one answer ends at a line's end; several share one deadline
    if not tokens:  # llama.vim and llama.vscode warm the cache: no request waits for it, and it runs to its end
        shared["session"] = shared["session"] or WARM_UP
    request = Request(
        **text,
        **shared,
        max_tokens=tokens,
        deadline_ms=0 if line_ms else limit_ms,
        top_k=max(0, min(fields.integer("top_k", TOP_K, *ANY), UNLIMITED)),
        ignore_eos=fields.flag("ignore_eos", False),
        cache_prompt=fields.flag("cache_prompt", True),
        speculate=speculation.flag("enabled", config.engine.speculative_decoding),
        sampling=fields.choice("sampling", "coupled", "rejection"),
        heal=fields.flag("heal", True),
        previous=fields.text("previous"),
        n=n,
        round_logprobs=fields.flag("round_logprobs", False),
        begin=fields.tokens("begin", config.engine.context_tokens),
        branches=fields.integer("n_branches", 0, 0, json_fields.MAX_BRANCHES),
        idle=fields.flag("idle", False),
    )
    response_fields = fields.texts("response_fields", 64) if fields.body.get("response_fields") else None
    indent = max(0, fields.integer("n_indent", 0, *ANY))
    return ParsedRequest(
        request=request, stream=stream, response_fields=response_fields, indent=indent, line_ms=line_ms
    )


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────


def piece_json(index: int, piece: Piece, start: Start | None = None) -> Json:
    """One round of a streamed answer. The first has the prompt's costs, for clients that stop before `timings`."""
    round_object: Json = {
        "source": piece.source,
        "drafted": piece.drafted,
        "accepted": piece.accepted,
        "ms": round(piece.ms, 3),
    }
    answer: Json = {
        "index": index,
        "content": piece.text,
        "tokens": list(piece.tokens),
        "stop": False,
        "round": round_object,
    }
    if start is not None:
        answer["start"] = json_fields.start_json(start)
    if piece.logprobs:
        round_object["logprobs"] = [round(logprob, 4) for logprob in piece.logprobs]
        round_object["characters"] = list(piece.characters)
    if piece.branches is not None:
        answer["branches"] = [branch_json(branch) for branch in piece.branches]
    return answer


def branch_json(branch: Branch) -> Json:
    """An alternative continuation of the completion."""
    fields: Json = {"at": branch.at, "chars": branch.chars, "id": branch.token, "text": branch.text}
    return fields | {"p": float(f"{branch.p:.4g}")}


def answer_json(parsed: ParsedRequest, results: Sequence[Result], model: str, queue_ms: float) -> Json | list[Json]:
    """An answer that is not streamed: an object, or a list of the different texts for several completions."""
    if parsed.request.n == 1:
        return final_json(parsed, 0, results[0], model, queue_ms)
    distinct = distinct_texts([trimmed(parsed, result) for result in results])
    return [final_json(parsed, index, result, model, queue_ms) for index, result in enumerate(distinct)]


def final_json(parsed: ParsedRequest, index: int, result: Result, model: str, queue_ms: float, sent: str = "") -> Json:
    """The final object of one completion. `sent`: its text that was already streamed, which is left out here."""
    result = result if parsed.stream else trimmed(parsed, result)
    answer: Json = {
        "index": index,
        "content": result.text[len(sent) :],
        "tokens": result.tokens,
        "stop": True,
        "stop_type": result.stop_type,
        "model": model,
        "tokens_predicted": len(result.tokens),
        "tokens_evaluated": result.prompt_tokens,
        "tokens_cached": result.prompt_tokens + len(result.tokens),
        "truncated": result.truncated,
        "has_new_line": "\n" in result.text,
        "generation_settings": settings_json(parsed),
        **json_fields.costs_json([result], queue_ms),
    }
    return answer if parsed.response_fields is None else select_fields(answer, parsed.response_fields)


def settings_json(parsed: ParsedRequest) -> Json:
    """The settings that a completion was made with, so that a client can repeat it: `seed` may have been drawn."""
    request = parsed.request
    return {
        "n_predict": request.max_tokens if request.max_tokens < UNLIMITED else -1,
        "temperature": request.temperature,
        "top_k": request.top_k,
        "top_p": request.top_p,
        "seed": request.seed,
        "ignore_eos": request.ignore_eos,
        "stream": parsed.stream,
    }


def early_stop(parsed: ParsedRequest, text: str, ms: float) -> str:
    """The reason that an answer that is not streamed ends with `text`, `ms` after it began; "" if it continues."""
    if parsed.request.n == 1 and block(text, parsed.indent) != text:
        return "limit"
    return "deadline" if 0 < parsed.line_ms < ms and "\n" in text else ""


def trimmed(parsed: ParsedRequest, result: Result) -> Result:
    """The result as llama.cpp ends it: with its block where `n_indent` is set, and at a line's end after a deadline.

    Its tokens end with its text. The number that the last round added depends on speculation.
    """
    text = block(result.text, parsed.indent)
    if result.stop_type == "deadline" and "\n" in text:
        text = text[: text.rindex("\n") + 1]
    if text == result.text:
        return result
    count = bisect_left(result.ends, len(text)) + 1 if text else 0
    return replace(result, text=text, tokens=result.tokens[:count])


def block(text: str, indent: int) -> str:
    """`text` up to the first line below its own that is indented by less than `indent` characters."""
    lines = text.split("\n")
    for at in range(1, len(lines) if indent else 0):
        line = lines[at]
        if line.strip() and len(line) - len(line.lstrip(" \t")) < indent:
            return "\n".join([*lines[:at], ""])
    return text


def distinct_texts(results: Sequence[Result]) -> list[Result]:
    """Results with distinct texts, in order. The first is kept even when it is empty, the others are not."""
    by_text: dict[str, Result] = {}
    for result in results:
        if result.text or not by_text:
            by_text.setdefault(result.text, result)
    return list(by_text.values())


def select_fields(answer: Json, paths: Sequence[str]) -> Json:
    """The fields at `paths`, each under its path: {"timings/prompt_n": 12}. Unknown ones are left out."""
    selected: Json = {}
    for path in paths:
        value: object = answer
        for step in path.split("/", json_fields.MAX_PATH_STEPS):
            value = value.get(step) if isinstance(value, dict) else None
        if value is not None:
            selected[path] = value
    return selected


# ── properties ───────────────────────────────────────────────────────────────────────────────────────────


def props_json(config: Config, context_tokens: int, model: str, running: int, asleep: bool) -> Json:
    """GET /props. Without those of llama.cpp's fields that have no true value here, such as model_path."""
    params = settings_json(infill(b'{"prompt": ""}', config)) | {"seed": json_fields.RANDOM_SEED, "stop": []}
    settings: Json = {"id": 0, "n_ctx": context_tokens, "speculative": config.engine.speculative_decoding}
    settings |= {"is_processing": running > 0}
    return {
        "default_generation_settings": settings | {"params": params},
        "total_slots": max(1, running),
        "model_alias": model,
        "modalities": {"vision": False, "audio": False},
        "build_info": f"speclsp-{__version__}",
        "is_sleeping": asleep,
    }
