"""Published figures of single-line infilling in Python, shown beside ours, and the reasons why they differ in kind.

Source: Qwen2.5-Coder Technical Report, arXiv 2409.12186v3, table "Humaneval-FIM"; greedy, at most 64 new tokens.
"""

from __future__ import annotations

SOURCE = "arXiv 2409.12186v3"
TASKS = 1_043  # Python tasks of github.com/QwenLM/Qwen3-Coder, fim-bench/hm_fim/data/train.parquet
EXACT_PERCENT = {  # base models, in bf16
    "Qwen2.5-Coder 0.5B": 70.3,
    "Qwen2.5-Coder 1.5B": 77.0,
    "Qwen2.5-Coder 3B": 78.7,
    "Qwen2.5-Coder 7B": 79.7,
    "DeepSeek-Coder 1.3B": 72.8,
    "StarCoder2 3B": 70.9,
}
