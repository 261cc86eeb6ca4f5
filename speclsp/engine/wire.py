"""The seam as JSON: the bodies of /infill and /v1/completions read field by field, and the answers they get.

Fields are named and mean what llama.cpp's (or OpenAI's) do; a field that is not known is ignored, as there, and null
is the same as leaving it out. A known field with a value it cannot have is refused by name, with what was found and
what it can be: a completion that quietly ignores half the question is worse than none.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speclsp.config import Config
from speclsp.engine.seam import Extra, Piece, Request, Result
from speclsp.errors import InputError

MAX_TOKENS = 64  # when the body does not say
MAX_ALTERNATIVES = 16
MAX_STOPS = 64
MAX_MS = 86_400_000  # a day
MAX_SEED = 2**64 - 1

FINISH_REASON = {"eos": "stop", "word": "stop", "limit": "length", "deadline": "length", "cancelled": "length"}
JSON_NAMES = {dict: "an object", list: "a list", type(None): "null"}

Json = dict[str, object]


class BadField(InputError):
    """A field of the body has a value it cannot have."""

    def __init__(self, name: str, found: object, wanted: str) -> None:
        shown = JSON_NAMES.get(type(found)) or json.dumps(found)
        super().__init__(f"{name} is {shown if len(shown) <= 60 else shown[:50] + '...'}: expected {wanted}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request, and how its answer is to be sent."""

    request: Request
    stream: bool
    response_fields: tuple[str, ...] = ()  # llama.cpp: only these, under these names ("timings/prompt_n")
    include_usage: bool = False  # OpenAI: a last chunk with the token counts


class Fields:
    """The fields of one JSON object, each taken by name and checked. Every method raises BadField."""

    def __init__(self, body: object, at: str = "") -> None:
        if not isinstance(body, dict):
            raise BadField(at or "the body", body, "an object")
        self.body: Mapping[str, object] = body
        self.at = at + "." if at else ""

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.body.get(name) is not None

    def text(self, name: str, longest: int | None = None) -> str:
        """A text, "" when left out."""
        found = self.body.get(name)
        if not isinstance(found, str | None) or (longest is not None and found is not None and len(found) > longest):
            raise BadField(self.at + name, found, "a text" if longest is None else f"a text of at most {longest}")
        return found or ""

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        found = self.body.get(name)
        if not isinstance(found, bool | None):
            raise BadField(self.at + name, found, "true or false")
        return default if found is None else found

    def whole(self, name: str, default: int, low: int, high: int, why: str = "") -> int:
        """A whole number from `low` to `high`; 64.0 is one."""
        found = self.body.get(name)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, int | float) or not low <= found <= high or found % 1:
            raise BadField(self.at + name, found, f"a whole number from {low} to {high}{why}")
        return int(found)

    def number(self, name: str, default: float, low: float, high: float, above: bool = False) -> float:
        """A number from `low` to `high`; `above`: not `low` itself."""
        found = self.body.get(name)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, int | float) or not low <= found <= high:
            raise BadField(self.at + name, found, f"a number from {low} to {high}")
        if above and found == low:
            raise BadField(self.at + name, found, f"a number above {low}, up to {high}")
        return float(found)

    def choice(self, name: str, *choices: str) -> str:
        """One of `choices`, the first when left out."""
        found = self.text(name) or choices[0]
        if found not in choices:
            raise BadField(self.at + name, found, " or ".join(f'"{choice}"' for choice in choices))
        return found

    def texts(self, name: str, most: int) -> tuple[str, ...]:
        """A list of texts, or one alone; empty ones are dropped."""
        found = self.body.get(name)
        listed = [] if found is None else [found] if isinstance(found, str) else found
        if not isinstance(listed, list) or len(listed) > most or not all(isinstance(text, str) for text in listed):
            raise BadField(self.at + name, found, "a text" if most == 1 else f"a list of at most {most} texts")
        return tuple(text for text in listed if text)

    def inner(self, name: str) -> Fields:
        """The object under `name`, empty when left out."""
        found = self.body.get(name)
        return Fields({} if found is None else found, self.at + name)

    def objects(self, name: str) -> list[Fields]:
        """A list of objects."""
        found = self.body.get(name)
        if not isinstance(found, list | None):
            raise BadField(self.at + name, found, "a list of objects")
        return [Fields(item, f"{self.at}{name}[{place}]") for place, item in enumerate(found or [])]


def read(body: bytes) -> Fields:
    """The JSON object in `body`. Lone surrogates are let through. Raises InputError."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        why = getattr(error, "msg", "") or ("nested too deeply" if isinstance(error, RecursionError) else "not UTF-8")
        raise InputError(f"the body is not JSON ({why}): send one JSON object.") from None
    return Fields(found)


def infill(body: bytes, config: Config) -> Ask:
    """What a POST /infill asks for. Raises InputError naming the field that is wrong."""
    fields = read(body)
    if not any(map(fields.has, ("input_prefix", "input_suffix", "prompt"))):
        raise InputError("the body has no input_prefix, prompt or input_suffix: send the text around the cursor.")
    speculation = fields.inner("speculation")
    request = Request(
        prefix=fields.text("input_prefix"),
        line_prefix=fields.text("prompt"),
        suffix=fields.text("input_suffix"),
        filename=fields.text("filename"),
        extra=tuple(
            Extra(filename=extra.text("filename"), text=extra.text("text")) for extra in fields.objects("input_extra")
        ),
        max_tokens=max_tokens(fields, "n_predict", config),
        deadline_ms=fields.whole("t_max_predict_ms", 0, 0, MAX_MS),
        top_p=fields.number("top_p", 0.95, 0, 1, above=True),
        top_k=max(0, fields.whole("top_k", 40, -1, 2**31)),
        ignore_eos=fields.flag("ignore_eos", False),
        cache_prompt=fields.flag("cache_prompt", True),
        speculate=speculation.flag("enabled", config.engine.speculation),
        gamma=gamma(speculation, config),
        sampling=fields.choice("sampling", "coupled", "rejection"),
        heal=fields.flag("heal", True),
        previous=fields.text("previous"),
        n=fields.whole("n_cmpl", 1, 1, MAX_ALTERNATIVES),
        **common(fields),
    )
    wanted = fields.texts("response_fields", 64)
    return Ask(request=request, stream=fields.flag("stream", False), response_fields=wanted)


def completions(body: bytes, config: Config) -> Ask:
    """What a POST /v1/completions asks for: fill in the middle when there is a suffix. Raises InputError."""
    fields = read(body)
    prompts = fields.texts("prompt", 1)
    if not fields.has("prompt"):
        raise InputError("the body has no prompt: send the text to complete.")
    prompt, middle = prompts[0] if prompts else "", fields.has("suffix")
    line = prompt.rfind("\n") + 1
    request = Request(
        raw_prompt=None if middle else prompt,
        prefix=prompt[:line] if middle else "",
        line_prefix=prompt[line:] if middle else "",
        suffix=fields.text("suffix"),
        max_tokens=max_tokens(fields, "max_tokens", config),
        top_p=fields.number("top_p", 1.0, 0, 1, above=True),
        speculate=config.engine.speculation,
        n=fields.whole("n", 1, 1, MAX_ALTERNATIVES),
        **common(fields),
    )
    usage = fields.inner("stream_options").flag("include_usage", False)
    return Ask(request=request, stream=fields.flag("stream", False), include_usage=usage)


def common(fields: Fields) -> dict[str, Any]:
    """What both kinds of body say in the same words."""
    seed = fields.whole("seed", 0, -1, MAX_SEED)
    return {
        "temperature": fields.number("temperature", 0.0, 0, 100),
        "seed": random.getrandbits(31) if seed == -1 else seed,  # llama.cpp: -1 draws one
        "stop": fields.texts("stop", MAX_STOPS),
        "session": fields.text("session", longest=256),
    }


def max_tokens(fields: Fields, name: str, config: Config) -> int:
    """How many tokens are wanted; 0 only reads the prompt into the cache."""
    return fields.whole(name, MAX_TOKENS, 0, config.engine.context_tokens, " (engine.context_tokens)")


def gamma(speculation: Fields, config: Config) -> int | None:
    """A fixed number of guesses per round, or None to leave it to the policy."""
    most = config.engine.max_gamma
    return speculation.whole("gamma", 0, 0, most, " (engine.max_gamma)") if speculation.has("gamma") else None


def piece_json(index: int, piece: Piece) -> Json:
    """One round of a streamed /infill answer."""
    return {
        "index": index,
        "content": piece.text,
        "tokens": list(piece.tokens),
        "stop": False,
        "round": {
            "source": piece.source,
            "drafted": piece.drafted,
            "accepted": piece.accepted,
            "accepted_chars": piece.accepted_chars,
            "ms": round(piece.ms, 3),
        },
    }


def final_json(ask: Ask, results: Sequence[Result], pair: str, queue_ms: float, sent: Sequence[str]) -> Json:
    """The end of an /infill answer. `sent`: what was already streamed of each result, which is left out here."""
    result = results[0]
    answer: Json = {
        "index": 0,
        "content": unsent(result, sent, 0),
        "tokens": result.tokens,
        "stop": True,
        "stop_type": result.stop_type,
        "model": pair,
        "tokens_predicted": len(result.tokens),
        "tokens_evaluated": result.prompt_tokens,
        "tokens_cached": result.prompt_tokens + len(result.tokens),
        "truncated": False,
        "timings": timings(result, queue_ms),
        "speculation": speculation_json(result),
    }
    if ask.request.n > 1:
        answer["completions"] = [
            {"content": result.text, "tokens": result.tokens, "stop_type": result.stop_type}
            | {"timings": timings(result, queue_ms), "speculation": speculation_json(result)}
            for result in different(results)
        ]
    return picked(answer, ask.response_fields) if ask.response_fields else answer


def unsent(result: Result, sent: Sequence[str], index: int) -> str:
    """The end of `result` that was not streamed yet; all of it when nothing was."""
    return result.text[len(sent[index]) :] if index < len(sent) else result.text


def different(results: Sequence[Result]) -> list[Result]:
    """Each text once, in order; the first even when it is empty, others only when there is something in them."""
    kept: dict[str, Result] = {}
    for result in results:
        if result.text or not kept:
            kept.setdefault(result.text, result)
    return list(kept.values())


def timings(result: Result, queue_ms: float) -> Json:
    """llama.cpp's timings: `prompt_n` leaves out what `cache_n` counts. Ours: `ttft_ms` and `queue_ms`."""
    prompt_n, predicted_n = result.prompt_tokens - result.cached_tokens, len(result.tokens)
    return {
        "cache_n": result.cached_tokens,
        **rates("prompt", prompt_n, result.prompt_ms),
        **rates("predicted", predicted_n, result.decode_ms),
        "ttft_ms": round(result.ttft_ms, 3),
        "queue_ms": round(queue_ms, 3),
    }


def rates(what: str, tokens: int, ms: float) -> Json:
    """How many tokens, how long, and both ratios; 0 where there is nothing to divide by."""
    return {
        f"{what}_n": tokens,
        f"{what}_ms": round(ms, 3),
        f"{what}_per_token_ms": round(ms / tokens, 3) if tokens else 0.0,
        f"{what}_per_second": round(tokens * 1000 / ms, 1) if ms else 0.0,
    }


def speculation_json(result: Result) -> Json:
    """What was guessed and what of it held."""
    return {
        "rounds": result.rounds,
        "drafted": result.drafted,
        "accepted": result.accepted,
        "by_source": result.by_source,
    }


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


def chunk_json(number: int, pair: str, choices: Sequence[Json], result: Result | None = None) -> Json:
    """One answer, or one streamed chunk of it, in OpenAI's shape; the last carries `result`'s costs as well."""
    answer: Json = {
        "id": f"cmpl-{number}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": pair,
        "choices": list(choices),
    }
    if result is not None:
        answer |= {"timings": timings(result, 0.0), "speculation": speculation_json(result)}
    return answer


def choice_json(index: int, text: str, result: Result | None = None) -> Json:
    """One of OpenAI's choices; `result` ends it."""
    reason = FINISH_REASON.get(result.stop_type, "stop") if result else None
    return {"index": index, "text": text, "logprobs": None, "finish_reason": reason}


def usage_json(results: Sequence[Result]) -> Json:
    """OpenAI's token counts."""
    prompt, completion = results[0].prompt_tokens, sum(len(result.tokens) for result in results)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": results[0].cached_tokens},
    }


def error_json(code: int, message: str) -> Json:
    """The one shape of every error."""
    kinds = {400: "invalid_request_error", 404: "not_found_error", 405: "not_supported_error"}
    kinds |= {413: "invalid_request_error", 503: "unavailable_error"}
    return {"error": {"code": code, "message": message, "type": kinds.get(code, "server_error")}}


def dump(answer: Json) -> bytes:
    r"""JSON in ASCII: a lone surrogate travels as its \u escape, and SSE needs no other line breaks."""
    return json.dumps(answer, separators=(",", ":")).encode("ascii")
