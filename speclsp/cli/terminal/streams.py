"""Standard streams: encoding, closed descriptors, errors of stdout, and the Windows console.

On Windows, a stream that is no console has UTF-8 in place of the code page, as editors and other programs expect. A
console has Unicode of its own, which needs no code page.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TextIO

ENABLE_VIRTUAL_TERMINAL_PROCESSING = 0x4  # of SetConsoleMode


def prepare_streams() -> None:
    """Make the standard streams usable: a closed one is empty or discards, and no character fails.

    A descriptor that is closed would be given to the next file that is opened, and a library's print would go into it.
    A character outside the encoding of a terminal, such as Latin-1, is written as an escape: \\u65e5.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)  # on POSIX the lowest free number, which is `number`
            if null != number:
                os.dup2(null, number)
                os.close(null)
            os.set_inheritable(number, True)
        stream = getattr(sys, name) or open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        if isinstance(stream, io.TextIOWrapper):
            encoding = stream.encoding if is_console(stream) else encoding_of(number, stream.encoding)
            with suppress(OSError):  # a stdin that was read already keeps its own handling
                errors = "backslashreplace" if number else "replace"
                stream.reconfigure(encoding=encoding, errors=errors)
                if number == 1:
                    stream.reconfigure(write_through=False)  # an error, which argparse drops, comes at the flush


def is_console(stream: io.TextIOWrapper) -> bool:
    """True for a Windows console, whose writes are not bytes; False for a pipe, a file or a POSIX terminal."""
    buffer = stream.buffer
    return not isinstance(getattr(buffer, "raw", buffer), io.FileIO)


def encoding_of(
    number: int, encoding: str, system: str = sys.platform, environment: Mapping[str, str] = os.environ
) -> str:
    """The encoding of a stream that is no console: on Windows UTF-8, unless PYTHONIOENCODING names another.

    `number`: of its descriptor. `encoding`: the interpreter's choice. PowerShell may send a byte order mark to stdin.
    """
    if system != "win32" or environment.get("PYTHONIOENCODING"):
        return encoding
    return "utf-8" if number else "utf-8-sig"


def console_mode(stream: TextIO, more: int = 0) -> int | None:
    """The mode of a Windows console, with the flags `more` set in it; None where that fails or the stream is none."""
    if sys.platform != "win32":
        return None
    import ctypes
    import msvcrt
    from ctypes import wintypes

    kernel32, mode = ctypes.WinDLL("kernel32"), wintypes.DWORD()
    kernel32.GetConsoleMode.argtypes = [wintypes.HANDLE, ctypes.POINTER(wintypes.DWORD)]
    kernel32.SetConsoleMode.argtypes = [wintypes.HANDLE, wintypes.DWORD]
    try:
        handle = msvcrt.get_osfhandle(stream.fileno())
    except (OSError, ValueError):
        return None
    if not kernel32.GetConsoleMode(handle, ctypes.byref(mode)):
        return None
    return mode.value | more if not more or kernel32.SetConsoleMode(handle, mode.value | more) else None


def is_terminal(stream: TextIO) -> bool:
    """True for a terminal. The C library of Windows calls the device NUL one too, so the console is asked there."""
    return stream.isatty() and (sys.platform != "win32" or console_mode(stream) is not None)


def coloured(stream: TextIO) -> bool:
    """True for a terminal that wants colour. A Windows console obeys ANSI escapes on request, from Windows 10 on."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not is_terminal(stream):
        return False
    return sys.platform != "win32" or console_mode(stream, ENABLE_VIRTUAL_TERMINAL_PROCESSING) is not None


def write_stderr(text: str, stream: TextIO | None = None) -> None:
    """Write to stderr. A message that cannot be written ends no command: it is lost, with all that follow."""
    stream = stream if stream is not None else sys.stderr
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        discard(2)


def flush_stdout() -> OSError | None:
    """Write the rest of the output, and that of a write that failed; its error. The rest is then lost."""
    try:
        sys.stdout.flush()
    except OSError as error:
        discard(1)
        return error
    return None


def is_closed_pipe(error: OSError, system: str = sys.platform) -> bool:
    """True for the error of a pipe whose reader has gone, which Windows reports as EINVAL."""
    return isinstance(error, BrokenPipeError) or (system == "win32" and error.errno == errno.EINVAL)


def discard(number: int) -> None:
    """Let the descriptor write nowhere: the interpreter's last flush must not fail again."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)
