"""A model directory is data: its code never runs, no file outside is read, memory is bounded, refusals name a reason.

A canary file appears if code of the directory runs. Each directory is given to the engine as a model (`model = PATH`),
the entry point with the fewest requirements.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from promises import Measured
from support.lsp.lsp_client import ROOT
from support.weights import tiny_gguf

from speclsp.engine.loading import checkpoint
from speclsp.errors import SpeclspError
from speclsp.weights import cards, model_directory
from speclsp.weights.gguf.header import read_header
from speclsp.weights.gguf.model_files import model_files
from speclsp.weights.untrusted import untrusted_files

TINY = ROOT / "models/tiny/target"
BOUND_S = 60.0
MEMORY_MIB = 300  # above an engine that has loaded the undamaged model


class Reduce:
    """An object that runs code when its pickle is read."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.canary}",)


def code(canary: Path) -> str:
    return f"import pathlib\npathlib.Path({str(canary)!r}).touch()\nclass Model: ...\nclass Tokenizer: ...\n"


def edit(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def instead(file: Path, data: bytes) -> None:
    file.unlink()
    file.write_bytes(data)


Fault = Callable[[Path, Path], object]  # poisons a model's directory; its code would touch the canary
CONFIG, TOKENIZER, TENSORS = "config.json", "tokenizer.json", "model.safetensors"


def pickles(folder: Path, canary: Path) -> None:
    (folder / TENSORS).unlink()
    for name in ("pytorch_model.bin", "model.pt", "training_args.bin"):
        (folder / name).write_bytes(pickle.dumps(Reduce(canary)))


def python_files(folder: Path, canary: Path) -> None:
    for name in ("modeling_qwen2.py", "__init__.py", "sitecustomize.py"):
        (folder / name).write_text(code(canary))


def edited(**changes: object) -> Fault:
    return lambda folder, canary: edit(folder, **changes)


def changed(name: str, change: Callable[[bytes], bytes]) -> Fault:
    return lambda folder, canary: instead(folder / name, change((folder / name).read_bytes()))


def appended(fields: bytes) -> Fault:
    """config.json with further fields."""
    return changed(CONFIG, lambda old: old.rstrip()[:-1] + b"," + fields + b"}")


def link_to(name: str, target: str) -> tuple[Fault, str]:
    def fault(folder: Path, canary: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return fault, f"{name} is a link out of its directory, to {target}, and is not followed"


def pipe(name: str) -> tuple[Fault, str]:
    def fault(folder: Path, canary: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return fault, f"{name} is a named pipe, not a plain file"


def sparse(folder: Path, canary: Path) -> None:
    """A sparse file: it claims an enormous size and takes no disk space."""
    with (folder / TOKENIZER).open("r+b") as file:
        file.truncate(1 << 40)


def adapter(folder: Path, canary: Path) -> None:
    (folder / CONFIG).unlink()
    (folder / TENSORS).rename(folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text('{"auto_mapping": {"base_model_class": "hostile.Model"}}')


def huge_metadata(old: bytes) -> bytes:
    table = json.dumps({"__metadata__": {"a": "x" * (64 << 20)}}).encode()
    return struct.pack("<Q", len(table)) + table


def many_objects(old: bytes) -> bytes:
    return b'{"added_tokens":[' + b"{}," * (15 << 20) + b"{}]}"


NO_CODE = "speclsp never runs such code, so the model is refused"
NO_SIZE = "expected a|config.json expects|max_position_embeddings is|contradicts itself|has no tensor|are not valid"
DEEP = b'{"a":' + b"[" * 500_000 + b"]" * 500_000 + b"}"
POISON: dict[str, tuple[Fault, str]] = {  # {fault: (how it is made, a regular expression of the message)}
    "pickles": (pickles, "pickle files can run code when they are read, so they are refused"),
    "a pickle called safetensors": (
        lambda folder, canary: instead(folder / TENSORS, pickle.dumps(Reduce(canary))),
        "has a header of|too short",
    ),
    "auto_map": (edited(auto_map={"AutoConfig": "hostile.Model", "AutoModelForCausalLM": "hostile.Model"}), NO_CODE),
    "python files": (python_files, NO_CODE),
    "an unknown type": (
        edited(model_type="hostile", architectures=["hostile.Model"]),
        "is a 'hostile' model; speclsp runs",
    ),
    "a link to /etc/passwd": link_to(CONFIG, "/etc/passwd"),
    "a link to /dev/zero": link_to(TOKENIZER, "/dev/zero"),
    "weights that link out": link_to(TENSORS, str(TINY / TENSORS)),
    "a pipe as weights": pipe(TENSORS),
    "a pipe as config.json": pipe(CONFIG),
    "a pipe as tokenizer.json": pipe(TOKENIZER),
    "a header that is a list": (
        changed(TENSORS, lambda old: struct.pack("<Q", 2) + b"[]"),
        "is not a safetensors file",
    ),
    "64 MB of metadata": (changed(TENSORS, huge_metadata), r"has a header of \d+ bytes"),
    "a sparse file of a TiB": (sparse, "has 1099511627776 bytes; the limit is"),
    "deep nesting": (changed(CONFIG, lambda old: DEEP), "is nested too deeply"),
    "millions of objects": (changed(TOKENIZER, many_objects), "has more than 3000000 entries"),
    "a key twice": (
        appended(b'"hidden_size": 99999,"hidden_size": 64'),
        "contradicts itself: hidden_size 64 is not a multiple of 3 heads",
    ),
    "a million layers": (edited(num_hidden_layers=1_000_000, layer_types=None), NO_SIZE),
    "an enormous vocabulary": (edited(vocab_size=4_000_000), NO_SIZE),
    "an enormous head": (edited(head_dim=4096), NO_SIZE),
    "positions without end": (edited(max_position_embeddings=10**18), NO_SIZE),
    "positions of a strange kind": (
        edited(rope_parameters={"rope_type": "yarn", "factor": "os.system('true')"}),
        "speclsp runs default, linear and llama3",
    ),
    "an adapter": (adapter, r"is an adapter \(LoRA\), not a model"),
}


def poisoned(root: Path, kind: str) -> tuple[Path, Path, str]:
    folder, canary = root / "model", root / "canary"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(TINY, folder)
    fault, message = POISON[kind]
    fault(folder, canary)
    return folder, canary, message


@pytest.mark.promise(31)
@pytest.mark.parametrize("kind", sorted(POISON))
def test_a_hostile_model_directory_is_refused_with_a_reason_before_use(tmp_path: Path, kind: str) -> None:
    """Runs in this process and records every opened file: no file outside the directory is read."""
    folder, canary, wanted = poisoned(tmp_path, kind)
    opened: list[str] = []
    LISTENING.append(opened)
    begun = time.monotonic()
    try:
        with pytest.raises(SpeclspError) as caught:
            card = cards.load(str(folder))
            assert card.target.format == "bundled"
            tokens = checkpoint.read_tokenizer(folder).get_vocab_size()
            checkpoint.read_decoder(folder, "fp32", "cpu", 64, tokens)
    finally:
        LISTENING.remove(opened)
    took_s = time.monotonic() - begun
    message = str(caught.value)
    assert re.search(wanted, message), f"expected {wanted!r} in {message!r}"
    assert "\n" not in message and len(message) < 1000 and "root:" not in message
    assert not canary.exists()
    strange = [name for name in opened if name.startswith(("/etc/passwd", "/dev/zero", str(tmp_path / "outside")))]
    assert strange == []
    assert took_s < BOUND_S


LISTENING: list[list[str]] = []


def hear(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and LISTENING:
        LISTENING[-1].append(str(arguments[0]))


sys.addaudithook(hear)


@pytest.mark.promise(31)
def test_an_engine_refuses_a_hostile_model_in_bounded_time_and_memory(
    tmp_path: Path, promise: Measured, soak: bool
) -> None:
    """Real processes: `speclsp engine --model PATH`, its exit or its /health, and its peak memory."""
    kinds = list(POISON)[::2] if soak else ["pickles", "millions of objects", "an enormous vocabulary"]
    usual_mib = highest_mib(tmp_path, TINY)[1]
    most_mib, longest_s = 0, 0.0
    for kind in kinds:
        folder, canary, wanted = poisoned(tmp_path, kind)
        begun = time.monotonic()
        output, mib = highest_mib(tmp_path, folder)
        longest_s, most_mib = max(longest_s, time.monotonic() - begun), max(most_mib, mib - usual_mib)
        assert re.search(wanted, output), f"{kind}: expected {wanted!r} in {output!r}"
        assert "Traceback" not in output
        assert not canary.exists()
    assert longest_s < BOUND_S
    assert most_mib < MEMORY_MIB
    promise.measured(
        f"{len(kinds)} poisoned directories given to engines: 0 canaries; an error after {longest_s:.1f} s and "
        f"{max(0, most_mib)} MiB above a usual load at most",
        holds=longest_s < 10,
    )


PROGRAM = """
import resource, subprocess, sys
ended = subprocess.run(sys.argv[1:], capture_output=True, text=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
print(" ".join((ended.stdout + ended.stderr).split()))
"""


def highest_mib(root: Path, folder: Path) -> tuple[str, int]:
    """The output of a process that completes with the model in `folder`, and its peak memory."""
    source = root / "app.py"
    source.write_text("def add(a, b):\n    return ")
    words = [sys.executable, "-m", "speclsp", "complete", f"{source}:2:12", "--model", str(folder)]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, timeout=120, check=True, cwd=ROOT
    )
    mib, output = ended.stdout.split("\n", 1)
    return output, int(mib)


@pytest.mark.promise(31)
def test_files_that_only_other_tools_run_are_never_opened(tmp_path: Path) -> None:
    """A template, a tokenizer's class, a generation config: other tools run or render them; speclsp opens none."""
    folder, canary = tmp_path / "model", tmp_path / "canary"
    shutil.copytree(TINY, folder)
    exploit = "{{ cycler.__init__.__globals__.os.popen('touch " + str(canary) + "').read() }}"
    hostile = {"tokenizer_class": "hostile.Tokenizer", "chat_template": exploit}
    hostile["auto_map"] = {"AutoTokenizer": ["hostile.Tokenizer", None]}
    (folder / "tokenizer_config.json").write_text(json.dumps(hostile))
    (folder / "chat_template.jinja").write_text(exploit)
    (folder / "generation_config.json").write_text('{"custom_generate": "hostile"}')
    os.mkfifo(folder / "special_tokens_map.json")
    sub = folder / "custom_generate"
    sub.mkdir()
    (sub / "generate.py").write_text(code(canary))
    (folder / "training_args.bin").write_bytes(pickle.dumps(Reduce(canary)))
    output, _ = highest_mib(tmp_path, folder)
    assert output.strip() and "speclsp:" not in output, output
    assert not canary.exists()


@pytest.mark.promise(31)
@given(st.data())
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_in_a_model_directory_give_a_model_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Bytes are changed, removed or inserted in front: the model is valid, or a message names the fault."""
    folder = tmp_path_factory.getbasetemp() / "changed"
    if not folder.exists():
        shutil.copytree(TINY, folder)
    name = data.draw(st.sampled_from([CONFIG, TENSORS]))
    whole = (TINY / name).read_bytes()
    at = data.draw(st.integers(0, min(len(whole), 4000)))
    over = data.draw(st.integers(0, 8))
    put = data.draw(st.one_of(st.binary(max_size=16), st.sampled_from([b"[" * 3000, b"{}", b"null", b"-1", b"1e999"])))
    (folder / name).write_bytes(whole[:at] + put + whole[at + over :])
    message = model_directory.unfit(folder, "The way out.")
    assert message == "" or (message.endswith("The way out.") and str(folder) in message) or "is refused" in message
    assert "\n" not in message
    (folder / name).unlink()
    shutil.copy(TINY / name, folder / name)


@pytest.mark.promise(31)
@pytest.mark.parametrize(
    ("at", "data", "says"),
    [
        (8, struct.pack("<Q", 1 << 63), "a list of 9223372036854775808 entries"),
        (16, struct.pack("<Q", 1 << 63), "a list of 9223372036854775808 entries"),
        (24, struct.pack("<Q", 1 << 62), "a text of 4611686018427387904 bytes"),
        (24, struct.pack("<Q", 1 << 24), "a text of 16777216 bytes"),
        (0, b"PK\x03\x04", "it starts with"),
    ],
)
def test_a_gguf_with_huge_counts_is_refused_with_a_reason(tmp_path: Path, at: int, data: bytes, says: str) -> None:
    file = tiny_gguf.write(tmp_path / "model.gguf", tiny_gguf.random_tensors(biases=True))
    raw = bytearray(file.read_bytes())
    raw[at : at + len(data)] = data
    file.write_bytes(raw)
    with pytest.raises(SpeclspError, match="is not a whole GGUF file") as caught:
        model_files(file)
    assert says in str(caught.value)


@pytest.mark.promise(31)
def test_a_gguf_of_many_small_lists_takes_little_memory(tmp_path: Path) -> None:
    """Each list is within bounds; their sum is not."""
    file = tmp_path / "model.gguf"
    entries = 1 << 20
    text = struct.pack("<Q", 1) + b"a"
    entry = text + struct.pack("<IIQ", 9, 0, entries) + bytes(entries)
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 40) + entry * 40)
    with file.open("rb") as opened, pytest.raises(SpeclspError, match="entries"):
        read_header(opened, file)


@pytest.mark.promise(31)
def test_only_links_like_those_of_the_hub_cache_are_followed(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "commit"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for number, file in enumerate(sorted(TINY.iterdir())):
        shutil.copy(file, blobs / str(number))
        (snapshot / file.name).symlink_to(Path("../../blobs") / str(number))
    assert cards.load(str(snapshot)).context_tokens == 1024
    (tmp_path / "secret").write_text("{}")
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to("../../secret")
    with pytest.raises(untrusted_files.Unreadable, match="a link out of its directory"):
        untrusted_files.read_json(snapshot / "config.json", 1000)
