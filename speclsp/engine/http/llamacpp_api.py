"""llama.cpp's words: the bodies of /infill and /completion, their answers, and what /props and /slots tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from speclsp import __version__
from speclsp.config import Config
from speclsp.engine.api import Branch, Extra, Likely, Piece, Request, Result, Start
from speclsp.engine.http import json_fields
from speclsp.engine.http.json_fields import Fields, Json, ParsedRequest
from speclsp.errors import InputError

TOP_K, TOP_P = 40, 0.95  # when the body does not say
WARM_UP = "(warm-up)"  # the session of those who only fill the cache and name none


def infill(body: bytes, config: Config) -> ParsedRequest:
    """What a POST /infill asks for. Raises InputError naming the field that is wrong."""
    fields = json_fields.read(body)
    if not any(map(fields.has, ("input_prefix", "input_suffix", "prompt"))):
        raise InputError("the body has no input_prefix, prompt or input_suffix: send the text around the cursor.")
    extra = fields.objects("input_extra")
    return asked(
        fields,
        config,
        prefix=fields.text("input_prefix"),
        line_prefix=fields.text("prompt"),
        suffix=fields.text("input_suffix"),
        filename=fields.text("filename"),
        extra=tuple(Extra(filename=one.text("filename"), text=one.text("text")) for one in extra),
    )


def completion(body: bytes, config: Config) -> ParsedRequest:
    """What a POST /completion asks for: the prompt is completed as it is, markers included. Raises InputError."""
    fields = json_fields.read(body)
    if not fields.has("prompt"):
        raise InputError("the body has no prompt: send the text to complete.")
    return asked(fields, config, raw_prompt=json_fields.prompt(fields))


def asked(fields: Fields, config: Config, **text: Any) -> ParsedRequest:
    """What both ask for in the same words, about `text`."""
    speculation = fields.inner("speculation")
    shared = json_fields.common(fields)
    tokens = json_fields.max_tokens(fields, fields.either("n_predict", "max_tokens"), config)
    likely = fields.whole("n_probs", 0, 0, json_fields.MAX_LIKELY) or None
    n = fields.whole(fields.either("n_cmpl", "n"), 1, 1, json_fields.MAX_ALTERNATIVES)
    stream = fields.flag("stream", False)
    limit_ms = max(0, fields.whole("t_max_predict_ms", 0, -1, json_fields.MAX_MS)) if tokens else 0
    line_ms = 0 if stream or n > 1 else limit_ms  # a whole answer is of whole lines; several share their time
    if not tokens:  # llama.vim's and llama.vscode's: it must neither make anybody wait nor be cut short
        shared["session"] = shared["session"] or WARM_UP
    request = Request(
        **text,
        **shared,
        max_tokens=tokens,
        deadline_ms=0 if line_ms else limit_ms,
        top_p=fields.number("top_p", TOP_P, 0, 1, above=True),
        top_k=max(0, fields.whole("top_k", TOP_K, -1, 2**31)),
        ignore_eos=fields.flag("ignore_eos", False),
        cache_prompt=fields.flag("cache_prompt", True),
        speculate=speculation.flag("enabled", config.engine.speculation),
        gamma=gamma(speculation, config),
        sampling=fields.choice("sampling", "coupled", "rejection"),
        heal=fields.flag("heal", likely is None),  # respelled tokens are not the content's
        previous=fields.text("previous"),
        n=n,
        logprobs=likely,
        round_logprobs=fields.flag("round_logprobs", False),
        begin=fields.tokens("begin", config.engine.context_tokens),
        branches=fields.whole("n_branches", 0, 0, json_fields.MAX_BRANCHES),
        idle=fields.flag("idle", False),
    )
    wanted = fields.texts("response_fields", 64) if fields.body.get("response_fields") else None
    indent = fields.whole("n_indent", 0, 0, json_fields.MANY)
    return ParsedRequest(request=request, stream=stream, response_fields=wanted, indent=indent, line_ms=line_ms)


def gamma(speculation: Fields, config: Config) -> int | None:
    """A fixed number of guesses per round, or None to leave it to the policy."""
    most = config.engine.max_gamma
    return speculation.whole("gamma", 0, 0, most, " (engine.max_gamma)") if speculation.has("gamma") else None


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────


def piece_json(index: int, piece: Piece, start: Start | None = None) -> Json:
    """One round of a streamed answer; the first tells what came before it: who stops reading hears no `timings`."""
    made: Json = {
        "source": piece.source,
        "drafted": piece.drafted,
        "accepted": piece.accepted,
        "accepted_chars": piece.accepted_chars,
        "ms": round(piece.ms, 3),
    }
    answer: Json = {
        "index": index,
        "content": piece.text,
        "tokens": list(piece.tokens),
        "stop": False,
        "round": made,
    }
    if start is not None:
        answer["start"] = json_fields.start_json(start)
    if piece.logprobs:
        told = {"logprobs": [round(one, 4) for one in piece.logprobs], "characters": list(piece.characters)}
        made |= told
    if piece.branches is not None:
        answer["branches"] = [branch_json(one) for one in piece.branches]
    return answer | ({"completion_probabilities": probabilities(piece.likely)} if piece.likely else {})


def branch_json(branch: Branch) -> Json:
    """Where the completion might have gone on otherwise."""
    told: Json = {"at": branch.at, "chars": branch.chars, "id": branch.token, "text": branch.text}
    return told | {"p": float(f"{branch.p:.4g}")}


def whole_json(ask: ParsedRequest, results: Sequence[Result], pair: str, queue_ms: float) -> Json | list[Json]:
    """An answer that is not streamed: an object, or, where several completions were asked for, a list of them.

    The same text is offered once.
    """
    if ask.request.n == 1:
        return final_json(ask, 0, results[0], pair, queue_ms)
    offered = enumerate(different(results))
    return [final_json(ask, index, result, pair, queue_ms) for index, result in offered]


def final_json(ask: ParsedRequest, index: int, result: Result, pair: str, queue_ms: float, sent: str = "") -> Json:
    """The end of one answer. `sent`: what of it was already streamed, which is left out here."""
    text = result.text[len(sent) :] if ask.stream else whole_lines(ask, result)
    answer: Json = {
        "index": index,
        "content": text,
        "tokens": result.tokens,
        "stop": True,
        "stop_type": result.stop_type,
        "model": json_fields.served(pair, [result]),
        "tokens_predicted": len(result.tokens),
        "tokens_evaluated": result.prompt_tokens,
        "tokens_cached": result.prompt_tokens + len(result.tokens),
        "truncated": False,
        "has_new_line": "\n" in text,
        **json_fields.costs_json([result], queue_ms),
    }
    if ask.request.logprobs is not None and not ask.stream:
        answer["completion_probabilities"] = probabilities(result.likely)
    return answer if ask.response_fields is None else picked(answer, ask.response_fields)


def ended(ask: ParsedRequest, text: str, ms: float) -> str:
    """Why an answer that is not streamed has ended with `text`, `ms` after it began; "" if it has not."""
    if ask.request.n == 1 and block(text, ask.indent) != text:
        return "limit"
    return "deadline" if 0 < ask.line_ms < ms and "\n" in text else ""


def whole_lines(ask: ParsedRequest, result: Result) -> str:
    """The text as llama.cpp ends it: with its block where that is wanted, and at a line's end when time is up."""
    text = block(result.text, ask.indent)
    return text[: text.rindex("\n") + 1] if result.stop_type == "deadline" and "\n" in text else text


def block(text: str, indent: int) -> str:
    """`text` up to the first line below its own that is indented by less than `indent` characters."""
    lines = text.split("\n")
    for at in range(1, len(lines) if indent else 0):
        line = lines[at]
        if line.strip() and len(line) - len(line.lstrip(" \t")) < indent:
            return "\n".join([*lines[:at], ""])
    return text


def different(results: Sequence[Result]) -> list[Result]:
    """Each text once, in order; the first even when it is empty, others only when there is something in them."""
    kept: dict[str, Result] = {}
    for result in results:
        if result.text or not kept:
            kept.setdefault(result.text, result)
    return list(kept.values())


def probabilities(likely: Sequence[Likely]) -> list[Json]:
    """Each token with its logarithm of probability, and the likeliest at its place."""
    return [
        token_json(one.token, one.text, one.logprob)
        | {"top_logprobs": [token_json(token, text, logprob) for token, text, logprob in one.top]}
        for one in likely
    ]


def token_json(token: int, text: str, logprob: float) -> Json:
    """A token by itself."""
    raw = text.encode("utf-8", "surrogatepass")
    return {"id": token, "token": text, "bytes": list(raw), "logprob": logprob}


def picked(answer: Json, paths: Sequence[str]) -> Json:
    """Only the wanted fields, each under its path as asked: {"timings/prompt_n": 12}. Unknown ones are left out."""
    found: Json = {}
    for path in paths:
        value: object = answer
        for step in path.split("/"):
            value = value.get(step) if isinstance(value, dict) else None
        if value is not None:
            found[path] = value
    return found


# ── how it is ────────────────────────────────────────────────────────────────────────────────────────────────


def slots_json(config: Config, running: int) -> list[Json]:
    """GET /slots: one for each completion under way, and one when there is none. Nobody's text is told."""
    shared: Json = {"n_ctx": config.engine.context_tokens, "speculative": config.engine.speculation}
    return [{"id": number, **shared, "is_processing": number < running} for number in range(max(1, running))]


def props_json(config: Config, pair: str, target: str, running: int, asleep: bool) -> Json:
    """GET /props."""
    slots = slots_json(config, running)
    defaults: Json = {
        "n_predict": json_fields.MAX_TOKENS,
        "temperature": 0.0,
        "top_k": TOP_K,
        "top_p": TOP_P,
        "seed": 0,
        "stop": [],
        "ignore_eos": False,
        "stream": False,
        "n_probs": 0,
    }
    return {
        "default_generation_settings": {**slots[0], "params": defaults},
        "total_slots": len(slots),
        "model_alias": pair,
        "model_path": target,
        "modalities": {"vision": False, "audio": False},
        "chat_template": "",
        "bos_token": "",
        "eos_token": "",
        "build_info": f"speclsp-{__version__}",
        "is_sleeping": asleep,
    }
