"""vLLM's CPU build in bf16: plain, n-gram, draft model. One engine, so one mode, for each process.

The engine runs in this process and is stepped by hand, so that the first token is seen as it is decided.
Intel's OpenMP and tcmalloc are preloaded, as its manual asks for a CPU: without the first, drafts cost it dearly.
Settings of a mode: `engine` (arguments of EngineArgs).
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

from protocol import Answer, TokenLog, serve


def preload(peer: Path) -> None:
    """Begin anew with both libraries in place before anything else, once."""
    candidates = [*peer.glob("tcmalloc/**/libtcmalloc_minimal.so.4"), Path(sys.prefix) / "lib/libiomp5.so"]
    libraries = ":".join(str(library) for library in candidates if library.exists())
    if os.environ.get("LD_PRELOAD", "") != libraries:
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"LD_PRELOAD": libraries})


def load(job: dict[str, Any]) -> Answer:
    ((_, settings),) = job["modes"].items()
    cores = sorted(os.sched_getaffinity(0))[: job["threads"]]
    os.environ |= {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": f"{cores[0]}-{cores[-1]}",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_USE_AOT_COMPILE": "0",  # it fails to load the compiled files again, and recompiles
        "VLLM_CACHE_ROOT": f"{job['peer']}/cache",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    from vllm import EngineArgs, LLMEngine, SamplingParams

    arguments = {
        "model": job["model"],
        "dtype": "bfloat16",
        "max_model_len": 2048,
        "max_num_seqs": 1,
        "enable_prefix_caching": True,
        "disable_log_stats": True,
        "skip_tokenizer_init": True,
        **settings.get("engine", {}),
    }
    if "speculative_config" in arguments and arguments["speculative_config"].get("model") == "draft":
        arguments["speculative_config"] = {**arguments["speculative_config"], "model": job["draft"]}
    engine = LLMEngine.from_engine_args(EngineArgs(**arguments))
    numbers = itertools.count()

    def answer(ids: list[int], max_tokens: int, mode: str, cold: bool, log: TokenLog) -> None:
        if cold:
            engine.reset_prefix_cache()
        sampling = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)
        engine.add_request(str(next(numbers)), {"prompt_token_ids": ids}, sampling)
        while engine.has_unfinished_requests():
            for output in engine.step():
                log(output.outputs[0].token_ids[len(log.tokens) :])

    return answer


if __name__ == "__main__":
    preload(Path(json.loads(sys.argv[1])["peer"]))
    serve(load, ("vllm-cpu", "torch", "transformers"))
