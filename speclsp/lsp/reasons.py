"""Why a request showed nothing: one word for the trace and the status line, one line for the person who wonders."""

from __future__ import annotations

from collections.abc import Mapping

# Settings say so.
DISABLED = "disabled"
LANGUAGE_OFF = "language_off"
GLOB_OFF = "glob_off"
TOO_LARGE = "too_large"
NOT_OPEN = "not_open"

# What the file is.
SECRET_FILE = "secret_file"
EXCLUDED = "excluded"

# The engine.
LOADING = "loading"  # not ready
ENGINE_LOST = "engine_lost"  # it went away, or refused
ENGINE_AWAY = "engine_away"  # it was given up or stopped, or is another's for now
SERVER_AWAY = "server_away"  # the one at backend.url, and it is left alone for now
DEADLINE = "deadline"  # and nothing worth showing by then

# The request itself.
SUPERSEDED = "superseded"
CANCELLED = "cancelled"
CLOSED = "closed"  # the document, or the server
FAILED = "failed"  # a bug of ours

PASSING = (SUPERSEDED, CANCELLED, CLOSED)  # these say nothing about the place: another request has it, or nobody

MEANINGS: Mapping[str, str] = {
    DISABLED: "completion.enabled is off",
    LANGUAGE_OFF: "the language is in completion.languages_off",
    GLOB_OFF: "the file matches completion.globs_off",
    TOO_LARGE: "the file is larger than context.max_file_bytes",
    NOT_OPEN: "the editor has not opened this document with the server",
    SECRET_FILE: "the file is of a kind that holds secrets (docs/privacy.md)",
    EXCLUDED: "an ignore file for AI tools names the file: .aiexclude, .cursorignore or .continueignore",
    LOADING: "the model is not ready",
    ENGINE_LOST: "the engine went away or refused; the log says more",
    ENGINE_AWAY: "there is no engine for now; the status says why and what ends that",
    SERVER_AWAY: "the server at backend.url is left alone for a while; the status says why and for how long",
    DEADLINE: "the model had nothing worth showing within completion.deadline_ms",
    SUPERSEDED: "a newer request took over",
    CANCELLED: "the editor gave the request up",
    CLOSED: "the document was closed",
    FAILED: "a bug of speclsp; the log says where",
}


def meaning(reason: str) -> str:
    """The line for a reason; "" for "", which is the reason of what was shown."""
    if not reason or reason in MEANINGS:
        return MEANINGS.get(reason, "")
    from speclsp.lsp.postprocess.plan import Reason  # not sooner: the editor has its answer to `initialize` by then

    return next((known.meaning for known in Reason if known == reason), "")


def as_markdown() -> str:
    """The list of docs/protocol.md: why nothing was shown, and what is cut from what is."""
    from speclsp.lsp.postprocess.plan import CUTS, Reason

    reasons = {**MEANINGS, **{known.value: known.meaning for known in Reason}}
    tables = [
        [f"| {head} | |", "|---|---|", *(f"| `{name}` | {said} |" for name, said in listed.items())]
        for head, listed in (("reason", reasons), ("cut", CUTS))
    ]
    return "\n".join(tables[0]) + "\n\n" + "\n".join(tables[1])


if __name__ == "__main__":
    print(as_markdown())
