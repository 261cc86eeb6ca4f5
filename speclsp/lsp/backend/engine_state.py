"""The state that an engine reports in /lease and /health, as a Status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from speclsp.daemon.engine_files import NOT_AN_ENGINE
from speclsp.errors import EngineError
from speclsp.lsp.backend.types import Status


def with_state(status: Status, event: Mapping[str, Any]) -> Status:
    """`status` with the reported state; unchanged for an engine that is leaving.

    Raises EngineError when the engine cannot serve, or is no engine.
    """
    state, error = event.get("status"), event.get("error")
    if state == "error" and isinstance(error, dict):
        raise EngineError(str(error.get("message") or "the engine could not load the model; its log has the details."))
    if state == "leaving":
        return status
    if state not in ("ok", "asleep", "loading") or (state != "loading" and "model" not in event):
        raise EngineError(NOT_AN_ENGINE)
    usual = {"loading": "loading the model", "asleep": "the model is unloaded until the next request"}
    return replace(
        status,
        state="ready" if state == "ok" else state,
        message=str(event.get("message") or usual.get(state, "")),
        progress=_number(event.get("progress")) if state == "loading" else None,
        model=str(event.get("model") or status.model),
        model_reason=str(event.get("reason") or ""),
        target=str(event.get("target") or status.target),
        draft=str(event.get("draft") or "") if "target" in event else status.draft,
        device=str(event.get("device") or status.device),
        clients=int(_number(event.get("clients")) or 0),
        engine_pid=int(_number(event.get("pid")) or 0),
    )


def _number(value: object) -> float | None:
    """A JSON number; None for anything else."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
