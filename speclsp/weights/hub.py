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
from typing import TYPE_CHECKING, Any

from speclsp.weights.cards import Weights
from speclsp.weights.model_directory import PICKLES, sum_of

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # read when huggingface_hub is first imported, by anyone

CONNECT_S = 4.0  # until the first answer, DNS included: without a network the next source is tried
STALL_S = 30.0  # a transfer of less than a chunk in this time is aborted and resumed
ATTEMPTS = 4  # in a row without progress
CHUNK_BYTES = 1 << 16  # what a broken transfer may lose
BUSY = (408, 425, 429)  # asking again may help
SMALL = ("config.json", "tokenizer.json", "model.safetensors.index.json")
WANTED = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors")


class HubError(Exception):
    """The hub cannot give the files; str() says why, in part of a sentence. `final`: asking again will not help."""

    def __init__(self, why: str, final: bool = True) -> None:
        super().__init__(why)
        self.final = final


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
    except HubError:
        return False
    return True


def files(weights: Weights) -> tuple[str, list[PublishedFile]]:
    """The commit, and the files to fetch at it. Raises HubError."""
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
                f"{weights.repo} publishes only pickle files, which can run code when they are read: refused"
            )
        chosen |= {"config.json", "tokenizer.json", *(file.name for file in weights.files)}
    if missing := sorted(chosen - names):
        raise HubError(f"{weights.repo} at {weights.revision or 'main'} has no {missing[0]}")
    sums = {file.name: file.sha256 for file in weights.files if file.sha256}
    published = []
    for file in sorted(info.siblings or [], key=lambda file: file.rfilename):
        if file.rfilename in chosen:
            kept = file.lfs.sha256 if file.lfs else ""
            if sums.get(file.rfilename, kept) != kept:
                raise HubError(
                    f"{weights.repo} reports for {file.rfilename} the sha256 {kept or 'of a small file'}, "
                    f"the model definition expects {sums[file.rfilename]}"
                )
            published.append(checked(PublishedFile(file.rfilename, int(file.size or 0), kept, str(file.blob_id or ""))))
    return str(info.sha), published


def checked(file: PublishedFile) -> PublishedFile:
    """The file, if its sums are valid hexadecimal: they become part of a local file name. Raises HubError."""
    if not re.fullmatch(r"[0-9a-f]{64}", file.sha256) and (
        file.sha256 or not re.fullmatch("[0-9a-f]{40}", file.git_sha1)
    ):
        raise HubError(f"the hub reports no usable checksum for {file.name}")
    if file.bytes < 0:
        raise HubError(f"the hub reports {file.bytes} bytes for {file.name}")
    return file


def fetch(repo: str, revision: str, file: PublishedFile, into: Path, advance: Callable[[int], None]) -> Path:
    """Fetch one file, resuming an earlier attempt, check its sum, and return its path."""
    into.mkdir(parents=True, exist_ok=True)
    whole, partial = into / file.name, into / f"{file.name}.{(file.sha256 or file.git_sha1)[:12]}.partial"
    if whole.is_file() and _is_right(whole, file):
        advance(file.bytes)
        return whole
    failures = 0
    while True:
        before = _size(partial)
        try:
            _transfer(repo, revision, file, partial, advance)
            break
        except HubError as error:
            failures = failures + 1 if _size(partial) < before + CHUNK_BYTES else 1
            if error.final or failures >= ATTEMPTS:
                raise
            time.sleep(failures - 1)
    if not _is_right(partial, file):
        digest = sum_of(partial)
        size = partial.stat().st_size
        partial.unlink()
        raise HubError(
            f"the hub sent {file.name} with {size} bytes and sha256 {digest}: expected {file.bytes} bytes and "
            f"{f'sha256 {file.sha256}' if file.sha256 else f'git hash {file.git_sha1}'}"
        )
    with partial.open("rb") as written:
        os.fsync(written.fileno())
    partial.replace(whole)
    return whole


def _transfer(repo: str, revision: str, file: PublishedFile, partial: Path, advance: Callable[[int], None]) -> None:
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

    here = _size(partial)
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


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _is_right(path: Path, file: PublishedFile) -> bool:
    if path.stat().st_size != file.bytes:
        return False
    if file.sha256:
        return sum_of(path) == file.sha256
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest() == file.git_sha1


def _endpoint() -> str:
    from huggingface_hub import constants

    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


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
    """A HubError, with part of a sentence, for any error of huggingface_hub or its HTTP client."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return HubError(
            "the hub requires that you accept the licence: do so on the model's page, then run `hf auth login`"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return HubError("the hub has no such revision")
    if isinstance(error, errors.RepositoryNotFoundError):
        return HubError("the hub has no such model, or requires `hf auth login`")
    if isinstance(error, errors.OfflineModeIsEnabled):
        return HubError("HF_HUB_OFFLINE is set")
    status = int(getattr(getattr(error, "response", None), "status_code", 0))
    if status >= 400:
        return HubError(f"the hub answered with HTTP {status}", final=status < 500 and status not in BUSY)
    if isinstance(error, ValueError):  # no JSON, or JSON without what a hub says
        return HubError("the server that answers is not the hub: it may be a login page of this network")
    if "Timeout" in type(error).__name__:
        return HubError(f"the hub sent nothing for {STALL_S:.0f} s", final=False)
    message = (str(error).splitlines() or [""])[0][:120]
    return HubError(f"the hub cannot be reached ({message or type(error).__name__})", final=False)
