"""Standard streams: encoding, closed descriptors, errors of stdout, and the Windows console.

On Windows, a stream that is no console has UTF-8 in place of the code page, as editors and other programs expect. A
console has Unicode of its own, which needs no code page.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TextIO, TypeGuard

ESCAPED = "speclsp"  # name of `escape` among the error handlers
ENABLE_VIRTUAL_TERMINAL_PROCESSING = 0x4  # of SetConsoleMode


class OutputFile(io.FileIO):
    """Descriptor 1, with the error of a write that failed: the layers above may drop it, as argparse does."""

    error: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as failure:
            error = as_broken_pipe(failure)
            self.error = self.error or error
            raise error from None


def as_broken_pipe(error: OSError, system: str = sys.platform) -> OSError:
    """The error of a write. Windows reports a pipe whose reader has gone as EINVAL: then a BrokenPipeError."""
    if system == "win32" and error.errno == errno.EINVAL:
        return BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
    return error


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
            if null == number:
                os.set_inheritable(null, True)
            else:
                os.dup2(null, number)
                os.close(null)
        stream = getattr(sys, name)
        if stream is None:
            stream = io.TextIOWrapper(io.FileIO(os.devnull, "w" if number else "r"), encoding="utf-8")
        elif number == 1 and stream is sys.__stdout__ and is_file(stream):
            buffer = io.BufferedWriter(OutputFile(number, "w", closefd=False))
            stream = io.TextIOWrapper(buffer, stream.encoding, stream.errors, line_buffering=stream.line_buffering)
        if isinstance(stream, io.TextIOWrapper):
            own = stream.errors not in ("strict", "surrogateescape")
            errors = stream.errors if own else ESCAPED if number else "replace"
            encoding = encoding_of(number, stream.encoding) if is_file(stream) else stream.encoding
            with suppress(OSError):  # a stdin that was read already keeps its own handling
                if encoding != stream.encoding:
                    stream.reconfigure(encoding=encoding, errors=errors)
                elif not own:
                    stream.reconfigure(errors=errors)
        setattr(sys, name, stream)


def is_file(stream: object) -> TypeGuard[io.TextIOWrapper]:
    """True for a pipe, a file or a POSIX terminal; False for a Windows console, whose writes are not bytes."""
    buffer = getattr(stream, "buffer", None)
    return isinstance(stream, io.TextIOWrapper) and isinstance(getattr(buffer, "raw", buffer), io.FileIO)


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


def enable_escapes(stream: TextIO) -> bool:
    """True if the terminal obeys ANSI escapes. A Windows console does so on request, from Windows 10 on."""
    return sys.platform != "win32" or console_mode(stream, ENABLE_VIRTUAL_TERMINAL_PROCESSING) is not None


def escape(error: UnicodeError) -> tuple[bytes, int]:
    """The bytes for characters that an encoding lacks: escapes; for a byte of a path that is no text, that byte."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    characters = error.object[error.start : error.end]
    return b"".join(
        bytes([ord(character) - 0xDC00])
        if "\udc80" <= character <= "\udcff"
        else character.encode("ascii", "backslashreplace")
        for character in characters
    ), error.end


codecs.register_error(ESCAPED, escape)


def write_stderr(text: str, stream: TextIO | None = None) -> None:
    """Write to stderr. A message that cannot be written ends no command: it is lost, with all that follow."""
    stream = stream if stream is not None else sys.stderr
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        discard(2)


def flush_stdout() -> OSError | None:
    """Write the rest of the output; the first error of a write. Then the rest is lost, and later flushes succeed."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    try:
        sys.stdout.flush()
    except OSError as error:
        discard(1)
        return raw.error if isinstance(raw, OutputFile) else error
    return raw.error if isinstance(raw, OutputFile) else None


def discard(number: int) -> None:
    """Let the descriptor write nowhere: the interpreter's last flush must not fail again."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)
