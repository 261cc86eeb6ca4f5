"""OpenVINO GenAI on its int8 and int4 exports: plain, prompt lookup, draft model. One pipeline for each mode.

Settings of a mode: `format` (which export: int8 or int4), `backend` ("SDPA" takes the stateful pipeline instead of
paged attention, which has no prefix cache between calls), `batched_tokens` (prompt tokens per pass), `properties` (of
the CPU plugin), `generation` (GenerationConfig fields).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai
from protocol import Answer, TokenLog, serve


class Streamer(genai.StreamerBase):  # type: ignore[misc]
    """Passes tokens on as they are decided."""

    def __init__(self, log: TokenLog) -> None:
        super().__init__()
        self.log = log

    def write(self, token: int | Sequence[int]) -> genai.StreamingStatus:
        self.log([token] if isinstance(token, int) else token)
        return genai.StreamingStatus.RUNNING

    def end(self) -> None:
        """Nothing to flush: tokens are passed on at once."""


def pipeline(job: dict[str, Any], mode: str, settings: dict[str, Any]) -> genai.LLMPipeline:
    properties: dict[str, Any] = {
        "INFERENCE_NUM_THREADS": job["threads"],
        "PERFORMANCE_HINT": "LATENCY",
        **settings.get("properties", {}),
    }
    number_format = settings.get("format", "int8")
    more: dict[str, Any] = {}
    if settings.get("backend", "PA") == "PA":
        scheduler = genai.SchedulerConfig()
        scheduler.enable_prefix_caching = True
        scheduler.cache_size = 1
        scheduler.max_num_seqs = 1
        scheduler.max_num_batched_tokens = settings.get("batched_tokens", 256)
        more["scheduler_config"] = scheduler
    else:
        more["ATTENTION_BACKEND"] = settings["backend"]
    if mode.startswith("lookup"):
        more["prompt_lookup"] = True
    if mode.startswith("draft"):
        more["draft_model"] = genai.draft_model(f"{job['draft']}.{number_format}", "CPU", **properties)
    return genai.LLMPipeline(f"{job['model']}.{number_format}", "CPU", **more, **properties)


def load(job: dict[str, Any]) -> Answer:
    loaded: dict[str, genai.LLMPipeline] = {}  # modes that differ in `generation` alone share one
    pipelines = {}
    for mode, settings in job["modes"].items():
        key = json.dumps([mode.split("#")[0], {**settings, "generation": 0}], sort_keys=True)
        if key not in loaded:
            loaded[key] = pipeline(job, mode, settings)
        pipelines[mode] = loaded[key]

    def answer(ids: list[int], max_tokens: int, mode: str, cold: bool, log: TokenLog) -> None:
        prompt = openvino.Tensor(np.array([ids], dtype=np.int64))
        generation = genai.GenerationConfig(
            max_new_tokens=max_tokens,
            ignore_eos=True,
            apply_chat_template=False,
            do_sample=False,
            **job["modes"][mode].get("generation", {}),
        )
        pipelines[mode].generate(prompt, generation, Streamer(log))

    return answer


if __name__ == "__main__":
    serve(load, ("openvino", "openvino-genai", "nncf", "optimum-intel"))
