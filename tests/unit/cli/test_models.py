"""`speclsp models`: the table, and the removal of downloads and of nothing else."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from support.cli.terminal import Run, Terminal, runner
from support.weights.wheel_index import Shop, open_shop

from speclsp import config
from speclsp.daemon import control
from speclsp.errors import WeightsError
from speclsp.private_files import locks
from speclsp.private_files.os_errors import os
from speclsp.weights import installation, store

NAME = "qwen2.5-coder-0.5b-instruct"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys, "models")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    return open_shop(tmp_path, monkeypatch)


@pytest.fixture
def stored() -> Path:
    """A directory of 2 KiB in the store under the name of a model; it is damaged."""
    directory = config.cache_dir() / "models" / NAME
    directory.mkdir(parents=True)
    (directory / "model.safetensors").write_bytes(bytes(2048))
    return directory


def test_the_table_has_a_header_and_marks_the_current_model(run: Run):
    code, out, err = run("list", "--set", "device=cpu")
    head, *lines = out.partition("\n\n")[0].splitlines()
    assert (code, err) == (0, "")
    assert head.split() == ["NAME", "SIZE", "MEMORY", "LICENSE", "FITS", "STATUS"]
    rows = {line.split()[0]: line for line in lines}
    assert [name for name, line in rows.items() if " * " in line] == [NAME]
    assert rows["tiny"].endswith("built in")
    assert " 469 MiB " in rows[NAME] and "Apache-2.0" in rows[NAME] and rows[NAME].endswith("not downloaded")
    assert "~" in rows["starcoder2-3b"], "an estimate where the definition has no sizes"


def test_the_json_of_the_list_has_the_same_facts(run: Run):
    models = {model["name"]: model for model in json.loads(run("list", "--json", "--set", "device=cpu")[1])["models"]}
    assert (models["tiny"]["here"], models[NAME]["here"]) == (True, False)
    model = models[NAME]
    assert (model["licence"], model["bytes"], model["memory_mib"]) == (
        "Apache-2.0",
        491400064,
        916,
    )
    assert [name for name, model in models.items() if model["current"]] == [NAME]
    assert models[NAME]["status"] == "not downloaded"
    assert models["llama-3.1-70b"]["fits"] in ("no memory", "yes")


def test_a_removal_frees_the_disk_and_says_how_much(run: Run, stored: Path):
    assert run("remove", NAME, "--yes") == (0, f"{NAME} is removed; 2.0 KiB are free again\n", "")
    assert not stored.exists()
    code, out, err = run("remove", NAME, "--yes")
    assert (code, out, err) == (2, "", f"speclsp: {NAME} is not downloaded, so there is nothing to remove.\n")


def test_a_removal_asks_and_a_no_keeps_the_files(run: Run, stored: Path, monkeypatch: pytest.MonkeyPatch):
    code, _, err = run("remove", NAME)
    assert code == 2 and f"`speclsp models remove {NAME} --yes`" in err, "no terminal"
    monkeypatch.setattr(sys, "stdin", Terminal("\n"))
    code, out, _ = run("remove", NAME)
    assert (code, out.splitlines()[-1].endswith("Nothing is removed.")) == (1, True)
    assert stored.is_dir()
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert run("remove", NAME)[0] == 0
    assert not stored.exists()


def test_a_loaded_model_is_not_removed(run: Run, stored: Path, monkeypatch: pytest.MonkeyPatch):
    for role in ("target", "draft"):
        monkeypatch.setattr(control, "statuses", lambda role=role: [{"pid": 7, role: f"{NAME} (int8)"}])
        code, _, err = run("remove", NAME, "--yes")
        assert code == 2
        assert err == f"speclsp: {NAME} is loaded by an engine (process 7): run `speclsp engine stop` first.\n"
    assert stored.is_dir()


def test_a_model_that_is_being_downloaded_is_not_removed(run: Run, stored: Path):
    lock = locks.acquire(stored.with_name(f"{NAME}.lock"))
    assert lock is not None
    code, _, err = run("remove", NAME, "--yes")
    os.close(lock)
    assert code == 2 and "is being downloaded by another process" in err
    assert stored.is_dir()


def test_files_outside_the_store_are_never_removed(run: Run, stored: Path, tmp_path: Path):
    assert "is not in the store" in run("remove", "tiny", "--yes")[2]
    mine = tmp_path / "mine" / NAME
    shutil.move(stored, mine)
    code, _, err = run("remove", NAME, "--yes", "--set", f"models_dir={mine.parent}")
    assert code == 2 and f"{mine} is in your models_dir" in err


def test_the_removal_of_a_link_keeps_the_directory_it_names(run: Run, stored: Path, tmp_path: Path):
    mine = tmp_path / "mine" / NAME
    shutil.move(stored, mine)
    stored.symlink_to(mine)
    assert run("remove", NAME, "--yes")[0] == 0
    assert not stored.is_symlink()
    assert (mine / "model.safetensors").is_file()


def test_an_interrupted_removal_counts_as_damage_and_a_download_repairs_it(shop: Shop, monkeypatch: pytest.MonkeyPatch):
    def fail_midway(path: Path) -> None:
        (path / "tokenizer.json").unlink()
        raise OSError(5, "I/O error")

    directory = shop.ensure()
    with monkeypatch.context() as patch, pytest.raises(WeightsError, match=r"i/o error\. Check the disk"):
        patch.setattr(installation.shutil, "rmtree", fail_midway)
        installation.remove(shop.weights)
    assert installation.state(shop.weights) == installation.DAMAGED
    assert shop.ensure(repair=True) == directory
    store.verify(shop.weights)
    assert installation.remove(shop.weights) > 0
    assert [path.name for path in directory.parent.iterdir() if path.is_dir()] == []
