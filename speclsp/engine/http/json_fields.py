"""The seam as JSON: what the bodies of all completion requests have in common, read field by field, and all answers.

Fields are named and mean what llama.cpp's (llamacpp.py) or OpenAI's (openai.py) do; one that is not known is ignored,
as there, and null is the same as leaving it out. A known field with a value it cannot have is refused by name, with
what was found and what it can be: a completion that quietly ignores half the question is worse than none.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from speclsp.config import Config
from speclsp.engine.api import Request, Result, Start
from speclsp.errors import InputError

MAX_TOKENS = 64  # when the body does not say
MAX_ALTERNATIVES = 16
MAX_STOPS = 64
MAX_LIKELY = 20  # alternatives to each token
MAX_BRANCHES = 8  # the same
MAX_MS = 86_400_000  # a day
MAX_SEED = 2**64 - 1
MANY = 10**9  # "as many as there is room for", whatever somebody writes for that

# What is not offered: each may be there with the value that changes nothing.
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
}
NEUTRAL_WHEN_DRAWN: dict[str, tuple[object, ...]] = {"min_p": (0,), "typical_p": (1,), "typ_p": (1,)}  # else they are

JSON_NAMES = {dict: "an object", list: "a list", type(None): "null"}

Json = dict[str, object]


class BadField(InputError):
    """A field of the body has a value it cannot have."""

    def __init__(self, name: str, found: object, wanted: str) -> None:
        shown = JSON_NAMES.get(type(found)) or json.dumps(found)
        super().__init__(f"{name} is {shown if len(shown) <= 60 else shown[:50] + '...'}: expected {wanted}.")
        self.name = name


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRequest:
    """A request, and how its answer is to be sent."""

    request: Request
    stream: bool
    response_fields: tuple[str, ...] | None = None  # llama.cpp: only these, under these names ("timings/prompt_n")
    include_usage: bool = False  # OpenAI: a last chunk with the token counts
    indent: int = 0  # llama.cpp, not streamed: it ends before a line that is indented less
    line_ms: int = 0  # llama.cpp, not streamed: it ends with the first line that ends after so long; 0: none
    echo: str = ""  # OpenAI: what each answer begins with, the prompt


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

    def either(self, name: str, other: str) -> str:
        """`name`, unless only `other` is there: two words for the same."""
        return other if self.has(other) and not self.has(name) else name

    def texts(self, name: str, most: int) -> tuple[str, ...]:
        """A list of texts, or one alone; empty ones are dropped."""
        found = self.body.get(name)
        listed = [] if found is None else [found] if isinstance(found, str) else found
        if not isinstance(listed, list) or len(listed) > most or not all(isinstance(text, str) for text in listed):
            raise BadField(self.at + name, found, "a text" if most == 1 else f"a list of at most {most} texts")
        return tuple(text for text in listed if text)

    def tokens(self, name: str, most: int) -> tuple[int, ...]:
        """A list of token ids, empty when left out."""
        found = self.body.get(name)
        listed = found if isinstance(found, list) else [] if found is None else [None]
        if len(listed) > most or not all(type(one) is int and 0 <= one < 2**31 for one in listed):
            raise BadField(self.at + name, found, f"a list of at most {most} token ids")
        return tuple(listed)

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


def common(fields: Fields) -> dict[str, Any]:
    """What all kinds of body say in the same words. Refuses what is not offered."""
    seed = fields.whole("seed", 0, -1, MAX_SEED)
    temperature = fields.number("temperature", 0.0, 0, 100)
    for name, values in (NEUTRAL | (NEUTRAL_WHEN_DRAWN if temperature else {})).items():
        if fields.has(name) and fields.body[name] not in values:
            raise BadField(name, fields.body[name], f"{json.dumps(values[0])}, as anything else is not offered")
    return {
        "temperature": temperature,
        "seed": random.getrandbits(31) if seed == -1 else seed,  # llama.cpp: -1 draws one
        "stop": fields.texts("stop", MAX_STOPS),
        "session": fields.text("session", longest=256),
    }


def prompt(fields: Fields) -> str:
    """The one text to go on from, "" when left out."""
    found = fields.body.get("prompt")
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if not isinstance(found, str | None):
        raise BadField("prompt", fields.body["prompt"], "one text (neither token ids nor several prompts)")
    return found or ""


def max_tokens(fields: Fields, name: str, config: Config) -> int:
    """How many tokens are wanted; 0 only reads the prompt into the cache.

    -1, or more than the context holds, is what clients say who have no limit in mind: half of the context then, so
    that the other half is left for the prompt.
    """
    context = config.engine.context_tokens
    wanted = fields.whole(name, MAX_TOKENS, -1, MANY)
    return wanted if 0 <= wanted <= context else context // 2


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


def costs_json(results: Sequence[Result], queue_ms: float) -> Json:
    """What the first result cost; and whether the draft spoke alone."""
    result = results[0]
    told: Json = {
        "timings": timings(result, queue_ms),
        "speculation": {
            "rounds": result.rounds,
            "drafted": result.drafted,
            "accepted": result.accepted,
            "by_source": result.by_source,
        },
    }
    return told | ({"draft_only": True} if result.draft_only else {})


def start_json(start: Start) -> Json:
    """What came before a completion's first round."""
    return {
        "queue_ms": round(start.queue_ms, 3),
        "prompt_tokens": start.prompt_tokens,
        "cached_tokens": start.cached_tokens,
        "left_out_tokens": start.left_out_tokens,
        "prompt_ms": round(start.prompt_ms, 3),
    }


def served(pair: str, results: Sequence[Result]) -> str:
    """The name of what answered: the pair, or its draft alone."""
    return f"{pair} (draft only)" if any(result.draft_only for result in results) else pair


def error_json(code: int, message: str, param: str | None = None) -> Json:
    """The one shape of every error: OpenAI's, with the HTTP status as its code, as llama.cpp has it."""
    kinds = {400: "invalid_request_error", 404: "not_found_error", 405: "not_supported_error"}
    kinds |= {413: "invalid_request_error", 503: "unavailable_error"}
    kind = kinds.get(code, "server_error")
    return {"error": {"code": code, "message": message, "type": kind, "param": param}}


def dump(answer: object) -> bytes:
    r"""JSON in ASCII: a lone surrogate travels as its \u escape, and SSE needs no other line breaks."""
    return json.dumps(answer, separators=(",", ":")).encode("ascii")
