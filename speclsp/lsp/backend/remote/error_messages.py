"""Error messages about a remote server: the problem and the fix in one sentence, without secrets."""

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

from speclsp.errors import shortened

MAX_ERROR_CHARACTERS = 2000  # of a server's error text, before it is shortened
QUOTED_CHARACTERS = 12  # characters in a row that are also in the request: from this number on, a quotation
MAX_WAIT_S = 86_400.0  # a longer Retry-After is taken for a mistake
DOCUMENT_FIELDS = ("prompt", "suffix", "input_prefix", "input_suffix", "input_extra", "previous", "filename")


def refusal(status: int, server_text: str, path: str, redirect_target: str, has_key: bool) -> str:
    """Message for an HTTP status other than success. Begins with "it"."""
    because = f" ({server_text})" if server_text else ""
    if 300 <= status < 400:
        return (
            f"it redirects to {redirect_target or 'another address'} (HTTP {status}), and no redirect is followed: "
            f"if that is the right server, set remote.url to it."
        )
    if status == 401:
        if has_key:
            return f"it refuses the key (HTTP 401){because}: `speclsp key set URL` stores another."
        return f"it wants a key (HTTP 401){because}: `speclsp key set URL` stores one for it."
    by_status = {
        403: f"it denies access (HTTP 403){because}: ask whoever runs it what your key may do.",
        404: f"there is nothing at {path} (HTTP 404){because}: correct remote.url or remote.model.",
        407: "the proxy on the way wants a name and a password (HTTP 407).",
        429: f"it takes no more requests from you for now (HTTP 429){because}.",
        503: f"it is not ready, or has too much to do (HTTP 503){because}.",
    }
    problem = "fails" if status >= 500 else "refuses the request"
    return by_status.get(status, f"it {problem} (HTTP {status}){because}.")


def not_json(kind: str) -> str:
    """Message for an answer of an unexpected content type."""
    if kind == "text/html":
        return "it answers with a web page, perhaps for signing in, and not as an API does: correct remote.url."
    return f"its answer is {kind or 'of no stated kind'} and not JSON: correct remote.url."


def server_error_text(body: bytes) -> str:
    """The text of a JSON error answer; "" where there is none."""
    with suppress(ValueError, RecursionError):
        answer = json.loads(body)
        error = answer.get("error", answer.get("message", answer.get("detail"))) if isinstance(answer, dict) else None
        text = error.get("message") if isinstance(error, dict) else error
        return text if isinstance(text, str) else shortened(json.dumps(text), 300) if text else ""
    return ""


def without_quotes(text: str, request: Mapping[str, object]) -> str:
    """A server's text without its quotations of the document, because it goes into a log."""
    texts = json.dumps([request[name] for name in DOCUMENT_FIELDS if name in request], ensure_ascii=False)
    document, size = " ".join(texts.split()), QUOTED_CHARACTERS
    runs = {text[at : at + size] for at in range(len(text) - size + 1)}
    quoted = {run for at in range(len(document) - size + 1) if (run := document[at : at + size]) in runs}
    hidden = bytearray(len(text))
    for at in range(len(text) - size + 1):
        if text[at : at + size] in quoted:
            hidden[at : at + size] = b"x" * size
    parts = groupby(range(len(text)), hidden.__getitem__)
    return "".join("…" if hide else "".join(text[at] for at in positions) for hide, positions in parts)


def visible(text: str) -> str:
    """`text` without control characters, which a terminal or an editor would execute instead of showing."""
    return "".join(letter for letter in text if letter.isprintable())


def redirect_target(url: str, location: str) -> str:
    """The address that a redirect names, without the parts that can hold secrets."""
    try:
        parts = urlsplit(location)
        port = f":{parts.port}" if parts.hostname and parts.port else ""
    except ValueError:  # not an address
        return ""
    host = parts.hostname or urlsplit(url).hostname or ""
    return f"{parts.scheme or urlsplit(url).scheme}://{host}{port}{parts.path}" if location else ""


def retry_after_s(value: str) -> float | None:
    """Seconds from a Retry-After header, which is a number of seconds or a date."""
    value = value.strip()
    wait_s: float | None = None
    if value.isascii() and value.isdigit():
        wait_s = float(value[:9])
    else:
        with suppress(ValueError, TypeError, IndexError, OverflowError):
            date = parsedate_to_datetime(value)
            date = date if date.tzinfo is not None else date.replace(tzinfo=timezone.utc)
            wait_s = (date - datetime.now(timezone.utc)).total_seconds()
    return None if wait_s is None else min(max(0.0, wait_s), MAX_WAIT_S)


def unreachable(error: BaseException, host: str) -> str:
    """Message for a connection that could not be made."""
    for cause in causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return bad_certificate(cause, host)
        if isinstance(cause, ssl.SSLError):
            return f"{host} does not speak TLS there ({cause.reason or 'no handshake'}): correct remote.url."
        if isinstance(cause, socket.gaierror):
            return f"there is no host named {host}: correct remote.url, or connect to the network that knows it."
        if isinstance(cause, ConnectionRefusedError):
            return f"nothing listens at {host}'s port: start the server, or correct remote.url."
        if isinstance(cause, OSError) and cause.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
            return f"there is no way to {host} from this network: is it, or a VPN, connected?"
    return f"no connection to {host} could be made ({type(error).__name__})."


def bad_certificate(error: ssl.SSLCertVerificationError, host: str) -> str:
    """Message for a certificate that fails verification."""
    problem = error.verify_message
    if error.verify_code in (9, 10):
        return f"the certificate of {host} is not valid today ({problem}): whoever runs it must renew it."
    if error.verify_code in (62, 63, 64):
        return f"the certificate of {host} is for another name: correct remote.url."
    return (
        f"the certificate of {host} is signed by nobody known here ({problem}): "
        f"set remote.ca_file to the file with your organisation's certificate."
    )


def causes(error: BaseException) -> Iterator[BaseException]:
    """`error` and all exceptions that caused it."""
    queue: list[BaseException | None] = [error]
    visited: set[int] = set()
    while queue:
        cause = queue.pop(0)
        if cause is None or id(cause) in visited:
            continue
        visited.add(id(cause))
        yield cause
        queue += [cause.__cause__, cause.__context__, *getattr(cause, "exceptions", ())]
