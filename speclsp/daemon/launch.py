"""Launch of an engine's process as a daemon, one for each settings: its lock, command line and environment.

A client that finds no engine calls `start`. It takes the lock and hands it to `speclsp engine start`, which forks away
from its starter before it does anything else, or starts the engine and ends (Windows). So the engine survives the end
of the editor, and an editor that kills all of its children: on Windows those are the processes whose parent it is.
Of any number of starters one gets the lock; the others wait for that one's engine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from speclsp import config
from speclsp.config import Config, api_keys
from speclsp.daemon import platform
from speclsp.daemon.engine_files import ENGINES_OWN, EngineEndpoint, EngineFiles, log_phrase, rooted
from speclsp.errors import MAX_MESSAGE, EngineError, shortened
from speclsp.private_files.os_errors import sentence

START_WAIT_S = 60.0  # until it listens, which it does before it loads anything: reached only on an overloaded machine


def start(settings: Config) -> EngineEndpoint | None:
    """Start the engine of these settings and wait until it listens; None when another has the lock: it soon listens.

    Blocks, for well under a second as a rule. Raises EngineError with what the engine said when it could not start,
    SpeclspError when there is no private directory to start it in.
    """
    files, nowhere = EngineFiles.of(settings), config.runtime_dir()
    lock = files.try_lock()
    if lock is None:
        return None
    try:
        ended = run_starter(engine_flags(rooted(settings)), lock, nowhere)
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"the engine did not listen within {START_WAIT_S:.0f} s{log_phrase()}.") from error
    except OSError as error:
        raise EngineError(f"cannot start the engine: {sentence(error, sys.executable, 'be run')}") from error
    finally:
        os.close(lock)  # the engine has it, or nobody
    if not ended.returncode:
        return files.find()
    lines = [line for line in ended.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    message = shortened(lines[-1].removeprefix("speclsp: "), MAX_MESSAGE) if lines else ""
    raise EngineError(message or f"the engine ended with {exit_cause(ended.returncode)}{log_phrase()}.")


def run_starter(flags: Sequence[str], lock: int, nowhere: Path) -> subprocess.CompletedProcess[bytes]:
    """Run the process that starts the engine, until the engine listens. Raises OSError."""
    command = [sys.executable, "-m", "speclsp", "engine", "start", "--lock-fd", str(platform.number_of(lock)), *flags]
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=nowhere,  # -m looks for modules in the working directory: never in the user's project
        env=environment(nowhere),
        timeout=START_WAIT_S,
        check=False,
        **platform.child_options([lock]),
    )


def exit_cause(code: int) -> str:
    """The end of a process: "exit code 3", "signal 9"; an error status of Windows in hexadecimal, as its documents."""
    return f"signal {-code}" if code < 0 else f"exit code {code:#x}" if code > 255 else f"exit code {code}"


def engine_flags(settings: Config) -> list[str]:
    """The flags for the settings that an engine uses, and no others: a key must not show in a process list."""
    words = config.as_flags(settings)
    pairs = zip(words[::2], words[1::2], strict=True)
    return [word for flag, value in pairs if value.startswith(ENGINES_OWN) for word in (flag, value)]


def environment(nowhere: Path) -> dict[str, str]:
    """This process's environment, without the user's config.toml, and with this package on the path of a checkout.

    `nowhere`: a directory without a config.toml. Problems of the user's file were reported already, and a setting that
    the editor reset to its default must keep it.
    """
    variables = {**os.environ, "XDG_CONFIG_HOME": str(nowhere / "none")}
    variables.pop(api_keys.VARIABLE, None)  # a remote server's key: an engine contacts no server
    root = Path(__file__).resolve().parents[2]
    if not root.name.endswith("-packages"):
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), variables.get("PYTHONPATH", "")]))
    return variables
