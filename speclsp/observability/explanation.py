"""Explanations of the last suggestion, or of its absence, as text for a person.

docs/lsp-extensions.md (`speclsp/explain`) lists the fields: numbers, names and reasons, never a piece of a document.
lsp/server/explain.py computes them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

Record = Mapping[str, Any]

MAX_NAME = 60
FILES = 6  # of the context, one by one


def in_words(record: Record) -> str:
    """An explanation for a person who reads for ten seconds."""
    return "\n".join([headline(record), *(f"  {name:<10} {words}" for name, words in rows(record))])


def headline(record: Record) -> str:
    """The outcome, in one line."""
    who = clean(record.get("client") or "an editor")
    if not record.get("asked"):
        return f"no requests yet ({who})"
    when = f"({who}, {ago(record)})"
    if record["outcome"] == "shown":
        more = f", 1 of {record['suggestions']}" if record["suggestions"] > 1 else ""
        return f"suggested: {record['shown_characters']} characters{more} {when}"
    return f"nothing shown: {record['meaning'] or record['outcome']} {when}"


def rows(record: Record) -> Iterator[tuple[str, str]]:
    """The lines below the headline: (label, text)."""
    if record.get("asked"):
        if record["outcome"] != "shown":
            yield "reason", record["outcome"] + (f": {clean(record['message'], 300)}" if record["message"] else "")
        language = f" ({clean(record['language'])})" if record["language"] else ""
        yield "at", f"{clean(record['document'])}, line {record['line']}, column {record['column']}{language}"
        yield from filter(lambda row: row[1], work(record))
    if record.get("next_edit"):
        yield "next edit", next_edit(record["next_edit"])
    engine = record["engine"]
    state = engine["state"] + (f": {clean(engine['message'], 300)}" if engine["message"] else "")
    if state != "ready" or not record.get("asked"):
        yield "engine", state
        if engine["pair"] and not record.get("asked"):
            yield "model", clean(engine["pair"])


def work(record: Record) -> Iterator[tuple[str, str]]:
    """The lines about one request; a text is "" where it does not apply."""
    yield "made by", maker(record)
    yield "time", time_of(record["ms"])
    prompt, generation = record["prompt"], record["generation"]
    if prompt["tokens"]:
        cut = f"; {prompt['left_out_tokens']} did not fit" if prompt["left_out_tokens"] else ""
        at_rest = ", computed while the cursor rested" if record.get("at_rest") else ""
        yield "prompt", f"{prompt['tokens']} tokens, {prompt['cached_tokens']} of them cached{at_rest}{cut}"
    if generation["rounds"]:
        rate = f"{generation['tokens_per_round']:.1f} a round"
        rounds = f"{generation['rounds']} round{'s' if generation['rounds'] > 1 else ''}"
        yield "tokens", f"{generation['tokens']} in {rounds} ({rate}){ended(generation['stop'])}"
        sources = [
            f"{name} {counts['accepted']} of {counts['drafted']}" for name, counts in generation["by_source"].items()
        ]
        yield (
            "drafts",
            f"{generation['accepted']} of {generation['drafted']} tokens accepted: {', '.join(sources)}"
            if sources
            else "none",
        )
    yield "confidence", confidence_in(record)
    yield "cut", cut_from(record)
    yield from context(record["context"])


def next_edit(record: Record) -> str:
    """The last request for a next edit: its producer and evidence, or the reason for none."""
    place = f"{clean(record['document'])}, line {record['line']}"
    work = f"{record['producer']}, {record['ms']:.0f} ms"
    if record["outcome"] != "shown":
        return f"none at {place}: {record['meaning'] or record['outcome']} ({work})"
    if record.get("probability") is not None:
        return f"an edit at {place}, of probability {record['probability']:.2f} ({work})"
    times = "once" if record["times"] == 1 else f"{record['times']} times"
    return f"{record['kind']} at {place}, made {times} before ({work})"


def maker(record: Record) -> str:
    """The model that answered, and its device or server."""
    engine = record["engine"]
    where = f", at {clean(engine['remote'])}" if engine["remote"] else f" on {clean(engine['device'])}"
    model = clean(engine["target"] or engine["pair"], 100)
    if record["reused"] and record.get("prepared"):
        return f"{model}{where}, prepared while the previous suggestion was shown"
    if record["reused"]:
        return "an earlier answer, cached: no request to the model"
    if not record["ms"]["engine"] and not record["adopted"]:
        return ""
    note = "; from the stream of an older request" if record["adopted"] else ""
    if record.get("prepared"):
        note = "; started while the previous suggestion was shown"
    return f"{model}{where}{note}"


def time_of(ms: Record) -> str:
    """The time of each step."""
    inside = ("queue", "prompt", "rounds")  # zeros where nothing came, and where a server does not say
    names = ("waiting", "parse", "context", *(inside if any(ms[name] for name in inside) else ("engine",)))
    steps = [f"{name} {ms[name]:.0f}" for name in names if ms[name] >= 0.5]
    first = f"; first text after {ms['first_text']:.0f} ms" if ms["first_text"] else ""
    return f"{ms['total']:.0f} ms{': ' + ', '.join(steps) if steps else ''}{first}"


STOPS = {
    "enough": "the shown text was complete",
    "parted": "its text differs from what was typed",
    "eos": "end of the model's text",
    "limit": "the token limit",
    "deadline": "the deadline",
    "word": "a stop text",
    "failed": "it failed",
    "closed": "the request was cancelled",
}


def ended(stop: str) -> str:
    """The reason why the generation ended."""
    return f"; ended: {STOPS.get(stop, stop)}" if stop else ""


def confidence_in(record: Record) -> str:
    """The predicted probability that the first line is wanted, beside the threshold."""
    confidence = record["confidence"]
    if confidence["first_line"] is None:
        return ""
    if not confidence["wanted"]:
        return f"{confidence['first_line']:.2f}; no threshold here"
    return f"{confidence['first_line']:.2f}, threshold {confidence['wanted']:.2f} for {clean(record['language'])}"


def cut_from(record: Record) -> str:
    """The parts of the model's text that are not shown."""
    cuts = [f"{cut['characters']} ({cut['meaning']})" for cut in record["cut"]]
    whole = record["streamed_characters"]
    return f"of {whole} characters: {', '.join(cuts)}" if cuts else ""


def context(record: Record) -> Iterator[tuple[str, str]]:
    """The context in the prompt, and the parts that were left out."""
    for place, file in enumerate(record["files"][:FILES]):
        source = "" if file["source"] == "document" else f", {file['source']}"
        yield (
            "context" if not place else "",
            f"{clean(file['path']) or '(no name)'}: {file['characters']} characters{source}",
        )
    if len(record["files"]) > FILES:
        yield "", f"and {len(record['files']) - FILES} more"
    out = [f"{record['not_shown'][side]} characters {side}" for side in ("above", "below") if record["not_shown"][side]]
    out += [f"{count} of other files ({why})" for why, count in record["left_out"].items()]
    yield "left out", ", ".join(out)


def ago(record: Record) -> str:
    """The time since the request."""
    seconds = max(0, round(time.time() - record["at_s"]))
    return (
        f"{seconds} s ago"
        if seconds < 120
        else f"{seconds // 60} min ago"
        if seconds < 7200
        else f"{seconds // 3600} h ago"
    )


def clean(text: object, longest: int = MAX_NAME) -> str:
    """A name that is safe for a terminal: the end of a long one, without control characters."""
    printable = "".join(letter for letter in str(text) if letter.isprintable())
    return printable if len(printable) <= longest else "..." + printable[3 - longest :]


def counted(words: tuple[str, ...]) -> dict[str, int]:
    """The number of occurrences of each word."""
    return dict(Counter(words))
