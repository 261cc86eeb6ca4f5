"""What kind of server answers at `backend.url`, what it calls its model, and how that is to be asked.

    GET /v1/models    the models, and by `owned_by` mostly who serves them
    GET /api/version, /info, /props    Ollama, TGI, llama.cpp, where that did not tell
    GET /health       llama.cpp and our own engine: whether the model is loaded
    POST /infill {}   llama.cpp without a prompt: 400 where its model has the markers, 501 where not
    POST /api/show    Ollama: whether the model's template has a place for a suffix

No token is made. The card that describes the model is found by the name the server has for it, whatever publishers and
quantizers have made of that; `pair` and `backend.model` say it where the name does not.
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
from speclsp.lsp.backend.http import BadAnswer, ConnectionLost, TooLate
from speclsp.lsp.backend.remote.http import HttpRefused, RemoteHttp
from speclsp.lsp.backend.remote.request_styles import INFILL, SUFFIX, TEMPLATE, RemoteServerType, stops_of
from speclsp.weights import cards
from speclsp.weights.cards import Card, Fim

LOOK_S = 5.0
PROBE_S = 2.0
MOST_MODELS = 1000  # looked at for one that a card describes, or that is spelt nearly so
OWNERS = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama.cpp", "speclsp": "speclsp"}


def addresses(url: str) -> tuple[str, str, bool]:
    """The server's root, the path of its OpenAI side below that, and whether the URL asks for /infill by name."""
    url = url.rstrip("/")
    if url.endswith("/infill"):
        return url.removesuffix("/infill"), "v1", True
    url = url.removesuffix("/completions")
    root = url.removesuffix("/v1")
    if root != url or not urlsplit(url).path.strip("/") or not re.search(r"/v\d\w*$", url):
        return root, "v1", False
    root, _, api = url.rpartition("/")  # a gateway's /v2, /v1beta
    return root, api, False


async def find_out(wire: RemoteHttp, config: Config, api: str = "v1", infill: bool = False) -> RemoteServerType:
    """Look at the server. Raises EngineError: it cannot be used, and why."""
    listed = await models(wire, api, needed=not infill and not config.backend.model)
    model, owner = choose(listed, config)
    kind = OWNERS.get(owner.lower(), "") or await probe(wire, model, owner)
    if kind in ("llama.cpp", "speclsp"):
        with suppress(BadAnswer):  # a router before them says "OK" in its own way
            await wire.json("health", timeout_s=LOOK_S)  # these list their model before it is loaded
    style = INFILL if infill else config.backend.style
    if style == "auto":
        style = await style_of(wire, kind, model)
    card, fits = card_for(model)
    if config.pair != "auto":
        card, fits = cards.load(config.pair), True
    if card is None and style == TEMPLATE:
        raise EngineError(
            f"its model {model!r} is described by no card: set pair to one with the same fill-in-the-middle markers "
            f"(`speclsp models list`), or backend.model to another of its models."
        )
    fim = card.fim if card is not None else Fim()
    return RemoteServerType(
        kind=kind,
        style=style,
        model=model,
        pair="" if card is None else card.name if fits else card.family,
        fim=fim,
        stop=stops_of(fim, card.stop_tokens) if card is not None else (),
        api=api,
    )


async def models(wire: RemoteHttp, api: str, needed: bool) -> list[Mapping[str, Any]]:
    """What /v1/models lists; nothing where there is no such list and it is not `needed`."""
    try:
        found = await wire.json(f"{api}/models", timeout_s=LOOK_S)
    except HttpRefused as error:
        if error.status in (404, 405, 501) and not needed:
            return []
        raise
    listed = found.get("data") if isinstance(found, Mapping) else None
    if isinstance(listed, list):
        listed = [one for one in listed if isinstance(one, Mapping) and isinstance(one.get("id"), str)]
    if not listed and needed:
        raise BadAnswer(f"it lists no models at /{api}/models: set backend.model, or correct backend.url.")
    return listed or []


def choose(listed: list[Mapping[str, Any]], config: Config) -> tuple[str, str]:
    """(model, who serves it): the one in the settings, else the first that a card describes, else the first."""
    wanted = config.backend.model
    owners = {str(one["id"]): str(one.get("owned_by") or "") for one in listed}
    if wanted:
        if listed and wanted not in owners and f"{wanted}:latest" not in owners:
            near = nearest(wanted, [*islice(owners, MOST_MODELS)]) or next(iter(owners))
            others = f" and {len(owners) - 1} more" if len(owners) > 1 else ""
            raise EngineError(f"it has no model {wanted!r} (backend.model); it has {near!r}{others}.")
        return wanted, owners.get(wanted, next(iter(owners.values()), ""))
    described = (model for model in islice(owners, MOST_MODELS) if card_for(model)[0] is not None)
    model = next(described, next(iter(owners), ""))
    return model, owners.get(model, "")


async def probe(wire: RemoteHttp, model: str, owner: str) -> str:
    """Who serves, where the list of models does not tell; "" for somebody unknown."""
    paths = {"ollama": "api/version", "tgi": "info", "llama.cpp": "props"}
    found = dict(zip(paths, await asyncio.gather(*(maybe(wire, path) for path in paths.values())), strict=True))
    if "version" in found["ollama"]:
        return "ollama"
    if "max_stop_sequences" in found["tgi"] or "model_id" in found["tgi"]:
        return "tgi"
    return "llama.cpp" if "default_generation_settings" in found["llama.cpp"] else ""


async def maybe(wire: RemoteHttp, path: str) -> Mapping[str, Any]:
    """The JSON object at a path; an empty one where there is none."""
    try:
        found = await wire.json(path, timeout_s=PROBE_S)
    except (HttpRefused, BadAnswer, ConnectionLost, TooLate):
        return {}
    return found if isinstance(found, Mapping) else {}


async def style_of(wire: RemoteHttp, kind: str, model: str) -> str:
    """How this kind of server is asked best. Raises EngineError: it cannot fill in the middle."""
    if kind == "speclsp":
        return INFILL
    if kind == "llama.cpp":
        answer = await wire.fetch("infill", {}, timeout_s=LOOK_S)
        return INFILL if answer.status == 400 else TEMPLATE
    if kind != "ollama":
        return TEMPLATE
    shown = await wire.json("api/show", {"model": model}, timeout_s=LOOK_S)
    can = shown.get("capabilities") if isinstance(shown, Mapping) else None
    if isinstance(can, list) and "insert" not in can:
        raise EngineError(
            f"Ollama's {model!r} cannot fill in the middle (its template has no place for a suffix): "
            f"set backend.model to one that can, like qwen2.5-coder."
        )
    return SUFFIX


# ── which card ────────────────────────────────────────────────────────────────────────────────────────────────────────


def card_for(model: str) -> tuple[Card | None, bool]:
    """The card for a model by its name at a server, and whether it is of that size: a family shares its markers."""
    if model in (known := all_cards()):
        return known[model], True
    name = plain(model)
    best: tuple[tuple[bool, bool, bool], Card] | None = None
    for card in known.values():
        repo = plain(card.target.repo)
        if not card.target.repo or not of_family(name, card.family):
            continue
        alike = (repo == name, size_of(repo) == size_of(name) != "", ("instruct" in repo) == ("instruct" in name))
        if best is None or alike > best[0]:
            best = alike, card
    return (None, False) if best is None else (best[1], best[0][0] or best[0][1])


@cache
def all_cards() -> Mapping[str, Card]:
    """Each by its name. A gateway can list hundreds of models, and each is held against all of these."""
    return {name: cards.load(name) for name in cards.names()}


def plain(name: str) -> str:
    """A model's name without its publisher, the kind of file, and what separates its words."""
    name = re.split(r"[/\\]", name.lower())[-1].removesuffix(".gguf")
    name = re.sub(r"[:_@\s]+", "-", name)
    return re.sub(r"-(gguf|hf|latest)$", "", name)


def of_family(name: str, family: str) -> bool:
    """Whether a plain name has the words of a family's name."""
    return bool(re.search(rf"(?:^|-){re.escape(family)}(?=[-.]|$)", name)) or set(family.split("-")) <= set(
        name.split("-")
    )


def size_of(name: str) -> str:
    """ "7b" in a plain name; "" where there is none."""
    found = re.search(r"(?:^|[-.])(\d+(?:\.\d+)?b)(?:-|$)", name)
    return found[1] if found else ""
