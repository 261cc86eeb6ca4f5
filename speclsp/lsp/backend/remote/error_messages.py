"""What is wrong with a server somewhere else: a sentence with the way out, and nothing in it that is secret."""

from __future__ import annotations

import errno
import json
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from itertools import groupby
from urllib.parse import urlsplit

LONGEST_SAID = 2000  # of an error, in characters, before it is shortened
QUOTED_CHARACTERS = 12  # as many in a row that stood in the request are a quotation
LONGEST_WAIT_S = 86_400.0  # a Retry-After that asks for more is a mistake
OF_THE_DOCUMENT = ("prompt", "suffix", "input_prefix", "input_suffix", "input_extra", "previous", "filename")


def refusal(status: int, said: str, place: str, where: str, keyed: bool) -> str:
    """The sentence for an HTTP status that is no success. Begins with "it"."""
    because = f" ({said})" if said else ""
    if 300 <= status < 400:
        return (
            f"it redirects to {where or 'another address'} (HTTP {status}), and no redirect is followed: "
            f"if that is the right server, set backend.url to it."
        )
    if status == 401:
        if keyed:
            return f"it refuses the key (HTTP 401){because}: `speclsp key set URL` stores another."
        return f"it wants a key (HTTP 401){because}: `speclsp key set URL` stores one for it."
    if status == 403:
        return f"it denies access (HTTP 403){because}: ask whoever runs it what your key may do."
    if status == 404:
        return f"there is nothing at {place} (HTTP 404){because}: correct backend.url or backend.model."
    if status == 407:
        return "the proxy on the way wants a name and a password (HTTP 407)."
    if status == 429:
        return f"it takes no more requests from you for now (HTTP 429){because}."
    if status == 503:
        return f"it is not ready, or has too much to do (HTTP 503){because}."
    if status >= 500:
        return f"it fails (HTTP {status}){because}."
    return f"it refuses the request (HTTP {status}){because}."


def not_json(kind: str) -> str:
    """The sentence for an answer of another kind than was asked for."""
    if kind == "text/html":
        return "it answers with a web page, perhaps for signing in, and not as an API does: correct backend.url."
    return f"its answer is {kind or 'of no stated kind'} and not JSON: correct backend.url."


def spoken(body: bytes) -> str:
    """What an error answer says; "" where it says nothing readable."""
    with suppress(ValueError, RecursionError):
        found = json.loads(body)
        error = found.get("error", found.get("message", found.get("detail"))) if isinstance(found, dict) else None
        said = error.get("message") if isinstance(error, dict) else error
        return said if isinstance(said, str) else json.dumps(said)[:300] if said else ""
    return ""


def without(said: str, sent: Mapping[str, object]) -> str:
    """What a server says, without what it quotes of the document: it goes into a log."""
    texts = json.dumps([sent[name] for name in OF_THE_DOCUMENT if name in sent], ensure_ascii=False)
    document, size = " ".join(texts.split()), QUOTED_CHARACTERS
    runs = {said[at : at + size] for at in range(len(said) - size + 1)}
    quoted = {run for at in range(len(document) - size + 1) if (run := document[at : at + size]) in runs}
    hidden = bytearray(len(said))
    for at in range(len(said) - size + 1):
        if said[at : at + size] in quoted:
            hidden[at : at + size] = b"x" * size
    parts = groupby(range(len(said)), hidden.__getitem__)
    return "".join("…" if hide else "".join(said[place] for place in places) for hide, places in parts)


def visible(text: str) -> str:
    """`text` without what a terminal or an editor would obey instead of showing it."""
    return "".join(letter for letter in text if letter.isprintable())


def target_of(url: str, location: str) -> str:
    """Where a redirect leads, without what could be secret in it."""
    try:
        parts = urlsplit(location)
        port = f":{parts.port}" if parts.hostname and parts.port else ""
    except ValueError:  # no address at all
        return ""
    host = parts.hostname or urlsplit(url).hostname or ""
    return f"{parts.scheme or urlsplit(url).scheme}://{host}{port}{parts.path}" if location else ""


def retry_after_s(value: str) -> float | None:
    """Seconds from a Retry-After header, which is a number of them or a date."""
    value = value.strip()
    wait_s: float | None = None
    if value.isascii() and value.isdigit():
        wait_s = float(value[:9])
    else:
        with suppress(ValueError, TypeError, IndexError, OverflowError):
            date = parsedate_to_datetime(value)
            date = date if date.tzinfo is not None else date.replace(tzinfo=timezone.utc)
            wait_s = (date - datetime.now(timezone.utc)).total_seconds()
    return None if wait_s is None else min(max(0.0, wait_s), LONGEST_WAIT_S)


def why_unreachable(error: BaseException, host: str) -> str:
    """What kept a connection from being made."""
    for cause in causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return untrusted(cause, host)
        if isinstance(cause, ssl.SSLError):
            return f"{host} does not speak TLS there ({cause.reason or 'no handshake'}): correct backend.url."
        if isinstance(cause, socket.gaierror):
            return f"there is no host named {host}: correct backend.url, or connect to the network that knows it."
        if isinstance(cause, ConnectionRefusedError):
            return f"nothing listens at {host}'s port: start the server, or correct backend.url."
        if isinstance(cause, OSError) and cause.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
            return f"there is no way to {host} from this network: is it, or a VPN, connected?"
    return f"no connection to {host} could be made ({type(error).__name__})."


def untrusted(error: ssl.SSLCertVerificationError, host: str) -> str:
    """What is wrong with a certificate."""
    found = error.verify_message
    if error.verify_code in (9, 10):
        return f"the certificate of {host} is not valid today ({found}): whoever runs it must renew it."
    if error.verify_code in (62, 63, 64):
        return f"the certificate of {host} is for another name: correct backend.url."
    return (
        f"the certificate of {host} is signed by nobody known here ({found}): "
        f"set backend.ca_file to the file with your organisation's certificate."
    )


def causes(error: BaseException) -> Iterator[BaseException]:
    """`error` and all that led to it."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        found = waiting.pop(0)
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        waiting += [found.__cause__, found.__context__, *getattr(found, "exceptions", ())]
