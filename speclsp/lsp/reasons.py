"""Reasons for showing no suggestion: a code for traces and the status line, a sentence for users."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Reason(str, Enum):
    """A reason for showing no suggestion. `meaning` explains it in one line."""

    meaning: str

    # settings
    DISABLED = "disabled", "completion.enabled is off"
    LANGUAGE_OFF = "language_off", "the language is in completion.disabled_languages"
    GLOB_OFF = "glob_off", "the file matches completion.disabled_globs"
    TOO_LARGE = "too_large", "the file is larger than context.max_file_bytes"
    NOT_OPEN = "not_open", "the editor has not opened this document with the server"
    MANUAL = "manual", "completion.trigger is manual: suggestions appear on request only"
    NEXT_EDIT_HERE = (
        "next_edit_here",
        "a next edit is offered on this line, or the rename behind the cursor goes on elsewhere",
    )
    # the file
    SECRET_FILE = "secret_file", "files of this kind hold secrets (docs/privacy.md)"
    EXCLUDED = "excluded", "an ignore file for AI tools names the file: .aiexclude, .cursorignore or .continueignore"
    # the engine
    LOADING = "loading", "the model is not ready"
    ENGINE_LOST = "engine_lost", "the engine ended or refused the request; the log has details"
    # it failed, was stopped, or serves another user's process for now
    ENGINE_AWAY = "engine_away", "no engine is available; the status shows the cause and the fix"
    SERVER_AWAY = (
        "server_away",  # the circuit breaker is open
        "requests to remote.url are paused; the status shows the cause and the time of the next try",
    )
    DEADLINE = "deadline", "the model returned no usable text within completion.timeout_ms"
    # the request
    SUPERSEDED = "superseded", "a newer request replaced this one"
    CANCELLED = "cancelled", "the editor cancelled the request"
    CLOSED = "closed", "the document was closed"
    FAILED = "failed", "a bug in speclsp; the log has the details"
    # post-processing, from the text at the cursor and the model's answer
    INSIDE_WORD = "inside_word", "an identifier continues to the right of the cursor"
    MID_LINE = "mid_line", "there is text to the right of the cursor, and completion.eagerness is low"
    BINARY = "binary", "the file holds NUL characters"
    EMPTY = "empty", "the model returned no text, or only whitespace"
    TRIVIAL = "trivial", "a comma or similar, faster typed than read"
    REPEATS_LINE = "repeats_line", "it repeats the text to the right of the cursor"
    REPEATS_BELOW = "repeats_below", "it repeats the next line of the file"
    REPEATS_ABOVE = "repeats_above", "it repeats the lines above, or one of the last three"
    LOOPS = "loops", "the model repeats itself from the start"
    BREAKS = "breaks", "it would add a syntax error to the file"
    CUT_SHORT = "cut_short", "a limit ended it in mid-expression"
    OUTDENTS = "outdents", "its line stands further left, and the editor cannot move it"
    UNSURE = "unsure", "its value is below its cost: see completion.eagerness"
    DOES_NOT_FIT = "does_not_fit", "it begins a new line although there is text to the right of the cursor"
    FORBIDDEN = "forbidden", "it begins with a character or a special token that is never shown"
    SECRET = "secret", "it contains a possible key or password that is not in the workspace"
    LICENCE = "licence", "it is a licence or copyright header that is not in the workspace"
    # the next edit
    NEXT_EDIT_OFF = "next_edit_off", "next_edit.enabled is off"
    NO_RECENT_EDIT = "no_recent_edit", "no recent edit to learn the next edit from"
    GENERATED = "generated", "a tool has written the file, as its first lines declare"
    CONFLICT = "conflict", "the file has an unresolved merge conflict"
    NO_REPEAT = "no_repeat", "no other place is known to follow from the recent edits"
    MADE_ONCE = "made_once", "a change like it is offered once it was made twice"
    UNOPENED = "unopened", "the renamed name has its other uses in files that are not open: List Uses"
    OUT_OF_TIME = "out_of_time", "the search reached its limit of processor time"
    UNLIKELY = "unlikely", "edits like it were seldom right"
    UNRESOLVED = "unresolved", "the file does not prove that other places mean what was renamed"
    STILL_DEFINED = "still_defined", "the old name still has a definition in the same scope"
    NAME_IN_USE = "name_in_use", "the new name is in use there, or a keyword"
    NOT_VISIBLE = "not_visible", "a name in it is not visible there, or stands for the function around"
    UNKNOWN_ARGUMENT = "unknown_argument", "the argument's text is unknown, and the editor selects no placeholder"
    UNDOES = "undoes", "the user has undone this next edit"
    DECLINED = "declined", "the user has rejected this next edit"
    UNFIT = "unfit", "only whitespace would change, or over 20 lines be added"
    UNCHANGED = "unchanged", "the model changes nothing near the cursor and the last edit"
    MODEL_UNSURE = "model_unsure", "the model's confidence in its next edit is too low"
    REVERTS = "reverts", "it would undo a recent edit"
    ENGINE_BUSY = "engine_busy", "other requests went first"

    def __new__(cls, value: str, meaning: str) -> Reason:
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    __hash__ = str.__hash__  # Enum hashes the member's name: then a dict with plain strings as keys would miss it
    __str__ = str.__str__  # its code, in every text that it goes into


AWAY = ("error", "stopped")  # states of a backend that answers nothing until another event


def reason_without_backend(state: str, is_remote: bool) -> Reason:
    """The reason while no backend can be used. `state`: the backend's; "" before there is one."""
    if state not in AWAY:
        return Reason.LOADING
    return Reason.SERVER_AWAY if is_remote else Reason.ENGINE_AWAY


PASSING = (Reason.SUPERSEDED, Reason.CANCELLED, Reason.CLOSED)  # not about the position: a newer request answers

MEANINGS: Mapping[str, str] = {reason.value: reason.meaning for reason in Reason}


def meaning(reason: str) -> str:
    """The sentence for a reason; "" for "", the reason of a shown suggestion, and for an unknown one."""
    return MEANINGS.get(reason, "")
