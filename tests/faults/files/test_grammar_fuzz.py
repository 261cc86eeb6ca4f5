"""Grammar fuzzing: no text crashes or hangs the process. Each grammar is fuzzed in a child process.

A parse runs inside the language server, and no budget can stop an error in a grammar's scanner (a buffer overrun, an
endless loop). These tests search for such texts. `excerpt` keeps out those found so far, and new ones would be listed
here. A failure names its text: `python tests/support/faults/grammar_fuzz.py NUMBER 1 LANGUAGE` generates it again.
"""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from speclsp.lsp.syntax.grammars import GRAMMARS

FIRE = Path(__file__).parents[2] / "support/faults/grammar_fuzz.py"
PATIENCE_S = 180.0  # for one text, on a busy machine
OVER_BUDGET_MS = 100.0  # of processor time; a third of it is usual


@pytest.mark.promise(13)
def test_no_text_makes_a_grammar_crash_or_hang(promise, soak: bool):
    count = 80 if soak else 6
    command = [sys.executable, FIRE, str(20_000), str(count), *sorted(GRAMMARS)]
    output: queue.Queue[str] = queue.Queue()
    last, done = "nothing", dict[str, float]()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:

        def read() -> None:
            for line in child.stdout or ():
                output.put(line.strip())
            output.put("")

        threading.Thread(target=read, daemon=True).start()
        try:
            while line := output.get(timeout=PATIENCE_S):
                last = line
                language, number, longest = line.split()
                if number == "done":
                    done[language] = float(longest)
        except queue.Empty:
            child.kill()
            pytest.fail(f"hangs: {last}")
    assert child.returncode == 0, f"ended with {child.returncode}: {last}"
    assert sorted(done) == sorted(GRAMMARS)
    worst = max(done, key=lambda language: done[language])
    promise.measured(
        f"{count * len(done):,} odd texts for {len(done)} grammars: 0 crashes, 0 hangs, "
        f"{done[worst]:.0f} ms of processor time over the budget at most ({worst})",
        holds=done[worst] <= OVER_BUDGET_MS,
    )
    assert done[worst] < 20 * OVER_BUDGET_MS
