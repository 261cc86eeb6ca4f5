"""Client of the model hub: lists the files of a pinned revision, and fetches them with resumption after interruptions.

Every file is checked before it gets its name: large ones against the SHA-256 the hub keeps for them and the card's,
small ones against the git hash that the pinned commit gives them. It requests only config, tokenizer and safetensors,
or the one GGUF that a card names.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from speclsp.errors import shortened
from speclsp.private_files import flush, remove, retry_while_open
from speclsp.weights.cards import Weights
from speclsp.weights.model_directory import PICKLES, file_bytes, sum_of
from speclsp.weights.store_messages import SourceError, wrong_download
from speclsp.weights.untrusted.untrusted_files import Unreadable

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # read when huggingface_hub is first imported, by anyone

CONNECT_S = 4.0  # until the first answer, DNS included: without a network the next source is tried
STALL_S = 30.0  # a transfer of less than a chunk in this time is aborted and resumed
ATTEMPTS = 4  # in a row without progress
CHUNK_BYTES = 1 << 16  # what a broken transfer may lose
BUSY = (408, 425, 429)  # asking again may help
SMALL = ("config.json", "tokenizer.json")
WANTED = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors")

OFFICIAL = "https://huggingface.co"
OTHER_MIRROR = "If HF_ENDPOINT names a mirror, unset it; otherwise install the newest speclsp."
LOGIN = "Accept the model's licence on its page, and run `hf auth login` or correct HF_TOKEN."
WAIT = "Wait some minutes; with a login (`hf auth login`) the limit is higher."
NETWORK = (
    "Check the connection: the login page of the network in a browser, the proxy (HTTPS_PROXY), the certificates "
    "(SSL_CERT_FILE), the clock, and the variables that begin with HF_."
)


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
        _within(CONNECT_S, lambda: _session().head(_endpoint(), timeout=CONNECT_S))
    except SourceError:
        return False
    return True


def files(weights: Weights) -> tuple[str, list[PublishedFile]]:
    """The commit, and the files to fetch at it. Raises SourceError."""

    def ask() -> ModelInfo:
        from huggingface_hub import HfApi

        api = HfApi(endpoint=_endpoint())
        return api.model_info(weights.repo, revision=weights.revision or "main", files_metadata=True, timeout=CONNECT_S)

    info = _within(CONNECT_S, ask)
    siblings = {file.rfilename: file for file in info.siblings or []}
    if weights.format == "gguf":
        chosen = {file.name for file in weights.files}
    else:
        chosen = {*SMALL, *filter(WANTED.fullmatch, siblings)}
        if not any(name.endswith(".safetensors") for name in chosen) and any(
            name.endswith(PICKLES) for name in siblings
        ):
            raise SourceError(
                f"{weights.repo} publishes only pickle files, which can run code when they are read: refused",
                "Choose another model (`speclsp models list`).",
            )
        chosen |= {file.name for file in weights.files}
    if missing := sorted(chosen - siblings.keys()):
        raise SourceError(f"{weights.repo} at {weights.revision or 'main'} has no {missing[0]}", OTHER_MIRROR)
    sums = {file.name: file.sha256 for file in weights.files if file.sha256}
    published = []
    for name in sorted(chosen):
        entry = siblings[name]
        kept = entry.lfs.sha256 if entry.lfs else ""
        if sums.get(name, kept) != kept:
            raise SourceError(
                f"{weights.repo} reports for {name} the sha256 {kept or 'of a small file'}, "
                f"the model definition expects {sums[name]}",
                OTHER_MIRROR,
            )
        published.append(checked(PublishedFile(name, int(entry.size or 0), kept, str(entry.blob_id or ""))))
    return str(info.sha), published


def checked(file: PublishedFile) -> PublishedFile:
    """The file, if its sums are valid hexadecimal: they become part of a local file name. Raises SourceError."""
    pattern, digest = ("[0-9a-f]{64}", file.sha256) if file.sha256 else ("[0-9a-f]{40}", file.git_sha1)
    if not re.fullmatch(pattern, digest) or file.bytes < 0:
        raise SourceError(f"the hub reports {file.bytes} bytes and no usable checksum for {file.name}", OTHER_MIRROR)
    return file


def fetch(repo: str, revision: str, file: PublishedFile, into: Path, advance: Callable[[int], None]) -> None:
    """Fetch one file into a directory, resuming an earlier attempt, and check its sum on the disk.

    `into`: no other process writes there. Raises SourceError, and OSError and Unreadable from the disk.
    """
    whole, partial = into / file.name, into / f"{file.name}.{(file.sha256 or file.git_sha1)[:12]}.partial"
    if whole.is_file() and _is_right(whole, file):
        advance(file.bytes)
        return
    failures = 0
    while True:
        before = file_bytes(partial)
        try:
            _transfer(repo, revision, file, partial, advance)
            break
        except SourceError as error:
            failures = failures + 1 if file_bytes(partial) < before + CHUNK_BYTES else 1
            if error.final or failures >= ATTEMPTS:
                raise
            time.sleep(failures - 1)
    flush(partial)
    if not _is_right(partial, file):
        size, digest = file_bytes(partial), sum_of(partial)
        remove(partial)
        wanted = f"sha256 {file.sha256}" if file.sha256 else f"git hash {file.git_sha1}"
        raise wrong_download("the hub", file.name, f"{size} bytes and sha256 {digest}", f"{file.bytes} bytes, {wanted}")
    retry_while_open(lambda: partial.replace(whole))


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
                        raise SourceError(f"the hub sent {here - counted} bytes in {STALL_S:.0f} s", NETWORK, False)
                    if now - reported > 0.1:
                        reported = now
                        advance(here)
    except SourceError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and getattr(error, "response", None) is None:
            raise  # the disk's: errors of the HTTP client are no OSError
        raise _source_error(error) from None


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


def _session() -> Any:
    """huggingface_hub's own HTTP client, with the user's proxies and token; typed as what httpx calls it."""
    from huggingface_hub.utils import get_session

    return get_session()


def _within(seconds: float, ask: Callable[[], Any]) -> Any:
    """The answer; SourceError after `seconds`: a DNS lookup can hang past every timeout of the connection."""
    answers: SimpleQueue[Any] = SimpleQueue()

    def run() -> None:
        try:
            _check_token()
            answers.put(ask())
        except Exception as error:
            answers.put(_source_error(error))

    threading.Thread(target=run, daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except Empty:
        raise SourceError(f"the hub did not answer within {seconds:.0f} s", NETWORK) from None
    if isinstance(answer, SourceError):
        raise answer
    return answer


def _check_token() -> None:
    """Raise SourceError for a token that the HTTP client would refuse, because its message would quote the token."""
    from huggingface_hub import get_token

    token = get_token() or ""
    if not (token.isascii() and token.isprintable()):
        raise SourceError("HF_TOKEN or the stored token has letters that no token has", LOGIN)


def _source_error(error: Exception) -> SourceError:
    """The SourceError for any error of huggingface_hub, its HTTP client or its settings."""
    if isinstance(error, SourceError):
        return error
    status = int(getattr(getattr(error, "response", None), "status_code", 0))
    if status >= 400:
        is_busy = status >= 500 or status in BUSY
        fix = WAIT if is_busy else LOGIN if status in (401, 403) else OTHER_MIRROR
        return SourceError(f"the hub answered with HTTP {status}", fix, final=not is_busy)
    message = shortened((str(error).splitlines() or [""])[0], 200) or type(error).__name__
    return SourceError(f"the hub cannot be used ({message})", NETWORK, final=False)
