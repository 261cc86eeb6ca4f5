"""Former names of settings and flags, each with its present name: a former name sets nothing and is an error."""

from __future__ import annotations

from collections.abc import Mapping

RENAMED_SETTINGS: Mapping[str, str] = {
    "pair": "model",
    "completion.languages_off": "completion.disabled_languages",
    "completion.globs_off": "completion.disabled_globs",
    "completion.in_menu": "completion.show_in_menu",
    "completion.deadline_ms": "completion.timeout_ms",
    "completion.prepare_next": "completion.prefetch_next",
    "context.extra_tokens": "context.cross_file_tokens",
    "context.index": "context.index_workspace",
    "engine.grace_seconds": "engine.shutdown_delay_seconds",
    "engine.keep_free_mib": "engine.min_free_memory_mib",
    "engine.record": "engine.record_requests",
    "engine.max_gamma": "engine.max_draft_tokens",
    "engine.model_gamma": "engine.max_model_draft_tokens",
    "engine.speculation": "engine.speculative_decoding",
    "backend": "remote",
    "backend.url": "remote.url",
    "backend.model": "remote.model",
    "backend.style": "remote.api",
    "backend.fallback": "remote.fallback",
    "backend.ca_file": "remote.ca_file",
    "backend.key": "remote.key",
}
RENAMED_FLAGS: Mapping[str, str] = {"--pair": "--model"}


def renamed(key: str) -> str | None:
    """The error for a former name of a setting; None for any other key."""
    new = RENAMED_SETTINGS.get(key)
    return None if new is None else f'"{key}" is now "{new}": rename it.'
