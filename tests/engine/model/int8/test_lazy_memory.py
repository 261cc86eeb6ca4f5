"""The embedding that is read from the model's file: equal logits, only the rows in use, and a file that changes."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine.random_models import native_decoder, save_random

from speclsp.engine.loading.checkpoint import read_decoder
from speclsp.engine.model.int8 import native
from speclsp.engine.model.int8.lazy_memory import StoredEmbedding, zero_pages
from speclsp.engine.model.int8.native import NativeDecoder
from speclsp.errors import WeightsError

VOCAB, WIDER = 97, {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 256}
pytestmark = pytest.mark.skipif(not native.paths(), reason="forward.c does not run here")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Qwen model in bfloat16, as published ones are."""
    folder = tmp_path_factory.mktemp("published")
    save_random("qwen2", folder, **WIDER).bfloat16().save_pretrained(folder)
    return folder


@pytest.fixture
def directory(published: Path, tmp_path: Path) -> Path:
    """A copy of that model, which may be altered."""
    return shutil.copytree(published, tmp_path / "model")


def loaded(directory: Path) -> tuple[NativeDecoder, StoredEmbedding]:
    """The decoder that the product loads, and its embedding."""
    decoder = read_decoder(directory, "int8", "cpu", 256, VOCAB)
    assert isinstance(decoder, NativeDecoder)
    assert isinstance(decoder.embedding, StoredEmbedding)
    return decoder, decoder.embedding


@settings(max_examples=30)
@given(texts=st.lists(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=40), min_size=1, max_size=4))
def test_logits_equal_those_of_an_embedding_in_memory(texts: list[list[int]], published: Path):
    (decoder, embedding), reference = loaded(published), native_decoder(published, native.best_path(), VOCAB)
    for text in texts:
        assert np.array_equal(decoder.forward(text), reference.forward(text))
    assert embedding.loaded == {token for text in texts for token in text}


def test_the_rows_of_tokens_that_never_occur_take_no_memory():
    rows, process = 64 << 20, psutil.Process()
    before_bytes = process.memory_info().rss
    pages = zero_pages(rows)
    pages[0] = pages[rows // 2] = 1
    assert process.memory_info().rss - before_bytes < 2 << 20
    assert pages[0] == pages[rows // 2] == 1
    assert not any(pages[1 : 1 << 20])


def test_a_model_that_is_replaced_by_another_file_stays_as_it_was(directory: Path, tmp_path: Path):
    decoder, _ = loaded(directory)
    reference = native_decoder(directory, native.best_path(), VOCAB)
    file = directory / "model.safetensors"
    (tmp_path / "new").write_bytes(bytes(file.stat().st_size))
    if sys.platform == "win32":  # an open file has its name until it is closed
        with pytest.raises(PermissionError):
            (tmp_path / "new").replace(file)
    else:
        (tmp_path / "new").replace(file)
    assert np.array_equal(decoder.forward([3, 1, 4]), reference.forward([3, 1, 4]))


@pytest.mark.parametrize("change", ["cut", "overwritten"])
def test_an_altered_file_is_an_error_that_names_it_and_the_way_out(change: str, directory: Path):
    decoder, _ = loaded(directory)
    known = decoder.forward([1, 2])
    file = directory / "model.safetensors"
    if change == "cut":
        os.truncate(file, 100)
    else:
        copy = shutil.copy2(file, directory / "copy")
        with file.open("r+b") as target:
            target.write(bytes(Path(copy).stat().st_size))
        os.utime(file, ns=(0, 0))
    with pytest.raises(WeightsError, match=r"model\.safetensors was altered.*speclsp engine stop"):
        decoder.forward([3])
    decoder.rewind(0)
    assert np.array_equal(decoder.forward([1, 2]), known)  # tokens whose rows were read before
