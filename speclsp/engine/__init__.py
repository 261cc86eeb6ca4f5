"""The engine: one process that loads the models and owns the device. Imported before torch, to set how OpenMP waits.

An editor's machine is busy: a build, a test run, a browser. If OpenMP threads spin at a barrier, they occupy the core
that a descheduled thread waits for. If they sleep at once, they are slow to wake. So they spin for a moment and then
sleep. A round of the 0.5B in int8 on two cores, alone and beside two busy processes, in milliseconds:

    libgomp's default 50 and 110 to 2800     sleeping at once 89 and 185     12000 spins, then sleeping 52 and 143

Texts are tokenized one at a time, which needs no pool of threads. The user's environment variables take precedence.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "12000")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
