"""Detects the type of the server at `remote.url`: its software, its model, the model's card and the request style.

    GET /v1/models    the models, and usually the software by `owned_by`
    GET /api/version, /info, /props    Ollama, TGI, llama.cpp, if `owned_by` did not identify the software
    GET /health       llama.cpp and our own engine: whether the model is loaded
    POST /infill {}   llama.cpp without a prompt: 400 if its model has the markers, 501 if not
    POST /api/show    Ollama: whether the model's template has a place for a suffix

Detection generates no token. The model's card is found by the name that the server uses, in the spellings of publishers
and quantizers. The settings `model` and `remote.model` override it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from speclsp.config import Config
from speclsp.errors import EngineError, nearest
from speclsp.lsp.backend.engine_http import ConnectionLost, InvalidResponse, ResponseTimeout
from speclsp.lsp.backend.remote.remote_http import HttpRefused, RemoteHttp
from speclsp.lsp.backend.remote.request_styles import INFILL, SUFFIX, TEMPLATE, RemoteServerType, stops_of
from speclsp.weights import cards
from speclsp.weights.cards import Card, Fim

ANSWER_S = 5.0
PROBE_S = 2.0
MAX_MODELS = 1000  # names that are compared with the cards, or with a misspelt name
KIND_OF_OWNER = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama.cpp", "speclsp": "speclsp"}


def split_url(url: str) -> tuple[str, str, bool]:
    """(the server's root, the path of its OpenAI API below the root, whether the URL names /infill)."""
    url = url.rstrip("/")
    if url.endswith("/infill"):
        return url.removesuffix("/infill"), "v1", True
    url = url.removesuffix("/completions")
    root = url.removesuffix("/v1")
    if root != url or not urlsplit(url).path.strip("/") or not re.search(r"/v\d\w*$", url):
        return root, "v1", False
    root, _, api = url.rpartition("/")  # a gateway's /v2, /v1beta
    return root, api, False


async def detect(http: RemoteHttp, config: Config, api: str = "v1", infill: bool = False) -> RemoteServerType:
    """The type of the server. Raises EngineError when it cannot be used."""
    listed = await list_models(http, api, needed=not infill and not config.remote.model)
    model, owner = choose_model(listed, config)
    kind = KIND_OF_OWNER.get(owner.lower(), "") or await probe_kind(http)
    if kind in ("llama.cpp", "speclsp"):
        with suppress(InvalidResponse):  # a router in front of them may answer in another format
            await http.fetch_json("health", ANSWER_S)  # these list their model before it is loaded
    style = INFILL if infill else config.remote.api
    if style == "auto":
        style = await detect_style(http, kind, model)
    card, same_size = card_for(model)
    if config.model != "auto":
        card, same_size = cards.load(config.model), True
    if card is None and style == TEMPLATE:
        raise EngineError(
            f"its model {model!r} has no model definition: set model to one with the same fill-in-the-middle markers "
            f"(`speclsp models list`), or remote.model to another of its models."
        )
    fim = card.fim if card is not None else Fim()
    return RemoteServerType(
        kind=kind,
        style=style,
        model=model,
        card_name="" if card is None else card.name if same_size else card.family,
        fim=fim,
        stop=stops_of(fim, card.stop_tokens) if card is not None else (),
        api=api,
        edit_format=(card.edit_format if card and config.model != "auto" else "") or edit_format_of(model),
    )


async def list_models(http: RemoteHttp, api: str, needed: bool) -> list[Mapping[str, Any]]:
    """The entries of /v1/models; [] if the server has no such list and it is not `needed`."""
    try:
        answer = await http.fetch_json(f"{api}/models", ANSWER_S)
    except HttpRefused as error:
        if error.status in (404, 405, 501) and not needed:
            return []
        raise
    listed = answer.get("data") if isinstance(answer, Mapping) else None
    if isinstance(listed, list):
        listed = [entry for entry in listed if isinstance(entry, Mapping) and isinstance(entry.get("id"), str)]
    if not listed and needed:
        raise InvalidResponse(f"it lists no models at /{api}/models: set remote.model, or correct remote.url.")
    return listed or []


def choose_model(listed: list[Mapping[str, Any]], config: Config) -> tuple[str, str]:
    """(model, its `owned_by`): the model in the settings, else the first with a card, else the first."""
    wanted = config.remote.model
    owners = {str(entry["id"]): str(entry.get("owned_by") or "") for entry in listed}
    if wanted:
        if listed and wanted not in owners and f"{wanted}:latest" not in owners:
            near = nearest(wanted, [*islice(owners, MAX_MODELS)]) or next(iter(owners))
            others = f" and {len(owners) - 1} more" if len(owners) > 1 else ""
            raise EngineError(f"it has no model {wanted!r} (remote.model); it has {near!r}{others}.")
        return wanted, owners.get(wanted, next(iter(owners.values()), ""))
    with_card = (model for model in islice(owners, MAX_MODELS) if card_for(model)[0] is not None)
    model = next(with_card, next(iter(owners), ""))
    return model, owners.get(model, "")


async def probe_kind(http: RemoteHttp) -> str:
    """The server's software, by requests that only one kind answers; "" if unknown."""
    paths = {"ollama": "api/version", "tgi": "info", "llama.cpp": "props"}
    answers = await asyncio.gather(*(fetch_object(http, path) for path in paths.values()))
    by_kind = dict(zip(paths, answers, strict=True))
    if "version" in by_kind["ollama"]:
        return "ollama"
    if "max_stop_sequences" in by_kind["tgi"] or "model_id" in by_kind["tgi"]:
        return "tgi"
    return "llama.cpp" if "default_generation_settings" in by_kind["llama.cpp"] else ""


async def fetch_object(http: RemoteHttp, path: str) -> Mapping[str, Any]:
    """The JSON object at a path; {} if there is none."""
    try:
        answer = await http.fetch_json(path, PROBE_S)
    except (HttpRefused, InvalidResponse, ConnectionLost, ResponseTimeout):
        return {}
    return answer if isinstance(answer, Mapping) else {}


async def detect_style(http: RemoteHttp, kind: str, model: str) -> str:
    """The best request style for this kind of server. Raises EngineError if it cannot fill in the middle."""
    if kind == "speclsp":
        return INFILL
    if kind == "llama.cpp":
        answer = await http.fetch("infill", {}, ANSWER_S)
        return INFILL if answer.status == 400 else TEMPLATE
    if kind != "ollama":
        return TEMPLATE
    details = await http.fetch_json("api/show", ANSWER_S, {"model": model})
    capabilities = details.get("capabilities") if isinstance(details, Mapping) else None
    if isinstance(capabilities, list) and "insert" not in capabilities:
        raise EngineError(
            f"Ollama's {model!r} cannot fill in the middle (its template has no place for a suffix): "
            f"set remote.model to one that can, like qwen2.5-coder."
        )
    return SUFFIX


def card_for(model: str) -> tuple[Card | None, bool]:
    """(the card for a model by its name at a server, whether the size is the same too): a family shares its markers."""
    if model in (known := all_cards()):
        return known[model], True
    name = plain_name(model)
    best: tuple[tuple[bool, bool, bool], Card] | None = None
    for card in known.values():
        repo = plain_name(card.target.repo)
        families = (card.family, edit_family(card)) if card.edit_format else (card.family,)
        if not card.target.repo or not (repo == name or any(is_of_family(name, family) for family in families)):
            continue
        rank = (repo == name, size_of(repo) == size_of(name) != "", ("instruct" in repo) == ("instruct" in name))
        if best is None or rank > best[0]:
            best = rank, card
    return (None, False) if best is None else (best[1], best[0][0] or best[0][1])


def edit_format_of(model: str) -> str:
    """The edit format of a model by its name at a server, such as sweep-next-edit of any size; "" for none.

    A family's other models have none, so `card_for` does not tell.
    """
    name = plain_name(model)
    tuned = (card for card in all_cards().values() if card.edit_format)
    return next((card.edit_format for card in tuned if is_of_family(name, edit_family(card))), "")


def edit_family(card: Card) -> str:
    """The name of a tuned model without its size: "sweep-next-edit"."""
    return re.sub(r"-\d+(\.\d+)?b$", "", plain_name(card.target.repo))


@cache
def all_cards() -> Mapping[str, Card]:
    """All cards by name; cached, because each of a gateway's hundreds of models is compared with all of them."""
    return {name: cards.load(name) for name in cards.names()}


def plain_name(name: str) -> str:
    """A model's name without publisher and file type, with "-" between its words."""
    name = re.split(r"[/\\]", name.lower())[-1].removesuffix(".gguf")
    name = re.sub(r"[:_@\s]+", "-", name)
    return re.sub(r"-(gguf|hf|latest)$", "", name)


def is_of_family(name: str, family: str) -> bool:
    """True if a plain name contains the words of a family's name."""
    return bool(re.search(rf"(?:^|-){re.escape(family)}(?=[-.]|$)", name)) or set(family.split("-")) <= set(
        name.split("-")
    )


def size_of(name: str) -> str:
    """The size in a plain name, such as "7b"; "" if it has none."""
    match = re.search(r"(?:^|[-.])(\d+(?:\.\d+)?b)(?:-|$)", name)
    return match[1] if match else ""
