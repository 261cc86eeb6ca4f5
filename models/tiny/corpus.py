"""Training data of the tiny model: the standard library's modules, their tokenizer, and rows of tokens with holes."""

from __future__ import annotations

import hashlib
import random
import sysconfig
from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

VOCABULARY = 2048
CONTEXT_TOKENS = 1024
MARKERS = (
    *("<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"),
    *("<|repo_name|>", "<|file_sep|>"),
)
# Qwen2's split: text is cut into words, numbers and indents as in the real family. No normaliser, so bytes survive.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idle_test", "lib2to3", "encodings", "pydoc_data"}


# ── sources ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def held_out(name: str) -> bool:
    """True for a file that is kept from training; named relative to the standard library, with forward slashes."""
    return hashlib.sha256(name.encode()).digest()[0] % 20 == 0


def sources() -> dict[str, str]:
    """Name -> text of the standard library's own modules, without tests and big tables, in a fixed order."""
    root = Path(sysconfig.get_path("stdlib"))
    found = {path.relative_to(root).as_posix(): path for path in sorted(root.rglob("*.py"))}
    wanted = {n: p for n, p in found.items() if SKIPPED.isdisjoint(n.split("/")) and not n.startswith("config-")}
    texts = {name: path.read_text(encoding="utf-8", errors="ignore") for name, path in wanted.items()}
    return {name: text for name, text in texts.items() if len(text) >= 400}


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """Byte-level BPE; the markers take the last ids, as in the real family."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(MARKERS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(list(MARKERS))
    assert tokenizer.get_vocab_size() == VOCABULARY
    return tokenizer


# ── rows of tokens ───────────────────────────────────────────────────────────────────────────────────────────────────


def hole(text: str, rng: random.Random, chars: int) -> tuple[str, str, str]:
    """Cut prefix, middle and suffix of about `chars` in all. The hole is random, or what an editor asks for.

    The engine puts the current line's beginning after the middle marker, so that typing only appends; half of the
    editor's holes therefore start at the line's start.
    """
    at = rng.randrange(len(text))
    if rng.random() < 0.4:
        end = at + 1 + int(rng.random() ** 2 * 240)
    else:
        if rng.random() < 0.5:
            at = text.rfind("\n", 0, at) + 1
        end = at
        for _ in range(1 if rng.random() < 0.5 else rng.randint(2, 6)):
            end = text.find("\n", end + 1) if end < len(text) else -1
            end = len(text) if end < 0 else end
    before = int(chars * rng.uniform(0.3, 0.85))
    after = max(0, int((chars - before) * rng.uniform(0.0, 1.0)))
    start = max(0, at - before)
    start = 0 if start == 0 else text.find("\n", start, at) + 1 or start
    return text[start:at], text[at:end], text[end : end + after]


def fill_in_the_middle(prefix: str, middle: str, suffix: str, header: str = "") -> str:
    """Prefix, suffix, middle: the order Qwen2.5-Coder knows, ended by the token that says the hole is full."""
    return f"{header}<|fim_prefix|>{prefix}<|fim_suffix|>{suffix}<|fim_middle|>{middle}<|endoftext|>"


def rows(files: dict[str, str], tokenizer: Tokenizer, seed: int) -> Callable[[int], list[int]]:
    """A function that gives the next training row of `tokens` + 1 ids: 55 % holes, the rest code left to right."""
    rng = random.Random(seed)
    names = list(files)
    weights = [len(files[name]) for name in names]

    def row(tokens: int) -> list[int]:
        ids: list[int] = []
        holes = rng.random() < 0.55
        while len(ids) <= tokens:
            name = rng.choices(names, weights)[0]
            text = files[name]
            header = f"<|repo_name|>cpython\n<|file_sep|>{name}\n" if rng.random() < 0.2 else ""
            if holes:
                document = fill_in_the_middle(*hole(text, rng, int(tokens * rng.uniform(0.5, 3.2))), header)
            else:
                start = text.rfind("\n", 0, rng.randrange(-len(text) // 8, len(text)) % (len(text) + 1)) + 1
                document = header + text[start : start + tokens * 8]
                document += "<|endoftext|>" if start + tokens * 8 >= len(text) else ""
            ids += tokenizer.encode(document).ids
        return ids[: tokens + 1]

    return row


def held_out_rows(files: dict[str, str], tokenizer: Tokenizer, limit: int) -> Tensor:
    """[R, context + 1]: the held-out files one after another, cut into rows that overlap by one token."""
    ids: list[int] = []
    for text in files.values():
        ids += tokenizer.encode(text + "<|endoftext|>").ids
    starts = range(0, len(ids) - CONTEXT_TOKENS - 1, CONTEXT_TOKENS)
    picked = random.Random(0).sample(starts, min(limit, len(starts)))
    return torch.tensor([ids[s : s + CONTEXT_TOKENS + 1] for s in sorted(picked)])
