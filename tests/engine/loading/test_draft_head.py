"""Draft heads: training that can be stopped, their files, and the one that `engine.head` names."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load, save_file
from support.engine.random_models import NATIVE, random_layer

from models.training.draft_head import export
from models.training.draft_head.layer import HeadLayer, HeadTarget
from models.training.draft_head.learning import HeadTraining, Text
from models.training.draft_head.state_recorder import layers_of
from models.training.draft_head.train import acceptance
from speclsp import config
from speclsp.config import Config, EngineConfig
from speclsp.engine.api import Request
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.loading import head_file, loading
from speclsp.engine.model.int8.native import NativeDecoder
from speclsp.engine.model.model_shape import ModelShape
from speclsp.engine.scheduling.device_memory import DeviceMemory
from speclsp.errors import InputError, WeightsError
from speclsp.weights import cards

VOCAB, HIDDEN = 96, 32
TINY = cards.models_root() / "tiny" / "target"
needs_library = pytest.mark.skipif(not NATIVE, reason="heads run in forward.c")


def layer(seed: int = 0) -> HeadLayer:
    dice = torch.Generator().manual_seed(7)
    embedding = torch.randn(VOCAB, HIDDEN, generator=dice).bfloat16()
    shape = ModelShape(
        vocab=VOCAB, hidden=HIDDEN, heads=4, kv_heads=2, head_dim=8, eps=1e-6, inv_freq=np.full(4, 0.3, np.float32)
    )
    target = HeadTarget(shape, embedding, torch.ones(HIDDEN), torch.arange(0, VOCAB), embedding)
    return HeadLayer(target, 64, seed)


def texts(count: int, seed: int = 0) -> list[Text]:
    """Texts that count upwards; the last state of each token is the embedding of the next one."""
    embedding, dice = layer().target.embedding, torch.Generator().manual_seed(seed)
    made = []
    for start in torch.randint(0, VOCAB, (count,), generator=dice).tolist():
        ids = [(start + n) % VOCAB for n in range(40)]
        last = embedding[[(token + 1) % VOCAB for token in ids]].float()
        other = torch.randn(40, 2 * HIDDEN, generator=dice)
        made.append(Text(ids, torch.cat([other, last], dim=-1).bfloat16(), prompt=12))
    return made


def training(state: Path, steps: int = 12, **plan: object) -> HeadTraining:
    return HeadTraining(layer(), texts(9), state, {"model": "m"} | plan, steps=steps, peak_rate=3e-3)


def test_a_training_that_was_stopped_takes_the_same_steps(tmp_path: Path):
    whole = training(tmp_path / "whole")
    assert whole.run(lambda: False)
    lines: list[dict[str, object]] = []
    part = training(tmp_path / "part")
    assert not part.run(lambda: part.step_count >= 5, lines.append)
    again = training(tmp_path / "part")
    assert again.step_count == 5 and again.trained_s == part.trained_s
    assert again.run(lambda: False, lines.append)
    assert [line["step"] for line in lines] == list(range(1, 13))
    for name, value in whole.head.tensors().items():
        assert torch.equal(value, again.head.tensors()[name]), name


def test_a_state_of_another_plan_or_shape_is_refused(tmp_path: Path):
    training(tmp_path / "state").run(lambda: True)
    with pytest.raises(InputError, match=r"belongs to another training \(model differ\)"):
        training(tmp_path / "state", model="another")
    (tmp_path / "state").write_bytes(b"{}")
    with pytest.raises(WeightsError, match="is no training state"):
        training(tmp_path / "state")


def test_it_learns_to_guess_the_target_s_tokens(tmp_path: Path):
    held_out, learned = texts(5, seed=1), training(tmp_path / "state", steps=120)
    before = acceptance(learned.head, held_out)
    learned.run(lambda: False)
    after = acceptance(learned.head, held_out)
    assert before[0] < 0.3 and after[0] > 0.8
    assert after == sorted(after, reverse=True), "a guess counts after right ones only"


def test_all_of_a_chain_is_computed_on_the_head_s_device():
    """A device without numbers stands for a GPU: an operation with a tensor of the CPU fails."""
    head = layer().on("meta")
    ids, states, at = (torch.zeros(size, device="meta").to(kind) for size, kind in (
        (40, torch.int64), ((40, 3 * HIDDEN), torch.float32), (5, torch.int64),
    ))  # fmt: skip
    with pytest.raises(RuntimeError, match="device"):
        head.chain(ids, states.new_zeros(40, 3 * HIDDEN, device="cpu"), at, 3)
    outputs = head.chain(ids, states, at, 3)
    assert [(part.shape, part.device.type) for part in outputs] == [((5, HIDDEN), "meta")] * 3


def test_short_prompts_and_answers_are_learned_and_counted(tmp_path: Path):
    """Of any length: no chain begins after the last position that it can learn from."""
    whole = texts(1)[0]
    short = [
        Text(whole.ids[:n], whole.states[: n - cut], prompt)
        for n in range(1, 9)
        for cut in (0, 1)
        for prompt in range(n)
    ]
    one = HeadTraining(layer(), short, tmp_path / "state", {}, steps=8)
    one.run(lambda: False)
    assert one.step_count == 8 and all(share == 0 or 0 < share <= 1 for share in acceptance(one.head, short))


# ── the file ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def engine() -> CompletionEngine:
    options = EngineConfig(context_tokens=512, threads=1, quantization="int8", draft=False)
    return loading.load(Config(model="tiny", engine=options), cards.load("tiny"))


Tensors = dict[str, torch.Tensor]


def write(
    engine: CompletionEngine, root: Path, edit: Callable[[Tensors], object] = lambda _: None, **changes: str
) -> Path:
    """A head for the engine's target, `root`/mine.safetensors; `edit` and `changes` spoil tensors and metadata."""
    decoder, path = engine.target_decoder, root / "mine.safetensors"
    assert isinstance(decoder, NativeDecoder)
    own, use = random_layer(decoder), head_file.use_of(TINY, None, engine.prompter.vocabulary)
    metadata = export.metadata(use, "mine", layers_of(decoder.layers)) | changes
    export.write(own.tensors(), own.target.vocabulary, metadata, path, 0o600)
    stored = load(path.read_bytes())
    edit(stored)
    save_file(stored, path, metadata)
    return path


def equipped(engine: CompletionEngine, path: Path) -> CompletionEngine:
    fresh = replace_engine(engine)
    head_file.equip(fresh, TINY, None, str(path))
    if isinstance(fresh.target_decoder, NativeDecoder) and fresh.head is None:
        assert fresh.target_decoder.reader is None
    return fresh


def replace_engine(engine: CompletionEngine) -> CompletionEngine:
    if isinstance(engine.target_decoder, NativeDecoder) and engine.target_decoder.reader is not None:
        engine.target_decoder.detach()
    return CompletionEngine(
        card=engine.card, config=engine.config, device=engine.device, target_decoder=engine.target_decoder,
        draft_decoder=None, target_format="int8", prompter=engine.prompter, costs=replace(engine.costs),
    )  # fmt: skip


def completed(engine: CompletionEngine) -> str:
    request = Request(
        prefix="class Stack:\n    def __init__(self):\n", line_prefix="        ", suffix="\n", max_tokens=16
    )
    running = engine.complete(request, threading.Event())
    list(running)
    return running.result.text


@needs_library
def test_the_head_of_the_weights_is_used_and_measured(engine: CompletionEngine, tmp_path: Path):
    plain = completed(engine)
    with_head = equipped(engine, write(engine, tmp_path))
    assert with_head.head is not None and with_head.head_problem == ""
    assert with_head.target_format.startswith("int8, head mine ")
    assert 0 < with_head.costs.guess("head") < 1000
    assert completed(with_head) == plain


@needs_library
@pytest.mark.parametrize(
    ("edit", "changes", "problem"),
    [
        (None, {"weights_sha256": "1" * 64}, "was trained for other weights than the model's"),
        (None, {"adapter_sha256": "1" * 64}, "was trained for these weights with another adapter (engine.adapter)"),
        (None, {"vocabulary_sha256": "1" * 64}, "was trained for another vocabulary"),
        (None, {"format": "speclsp-head-9"}, "has format = 'speclsp-head-9' in its metadata"),
        (None, {"layers": "1,2"}, "has layers = '1,2'"),
        (None, {"layers": "1,2,90"}, "reads the layers 1, 2 and 90 of a model of"),
        (lambda t: t.pop("fuse"), {}, "holds nothing as 'fuse'"),
        (lambda t: t.pop("up"), {}, "has an MLP of width 0"),
        (lambda t: t.update(input=t["input"][:, :-1].contiguous()), {}, "as 'input', and the model expects I8"),
        (lambda t: t["out.scale"].fill_(torch.nan), {}, "holds numbers for 'out' that are not finite"),
        (lambda t: t["norm_last"].fill_(torch.inf), {}, "holds numbers for 'norm_last' that are not finite"),
        (lambda t: t["vocabulary"].fill_(5), {}, "ids that does not fit the tokenizer's"),
        (lambda t: t["vocabulary"].add_(100_000), {}, "ids that does not fit the tokenizer's"),
        (lambda t: t.update(vocabulary=t["vocabulary"][:5].clone()), {}, "has a vocabulary of 5 ids"),
        (lambda t: t.pop("vocabulary"), {}, "holds nothing as 'vocabulary'"),
    ],
)
def test_a_head_that_does_not_fit_costs_one_sentence(
    engine: CompletionEngine,
    tmp_path: Path,
    edit: Callable[[Tensors], object] | None,
    changes: dict[str, str],
    problem: str,
):
    path = write(engine, tmp_path, edit or (lambda _: None), **changes)
    without = equipped(engine, path)
    assert without.head is None
    assert without.head_problem.startswith(str(path)) and problem in without.head_problem
    assert without.head_problem.endswith(head_file.WITHOUT)
    assert completed(without) == completed(engine)


@needs_library
@pytest.mark.parametrize("keep", [0, 7, 400, -1])
def test_a_truncated_file_costs_one_sentence(engine: CompletionEngine, tmp_path: Path, keep: int):
    path = write(engine, tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    without = equipped(engine, path)
    assert without.head is None and without.head_problem.startswith(f"{path} ")


@needs_library
def test_only_the_setting_chooses_a_head(engine: CompletionEngine, isolated: Path):
    """Files in folders of an earlier development version are left alone, and a missing file is one sentence."""
    state = config.state_dir()
    for root in (state, isolated):
        (root / "heads").mkdir(parents=True)
        write(engine, root / "heads")
    (state / "draft-tuning" / "tiny").mkdir(parents=True)
    (state / "draft-tuning" / "tiny" / "state.safetensors").write_bytes(b"{}")
    options = EngineConfig(context_tokens=512, threads=1, quantization="int8", draft=False)
    settings = Config(model="tiny", models_dir=str(isolated), engine=options)
    loaded = loading.load(settings, cards.load("tiny"))
    assert (loaded.head, loaded.head_problem) == (None, "") and "head" not in loaded.target
    missing = isolated / "no.safetensors"
    loaded = loading.load(replace(settings, engine=replace(options, head=str(missing))), cards.load("tiny"))
    assert loaded.head is None and loaded.head_problem.startswith(f"{missing} ")
    assert loaded.head_problem.endswith(head_file.WITHOUT)
    assert completed(loaded) == completed(engine)


@needs_library
def test_short_memory_leaves_the_head_out(engine: CompletionEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write(engine, tmp_path)
    monkeypatch.setattr(DeviceMemory, "free_mib", lambda self: 10)
    assert "needs 64 MiB of memory, and 10 MiB are free" in equipped(engine, path).head_problem
    monkeypatch.undo()

    def none(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(NativeDecoder, "set_linear", none)
    assert "does not fit into memory" in equipped(engine, path).head_problem


def test_a_decoder_without_hidden_states_has_no_head(engine: CompletionEngine, tmp_path: Path):
    if not NATIVE:
        pytest.skip("the file is written for a model in forward.c")
    head = str(write(engine, tmp_path))
    options = EngineConfig(context_tokens=512, threads=1, quantization="fp32", draft=False, head=head)
    reference = loading.load(Config(model="tiny", engine=options), cards.load("tiny"))
    assert "only models in int8 or int4 on a CPU give hidden states" in reference.head_problem


def test_four_bits_are_near_the_weights_and_the_nearest_of_their_scale():
    weights = torch.randn(8, 128, generator=torch.Generator().manual_seed(3))
    weights[3, :32] = 0.0
    packed, scale = export.narrow(weights)
    assert packed.shape == (8, 64) and scale.shape == (8, 4)
    numbers = torch.stack([packed & 15, packed >> 4], dim=-1).view(8, 4, 32).float() - 8
    restored = (numbers * scale.float()[..., None]).view(8, 128)
    assert (restored - weights).norm() / weights.norm() < 0.11
    assert not restored[3, :32].any()


def test_a_head_is_stored_in_as_many_bits_as_are_wanted(tmp_path: Path):
    tensors, vocabulary = {"fuse": torch.randn(64, 128)}, torch.arange(32)
    for bits, dtype in ((8, torch.int8), (4, torch.uint8)):
        export.write(tensors, vocabulary, {}, tmp_path / "head.safetensors", 0o644, bits)
        assert load((tmp_path / "head.safetensors").read_bytes())["fuse"].dtype == dtype


@needs_library
def test_a_large_head_is_stored_in_four_bits(engine: CompletionEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write(engine, tmp_path)
    wide = path.stat().st_size
    monkeypatch.setattr(export, "MAX_BYTES", int(wide * 0.8))
    narrow = write(engine, tmp_path).stat().st_size
    assert narrow < 0.75 * wide
    assert equipped(engine, path).head is not None
    monkeypatch.setattr(export, "MAX_BYTES", narrow // 2)
    with pytest.raises(WeightsError, match="choose a smaller --inner"):
        write(engine, tmp_path)


def test_a_head_with_a_number_that_is_none_is_not_written(tmp_path: Path):
    with pytest.raises(WeightsError, match="is not a number"):
        export.write({"fuse": torch.full((2, 32), torch.nan)}, torch.arange(32), {}, tmp_path / "head", 0o600)
