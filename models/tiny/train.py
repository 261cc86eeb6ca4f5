"""Makes the tiny model that speclsp's tests run on: a tokenizer, a target that learns the standard library, its draft.

    sources    the running interpreter's own standard library; files whose name hashes to 0 mod 20 are held out
    tokenizer  byte-level BPE with Qwen2's split, all 256 bytes in it, and the fill-in-the-middle markers
    target     Qwen2's shape at about 2 M parameters, trained on code left to right and on holes as an editor asks
    draft      the same shape at a ninth of its matrices, taught by the target's distribution and the text

    python models/tiny/train.py                          # about 24 minutes on one core with bf16 instructions
    python models/tiny/train.py --resume                 # go on from the last checkpoint after a stop
    python models/tiny/train.py --target-minutes 0 --draft-minutes 20 --resume       # a better draft, same target

Seeded, but the budget is wall time: a faster or idler machine takes more steps and ends a little better. The last line
printed is the share of held-out tokens on which the draft's greedy choice is the target's.
"""

from __future__ import annotations

import argparse
import math
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from corpus import (  # the folder of a script is on sys.path
    CONTEXT_TOKENS,
    MARKERS,
    VOCABULARY,
    fill_in_the_middle,
    held_out,
    held_out_rows,
    hole,
    rows,
    sources,
    train_tokenizer,
)
from safetensors import safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.utils import logging as transformers_logging

HERE = Path(__file__).resolve().parent
CHECKPOINTS = HERE.parents[1] / "build" / "tiny"  # git ignores build/


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes that differ in target and draft. Widths are multiples of 64, nf4's block, for bitsandbytes on CPU."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int


TARGET = Shape("target", hidden=192, layers=5, heads=3, kv_heads=1, intermediate=448)
DRAFT = Shape("draft", hidden=128, layers=2, heads=2, kv_heads=1, intermediate=128)


# ── training ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def build(shape: Shape, tokenizer: Tokenizer) -> Qwen2ForCausalLM:
    """A fresh model in fp32."""
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=VOCABULARY,
            hidden_size=shape.hidden,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.kv_heads,
            intermediate_size=shape.intermediate,
            max_position_embeddings=CONTEXT_TOKENS,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.token_to_id("<|endoftext|>"),
            pad_token_id=tokenizer.token_to_id("<|fim_pad|>"),
        )
    )


@torch.no_grad()
def inherit_embedding(model: Qwen2ForCausalLM, teacher: Qwen2ForCausalLM) -> None:
    """Start from the teacher's embedding, projected to the directions that keep most of its dot products."""
    u, s, _ = torch.linalg.svd(teacher.get_input_embeddings().weight, full_matrices=False)
    kept = model.config.hidden_size
    model.get_input_embeddings().weight.copy_(u[:, :kept] * s[:kept])


Loss = Callable[[Tensor, Tensor], Tensor]  # logits [N, vocab] and ids [B, T + 1] -> scalar


def from_text(logits: Tensor, ids: Tensor) -> Tensor:
    """Cross-entropy with the text."""
    return F.cross_entropy(logits, ids[:, 1:].flatten())


def from_teacher(teacher: Qwen2ForCausalLM, autocast: Callable[[], torch.autocast]) -> Loss:
    """Cross-entropy with the teacher's distribution (85 %: the divergence, up to a constant) and the text (15 %)."""

    def loss(logits: Tensor, ids: Tensor) -> Tensor:
        with torch.no_grad(), autocast():
            wanted = teacher(ids[:, :-1], use_cache=False).logits.float().flatten(0, 1).softmax(-1).mul_(0.85)
        wanted[torch.arange(len(wanted)), ids[:, 1:].flatten()] += 0.15
        return F.cross_entropy(logits, wanted)

    return loss


def row_tokens(progress: float) -> int:
    """Short rows first, where steps are cheap; the full context at the end, for the positions it has."""
    return 256 if progress < 0.5 else 512 if progress < 0.75 else CONTEXT_TOKENS


def train(
    model: Qwen2ForCausalLM,
    row: Callable[[int], list[int]],
    loss_of: Loss,
    minutes: float,
    autocast: Callable[[], torch.autocast],
    checkpoint: Path,
    batch_tokens: int,
    check: Callable[[], str],
) -> None:
    """Train in place for `minutes` of wall time, counting what the checkpoint has already had."""
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim < 2 or "embed" in n]
    optimizers = [
        (torch.optim.Muon(matrices, lr=0.02, weight_decay=0.02, adjust_lr_fn="original"), 0.02),
        (torch.optim.AdamW(others, lr=8e-3, betas=(0.9, 0.98), weight_decay=0.0), 8e-3),
    ]
    before_s, step = restore(model, checkpoint)
    began = said = saved = time.monotonic()
    while True:
        now = time.monotonic()
        elapsed_s = before_s + now - began
        progress = elapsed_s / max(minutes * 60, 1e-9)
        if progress >= 1 or now - saved > 60:
            save(model, checkpoint, elapsed_s, step)
            saved = now
        if progress >= 1:
            break
        for optimizer, rate in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1.0, (step + 1) / 20) * min(1.0, (1 - progress) / 0.7)
        tokens = row_tokens(progress)
        ids = torch.tensor([row(tokens) for _ in range(max(1, batch_tokens // tokens))])
        with autocast():
            logits = model(ids[:, :-1], use_cache=False).logits.float().flatten(0, 1)
        loss = loss_of(logits, ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, _ in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        step += 1
        if now - said > 30:
            said = now
            print(f"  {elapsed_s / 60:5.1f} min  step {step:5d}  loss {loss.item():.3f}  {check()}", flush=True)


def save(model: Qwen2ForCausalLM, path: Path, elapsed_s: float, step: int) -> None:
    """Write the weights and how far they are; the old checkpoint stays until the new one is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    unfinished = path.with_suffix(".part")
    save_file(weights, unfinished, metadata={"elapsed_s": f"{elapsed_s:.1f}", "step": str(step)})
    unfinished.replace(path)


def restore(model: Qwen2ForCausalLM, path: Path) -> tuple[float, int]:
    """Load a checkpoint if there is one. The optimizers start afresh: their memory is some tens of steps."""
    if not path.exists():
        return 0.0, 0
    with safe_open(path, "pt") as file:
        model.load_state_dict({name: file.get_tensor(name) for name in file.keys()}, strict=False)  # noqa: SIM118
        metadata = file.metadata()
    print(f"  goes on from {path.name}: step {metadata['step']}, {float(metadata['elapsed_s']) / 60:.1f} min done")
    return float(metadata["elapsed_s"]), int(metadata["step"])


# ── measuring ────────────────────────────────────────────────────────────────────────────────────────────────────────


@torch.inference_mode()
def logits_of(model: Qwen2ForCausalLM, ids: Tensor) -> Iterator[Tensor]:
    """Logits [T, vocab] for each row of [R, T + 1] ids."""
    for one in ids:
        yield model(one[None, :-1], use_cache=False).logits[0].float()


def agreement(target: Qwen2ForCausalLM, draft: Qwen2ForCausalLM, ids: Tensor) -> float:
    """The share of positions in [R, T + 1] ids where both models' greedy next tokens are the same."""
    pairs = zip(logits_of(target, ids), logits_of(draft, ids), strict=True)
    same = [(a.argmax(-1) == b.argmax(-1)).float().mean() for a, b in pairs]
    return float(torch.stack(same).mean())


def fit(model: Qwen2ForCausalLM, ids: Tensor, tokenizer: Tokenizer) -> tuple[float, float]:
    """Bits per byte of text, and the share of next tokens guessed right, over [R, T + 1] ids."""
    nats = right = 0.0
    for one, logits in zip(ids, logits_of(model, ids), strict=True):
        nats += float(F.cross_entropy(logits, one[1:], reduction="sum"))
        right += float((logits.argmax(-1) == one[1:]).sum())
    text_bytes = sum(len(tokenizer.decode(one[1:].tolist(), skip_special_tokens=False).encode()) for one in ids)
    return nats / math.log(2) / text_bytes, right / ids[:, 1:].numel()


def middles(target: Qwen2ForCausalLM, draft: Qwen2ForCausalLM, files: dict[str, str], tokenizer: Tokenizer) -> str:
    """Scores of both models on held-out holes: right tokens, right ends of the middle, and their agreement there."""
    rng = random.Random(1)
    total = right = same = ends = holes = 0
    for name in rng.choices(list(files), [len(text) for text in files.values()], k=300):
        ids = tokenizer.encode(fill_in_the_middle(*hole(files[name], rng, 1800))).ids
        if len(ids) > CONTEXT_TOKENS:
            continue
        start = ids.index(VOCABULARY - len(MARKERS) + MARKERS.index("<|fim_middle|>"))
        row = torch.tensor([ids])
        (a,), (b,) = list(logits_of(target, row)), list(logits_of(draft, row))
        guessed, drafted, text = a[start:].argmax(-1), b[start:].argmax(-1), row[0, start + 1 :]
        total += len(text)
        right += int((guessed == text).sum())
        same += int((guessed == drafted).sum())
        ends += int(guessed[-1] == text[-1])
        holes += 1
    return (
        f"{holes} held-out holes: target guesses {right / total:.1%} of the middles' tokens and "
        f"{ends / holes:.1%} of their ends, the draft agrees on {same / total:.1%}"
    )


# ── the whole ────────────────────────────────────────────────────────────────────────────────────────────────────────


def export(model: Qwen2ForCausalLM, shape: Shape, tokenizer: Tokenizer) -> Qwen2ForCausalLM:
    """Write models/tiny/<name>/ in bf16; return the model as a reader gets it, rounded and in fp32."""
    directory = HERE / shape.name
    shutil.rmtree(directory, ignore_errors=True)
    model.to(torch.bfloat16).save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"), pretty=False)
    (directory / "model.safetensors").chmod(0o644)
    size = sum(file.stat().st_size for file in directory.iterdir())
    parameters = sum(p.numel() for p in model.parameters())
    print(f"wrote {shape.name}/: {parameters / 1e6:.3f} M parameters, {size / 1e6:.2f} MB")
    return model.float().eval()


def main() -> None:
    """Everything from sources to the last line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target-minutes", type=float, default=15.0, help="wall time for the target (15)")
    parser.add_argument("--draft-minutes", type=float, default=9.0, help="wall time for the draft (9)")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoints in build/tiny")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (1)")
    parser.add_argument("--fp32", action="store_true", help="for CPUs without bf16 instructions")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    transformers_logging.disable_progress_bar()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)

    def autocast() -> torch.autocast:
        return torch.autocast("cpu", torch.bfloat16, enabled=not options.fp32)

    if not options.resume:
        shutil.rmtree(CHECKPOINTS, ignore_errors=True)
    files = sources()
    learned = {name: text for name, text in files.items() if not held_out(name)}
    kept = {name: text for name, text in files.items() if held_out(name)}
    print(f"{len(learned)} files, {sum(map(len, learned.values())) / 1e6:.1f} M characters; {len(kept)} files held out")
    tokenizer = train_tokenizer(list(learned.values()))
    few, many = held_out_rows(kept, tokenizer, 6), held_out_rows(kept, tokenizer, 10_000)
    chars = sum(len(text) for text in kept.values()) / many[:, 1:].numel()
    print(f"tokenizer: {VOCABULARY} entries, {chars:.2f} characters per token on held-out files")

    def say_fit(model: Qwen2ForCausalLM) -> str:
        bits, right = fit(model, few, tokenizer)
        return f"held out: {bits:.3f} bits/byte, {right:.1%} right"

    target = build(TARGET, tokenizer)
    print(f"target, {options.target_minutes:g} minutes")
    row = rows(learned, tokenizer, options.seed)
    checkpoint = CHECKPOINTS / "target.safetensors"
    train(target, row, from_text, options.target_minutes, autocast, checkpoint, 4096, lambda: say_fit(target))
    target = export(target, TARGET, tokenizer)

    draft = build(DRAFT, tokenizer)
    inherit_embedding(draft, target)
    print(f"draft, {options.draft_minutes:g} minutes")
    row = rows(learned, tokenizer, options.seed + 1)
    checkpoint, teacher = CHECKPOINTS / "draft.safetensors", from_teacher(target, autocast)
    train(
        *(draft, row, teacher, options.draft_minutes, autocast, checkpoint, 2048),
        lambda: f"{say_fit(draft)}, agrees on {agreement(target, draft, few):.1%}",
    )
    draft = export(draft, DRAFT, tokenizer)

    for name, model in (("target", target), ("draft", draft)):
        bits, right = fit(model, many, tokenizer)
        print(f"{name} on {many[:, 1:].numel()} held-out tokens: {bits:.3f} bits/byte, top-1 {right:.1%}")
    print(middles(target, draft, kept, tokenizer))
    print(f"held-out agreement of draft and target: {agreement(target, draft, many):.1%}")


if __name__ == "__main__":
    main()
