"""The engine wing: one process, heavy, owns the device. Imported before torch, so that OpenMP waits as we need it.

An editor's machine is busy: a build, a test run, a browser. OpenMP threads that spin at a barrier for one that was
scheduled away burn the core that one is waiting for; threads that sleep at once are slow to wake. So they spin for a
moment and then sleep. A round of 0.5B in int8 on two cores, alone and beside two busy processes, in milliseconds:

    libgomp's own 50 and 110 to 2800     sleeping at once 89 and 185     12000 spins, then sleeping 52 and 143

A user's own setting wins.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "12000")
