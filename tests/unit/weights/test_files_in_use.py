"""Files that another program has open on Windows, paths that are too long there, and GGUF files of other programs."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from speclsp.private_files import os_errors
from speclsp.weights.gguf import other_caches

SHARING_VIOLATION, PATH_NOT_FOUND = 32, 3  # error codes of Windows


def windows_error(code: int, path: str) -> OSError:
    """The OSError that Windows' Python raises for an error code of the system."""
    error = (FileNotFoundError if code == PATH_NOT_FOUND else PermissionError)(errno.EACCES, "Access is denied", path)
    error.winerror = code
    return error


def test_weights_that_are_in_use_are_one_sentence_with_the_way_out():
    sentence = os_errors.sentence(windows_error(SHARING_VIOLATION, r"C:\m\model.safetensors"))
    assert sentence.startswith("C:\\m\\model.safetensors cannot be read or written: access is denied.")
    assert "`speclsp engine stop`" in sentence and "virus scanner" in sentence and "\n" not in sentence


@pytest.mark.parametrize(("characters", "hint"), [(259, False), (260, True)])
def test_a_path_that_is_too_long_for_windows_is_named_as_the_cause(characters: int, hint: bool):
    path = "C:\\" + "x" * (characters - 3)
    assert ("more than 259 characters" in os_errors.way_out(windows_error(PATH_NOT_FOUND, path))) == hint
    assert "characters" not in os_errors.way_out(FileNotFoundError(errno.ENOENT, "no such file", path)), "of POSIX"


# ── caches of other programs ─────────────────────────────────────────────────────────────────────────────────

HUB_FILE = "models--Owner--Repo/snapshots/1/a.gguf"


@pytest.mark.parametrize(
    ("place", "variables"),
    [
        (f".cache/huggingface/hub/{HUB_FILE}", {}),
        (f"hf/hub/{HUB_FILE}", {"HF_HOME": "~/hf"}),
        (f"hub/{HUB_FILE}", {"HF_HUB_CACHE": "~/hub"}),
        ("llama/Owner_Repo_a.gguf", {"LLAMA_CACHE": "~/llama"}),
    ],
)
def test_a_gguf_of_another_program_is_recognized_by_its_place_name_and_size(
    place: str, variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for variable in ("HOME", "USERPROFILE"):  # of POSIX, of Windows
        monkeypatch.setenv(variable, str(tmp_path))
    file = tmp_path / place
    file.parent.mkdir(parents=True)
    file.write_bytes(b"GGUF")
    assert other_caches.find("Owner/Repo", "a.gguf", 4, variables) == file
    assert other_caches.find("Owner/Repo", "a.gguf", 5, variables) is None, "another size"
    assert other_caches.find("Owner/Other", "b.gguf", 4, variables) is None


def test_llama_cpps_cache_on_windows_is_in_the_local_application_data():
    environment = {"LOCALAPPDATA": r"C:\Users\Zoë Å\AppData\Local"}
    assert other_caches.llama_directories(environment, "win32") == [Path(environment["LOCALAPPDATA"]) / "llama.cpp"]


def test_a_user_without_a_home_directory_has_no_other_caches(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as for an unknown user id in a container
    with pytest.raises(RuntimeError):
        Path.home()
    assert other_caches.find("Owner/Repo", "a.gguf", 4, {}) is None
