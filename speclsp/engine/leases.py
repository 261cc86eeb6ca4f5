"""Who uses the engine, and how it says how it is. A door to starlette.

GET /health     how it is, once
GET /lease      the same now and at every change; whoever holds this stream open wants the engine to stay
POST /leave     end, if nobody is left
"""

from __future__ import annotations

from starlette.requests import Request as Http
from starlette.responses import Response

from speclsp import __version__
from speclsp.engine import wire
from speclsp.engine.holding import Holding


class Leases:
    """The streams that are open."""


def how_it_is(holding: Holding) -> wire.Json:
    """What /health says."""
    made = holding.completer
    told: wire.Json = {"status": holding.state, "pair": holding.pair, "version": __version__}
    if holding.state == "error":
        return told | wire.error_json(503, holding.message)
    if holding.state == "loading":
        told |= {"progress": round(holding.progress, 4), "message": holding.message}
    if made is not None:
        told |= {"target": made.target, "draft": made.draft, "device": made.device}
    return told


async def health(http: Http) -> Response:
    """GET /health: loading, ok, asleep or error."""
    told = how_it_is(http.app.state.engine.turns.holding)
    code = 200 if told["status"] in ("ok", "asleep") else 503
    return Response(wire.dump(told), code, media_type="application/json")
