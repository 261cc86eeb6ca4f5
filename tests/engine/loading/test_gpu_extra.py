"""Without PyTorch a CPU computes. What needs PyTorch is one sentence, with its size and the command that adds it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli.terminal import runner
from support.engine.random_models import NATIVE, save_random

from speclsp.cli.first_run import doctor
from speclsp.cli.first_run.doctor_check import WARN
from speclsp.cli.models import sizes
from speclsp.config import Config, EngineConfig
from speclsp.engine.loading import checkpoint, load_plan, loading
from speclsp.engine.model.int8 import native
from speclsp.errors import WeightsError
from speclsp.process_resources import gpu_extra, gpus
from speclsp.weights import auto_choice, cards

PIP = f'`"{Path(sys.executable).as_posix()}" -m pip install '
NEEDS = "needs PyTorch, which is not installed: install it (0.9 GB on disk) with "


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that the compiled forward pass does not compute, written by transformers."""
    directory = tmp_path_factory.mktemp("models")
    save_random("gemma", directory / "gemma")
    return directory


@pytest.fixture(autouse=True)
def no_torch(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch is not installed, and there is no NVIDIA driver. `models`: transformers is imported before."""
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(gpu_extra, "has_gpu_driver", lambda: False)
    monkeypatch.setattr(sys, "platform", "linux")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine has an NVIDIA driver."""
    monkeypatch.setattr(gpu_extra, "has_gpu_driver", lambda: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    gpus.search_gpu.cache_clear()
    yield
    gpus.search_gpu.cache_clear()


def load(**settings: object) -> None:
    config = Config(model="tiny", device="cpu", engine=EngineConfig(offline=True, **settings))
    loading.load(config, cards.load("tiny"))


@pytest.mark.parametrize("number_format", cards.TORCH_FORMATS)
def test_a_number_format_of_pytorch_is_refused_before_any_download(number_format: str):
    with pytest.raises(WeightsError) as refused:
        load(quantization=number_format)
    assert str(refused.value).startswith(f'engine.quantization = "{number_format}" {NEEDS}{PIP}')
    assert str(refused.value).endswith('"speclsp[gpu]"`, or set it to "auto".')


@pytest.mark.parametrize("name", [name for name in cards.names() if cards.load(name).needs_torch])
def test_a_model_that_needs_pytorch_on_a_cpu_is_refused_before_any_download(name: str):
    config = Config(model=name, device="cpu")
    with pytest.raises(WeightsError, match=f"^{name} on a CPU {re.escape(NEEDS)}"):
        loading.load(config, cards.load(name))
    obstacle = sizes.obstacle(cards.load(name), config, sizes.measure_machine(config))
    assert obstacle is not None and obstacle.resource == "torch"


def test_a_processor_without_a_compiled_forward_pass_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(native, "paths", lambda: ())
    with pytest.raises(WeightsError) as refused:
        load()
    assert f"Without a compiled forward pass for this processor, a model {NEEDS}" in str(refused.value)


def test_a_model_that_the_compiled_forward_pass_does_not_compute_is_refused(models: Path):
    with pytest.raises(WeightsError, match="a gemma model that the compiled forward pass does not compute, needs PyT"):
        checkpoint.read_decoder(models / "gemma", "int8", "cpu", 64, 97)


@pytest.mark.usefixtures("driver")
def test_a_machine_with_a_gpu_computes_on_its_cpu_and_says_how_to_change_that():
    device, problem = gpus.pick_device("auto")
    assert device == auto_choice.device_of("auto") == "cpu"
    assert problem == (
        "This machine has an NVIDIA GPU, and PyTorch is not installed, so the CPU computes: "
        f'install it (5.7 GB on disk) with {PIP}"speclsp[gpu]"`.'
    )
    with pytest.raises(WeightsError, match='device = "cuda": This machine has an NVIDIA GPU, and PyTorch is not inst'):
        load_plan.pick_device("cuda")


@pytest.mark.skipif(not NATIVE, reason="forward.c does not run here")
@pytest.mark.usefixtures("driver")
def test_the_engines_note_setup_and_doctor_name_the_command(capsys: pytest.CaptureFixture[str]):
    config = Config(model="tiny", engine=EngineConfig(offline=True))
    parts = loading.prepare(config, cards.load("tiny"), lambda fraction, message: None)
    sentence = gpus.pick_device("auto")[1]
    assert parts.device == "cpu" and sentence in parts.note
    check = doctor.device(config)
    assert check.status == WARN and sentence in check.found
    code, out, _ = runner(capsys, "setup")("--model", "tiny")
    assert code == 0 and f"GPU:     {sentence}" in out


@pytest.mark.parametrize(
    ("tool", "system", "driver", "url", "command"),
    [
        ("uv pip", "linux", False, "", 'uv pip install --torch-backend=auto --python "{python}" "speclsp[gpu]"'),
        ("uv tool", "linux", False, "file:///c", 'uv tool install --torch-backend=auto "speclsp[gpu] @ file:///c"'),
        ("uv tool", "linux", False, "", 'uv tool install --torch-backend=auto "speclsp[gpu]"'),
        ("pip", "win32", False, "", '"{python}" -m pip install "speclsp[gpu]"'),
        ("pip", "win32", True, "", '"{python}" -m pip install --extra-index-url {cuda} "speclsp[gpu]"'),
        ("pip", "linux", False, "", '"{python}" -m pip install --extra-index-url {cpu} "speclsp[gpu]"'),
    ],
)
def test_the_command_is_one_of_the_tool_that_installed_speclsp(
    tool: str, system: str, driver: bool, url: str, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    if tool == "uv tool":
        (tmp_path / "uv-receipt.toml").touch()
        monkeypatch.setattr(sys, "prefix", str(tmp_path))
    elif tool == "uv pip":
        monkeypatch.setitem(sys.modules, "pip", None)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(gpu_extra, "has_gpu_driver", lambda: driver)
    monkeypatch.setattr(gpu_extra, "source_url", lambda: url)
    python = Path(sys.executable).as_posix()
    assert gpu_extra.command() == command.format(python=python, cuda=gpu_extra.CUDA_INDEX, cpu=gpu_extra.CPU_INDEX)
