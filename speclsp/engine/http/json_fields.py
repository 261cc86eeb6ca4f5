"""JSON fields of requests and answers that llama.cpp's API and OpenAI's API share: validation and encoding.

Fields have the names and meanings of llama.cpp (llamacpp_api.py) or OpenAI (openai_api.py). As there, an unknown field
is ignored, and null is the same as a missing field. A known field with an invalid value is refused by name, with the
value and the valid ones: a completion that silently ignores half the request is worse than none.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speclsp.engine.api import MIN_TEMPERATURE, Request, Result, Start
from speclsp.errors import InputError

MAX_TOKENS = 64  # default
MAX_TEMPERATURE = 100
MAX_ALTERNATIVES = 16
MAX_STOPS = 64
MAX_BRANCHES = 8  # alternatives to each token, with `n_branches`
SEEDS = 2**64  # a seed is taken modulo this
RANDOM_SEED = 2**32 - 1  # llama.cpp's default, which its clients may send back; -1 is the same
ANY = (-math.inf, math.inf)
UNLIMITED = 10**9  # tokens or milliseconds: as good as no limit
MAX_PATH_STEPS = 8  # in a path of `response_fields`
SHOWN = 50  # characters of a wrong value

# Options that are not offered. Each is accepted with the value that changes nothing.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repeat_penalty": (1,),
    "repetition_penalty": (1,),
    "dry_multiplier": (0,),
    "xtc_probability": (0,),
    "dynatemp_range": (0,),
    "mirostat": (0,),
    "logit_bias": ({}, []),
    "grammar": ("",),
    "json_schema": ("",),
    "response_format": ({"type": "text"},),
    "post_sampling_probs": (False,),
    "n_probs": (0,),
    "logprobs": (None,),
    "echo": (False,),
    "best_of": (1,),
}
NEUTRAL_WHEN_DRAWN: dict[str, tuple[object, ...]] = {
    "min_p": (0,),
    "typical_p": (1,),
    "typ_p": (1,),
}  # greedy, they change nothing

JSON_NAMES = {dict: "an object", list: "a list", type(None): "null"}

Json = dict[str, object]


class BadField(InputError):
    """A field of the body has an invalid value."""

    def __init__(self, name: str, value: object, wanted: str) -> None:
        shown = JSON_NAMES.get(type(value)) or json.dumps(value[: 2 * SHOWN] if isinstance(value, str) else value)
        shown = shown if len(shown) <= SHOWN + 10 else f"{shown[:SHOWN]}..."
        super().__init__(f"{name} is {shown}: expected {wanted}.")
        self.name = name


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRequest:
    """A request, and the form of its answer."""

    request: Request
    stream: bool
    response_fields: tuple[str, ...] | None = None  # llama.cpp: only these, under these names ("timings/prompt_n")
    include_usage: bool = False  # OpenAI: a last chunk with the token counts
    indent: int = 0  # llama.cpp, not streamed: end before a line that is indented less
    line_ms: int = 0  # llama.cpp, not streamed: end with the first line that ends after so long; 0: none


class Fields:
    """The fields of one JSON object, read by name and validated. Every method raises BadField."""

    def __init__(self, body: object, at: str = "") -> None:
        if not isinstance(body, dict):
            raise BadField(at or "the body", body, "an object")
        self.body: Mapping[str, object] = body
        self.at = at + "." if at else ""

    def has(self, name: str) -> bool:
        """True when the field is present and not null."""
        return self.body.get(name) is not None

    def text(self, name: str, longest: int | None = None) -> str:
        """A string; "" when missing."""
        value = self.body.get(name)
        if not isinstance(value, str | None) or (longest is not None and value is not None and len(value) > longest):
            raise BadField(self.at + name, value, "a text" if longest is None else f"a text of at most {longest}")
        return value or ""

    def flag(self, name: str, default: bool) -> bool:
        """A boolean."""
        value = self.body.get(name)
        if not isinstance(value, bool | None):
            raise BadField(self.at + name, value, "true or false")
        return default if value is None else value

    def integer(self, name: str, default: int, low: float, high: float, why: str = "") -> int:
        """An integer from `low` to `high`; 64.0 is one."""
        value = self.body.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high or value % 1:
            raise BadField(self.at + name, value, f"a whole number{range_text(low, high)}{why}")
        return int(value)

    def number(self, name: str, default: float, low: float, high: float) -> float:
        """A number from `low` to `high`."""
        value = self.body.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise BadField(self.at + name, value, f"a number{range_text(low, high)}")
        return float(value)

    def choice(self, name: str, *choices: str) -> str:
        """One of `choices`; the first when missing."""
        value = self.text(name) or choices[0]
        if value not in choices:
            raise BadField(self.at + name, value, " or ".join(f'"{choice}"' for choice in choices))
        return value

    def first_present(self, name: str, other: str) -> str:
        """`name`, or `other` when only that is present: two names of one field."""
        return other if self.has(other) and not self.has(name) else name

    def texts(self, name: str, most: int) -> tuple[str, ...]:
        """A list of strings, or one alone; empty ones are dropped."""
        value = self.body.get(name)
        listed = [] if value is None else [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or len(listed) > most or not all(isinstance(text, str) for text in listed):
            raise BadField(self.at + name, value, "a text" if most == 1 else f"a list of at most {most} texts")
        return tuple(text for text in listed if text)

    def tokens(self, name: str, most: int) -> tuple[int, ...]:
        """A list of token ids; empty when missing."""
        value = self.body.get(name)
        listed = value if isinstance(value, list) else [] if value is None else [None]
        if len(listed) > most or not all(type(token) is int and 0 <= token < 2**31 for token in listed):
            raise BadField(self.at + name, value, f"a list of at most {most} token ids")
        return tuple(listed)

    def inner(self, name: str) -> Fields:
        """The object under `name`; empty when missing."""
        value = self.body.get(name)
        return Fields({} if value is None else value, self.at + name)

    def objects(self, name: str, most: int) -> list[Fields]:
        """A list of objects: its last `most`."""
        value = self.body.get(name)
        if not isinstance(value, list | None):
            raise BadField(self.at + name, value, "a list of objects")
        first = max(0, len(value or ()) - most)
        return [Fields(item, f"{self.at}{name}[{index}]") for index, item in enumerate((value or [])[first:], first)]


def range_text(low: float, high: float) -> str:
    """The end of "a number": the range that it must be in."""
    if (low, high) == ANY:
        return ""
    return f", {low} or more" if high == math.inf else f" from {low} to {high}"


def read(body: bytes) -> Fields:
    """The JSON object in `body`. Lone surrogates are accepted. Raises InputError."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else "not UTF-8"
        if isinstance(error, json.JSONDecodeError):
            why = f"{error.msg.removesuffix(' at')} at character {error.pos}"
        elif not isinstance(error, UnicodeDecodeError | RecursionError):
            why = "a number has too many digits"  # Python's limit of 4300
        raise InputError(f"the body is not JSON ({why}): send one JSON object.") from None
    return Fields(value)


def common(fields: Fields, n: int, top_p: float) -> dict[str, Any]:
    """The fields that every body has under the same names. Raises BadField for options that are not offered.

    `n`: number of completions. The second and later ones are drawn at any temperature. `top_p`: the API's default.
    Values beyond the end of a scale mean its end, as in llama.cpp: a negative temperature is greedy.
    """
    temperature = max(0.0, fields.number("temperature", 0.0, -UNLIMITED, MAX_TEMPERATURE))
    greedy = temperature < MIN_TEMPERATURE
    seed = fields.integer("seed", 0 if greedy and n == 1 else -1, *ANY)
    for name, values in (NEUTRAL | ({} if greedy else NEUTRAL_WHEN_DRAWN)).items():
        if fields.has(name) and fields.body[name] not in values:
            raise BadField(name, fields.body[name], f"{json.dumps(values[0])} (the only supported value)")
    return {
        "temperature": temperature,
        "top_p": min(1.0, max(0.0, fields.number("top_p", top_p, -UNLIMITED, UNLIMITED))),
        "seed": random.getrandbits(31) if seed in (-1, RANDOM_SEED) else seed % SEEDS,
        "stop": fields.texts("stop", MAX_STOPS),
        "session": fields.text("session", longest=256),
    }


def prompt(fields: Fields) -> str:
    """The prompt, one string; "" when missing."""
    value = fields.body.get("prompt")
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str | None):
        raise BadField("prompt", fields.body["prompt"], "one text (neither token ids nor several prompts)")
    return value or ""


def max_tokens(fields: Fields, name: str) -> int:
    """The most tokens to make; 0 only prefills the prompt, and -1 is UNLIMITED. The context may leave fewer."""
    wanted = fields.integer(name, MAX_TOKENS, -1, math.inf)
    return min(wanted, UNLIMITED) if wanted >= 0 else UNLIMITED


def timings(result: Result, queue_ms: float) -> Json:
    """llama.cpp's timings, where `prompt_n` excludes the tokens of `cache_n`; `ttft_ms` and `queue_ms` are ours."""
    prompt_n, predicted_n = result.prompt_tokens - result.cached_tokens, len(result.tokens)
    return {
        "cache_n": result.cached_tokens,
        **rates("prompt", prompt_n, result.prompt_ms),
        **rates("predicted", predicted_n, result.decode_ms),
        "ttft_ms": round(result.ttft_ms, 3),
        "queue_ms": round(queue_ms, 3),
    }


def rates(name: str, tokens: int, ms: float) -> Json:
    """Count, duration and both ratios; a ratio is 0 where it would divide by 0."""
    return {
        f"{name}_n": tokens,
        f"{name}_ms": round(ms, 3),
        f"{name}_per_token_ms": round(ms / tokens, 3) if tokens else 0.0,
        f"{name}_per_second": round(tokens * 1000 / ms, 1) if ms else 0.0,
    }


def costs_json(results: Sequence[Result], queue_ms: float) -> Json:
    """Costs of the first result; `truncated` where text did not fit."""
    result = results[0]
    costs: Json = {
        "timings": timings(result, queue_ms),
        "speculation": {
            "rounds": result.rounds,
            "drafted": result.drafted,
            "accepted": result.accepted,
            "by_source": result.by_source,
        },
    }
    return costs | ({"truncated": True} if result.truncated else {})


def start_json(start: Start) -> Json:
    """Costs before a completion's first round. `left_out_tokens` is missing where they were not counted."""
    counted: Json = {} if start.left_out_tokens is None else {"left_out_tokens": start.left_out_tokens}
    return {
        "queue_ms": round(start.queue_ms, 3),
        "prompt_tokens": start.prompt_tokens,
        "cached_tokens": start.cached_tokens,
        **counted,
        "prompt_ms": round(start.prompt_ms, 3),
    }


def error_json(code: int, message: str, param: str | None = None) -> Json:
    """The form of every error: OpenAI's, with the HTTP status as its code, as in llama.cpp."""
    kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 405: "not_supported_error"}
    kinds |= {503: "unavailable_error"}
    kind = kinds.get(code, "invalid_request_error" if code < 500 else "server_error")
    return {"error": {"code": code, "message": message, "type": kind, "param": param}}


def dump(answer: object) -> bytes:
    r"""JSON in ASCII: a lone surrogate travels as its \u escape, and SSE needs no other line breaks."""
    return json.dumps(answer, separators=(",", ":")).encode("ascii")
