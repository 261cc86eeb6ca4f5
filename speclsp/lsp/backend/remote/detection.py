"""Detects the type of the server at `remote.url`: its software, its model, the model's card and the request style.

    GET /v1/models    the models, and usually the software by `owned_by`
    GET /api/version  Ollama answers it, whose `owned_by` is a publisher
    GET /health       llama.cpp and our own engine: whether the model is loaded
    POST /infill {}   llama.cpp without a prompt: 400 if its model has the markers, 501 if not
    POST /api/show    Ollama: whether the model's template has a place for a suffix

Detection generates no token. The model's card is found by the name that the server uses, in the spellings of publishers
and quantizers. The settings `model` and `remote.model` override it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice

from speclsp.config import Config
from speclsp.errors import EngineError
from speclsp.lsp.backend.engine_http import InvalidResponse
from speclsp.lsp.backend.remote.remote_http import HttpRefused, RemoteHttp
from speclsp.lsp.backend.remote.request_styles import INFILL, SUFFIX, TEMPLATE, RemoteServerType, stops_of
from speclsp.weights import cards
from speclsp.weights.cards import Card

ANSWER_S = 5.0
MAX_MODELS = 1000  # names that are compared with the cards
SIZE = re.compile(r"\d+(?:\.\d+)?b\b")  # the word "7b"


KIND_OF_OWNER = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama.cpp", "speclsp": "speclsp"}  # by `owned_by`
STYLE_OF_KIND = {"llama.cpp": INFILL, "speclsp": INFILL, "ollama": SUFFIX}  # any other server: TEMPLATE


async def detect(http: RemoteHttp, config: Config) -> RemoteServerType:
    """The type of the server. Raises EngineError when it cannot be used."""
    style = config.remote.api
    model, owner = choose_model(await list_models(http, needed=style != INFILL and not config.remote.model), config)
    kind = KIND_OF_OWNER.get(owner) or ("ollama" if await is_ollama(http) else "")
    reports_health = kind in ("llama.cpp", "speclsp")
    if reports_health:
        with suppress(InvalidResponse):  # a router in front of them may answer in another format
            await http.fetch("health", ANSWER_S)  # these list their model before it is loaded
    if style == "auto":
        style = await usable_style(http, kind, model)
    card = card_for(model) if config.model == "auto" else cards.load(config.model)
    if card is None and style == TEMPLATE:
        raise EngineError(
            f"its model {model!r} has no model definition: set model to one with the same fill-in-the-middle markers "
            f"(`speclsp models list`), or remote.model to another of its models."
        )
    if card is None:
        return RemoteServerType(kind=kind, style=style, model=model)
    has_size = config.model != "auto" or words_of(card.name) <= words_of(model)
    return RemoteServerType(
        kind=kind,
        style=style,
        model=model,
        card_name=card.name if has_size else card.family,
        fim=card.fim,
        stop=stops_of(card.fim, card.stop_tokens),
        edit_format=card.edit_format if reports_health else "",
    )


async def list_models(http: RemoteHttp, needed: bool) -> dict[str, str]:
    """{model: its `owned_by` in lower case}; {} if the server has no such list and it is not `needed`."""
    try:
        answer = await http.fetch("v1/models", ANSWER_S)
    except HttpRefused as error:
        if error.status in (404, 405, 501) and not needed:
            return {}
        raise
    listed = answer.get("data") if isinstance(answer, Mapping) else None
    entries = [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []
    owners = {entry["id"]: str(entry.get("owned_by") or "") for entry in entries if isinstance(entry.get("id"), str)}
    if not owners and needed:
        raise InvalidResponse("it lists no models at /v1/models: set remote.model, or correct remote.url.")
    return {model: owner.lower() for model, owner in owners.items()}


def choose_model(owners: Mapping[str, str], config: Config) -> tuple[str, str]:
    """(model, its `owned_by`): the model in the settings, else the first with a card, else the first."""
    wanted, first = config.remote.model, next(iter(owners), "")
    if owners and wanted and wanted not in owners and f"{wanted}:latest" not in owners:
        others = f" and {len(owners) - 1} more" if len(owners) > 1 else ""
        raise EngineError(f"it has no model {wanted!r} (remote.model); it has {first!r}{others}.")
    with_card = (model for model in islice(owners, MAX_MODELS) if card_for(model) is not None)
    model = wanted or next(with_card, first)
    return model, owners.get(model, owners.get(first, ""))


async def is_ollama(http: RemoteHttp) -> bool:
    try:
        answer = await http.fetch("api/version", ANSWER_S)
    except EngineError:
        return False
    return isinstance(answer, Mapping) and "version" in answer


async def usable_style(http: RemoteHttp, kind: str, model: str) -> str:
    """The request style of a server with this model. Raises EngineError if it cannot fill in the middle."""
    if kind == "llama.cpp":
        try:
            await http.fetch("infill", ANSWER_S, {})
        except HttpRefused as refused:
            return INFILL if refused.status == 400 else TEMPLATE
        return TEMPLATE
    if kind == "ollama":
        details = await http.fetch("api/show", ANSWER_S, {"model": model})
        capabilities = details.get("capabilities") if isinstance(details, Mapping) else None
        if isinstance(capabilities, list) and "insert" not in capabilities:
            raise EngineError(
                f"Ollama's {model!r} cannot fill in the middle (its template has no place for a suffix): "
                f"set remote.model to one that can, like qwen2.5-coder."
            )
    return STYLE_OF_KIND.get(kind, TEMPLATE)


def card_for(model: str) -> Card | None:
    """The card for a model by its name at a server: of its family, which shares markers, the one most alike."""
    known = {name: cards.load(name) for name in cards.names()}
    if model in known:
        return known[model]
    words = words_of(model)
    matches = [card for card in known.values() if card.target.repo and is_of_family(words, card)]
    shared = {card.name: words & words_of(card.target.repo) for card in matches}
    return max(
        matches, key=lambda card: (any(map(SIZE.match, shared[card.name])), len(shared[card.name])), default=None
    )


def is_of_family(words: frozenset[str], card: Card) -> bool:
    """True if a model's words contain those of the card's family, or of the card's tuning for edits of any size."""
    tuning = re.sub(r"-(v\d+-)?\d[\d.]*b$", "", card.name) if card.edit_format else card.family
    return words_of(card.family) <= words or words_of(tuning) <= words


def words_of(name: str) -> frozenset[str]:
    """The words of a model's name, without publisher and quantization: {"qwen2", "5", "coder", "0.5b"}."""
    name = re.sub(r"[-._](?:i?q\d\w*|gguf)", "", re.split(r"[/\\]", name.lower())[-1])
    return frozenset(re.findall(rf"{SIZE.pattern}|[a-z0-9]+", name))
