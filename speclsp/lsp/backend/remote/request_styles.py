"""What is asked of a server, by the style it understands, and what is made of its answer.

    infill     POST /infill: prefix and suffix as they are; the markers and the cutting are the server's
    template   POST /v1/completions: one prompt, laid out with the markers of the card
    suffix     POST /v1/completions with `prompt` and `suffix`: the server puts its own markers around them

With the two others all text before the cursor stands before the first marker: a server does not respell a word that is
half typed, as our engine does, and models have learnt words cut in two there. (Without respelling 10 of 63 lines came
out exactly right in this order and 10 with the line behind the last marker, of those in mid-word 3 against 1:
benchmarks/results/healing.json. A small sample.) The text never begins with a family's first token: servers put it
there. Only what OpenAI describes is sent, but to servers that are known to take more.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from speclsp.errors import EngineError
from speclsp.lsp.backend.http import BadAnswer, ConnectionLost, as_piece, infill_body
from speclsp.lsp.backend.remote.http import DONE, HttpRefused, RemoteHttp
from speclsp.lsp.backend.types import CompletionCost, FimRequest, StreamPiece
from speclsp.weights.cards import Fim

INFILL, TEMPLATE, SUFFIX = "infill", "template", "suffix"
STOPS = 4  # as many as OpenAI, and TGI unless told otherwise, take
OURS = ("session", "previous")  # fields of /infill that only our own engine knows
OPTIONAL = ("seed", "stop", "skip_special_tokens")  # left out when a server refuses them by name


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteServerType:
    """What was found out about a server."""

    kind: str = ""  # "vllm" | "sglang" | "llama.cpp" | "tgi" | "ollama" | "speclsp" | "": something else
    style: str = TEMPLATE
    model: str = ""  # as it is called there
    pair: str = ""  # the card that describes it, or its family
    fim: Fim = field(default_factory=Fim)
    stop: tuple[str, ...] = ()  # texts that end a completion
    api: str = "v1"  # the path of its OpenAI side

    @property
    def takes_more(self) -> bool:
        """Whether its `skip_special_tokens` keeps markers in the text, for `stop` to find, and it takes many stops."""
        return self.kind in ("vllm", "sglang")


async def ask(
    wire: RemoteHttp, server: RemoteServerType, request: FimRequest, unwanted: set[str]
) -> AsyncGenerator[StreamPiece, None]:
    """The completion, piece by piece; the last one has the Cost. Raises EngineError.

    `unwanted`: optional fields that this server refused; added to when it refuses one.
    """
    pieces = _infill(wire, server, request) if server.style == INFILL else _complete(wire, server, request, unwanted)
    async with aclosing(pieces) as stream:
        async for piece in stream:
            yield piece


async def _infill(wire: RemoteHttp, server: RemoteServerType, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
    body = infill_body(request)
    if server.kind != "speclsp":
        body = {name: value for name, value in body.items() if name not in OURS}
    async with aclosing(wire.post("infill", body, request.deadline_ms, is_last, tagged(request))) as events:
        async for event in events:
            if event is not DONE:
                yield as_piece(event)
                if event.get("stop"):
                    return
    raise ConnectionLost("its answer ended before its last piece.")


async def _complete(
    wire: RemoteHttp, server: RemoteServerType, request: FimRequest, unwanted: set[str]
) -> AsyncGenerator[StreamPiece, None]:
    begun = False
    for _ in (*OPTIONAL, ""):
        sent = {name: value for name, value in completion_body(server, request).items() if name not in unwanted}
        try:
            async with aclosing(_stream(wire, server, request, sent)) as pieces:
                async for piece in pieces:
                    begun = True
                    yield piece
            return
        except HttpRefused as error:
            named = (
                {name for name in OPTIONAL if name in sent and name in error.said}
                if error.status in (400, 422)
                else set()
            )
            if begun or not named:
                raise
            unwanted |= named
    raise EngineError("it refuses the request.")  # not reached: each turn leaves a field out


async def _stream(
    wire: RemoteHttp, server: RemoteServerType, request: FimRequest, body: Mapping[str, object]
) -> AsyncGenerator[StreamPiece, None]:
    """POST /v1/completions."""
    until, tokens = StopStringFilter(server.stop), 0
    path = f"{server.api}/completions"
    async with aclosing(wire.post(path, body, request.deadline_ms, is_last, tagged(request))) as events:
        async for event in events:
            why = "stop" if event is DONE else finish_of(event)
            text, ended = until.add(text_of(event)) if event is not DONE else ("", False)
            if text:
                tokens += 1  # servers send one event for each token, or nearly
                yield StreamPiece(text=text, tokens=1)
            if ended or why:
                if not ended and (rest := until.rest()):
                    yield StreamPiece(text=rest)
                stop = "limit" if why == "length" and not ended else "eos"
                yield StreamPiece(cost=CompletionCost(stop_type=stop, tokens=tokens))
                return
            if tokens > 2 * request.max_tokens + 16:
                raise BadAnswer("it goes on past max_tokens.")
    raise ConnectionLost("its answer ended before its last piece.")


def completion_body(server: RemoteServerType, request: FimRequest) -> dict[str, object]:
    """The body of /v1/completions."""
    body: dict[str, object] = {
        "model": server.model,
        "prompt": fim_prompt(server.fim, request),
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "seed": request.seed,
        "stream": True,
    }
    if server.style == SUFFIX:
        body["prompt"] = request.prefix + request.line_prefix
        body["suffix"] = request.suffix or "\n"  # without one, Ollama takes the prompt for a chat
    elif server.takes_more:
        body |= {"stop": list(server.stop), "skip_special_tokens": False}
    elif server.stop:
        body["stop"] = list(server.stop[:STOPS])
    return body


def fim_prompt(fim: Fim, request: FimRequest) -> str:
    """The request laid out with a family's markers; a family without them goes on from the left."""
    extra = ""
    if fim.file_sep and request.extra:
        extra = f"{fim.repo}repo\n" if fim.repo else ""
        extra += "".join(f"{fim.file_sep}{path}\n{text}\n" for path, text in request.extra)
        extra += f"{fim.file_sep}{request.path}\n"
    before, after = request.prefix + request.line_prefix, request.suffix
    if not fim.prefix:
        return before
    if fim.order == "spm":
        return f"{extra}{fim.suffix}{after}{fim.prefix}{before}{fim.middle}"
    return f"{extra}{fim.prefix}{before}{fim.suffix}{after}{fim.middle}"


def stops_of(fim: Fim, stop_tokens: Sequence[str]) -> tuple[str, ...]:
    """What ends a completion, the likeliest first: servers differ in how many they take."""
    first = (fim.eot, fim.file_sep, fim.prefix, fim.pad)
    return tuple(dict.fromkeys(text for text in (*first, *stop_tokens, fim.suffix, fim.middle, fim.repo) if text))


def tagged(request: FimRequest) -> dict[str, str]:
    """A random name of the window: a router can send what has it to the same replica, whose cache knows the text."""
    return {"x-session-id": request.session} if request.session else {}


def is_last(event: Mapping[str, Any]) -> bool:
    """Whether nothing follows but what nobody needs."""
    return bool(event.get("stop") or finish_of(event))


def finish_of(event: Mapping[str, Any]) -> str:
    """Why the completion ends with this event; "" when it goes on."""
    choice = choice_of(event)
    return str(choice.get("finish_reason") or "")


def text_of(event: Mapping[str, Any]) -> str:
    text = choice_of(event).get("text")
    return text if isinstance(text, str) else ""


def choice_of(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first choice; usage and the like come in events without one."""
    choices = event.get("choices")
    found = choices[0] if isinstance(choices, list) and choices else {}
    return found if isinstance(found, Mapping) else {}


class StopStringFilter:
    """Cuts a text that comes in pieces at the first of some words, wherever the pieces are cut."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = [word for word in words if word]
        self._held = ""  # the start of a word, perhaps

    def add(self, text: str) -> tuple[str, bool]:
        """What of the text so far can be shown, beyond what was; and whether a word has ended it."""
        text = self._held + text
        found = [place for word in self._words if (place := text.find(word)) >= 0]
        if found:
            self._held = ""
            return text[: min(found)], True
        most = max((len(word) - 1 for word in self._words), default=0)
        for place in range(max(0, len(text) - most), len(text)):
            if any(word.startswith(text[place:]) for word in self._words):
                self._held = text[place:]
                return text[:place], False
        self._held = ""
        return text, False

    def rest(self) -> str:
        """What was held back, when nothing more comes."""
        held, self._held = self._held, ""
        return held
