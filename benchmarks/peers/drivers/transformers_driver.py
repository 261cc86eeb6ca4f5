"""transformers' own generate in bf16: plain, prompt lookup, assisted. One model for all modes.

Its prefix cache is the past_key_values that the caller keeps: the cache of the last plain answer is cropped to the
prefix shared with the new prompt. Assisted generation and prompt lookup feed a kept cache the whole prompt again and
then generate another text (in 5.23), so they start with an empty cache each time. Settings of a mode: `generation`
(arguments of generate), `assistant` (of the draft's).
"""

from __future__ import annotations

from typing import Any

import torch
from protocol import Answer, TokenLog, serve, shared_prefix
from transformers import AutoModelForCausalLM, DynamicCache
from transformers.generation.streamers import BaseStreamer


class Streamer(BaseStreamer):  # type: ignore[misc]
    """Passes tokens on as they are decided; generate puts the prompt in first."""

    def __init__(self, log: TokenLog) -> None:
        self.log, self.prompt_seen = log, False

    def put(self, value: torch.Tensor) -> None:
        if self.prompt_seen:
            self.log(value.reshape(-1).tolist())
        self.prompt_seen = True

    def end(self) -> None:
        """Nothing to flush: tokens are passed on at once."""


def load(job: dict[str, Any]) -> Answer:
    torch.set_num_threads(job["threads"])

    def read(directory: str) -> Any:
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16, local_files_only=True).eval()
        model.generation_config.eos_token_id = None  # it goes on to the wanted length, as every peer does here
        model.generation_config.pad_token_id = 151643
        return model

    model = read(job["model"])
    draft = read(job["draft"]) if job["draft"] and any(mode.startswith("draft") for mode in job["modes"]) else None
    caches: dict[str, tuple[list[int], DynamicCache]] = {}

    def answer(ids: list[int], max_tokens: int, mode: str, cold: bool, log: TokenLog) -> None:
        settings = job["modes"][mode]
        more: dict[str, Any] = dict(settings.get("generation", {}))
        if mode.startswith("draft") and draft is not None:
            for name, value in settings.get("assistant", {}).items():
                setattr(draft.generation_config, name, value)
            more["assistant_model"] = draft
        cache = DynamicCache(config=model.config)
        if not cold and mode in caches and mode.startswith("plain"):
            before, cache = caches[mode]
            extra = cache.get_seq_length() - min(shared_prefix(before, ids), len(ids) - 1)
            if extra > 0:
                cache.crop(-extra)
        prompt = torch.tensor([ids])
        with torch.inference_mode():
            output = model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=max_tokens,
                do_sample=False,
                past_key_values=cache,
                streamer=Streamer(log),
                **more,
            )
        caches[mode] = (output[0].tolist(), cache)

    return answer


if __name__ == "__main__":
    serve(load, ("transformers", "torch"))
