"""Roofline model of a pass on a GPU: bytes over bandwidth, arithmetic over FLOP/s, and a constant.

    pass_ms = bytes read / bandwidth + 2 · parameters · rows / FLOP/s + launch time
    a round of a batch of b with γ guesses = γ passes of the draft, b rows each + a pass of the target, b·(γ + 1) rows
    speedup of speculating = τ · (round without) / (round with),   τ = (1 - α^(γ+1)) / (1 - α)

None of these figures was measured by us on a GPU. The constants are the vendors' figures times the share that real
servers reach. `anchors` are published measurements, and the tests compare the model with them. Because of them, the
model adds bytes and arithmetic: overlapping them, as the ideal roofline does, is a third too fast at 80 rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

BYTES_PER_PARAMETER = 2  # bf16
MAX_BATCH = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator, as a server with continuous batching uses it."""

    name: str
    memory_gib: float
    gb_per_s: float  # reached: the vendor's figure times 0.85, 0.95 for the RTX 4090 (`anchors`)
    tflops: float  # reached in bf16, dense
    launch_ms: float = 1.05  # of a pass: kernels, scheduler, sampling (`anchors`)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A decoder, in thousand millions of parameters."""

    name: str
    body_g: float
    head_g: float
    kv_bytes: int  # for each token, in bf16

    @property
    def weights_bytes(self) -> float:
        return BYTES_PER_PARAMETER * (self.body_g + self.head_g) * 1e9


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu(name="RTX 4090", memory_gib=24, gb_per_s=958, tflops=110),
        Gpu(name="L40S", memory_gib=48, gb_per_s=734, tflops=180),
        Gpu(name="A100 80GB", memory_gib=80, gb_per_s=1733, tflops=190),
        Gpu(name="H100 SXM", memory_gib=80, gb_per_s=2848, tflops=500),
        Gpu(name="H200", memory_gib=141, gb_per_s=4080, tflops=500),
    )
}
MODELS = {  # Qwen2.5-Coder, by the size in its name
    model.name: model
    for model in (
        Model(name="0.5B", body_g=0.358, head_g=0.136, kv_bytes=12_288),
        Model(name="1.5B", body_g=1.310, head_g=0.233, kv_bytes=28_672),
        Model(name="7B", body_g=6.526, head_g=0.545, kv_bytes=57_344),
        Model(name="14B", body_g=13.21, head_g=0.779, kv_bytes=196_608),
        Model(name="32B", body_g=31.21, head_g=0.779, kv_bytes=262_144),
    )
}
LLAMA_8B = Model(name="Llama-3.1-8B", body_g=6.979, head_g=0.525, kv_bytes=131_072)


def tau(alpha: float, gamma: int) -> float:
    """Tokens a round yields on average when each guess holds with probability `alpha`."""
    return sum(alpha**depth for depth in range(gamma + 1))


def pass_ms(gpu: Gpu, model: Model, rows: float, cached_tokens: float = 0.0) -> float:
    """A pass over `rows` tokens, of sequences that hold `cached_tokens` together."""
    memory_ms = (model.weights_bytes + cached_tokens * model.kv_bytes) / (gpu.gb_per_s * 1e6)
    compute_ms = 2 * (model.body_g + model.head_g) * rows / gpu.tflops
    return memory_ms + compute_ms + gpu.launch_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The models on one GPU: a target, and the draft and γ it speculates with."""

    gpu: Gpu
    target: Model
    draft: Model | None = None
    gamma: int = 0
    alpha: float = 0.0
    by_batch: tuple[tuple[int, int, int], ...] = ()  # (from, to, γ) where γ goes by the sequences in the round

    def gamma_at(self, decoding: int) -> int:
        """γ in a round with so many sequences."""
        if self.draft is None or decoding == 0:
            return 0
        if not self.by_batch:
            return self.gamma
        return next((gamma for low, high, gamma in self.by_batch if low <= decoding <= high), 0)

    def round_ms(self, decoding: int, gamma: int, context_tokens: float, prefilled: float = 0.0) -> float:
        """A round: `decoding` sequences of `context_tokens` each get on, `prefilled` prompt tokens are read beside."""
        cached_tokens = decoding * context_tokens
        whole = pass_ms(self.gpu, self.target, decoding * (gamma + 1) + prefilled, cached_tokens)
        if self.draft is None or self.gamma == 0:
            return whole
        if gamma:  # the first pass of the draft reads the new prompts too
            whole += pass_ms(self.gpu, self.draft, decoding + prefilled, cached_tokens)
            whole += (gamma - 1) * pass_ms(self.gpu, self.draft, decoding, cached_tokens)
        elif prefilled:
            whole += pass_ms(self.gpu, self.draft, prefilled)  # or it could not guess later
        return whole

    @property
    def cache_tokens(self) -> float:
        """Tokens whose keys and values fit beside the weights, with a tenth of the memory left alone."""
        draft_bytes, draft_kv = (self.draft.weights_bytes, self.draft.kv_bytes) if self.draft else (0.0, 0)
        free = self.gpu.memory_gib * 2**30 * 0.9 - self.target.weights_bytes - draft_bytes
        return max(0.0, free / (self.target.kv_bytes + draft_kv))


def speedup(serving: Serving, decoding: int, context_tokens: float, reading: float = 0.0) -> float:
    """Tokens per time with speculation ÷ without, at that batch; each token made goes with `reading` prompt tokens.

    What is read beside is the same work for the target either way; the draft reads it as well.
    """
    plain, tokens = Serving(gpu=serving.gpu, target=serving.target), tau(serving.alpha, serving.gamma)
    without = plain.round_ms(decoding, 0, context_tokens, decoding * reading)
    return tokens * without / serving.round_ms(decoding, serving.gamma, context_tokens, decoding * reading * tokens)


def off_above(serving: Serving, context_tokens: float, reading: float = 0.0) -> int:
    """The largest batch up to which speculating pays; 0 when it never does, MAX_BATCH when it always does."""
    for batch in range(1, MAX_BATCH + 1):
        if speedup(serving, batch, context_tokens, reading) <= 1.0:
            return batch - 1
    return MAX_BATCH


def schedule(serving: Serving, context_tokens: float, reading: float = 0.0) -> list[tuple[int, int, int]]:
    """(from, to, γ) for batches from 1 on: the γ up to `serving`'s that makes the most of each, 0 where none pays."""
    rows: list[tuple[int, int, int]] = []
    for batch in range(1, MAX_BATCH + 1):
        gains = [(1.0, 0)]
        for gamma in range(1, serving.gamma + 1):
            gains.append((speedup(replace(serving, gamma=gamma), batch, context_tokens, reading), -gamma))
        best = -max(gains)[1]
        if rows and rows[-1][2] == best:
            rows[-1] = (rows[-1][0], batch, best)
        else:
            rows.append((batch, batch, best))
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A published measurement, beside the model's prediction."""

    what: str
    source: str
    measured_ms: float  # for a token of each sequence
    modelled_ms: float


def anchors() -> list[Anchor]:
    """Published times per token. α is not published: 0.7 here. N-gram acceptance follows from their time, 12.67 ms."""
    pair = Serving(gpu=GPUS["RTX 4090"], target=MODELS["7B"], draft=MODELS["0.5B"], gamma=4, alpha=0.7)
    plain = replace(pair, draft=None, gamma=0)
    ngrams = plain.round_ms(1, 4, 512) / 12.67  # tokens a round
    vllm, sglang = "vLLM pull request 13849", "SGLang's documentation"
    of = "RTX 4090, Qwen2.5-Coder-7B, vLLM"
    return [
        Anchor(what=f"{of}, alone", source=vllm, measured_ms=15.73, modelled_ms=plain.round_ms(1, 0, 512)),
        Anchor(
            what=f"{of}, alone, 0.5B draft, γ = 4",
            source=vllm,
            measured_ms=9.15,
            modelled_ms=pair.round_ms(1, 4, 512) / tau(0.7, 4),
        ),
        Anchor(what=f"{of}, batch 16", source=vllm, measured_ms=18.48, modelled_ms=plain.round_ms(16, 0, 512)),
        Anchor(
            what=f"{of}, batch 16, 4 guesses from n-grams",
            source=vllm,
            measured_ms=19.4,
            modelled_ms=plain.round_ms(16, 4, 512) / ngrams,
        ),
        Anchor(
            what="H100, Llama-3.1-8B, SGLang, alone",
            source=sglang,
            measured_ms=1000 / 158.3,
            modelled_ms=pass_ms(GPUS["H100 SXM"], LLAMA_8B, 1, 512),
        ),
    ]
