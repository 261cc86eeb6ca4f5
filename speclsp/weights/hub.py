"""Client of the model hub: lists the files of a pinned revision, and fetches them with resumption after interruptions.

Every file is checked before it gets its name: large ones against the SHA-256 the hub keeps for them and the card's,
small ones against the git hash that the pinned commit gives them. It requests only config, tokenizer and safetensors,
or the one GGUF that a card names.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from speclsp.errors import shortened
from speclsp.private_files import flush, remove, retry_while_open
from speclsp.weights.cards import Weights
from speclsp.weights.model_directory import PICKLES, file_bytes, sum_of
from speclsp.weights.untrusted.untrusted_files import Unreadable

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # read when huggingface_hub is first imported, by anyone

CONNECT_S = 4.0  # until the first answer, DNS included: without a network the next source is tried
STALL_S = 30.0  # a transfer of less than a chunk in this time is aborted and resumed
ATTEMPTS = 4  # in a row without progress
MAX_CAUSE = 200  # characters of a library's own message
CHUNK_BYTES = 1 << 16  # what a broken transfer may lose
BUSY = (408, 425, 429)  # asking again may help
SMALL = ("config.json", "tokenizer.json", "model.safetensors.index.json")
WANTED = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors")

OFFICIAL = "https://huggingface.co"
OTHER_MIRROR = "If HF_ENDPOINT names a mirror, unset it; otherwise install the newest speclsp."
LOGIN = "Accept the model's licence on its page, run `hf auth login`, unset an old HF_TOKEN, or open the firewall."
WAIT = "Wait some minutes; with a login (`hf auth login`) the limit is higher."
VARIABLES = "Correct or unset the variables that begin with HF_."
PROXY = "Correct HTTPS_PROXY, HTTP_PROXY and ALL_PROXY, or the proxy in the system's settings."
NETWORK = "Open a web page in a browser and log in to the network; if HF_ENDPOINT names a mirror, unset it."
CERTIFICATE = "Set SSL_CERT_FILE to the file with the certificates of your network, and correct the machine's clock."
FIXES = {401: LOGIN, 403: LOGIN, 407: PROXY, **dict.fromkeys(BUSY, WAIT)}  # of HTTP statuses


class HubError(Exception):
    """The hub cannot give the files; str() says why, in part of a sentence.

    `final`: asking again will not help. `fix`: a sentence with the way out; "" where that is a network connection.
    """

    def __init__(self, why: str, final: bool = True, fix: str = "") -> None:
        super().__init__(why)
        self.final, self.fix = final, fix


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file of one revision: exactly one of the two sums is known."""

    name: str
    bytes: int
    sha256: str
    git_sha1: str


def is_reachable() -> bool:
    """True when the hub answers within a few seconds."""
    try:
        _check_variables()
        _within(CONNECT_S, lambda: _session().head(_endpoint(), timeout=CONNECT_S))
    except HubError:
        return False
    return True


def files(weights: Weights) -> tuple[str, list[PublishedFile]]:
    """The commit, and the files to fetch at it. Raises HubError."""
    _check_variables()
    from huggingface_hub import HfApi

    def ask() -> ModelInfo:
        api = HfApi(endpoint=_endpoint())
        return api.model_info(weights.repo, revision=weights.revision or "main", files_metadata=True, timeout=CONNECT_S)

    info = _within(CONNECT_S, ask)
    names = {file.rfilename for file in info.siblings or []}
    if weights.format == "gguf":
        chosen = {file.name for file in weights.files}
    else:
        chosen = {name for name in names if name in SMALL or WANTED.fullmatch(name)}
        if not any(name.endswith(".safetensors") for name in chosen) and any(name.endswith(PICKLES) for name in names):
            raise HubError(
                f"{weights.repo} publishes only pickle files, which can run code when they are read: refused",
                fix="Choose another model (`speclsp models list`).",
            )
        chosen |= {"config.json", "tokenizer.json", *(file.name for file in weights.files)}
    if missing := sorted(chosen - names):
        raise HubError(f"{weights.repo} at {weights.revision or 'main'} has no {missing[0]}", fix=OTHER_MIRROR)
    sums = {file.name: file.sha256 for file in weights.files if file.sha256}
    published = []
    for file in sorted(info.siblings or [], key=lambda file: file.rfilename):
        if file.rfilename in chosen:
            kept = file.lfs.sha256 if file.lfs else ""
            if sums.get(file.rfilename, kept) != kept:
                raise HubError(
                    f"{weights.repo} reports for {file.rfilename} the sha256 {kept or 'of a small file'}, "
                    f"the model definition expects {sums[file.rfilename]}",
                    fix=OTHER_MIRROR,
                )
            published.append(checked(PublishedFile(file.rfilename, int(file.size or 0), kept, str(file.blob_id or ""))))
    return str(info.sha), published


def checked(file: PublishedFile) -> PublishedFile:
    """The file, if its sums are valid hexadecimal: they become part of a local file name. Raises HubError."""
    if not re.fullmatch(r"[0-9a-f]{64}", file.sha256) and (
        file.sha256 or not re.fullmatch("[0-9a-f]{40}", file.git_sha1)
    ):
        raise HubError(f"the hub reports no usable checksum for {file.name}", fix=OTHER_MIRROR)
    if file.bytes < 0:
        raise HubError(f"the hub reports {file.bytes} bytes for {file.name}", fix=OTHER_MIRROR)
    return file


def fetch(repo: str, revision: str, file: PublishedFile, into: Path, advance: Callable[[int], None]) -> Path:
    """Fetch one file, resuming an earlier attempt, check its sum on the disk, and return its path.

    `into`: no other process writes there. Raises HubError, and OSError and Unreadable from the disk.
    """
    into.mkdir(parents=True, exist_ok=True)
    whole, partial = into / file.name, into / f"{file.name}.{(file.sha256 or file.git_sha1)[:12]}.partial"
    if whole.is_file() and _is_right(whole, file):
        advance(file.bytes)
        return whole
    resumed, failures = file_bytes(partial) > 0, 0
    while True:
        before = file_bytes(partial)
        try:
            _transfer(repo, revision, file, partial, advance)
            break
        except HubError as error:
            failures = failures + 1 if file_bytes(partial) < before + CHUNK_BYTES else 1
            if error.final or failures >= ATTEMPTS:
                raise
            time.sleep(failures - 1)
    flush(partial)
    if not _is_right(partial, file):
        digest = sum_of(partial)
        size = partial.stat().st_size
        remove(partial)
        if resumed:  # the bytes of the earlier fetch may be damaged
            return fetch(repo, revision, file, into, advance)
        raise HubError(
            f"the hub sent {file.name} with {size} bytes and sha256 {digest}: expected {file.bytes} bytes and "
            f"{f'sha256 {file.sha256}' if file.sha256 else f'git hash {file.git_sha1}'}",
            fix="The file was deleted. A proxy or a mirror that changes downloads must be avoided.",
        )
    retry_while_open(lambda: partial.replace(whole))
    return whole


def _transfer(repo: str, revision: str, file: PublishedFile, partial: Path, advance: Callable[[int], None]) -> None:
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

    here = file_bytes(partial)
    if here >= file.bytes > 0:
        return
    advance(here)
    url = hf_hub_url(repo, file.name, revision=revision, endpoint=_endpoint())
    headers = build_hf_headers() | ({"Range": f"bytes={here}-"} if here else {})
    try:
        with _session().stream("GET", url, headers=headers, timeout=STALL_S) as response:
            hf_raise_for_status(response)
            with partial.open("ab" if response.status_code == 206 else "wb") as out:
                here = counted = out.tell()
                since = reported = time.monotonic()
                for piece in response.iter_bytes():
                    out.write(piece)
                    out.flush()  # a kill loses only unwritten data
                    here, now = here + len(piece), time.monotonic()
                    if here > file.bytes:
                        break  # what comes is something else: its sum will say so
                    if here - counted >= CHUNK_BYTES:
                        counted, since = here, now
                    elif now - since > STALL_S:
                        raise HubError(f"the hub sent {here - counted} bytes in {STALL_S:.0f} s", final=False)
                    if now - reported > 0.1:
                        reported = now
                        advance(here)
    except HubError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and getattr(error, "response", None) is None:
            raise  # the disk's, not the network's: httpx has errors of its own
        raise _in_words(error) from None


def _is_right(path: Path, file: PublishedFile) -> bool:
    if path.stat().st_size != file.bytes:
        return False
    try:
        if file.sha256:
            return sum_of(path) == file.sha256
        content = path.read_bytes()
    except (Unreadable, OSError):
        return False
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest() == file.git_sha1


def _endpoint() -> str:
    return (os.environ.get("HF_ENDPOINT") or OFFICIAL).rstrip("/")


def _check_variables() -> None:
    """Raise HubError for variables of huggingface_hub with which its import, or each of its requests, fails."""
    endpoint = _endpoint()
    try:
        parts = urlsplit(endpoint)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid or not endpoint.isascii() or any(letter.isspace() for letter in endpoint):
        wanted = f"Set HF_ENDPOINT to an address such as {OFFICIAL}, or unset it."
        raise HubError(f"HF_ENDPOINT = {shortened(endpoint, 60)!r} is not a web address", fix=wanted)
    try:
        from huggingface_hub import HfApi, get_token  # noqa: F401 - its settings are read when it is imported
    except ImportError as error:
        raise HubError(f"huggingface_hub cannot be imported ({error})", fix="Install speclsp again.") from error
    except Exception as error:  # such as a number that is none
        message = shortened(str(error), MAX_CAUSE)
        raise HubError(f"huggingface_hub refuses its settings ({message})", fix=VARIABLES) from error
    token = get_token() or ""
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise HubError("HF_TOKEN or the stored token has spaces or letters that no token has", fix=LOGIN)


def _session() -> Any:
    """huggingface_hub's own HTTP client, with the user's proxies and token; typed as what httpx calls it."""
    from huggingface_hub.utils import get_session

    return get_session()


def _within(seconds: float, ask: Callable[[], Any]) -> Any:
    """The answer; HubError after `seconds`: a DNS lookup can hang past every timeout of the connection."""
    box: list[Any] = []

    def run() -> None:
        try:
            box.append(ask())
        except Exception as error:
            box.append(error)

    asking = threading.Thread(target=run, daemon=True)
    asking.start()
    asking.join(seconds)
    if not box:
        raise HubError(f"the hub did not answer within {seconds:.0f} s")
    if "Timeout" in type(box[0]).__name__:  # the connection's own, a moment sooner
        raise HubError(f"the hub did not answer within {seconds:.0f} s", final=False)
    if isinstance(box[0], Exception):
        raise _in_words(box[0])
    return box[0]


def _in_words(error: Exception) -> HubError:
    """A HubError, with part of a sentence and the way out, for any error of huggingface_hub or its HTTP client."""
    from urllib.request import getproxies

    status = int(getattr(getattr(error, "response", None), "status_code", 0))
    if status >= 400:
        fix = FIXES.get(status, WAIT if status >= 500 else OTHER_MIRROR)
        return HubError(f"the hub answered with HTTP {status}", final=status < 500 and status not in BUSY, fix=fix)
    if "HF_HUB_OFFLINE" in str(error):
        return HubError("HF_HUB_OFFLINE is set", fix=VARIABLES)
    message = shortened((str(error).splitlines() or [""])[0], MAX_CAUSE) or type(error).__name__
    proxy = PROXY if getproxies().keys() - {"no"} else ""  # of the variables, or of the settings of Windows and macOS
    is_page = isinstance(error, json.JSONDecodeError | KeyError | TypeError | AttributeError)
    if is_page or (isinstance(error, ValueError) and not proxy):  # with a proxy: its address is not valid
        return HubError(f"the answer is not the hub's ({message})", fix=NETWORK)
    if "Timeout" in type(error).__name__:
        return HubError(f"the hub sent nothing for {STALL_S:.0f} s", final=False)
    if isinstance(error, FileNotFoundError) or re.search(r"\[ssl|certificate", message, re.IGNORECASE):
        return HubError(f"the hub's certificate cannot be verified ({message})", fix=CERTIFICATE)
    return HubError(f"the hub cannot be reached ({message})", final=False, fix=proxy)
