"""Damaged weights are reported with the file, the value found, the value expected and the command that repairs them."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from promises import Measured
from support.lsp.editor_client import Page
from support.weights.faulty_hub import (
    COMMIT,
    FIRST,
    REPAIR,
    SECOND,
    FaultyHubRun,
    model,
    packed,
    sha256,
    unpacked,
)

from speclsp.engine.decoding.prompt import Prompter
from speclsp.engine.decoding.vocabulary import Vocabulary
from speclsp.engine.loading import checkpoint
from speclsp.errors import WeightsError
from speclsp.weights import cards, store
from speclsp.weights.cards import Weights

CODE = "def add(a, b):\n    return "
WANTED_S, BOUND_S = 5.0, 60.0  # the limit of the promise; the limit on a busy machine

Fault = Callable[[Path], str]  # damages a model's directory; a regular expression that the message must match


def rewrite(file: Path, change: Callable[[bytes], bytes]) -> tuple[bytes, bytes]:
    old = file.read_bytes()
    new = change(old)
    file.write_bytes(new)
    return old, new


def lengths(file: Path, change: Callable[[bytes], bytes]) -> str:
    old, new = rewrite(file, change)
    return f"{file} is {len(new)} bytes long, not {len(old)}"


def sums(file: Path, change: Callable[[bytes], bytes]) -> str:
    old, new = rewrite(file, change)
    assert len(old) == len(new)
    return f"{file} was altered: its sha256 is {sha256(new)}, not {sha256(old)}"


def unmanifested(file: Path, change: Callable[[bytes], bytes], says: str) -> str:
    """A fault that only reading the file finds: the manifest still matches it."""
    manifest = json.loads((file.parent / "manifest.json").read_text())
    _, new = rewrite(file, change)
    status = file.stat()
    manifest["files"][file.name] = {"bytes": len(new), "sha256": sha256(new), "modified_ns": status.st_mtime_ns}
    (file.parent / "manifest.json").write_text(json.dumps(manifest))
    return f"{file} {says}"


def headed(change: Callable[[dict], object]) -> Callable[[bytes], bytes]:
    def edit(old: bytes) -> bytes:
        header, data = unpacked(old)
        change(header)
        return packed(header, data)

    return edit


def overlap(header: dict) -> None:
    """Two tensors of one size share one place; the other tensor's bytes belong to none."""
    alike: dict[str, str] = {}
    for name, tensor in header.items():
        other = alike.setdefault(json.dumps(tensor["shape"]), name)
        if other != name:
            tensor["data_offsets"] = header[other]["data_offsets"]
            return


def out_of_range(header: dict) -> None:
    last = max(header.values(), key=lambda each: each["data_offsets"][1])
    last["data_offsets"] = [offset + 2**40 for offset in last["data_offsets"]]


def integers(header: dict) -> None:
    for tensor in header.values():
        tensor["dtype"] = "I16"


def configured(**changes: object) -> Callable[[bytes], bytes]:
    return lambda old: json.dumps(json.loads(old) | changes).encode()


def swap(folder: Path) -> str:
    (folder / FIRST).rename(folder / "aside")
    (folder / SECOND).rename(folder / FIRST)
    (folder / "aside").rename(folder / SECOND)
    return rf"{folder / FIRST} is \d+ bytes long, not \d+"


def remove(file: Path, says: str, instead: Callable[[Path], object] = lambda file: None) -> str:
    file.unlink()
    instead(file)
    return f"{file} {says}"


def other_tokenizer(folder: Path) -> str:
    def change(old: bytes) -> bytes:
        tokenizer = json.loads(old)
        return json.dumps(tokenizer | {"added_tokens": [{**tokenizer["added_tokens"][0], "content": "<s>"}]}).encode()

    unmanifested(folder / "tokenizer.json", change, "")
    return r"tokenizer.json of \S+ has no token '<.fim_\w+.>', which the model definition \w+ expects"


PAGE = b"<!DOCTYPE html><html>404</html>"
FAULTS: dict[str, Fault] = {
    "cut short": lambda folder: lengths(folder / SECOND, lambda old: old[:-1000]),
    "empty": lambda folder: lengths(folder / FIRST, lambda old: b""),
    "bytes behind the end": lambda folder: lengths(folder / SECOND, lambda old: old + b"more"),
    "a hole of zeros": lambda folder: sums(folder / SECOND, lambda old: old[:-9000] + bytes(8000) + old[-1000:]),
    "one bit flipped": lambda folder: sums(folder / FIRST, lambda old: old[:-99] + bytes([old[-99] ^ 4]) + old[-98:]),
    "a web page": lambda folder: unmanifested(folder / SECOND, lambda old: PAGE, "is a web page, not the file itself"),
    "a huge header": lambda folder: unmanifested(
        folder / SECOND, lambda old: (1 << 60).to_bytes(8, "little") + old[8:], f"has a header of {1 << 60} bytes"
    ),
    "tensors that overlap": lambda folder: unmanifested(
        folder / SECOND, headed(overlap), "lets tensors (overlap|leave)"
    ),
    "tensors out of the file": lambda folder: unmanifested(
        folder / SECOND, headed(out_of_range), r"is \d+ bytes long, not \d+"
    ),
    "a shard missing": lambda folder: remove(folder / SECOND, "is missing"),
    "shards swapped": swap,
    "config.json broken": lambda folder: unmanifested(folder / "config.json", lambda old: old[:-9], "is not JSON"),
    "config.json of other shapes": lambda folder: unmanifested(
        folder / "config.json", configured(hidden_size=96), ""
    ).replace("config.json ", rf"{FIRST} holds model.embed_tokens.weight as \[2048, 192\]: config.json expects "),
    "config.json of more layers": lambda folder: unmanifested(
        folder / "config.json", configured(num_hidden_layers=9, layer_types=["full_attention"] * 9), ""
    ).replace("/config.json ", r" has no tensor model.layers.5"),
    "tokenizer.json broken": lambda folder: unmanifested(
        folder / "tokenizer.json", lambda old: old[: len(old) // 2], "cannot be read"
    ),
    "tokenizer.json of another model": other_tokenizer,
    "an end of text that is no marker": lambda folder: unmanifested(
        folder / "config.json", configured(eos_token_id=5), ""
    ).replace("config.json ", "tokenizer.json belongs to another model: the end token 5 of config.json"),
    "numbers of another kind": lambda folder: unmanifested(
        folder / FIRST, headed(integers), r"holds \S+ as I16: expected one of F64, F32, F16, BF16"
    ),
    "a directory in a file's place": lambda folder: remove(
        folder / SECOND, "is a directory, not a plain file", lambda file: file.mkdir()
    ),
    "a link to nothing": lambda folder: remove(
        folder / SECOND, "is missing", lambda file: file.symlink_to(folder / "gone")
    ),
}
TORCH = {  # faults found only after torch is imported: they need the model's own reader
    "config.json of other shapes",
    "config.json of more layers",
    "tokenizer.json broken",
    "tokenizer.json of another model",
    "an end of text that is no marker",
    "numbers of another kind",
}


def check_message(message: str, wanted: str) -> None:
    """Checks for one line, beside the progress lines that are printed without a terminal."""
    assert re.search(wanted, message), f"expected {wanted!r} in {message!r}"
    assert REPAIR in message or "`speclsp models pull`" in message, message
    assert "Traceback" not in message and "bug in speclsp" not in message, message
    assert len([line for line in message.strip().splitlines() if not line.startswith("checking ")]) == 1, message


@pytest.mark.promise(23)
def test_every_fault_is_reported_in_one_line_with_the_file_the_values_and_the_repair(
    house: FaultyHubRun, promise: Measured, soak: bool, tmp_path: Path
) -> None:
    """`speclsp complete` in a process for each fault."""
    source = tmp_path / "app.py"
    source.write_text(CODE)
    words = ("complete", f"{source}:2:12", "--model", "hubbed", "--set", "engine.offline=true")
    longest_s = 0.0
    kinds = [kind for kind in FAULTS if soak or kind not in TORCH]  # importing torch takes seconds for each
    for kind in kinds:
        wanted = FAULTS[kind](model(house))
        begun = time.monotonic()
        code, output = house.fork(*words)
        longest_s = max(longest_s, time.monotonic() - begun)
        assert code == 2, (kind, output)
        check_message(output, wanted)
    assert longest_s < BOUND_S
    promise.measured(f"{len(kinds)} kinds of fault named, after {longest_s:.1f} s at most", holds=longest_s < WANTED_S)


@pytest.mark.promise(23)
@pytest.mark.parametrize("kind", sorted(TORCH))
def test_faults_that_only_the_model_reader_finds_are_named_too(house: FaultyHubRun, kind: str) -> None:
    folder = model(house)
    wanted = FAULTS[kind](folder)
    with pytest.raises(WeightsError) as caught:
        tokenizer = checkpoint.read_tokenizer(folder)
        Prompter(cards.load("tiny"), tokenizer, Vocabulary(tokenizer), 64)
        checkpoint.read_decoder(folder, "fp32", "cpu", 64, tokenizer.get_vocab_size())
    check_message(str(caught.value), wanted)


@pytest.mark.promise(23)
def test_the_language_server_reports_the_fault_survives_and_suggests_after_the_repair(
    house: FaultyHubRun, promise: Measured
) -> None:
    kinds, longest_s = ["config.json of other shapes", "a hole of zeros"], 0.0
    wanted = FAULTS[kinds[0]](model(house))
    with house.editor() as editor:
        editor.initialize({"window": {"workDoneProgress": True}})
        for number, kind in enumerate(kinds):
            before = len(editor.states())
            if number:
                wanted = FAULTS[kind](model(house))
                begun = time.monotonic()
                assert editor.call("speclsp/retry", {})["retrying"]
            else:
                begun = time.monotonic()
            editor.until("error", after=before if number else 0, timeout_s=BOUND_S)
            longest_s = max(longest_s, time.monotonic() - begun)
            message = [status for status in editor.statuses() if status["state"] == "error"][-1]["message"]
            check_message(message, wanted)
            assert editor.process.poll() is None
        house.hub.reset()
        code, output = house.fork("models", "pull", "hubbed")
        assert code == 0, output
        before = len(editor.states())
        assert editor.call("speclsp/retry", {})["retrying"]
        editor.until("ready", after=before, timeout_s=BOUND_S)
        page = Page(editor, CODE)
        items: list[dict[str, object]] = []
        until = time.monotonic() + BOUND_S
        while not items and time.monotonic() < until:
            items = editor.items(page.ask(len(CODE), kind=1))  # on request: the model is too small to be sure of it
        assert items, "after the repair there are suggestions"
        assert not editor.popups() and not editor.stray
    assert "Traceback" not in "".join(log.read_text() for log in editor.logs.glob("*.log*"))
    promise.measured(
        f"{len(kinds)} faults in one language server: named after {longest_s:.1f} s at most, suggestions once repaired",
        holds=longest_s < WANTED_S,
    )


@pytest.mark.promise(23)
def test_verify_finds_a_flipped_bit_even_if_the_modification_time_is_unchanged(house: FaultyHubRun) -> None:
    """Bits decay without a change in the file system: loading trusts the modification time, `verify` trusts nothing."""
    folder = model(house)
    wanted = FAULTS["one bit flipped"](folder)
    stamped_ns = json.loads((folder / "manifest.json").read_text())["files"][FIRST]["modified_ns"]
    os.utime(folder / FIRST, ns=(stamped_ns, stamped_ns))
    code, output = house.fork("models", "verify", "hubbed")
    assert code == 1
    check_message(output, wanted)
    assert house.fork("models", "pull", "hubbed")[0] == 0
    code, output = house.fork("models", "verify", "hubbed")
    assert code == 0 and output.startswith("hubbed: all checksums match\n")


@pytest.mark.promise(23)
def test_touched_weights_are_checked_once(house: FaultyHubRun) -> None:
    folder = model(house)
    os.utime(folder / FIRST)
    hubbed, steps = Weights(name="hubbed", format="safetensors", revision=COMMIT), []
    for expected in ([FIRST], []):
        steps.clear()
        assert store.ensure(hubbed, offline=True, progress=steps.append) == folder
        assert sorted({step.detail for step in steps}) == expected


@pytest.mark.promise(23)
def test_the_users_own_directory_is_named_in_the_error_and_never_changed(house: FaultyHubRun, tmp_path: Path) -> None:
    """models_dir and `model = PATH`: no command may repair them, so the message names the user's own fix."""
    mine = tmp_path / "mine" / "hubbed"
    shutil.copytree(house.whole / "speclsp/models/hubbed", mine)
    (mine / "manifest.json").unlink()
    wanted = lengths(mine / SECOND, lambda old: old[:-5])
    source = tmp_path / "app.py"
    source.write_text(CODE)
    for words, way_out in (
        (("--model", "hubbed", "--set", f"models_dir={tmp_path / 'mine'}"), f"remove it and run {REPAIR}"),
        (("--model", str(mine)), "`speclsp models list`"),
    ):
        code, output = house.fork("complete", f"{source}:2:12", *words)
        assert code == 2
        assert wanted in output and way_out in output, output
