"""Checkpoint reader: tokenizer, and weights in a given number format.

model_config.py reads config.json. The forward pass is our own (decoder.py), so that rows are
independent and rewinding is free. Weights are safetensors or a GGUF, read one tensor at a time as NumPy arrays. This
module opens no connection, and it never runs code that comes with a model. torch is imported for the decoders that
compute with it.
"""

from __future__ import annotations

import errno
import json
import math
import mmap
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Tokenizer

from speclsp import process_resources
from speclsp.engine.loading import checkpoint_checks
from speclsp.engine.loading.adapter_merge import Lora
from speclsp.engine.loading.checkpoint_checks import FIX, first_line
from speclsp.engine.loading.model_config import expected_tensors, read_config, read_raw, read_shape
from speclsp.engine.model import gguf_tensors
from speclsp.engine.model.bfloat16 import Array
from speclsp.engine.model.int8 import building, native
from speclsp.engine.model.int8.native import NativeDecoder
from speclsp.engine.model.kv_cache import SLOTS, CachedModel
from speclsp.engine.scheduling.loaded_model import ReportProgress
from speclsp.errors import TokenizerMismatch, WeightsError
from speclsp.private_files.os_errors import sentence
from speclsp.process_resources import gpu_extra
from speclsp.weights import model_directory
from speclsp.weights.cards import Card
from speclsp.weights.untrusted import safetensors_header, untrusted_files
from speclsp.weights.untrusted.safetensors_header import NUMPY_TYPES, StoredTensor

if TYPE_CHECKING:
    import torch

    from speclsp.engine.loading.prepared.prepared_weights import PreparedWeights

# ── the tokenizer ────────────────────────────────────────────────────────────────────────────────────────────


def read_tokenizer(directory: Path, checked: bool = False) -> Tokenizer:
    """The tokenizer of tokenizer.json, set so that marker texts inside user code are plain text, never markers.

    `checked`: it was compared with config.json before, when the model's weights were prepared.
    """
    file = directory / "tokenizer.json"
    try:
        data = untrusted_files.read_plain(file, untrusted_files.TOKENIZER_BYTES)
        tokenizer = Tokenizer.from_buffer(data)
    except untrusted_files.Unreadable as error:
        raise WeightsError(f"{file} {error}. {error.fix or FIX}") from None
    except BaseException as error:  # tokenizers raises bare Exception, and a Rust panic is a BaseException
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise WeightsError(f"{file} cannot be read: {first_line(error)}. {FIX}") from None
    if not checked:
        checkpoint_checks.check_tokenizer(tokenizer, read_raw(directory), file)
    tokenizer.encode_special_tokens = True
    return tokenizer


def compact_tokenizer(tokenizer: Tokenizer, directory: Path) -> bytes:
    """The tokenizer.json of a model's directory in the form that loads fastest: merges as texts, no white space.

    It is the published file where a merge has a space in it, or the result is another tokenizer.
    """
    published = untrusted_files.read_plain(directory / "tokenizer.json", untrusted_files.TOKENIZER_BYTES)
    content = json.loads(published)
    merges = content["model"].get("merges", [])
    if not all(isinstance(merge, str) or " " not in "".join(merge) for merge in merges):
        return published
    content["model"]["merges"] = [merge if isinstance(merge, str) else " ".join(merge) for merge in merges]
    compact = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    return compact if Tokenizer.from_buffer(compact).to_str() == tokenizer.to_str() else published


def check_same_tokenizer(target: Tokenizer, draft: Tokenizer, card: Card) -> None:
    """Compare the tokenizers' results, not the sizes in the configs (Qwen2.5 pads its models differently).

    Raises:
        TokenizerMismatch: an id means another text in the draft, or text is split differently.
    """
    ours, theirs = target.get_vocab(with_added_tokens=True), draft.get_vocab(with_added_tokens=True)
    sample = "def f(x):\n\treturn [y**2 for y in x if y != 10]  # naïve – 東京\n\n\n    const αβ = `${a}`;\r\n"
    split, split_by_draft = (tokenizer.encode(sample, add_special_tokens=False).ids for tokenizer in (target, draft))
    if ours == theirs and split == split_by_draft:
        return
    differing = sorted(set(ours.items()) ^ set(theirs.items()), key=lambda item: item[1])
    difference = (
        f"{len(differing)} entries differ, such as {differing[0][0]!r}" if differing else "they split text apart"
    )
    raise TokenizerMismatch(
        f"{card.target.name} and its draft {card.draft.name if card.draft else ''} do not share a tokenizer: "
        f"{difference}. Choose a draft of the same family."
    )


# ── the weights ──────────────────────────────────────────────────────────────────────────────────────────────

INTEGERS = ("int8", "int4")


def read_decoder(
    directory: Path,
    number_format: str,
    device: str,
    context_tokens: int,
    vocab: int,
    progress: ReportProgress = lambda fraction, message: None,
    is_draft: bool = False,
    dtype: torch.dtype | None = None,
    slots: int = SLOTS,
    lora: Lora | None = None,
    threads: int = 0,
    packed: building.Packed = lambda decoder, layer, which: None,
) -> CachedModel:
    """A decoder from a directory with config.json and the weights' files.

    Args:
        number_format: "fp32" | "bf16" | "int8" | "int4" | "nf4" for the linears; norms stay as they are.
            "int4" is int8 where forward.c does not run, and on paths without coded weights.
        vocab: entries of the tokenizer; rows of the head beyond it are padding.
        is_draft: its passes on a GPU are those of a draft.
        dtype: of activations and KV; None: float32 on a CPU, bfloat16 elsewhere.
        slots: texts whose KV is kept on a GPU.
        lora: the adapter to merge into the weights.
        threads: that compute on a CPU; 0: one for each CPU that this process may use.
        packed: see building.build; for models that forward.c computes.

    Raises:
        WeightsError: not a supported model, a file that does not match its config, or PyTorch is missing.
    """
    config = read_config(directory)
    shape = read_shape(config, vocab)
    checkpoint_checks.check_tensors(directory, expected_tensors(config, shape))
    if number_format in INTEGERS and native.supports(shape, config.intermediate_size):
        threads = threads or process_resources.cpus().workers
        with open_tensors(directory, lora) as get:
            return building.build(
                shape,
                config.num_hidden_layers,
                config.intermediate_size,
                get,
                context_tokens=context_tokens,
                threads=threads,
                mlp_bits=int(number_format[3:]),
                mlp=(config.family.up, config.family.down),
                progress=lambda done: progress(done, f"preparing {directory.name} ({number_format})"),
                packed=packed,
            )
    own = f"{directory.name}, a {config.model_type} model that the compiled forward pass does not compute,"
    if problem := gpu_extra.problem(own):
        raise WeightsError(problem)
    from speclsp.engine.loading import torch_checkpoint

    number_format = "int8" if number_format in INTEGERS else number_format
    with open_tensors(directory, lora) as get:
        return torch_checkpoint.read(
            get, config, shape, number_format, device, context_tokens, progress, is_draft, dtype, slots, threads
        )


def read_prepared(
    directory: Path, prepared: PreparedWeights, context_tokens: int, vocab: int, threads: int, number_format: str
) -> NativeDecoder:
    """A decoder that computes with prepared weights of the model in `directory`. Raises WeightsError."""
    config = read_config(directory)
    decoder = NativeDecoder(
        read_shape(config, vocab),
        config.num_hidden_layers,
        config.intermediate_size,
        prepared.embedding(),
        context_tokens=context_tokens,
        threads=threads,
    )
    if decoder.path in native.CODED_PATHS:
        decoder.number_format = number_format
    prepared.set_weights(decoder)
    return decoder


@contextmanager
def open_tensors(directory: Path, lora: Lora | None = None) -> Iterator[Any]:
    """Yield get(name, optional=False), which reads one tensor at a time from the weights' files of a directory.

    `lora` is merged into its weights, which have no superblocks then. Tensors are arrays (bfloat16.py): those of a GGUF
    in memory, those of safetensors a copy of the file's memory from the first write on.
    """
    files = model_directory.weight_files(directory)
    if not files:
        raise WeightsError(f"{directory} has no *.safetensors and no *.gguf. {FIX}")
    with ExitStack() as stack:
        arrays: dict[str, Callable[[], Array]] = {}
        for file in files:
            try:
                is_gguf = file.suffix == ".gguf"
                arrays.update(stack.enter_context(gguf_tensors.readers(file)) if is_gguf else mapped_tensors(file))
            except OSError as error:
                if error.errno == errno.ENOMEM:
                    raise  # `explain_out_of_memory` names the limit
                raise WeightsError(sentence(error, file, "be read")) from None
            except (untrusted_files.Unreadable, ValueError) as error:
                raise WeightsError(f"{file} is not a readable file of weights ({first_line(error)}). {FIX}") from None
        yield adapted_reader(directory, arrays, lora)


def adapted_reader(directory: Path, arrays: Mapping[str, Callable[[], Array]], lora: Lora | None) -> Callable[..., Any]:
    """The function that `open_tensors` yields."""

    def get(name: str, optional: bool = False) -> Any:  # an array; None if it is optional and missing
        if name in arrays:
            return arrays[name]()
        if optional:
            return None
        raise WeightsError(f"{directory} has no tensor {name}. {FIX}")

    def adapted(name: str, optional: bool = False) -> Any:
        if lora is None or not lora.adapts(name):
            return get(name, optional)
        return lora.merged(name, get(name)) if name.endswith(".weight") else None

    return adapted


def mapped_tensors(file: Path) -> dict[str, Callable[[], Array]]:
    """Functions that return the tensors of a file, by name; the file is mapped while one of them or an array exists.

    Raises Unreadable, OSError, ValueError.
    """
    with untrusted_files.open_plain(file) as opened:
        mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)
    body = 8 + safetensors_header.header_bytes(mapped[:64], len(mapped))
    tensors, _ = safetensors_header.parse(mapped[8:body], len(mapped))

    def array(stored: StoredTensor) -> Array:
        values = np.frombuffer(mapped, NUMPY_TYPES[stored.dtype], math.prod(stored.shape), body + stored.start)
        return values.reshape(stored.shape)

    return {name: partial(array, stored) for name, stored in tensors.items() if stored.dtype in NUMPY_TYPES}
