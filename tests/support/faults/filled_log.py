"""A program that fills a log with more than twice its limit, half of it prints of a library and half records."""

from __future__ import annotations

# Arguments: the log's path, then any of these words.
#   linux, win32   take the branches of that system
#   stdout         print to stdout, and leave stderr out of the log
#   another        keep the log open by another handle too
#   report         write "written" to the stderr of the start, at the end
FILL_LOG = """
import logging, os, pathlib, sys
from speclsp.observability import logfile
logfile.MAX_BYTES = 10_000
path, *words = sys.argv[1:]
for system in {"linux", "win32"}.intersection(words):
    sys.platform = system
handler = logfile.open_file(pathlib.Path(path))
other = open(path, "a") if "another" in words else None
stderr, printed = os.dup(2), 1 if "stdout" in words else 2
handler.take_prints(stderr=printed == 2)
logging.getLogger().addHandler(handler)
for number in range(300):
    os.write(printed, b"printed by a library %d\\n" % number)
    handler.bound()
for number in range(300):
    logging.error("logged %d", number)
os.write(1, b"last words\\n")
if "report" in words:
    os.write(stderr, b"written")
"""
