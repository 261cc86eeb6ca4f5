"""Prepared weights: a mapped decoder equals one in memory, bit for bit; files that do not fit are prepared anew."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from support.engine.random_models import IDS, NATIVE, native_decoder, save_random, save_seven_heads
from support.engine.superblock_models import save_random_q4k_m

from speclsp.engine.loading import checkpoint
from speclsp.engine.loading.prepared import prepared_weights
from speclsp.engine.loading.prepared.prepared_weights import PreparedWeights, Writer
from speclsp.engine.model.int8 import native, pages
from speclsp.engine.model.int8.native import NativeDecoder
from speclsp.errors import WeightsError
from speclsp.weights import model_directory

VOCAB = 1000
INT8_SUM = "8bc291d83d4e7433"  # of the packed numbers of a fixed model; the instruction sets share them, except AMX
pytestmark = [
    pytest.mark.skipif(not NATIVE, reason="forward.c does not run here"),
    pytest.mark.usefixtures("any_path"),
]
WIDE = {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 256}
MODELS = {
    "untied": lambda directory: save_seven_heads(directory, layers=2, tie_word_embeddings=False),
    "tied": lambda directory: save_seven_heads(directory, layers=2, tie_word_embeddings=True),
    "with biases": lambda directory: save_random("llama", directory, vocab_size=VOCAB, **WIDE),
    "with norms of heads": lambda directory: save_random("qwen3", directory, vocab_size=VOCAB, **WIDE),
    "in blocks of 4 bits": save_random_q4k_m,
}


@pytest.fixture
def any_path() -> Iterator[None]:
    """The instruction set is that of `auto` again after the test."""
    yield
    native.use("auto")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Directories of MODELS, each made once."""
    made: dict[str, Path] = {}

    def directory(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("model")
            MODELS[name](made[name])
        return made[name]

    return directory


@pytest.fixture
def model(models: Callable[[str], Path]) -> Path:
    return models("untied")


def key_of(directory: Path, number_format: str = "int8") -> dict[str, object]:
    return prepared_weights.key_of(directory, "", number_format, native.best_path())


def make(root: Path, directory: Path, number_format: str = "int8") -> tuple[PreparedWeights | None, str]:
    """Prepare the model in `directory` below `root`; the result of prepared_weights.make."""

    def build(writer: Writer) -> NativeDecoder:
        writer.add_table("numbers", np.arange(5, dtype=np.uint32))
        decoder = checkpoint.read_decoder(
            directory, number_format, "cpu", 512, VOCAB, threads=2, packed=writer.add_linear
        )
        assert isinstance(decoder, NativeDecoder)
        return decoder

    return prepared_weights.make(root, key_of(directory, number_format), build)


def opened(root: Path, directory: Path, number_format: str = "int8") -> PreparedWeights:
    """The prepared weights of the model, which are there."""
    numbers = prepared_weights.open_prepared(root, key_of(directory, number_format))
    assert numbers is not None
    return numbers


def decoder_of(numbers: PreparedWeights, directory: Path, number_format: str = "int8") -> NativeDecoder:
    return checkpoint.read_prepared(directory, numbers, 512, VOCAB, 2, number_format)


def only_directory(root: Path) -> Path:
    """The one prepared directory below `root`."""
    (directory,) = root.iterdir()
    return directory


# ── the same numbers ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("setting", [name for name, path in native.SETTINGS.items() if path in NATIVE])
@pytest.mark.parametrize("number_format", ["int8", "int4"])
@pytest.mark.parametrize("name", MODELS)
def test_a_mapped_decoder_equals_one_in_memory(
    name: str, number_format: str, setting: str, models: Callable[[str], Path], tmp_path: Path
):
    """In prefill and in rounds, with the mapped numbers and with a copy of them."""
    directory = models(name)
    native.use(setting)
    reference = checkpoint.read_decoder(directory, number_format, "cpu", 512, VOCAB, threads=2)
    made, why = make(tmp_path, directory, number_format)
    assert made is not None, why
    numbers = opened(tmp_path, directory, number_format)
    for memory in (numbers, numbers.in_memory()):
        decoder = decoder_of(memory, directory, number_format)
        assert decoder.number_format == reference.number_format and decoder.weight_mib == reference.weight_mib
        for first, count in ((0, 380), (380, 1), (381, 9)):
            ids = IDS[first : first + count]
            assert np.array_equal(decoder.forward(ids), reference.forward(ids))
        reference.forget()


def test_a_linear_leaves_memory_when_it_is_written(model: Path, tmp_path: Path):
    """A first start needs the memory of one linear, not of the model."""
    held: list[int] = []

    def build(writer: Writer) -> NativeDecoder:
        def packed(decoder: NativeDecoder, layer: int, which: int) -> None:
            writer.add_linear(decoder, layer, which)
            held.append(sum(part.nbytes for linear in decoder.linears for part in decoder.packed(*linear)))

        decoder = checkpoint.read_decoder(model, "int8", "cpu", 512, VOCAB, packed=packed)
        assert isinstance(decoder, NativeDecoder)
        return decoder

    assert prepared_weights.make(tmp_path, key_of(model), build)[0] is not None
    assert held and not any(held)


# ── files that do not fit ────────────────────────────────────────────────────────────────────────────────────


def cut(directory: Path) -> None:
    os.truncate(directory / prepared_weights.WEIGHTS, 1000)


def overwrite(directory: Path) -> None:
    with (directory / prepared_weights.WEIGHTS).open("r+b") as file:
        file.seek(5000)
        file.write(b"\x01\x02")


def alter_layout(directory: Path) -> None:
    file = directory / prepared_weights.LAYOUT_FILE
    layout = json.loads(file.read_text())
    layout["linears"]["0.0"]["parts"][0][1] += 64
    file.write_text(json.dumps(layout, separators=(",", ":")))


FAULTS = {
    "cut": cut,
    "overwritten": overwrite,
    "another layout": alter_layout,
    "no layout": lambda directory: (directory / prepared_weights.LAYOUT_FILE).unlink(),
    "no numbers": lambda directory: (directory / prepared_weights.WEIGHTS).unlink(),
    "manifest is no JSON": lambda directory: (directory / model_directory.MANIFEST).write_text("{"),
    "numbers are a pipe": lambda directory: (
        (directory / prepared_weights.WEIGHTS).unlink(),
        os.mkfifo(directory / prepared_weights.WEIGHTS),
    ),
}


@pytest.mark.parametrize("fault", [name for name in FAULTS if sys.platform != "win32" or "pipe" not in name])
def test_files_that_do_not_fit_are_removed_in_one_sentence_and_prepared_anew(
    fault: str, model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    make(tmp_path, model)
    directory = only_directory(tmp_path)
    FAULTS[fault](directory)
    assert prepared_weights.open_prepared(tmp_path, key_of(model)) is None
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{directory} is prepared anew: ")
    assert not directory.exists()
    assert make(tmp_path, model)[0] is not None
    assert np.array_equal(
        decoder_of(opened(tmp_path, model), model).forward(IDS[:9]), native_decoder(model, "", VOCAB).forward(IDS[:9])
    )


def test_a_fault_that_is_not_the_files_keeps_them(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """A limit of the address space, for one, fails the mapping of a whole file."""

    def refuse(file: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    make(tmp_path, model)
    directory = only_directory(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(pages, "map_file", refuse)
        assert prepared_weights.open_prepared(tmp_path, key_of(model)) is None
        assert caplog.messages == [f"{directory} cannot be used: Cannot allocate memory"]
        assert make(tmp_path, model)[0] is None
    opened(tmp_path, model)


def test_a_copy_with_another_time_of_change_is_checked_once_and_used(model: Path, tmp_path: Path):
    make(tmp_path, model)
    directory = only_directory(tmp_path)
    os.utime(directory / prepared_weights.WEIGHTS, ns=(0, 1))
    assert model_directory.touched(directory)
    opened(tmp_path, model)
    assert not model_directory.touched(directory)


@pytest.mark.parametrize("change", ["model", "format", "adapter", "path", "layout"])
def test_another_input_has_another_key(change: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    directory = shutil.copytree(model, tmp_path / "model")
    before = prepared_weights.name_of(key_of(directory))
    assert prepared_weights.name_of(key_of(directory)) == before
    if change == "model":
        os.utime(directory / "model.safetensors", ns=(0, 1))
    if change == "layout":
        monkeypatch.setattr(prepared_weights, "LAYOUT", prepared_weights.LAYOUT + 1)
    adapter, path = ("a" * 64 if change == "adapter" else ""), "other" if change == "path" else native.best_path()
    number_format = "int4" if change == "format" else "int8"
    assert prepared_weights.name_of(prepared_weights.key_of(directory, adapter, number_format, path)) != before


def test_the_packed_numbers_are_those_of_this_layout(tmp_path: Path):
    """Raise LAYOUT when these sums change: files of earlier versions would be computed with otherwise."""
    assert prepared_weights.LAYOUT == 1
    save_seven_heads(tmp_path / "model", layers=1)
    sums = {}
    for setting, number_format in (("avx2", "int8"), ("avx2", "int4"), ("avx512-vnni", "int8")):
        if native.SETTINGS[setting] in NATIVE:
            native.use(setting)
            make(tmp_path / setting / number_format, tmp_path / "model", number_format)
            written = only_directory(tmp_path / setting / number_format)
            sums[f"{setting} {number_format}"] = model_directory.sums_of(written)[prepared_weights.WEIGHTS][:16]
    expected = {"avx2 int8": INT8_SUM, "avx2 int4": "968f7c29ad6c420b", "avx512-vnni int8": INT8_SUM}
    assert sums == {name: expected[name] for name in sums}


# ── other programs ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit of the size of files")
def test_a_full_disk_is_one_sentence_and_leaves_nothing(model: Path, tmp_path: Path):
    """A limit of the size of files fails a write half-way, as a full disk does."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, limits[1]))
    try:
        numbers, why = make(tmp_path, model)
        assert numbers is None
        assert str(tmp_path) in why and "quantizes the model" in why and why.count("\n") == 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


def test_two_engines_that_prepare_at_once_use_one_directory(model: Path, tmp_path: Path):
    results: list[PreparedWeights | None] = []
    engines = [threading.Thread(target=lambda: results.append(make(tmp_path, model)[0])) for _ in range(3)]
    for engine in engines:
        engine.start()
    for engine in engines:
        engine.join()
    assert {numbers.directory for numbers in results if numbers} == {only_directory(tmp_path)}
    assert len(results) == 3 and all(results)


@pytest.mark.skipif(sys.platform == "win32", reason="a mapped file cannot be removed")
def test_an_older_one_is_removed_when_no_engine_has_it_mapped(model: Path, tmp_path: Path):
    numbers, _ = make(tmp_path, model)
    make(tmp_path, model, "int4")
    assert len(list(tmp_path.iterdir())) == 2
    left = tmp_path / f"{prepared_weights.NEW}left"
    left.mkdir()
    os.utime(left, (0, 0))
    shutil.rmtree(tmp_path / prepared_weights.name_of(key_of(model, "int4")))
    del numbers
    make(tmp_path, model, "int4")
    assert only_directory(tmp_path).name == prepared_weights.name_of(key_of(model, "int4"))


@pytest.mark.parametrize("change", [cut, overwrite])
def test_a_file_altered_under_a_decoder_is_an_error_that_names_it(
    change: Callable[[Path], None], model: Path, tmp_path: Path
):
    make(tmp_path, model)
    decoder = decoder_of(opened(tmp_path, model), model)
    decoder.forward([1, 2])
    change(only_directory(tmp_path))
    os.utime(only_directory(tmp_path) / prepared_weights.WEIGHTS, ns=(0, 1))
    with pytest.raises(WeightsError, match=r"weights\.bin was altered while its model was in use"):
        decoder.forward([3])


@pytest.mark.skipif(sys.platform == "win32", reason="a mapped file cannot be cut")
def test_a_page_that_cannot_be_read_ends_the_process_with_a_sentence_and_the_next_start_prepares_anew(
    model: Path, tmp_path: Path
):
    """A cut file stands for a disk that fails. The check before the pass is off: the fault comes between both."""
    make(tmp_path, model)
    directory = only_directory(tmp_path)
    program = [
        "import os, sys; from pathlib import Path",
        "from speclsp.engine.loading import checkpoint",
        "from speclsp.engine.loading.prepared import prepared_weights",
        "from speclsp.engine.model.int8 import native",
        "root, model = map(Path, sys.argv[1:])",
        "key = prepared_weights.key_of(model, '', 'int8', native.best_path())",
        "numbers = prepared_weights.open_prepared(root, key)",
        f"decoder = checkpoint.read_prepared(model, numbers, 512, {VOCAB}, 2, 'int8')",
        "decoder.check = lambda: None; os.truncate(numbers.directory / 'weights.bin', 0); decoder.forward([1])",
    ]
    ended = subprocess.run([sys.executable, "-c", "\n".join(program), tmp_path, model], capture_output=True, text=True)
    assert ended.returncode == 75
    assert ended.stderr.startswith(f"speclsp engine: {directory / prepared_weights.WEIGHTS} could not be read")
    assert ended.stderr.count("\n") == 1
    assert prepared_weights.open_prepared(tmp_path, key_of(model)) is None
    assert make(tmp_path, model)[0] is not None
