"""The engine wing: one process, heavy, owns the device. Imported before torch, so that OpenMP starts as we need it.

An editor's machine is busy: a build, a test run, a browser. OpenMP threads that spin at a barrier for one that was
scheduled away then burn the core that one is waiting for, and a round of 50 ms takes a second. Asleep at the barrier
they cost a few microseconds on an idle machine and save a factor of ten on a busy one. A user's own setting wins.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
