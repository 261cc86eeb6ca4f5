"""No telemetry and no switch for it: which modules can connect, to which peers, and the content of the packages.

tests/faults/privacy/test_no_network.py proves that the main commands open no connection: an attempt kills them there.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from speclsp import config
from speclsp.cli import entry

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "speclsp"
VSCODE = ROOT / "editors/vscode"
VSIX = ROOT / "build/speclsp.vsix"

CAN_TALK = {
    "socket", "ssl", "http", "urllib3", "requests", "httpx", "aiohttp", "websocket", "websockets", "ftplib", "smtplib",
    "imaplib", "poplib", "telnetlib", "xmlrpc", "socketserver", "huggingface_hub", "uvicorn", "grpc", "paramiko",
    "sentry_sdk", "posthog", "opentelemetry", "segment", "mixpanel", "amplitude", "statsd", "boto3",
}  # fmt: skip
CALLS = {"open_connection", "create_connection", "create_datagram_endpoint", "sock_connect", "urlopen", "urlretrieve"}
TALKERS = {  # module with a library that can open a connection -> the peer it connects to
    "weights.hub": "the hub, for missing weights",
    "lsp.backend.remote.remote_http": "remote.url, by the user's own settings",
    "lsp.backend.engine_http": "this user's engine",
    "daemon.engine_files": "this user's engine",
    "daemon.control": "this user's engine",
    "private_files.locks": "nobody: a socket is the lock where the file system has none",
    "daemon.platform": "sockets of this machine: peer credentials and options",
    "engine.process.shared_engine": "nobody: it listens",
    "engine.process.server_process": "nobody: it listens",
    "engine.http.tcp_guard": "nobody: it listens",
}
RUNNERS = {  # module -> the program it runs that can open a connection
    "weights.index_mirror": "pip, with the user's own settings, for missing weights",
}
HOSTS = {
    "127.0.0.1": "a port of this machine",
    "engine": "the Host header on a Unix socket",
    "huggingface.co": "the hub, for missing weights, where HF_ENDPOINT names no other",
    "git-lfs": "how a file begins that stands for another",
    "download.pytorch.org": "index of PyTorch's CPU builds: an argument for pip, after the user clicked Install",
    "{host}": "the address where this engine listens, printed for its starter",
}
WAYS_OUT = ("fetch(", "XMLHttpRequest", "WebSocket", "sendBeacon", "createTelemetryLogger", "isTelemetryEnabled")
ADDRESS = re.compile(r"(?:https?|wss?|ftp)://([A-Za-z0-9{][A-Za-z0-9._{}-]*)")
WORDS = re.compile(r"telemetry|analytics|crash.?report|usage.?data|tracking|opt.?out|sentry|posthog|mixpanel", re.I)
OURS_AGAINST_IT = re.compile(r"HF_HUB_DISABLE_TELEMETRY|asked without telemetry|[Nn]o telemetry|without telemetry")


def modules() -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(file.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        yield name, ast.parse(file.read_text(encoding="utf-8"))


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""


def talks(tree: ast.Module) -> bool:
    """True if the module imports a library that can connect. `subprocess` is checked by its arguments, below."""
    libraries = {name.partition(".")[0] for name in imported(tree)}
    called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return bool(libraries & CAN_TALK or called & CALLS or "urllib.request" in set(imported(tree)))


@pytest.mark.promise(27)
def test_only_listed_modules_can_open_a_connection(promise):
    able = {name for name, tree in modules() if talks(tree)}
    assert able <= set(TALKERS), f"who do these talk to, and is it promised? {able - set(TALKERS)}"
    promise.measured(
        f"{len(able)} of {sum(1 for _ in modules())} modules have a library that can open a connection: to the hub or"
        f" pip's index for missing weights, to remote.url, to the user's own engine",
        holds=True,
    )


@pytest.mark.promise(27)
def test_no_program_that_can_connect_is_run_except_pip_for_weights():
    tools = {"curl", "wget", "pip", "git", "nc", "ssh", "scp", "ftp", "npm", "uv"}
    runners = set()
    for name, tree in modules():
        if "subprocess" not in set(imported(tree)):
            continue
        lists = [node for node in ast.walk(tree) if isinstance(node, ast.List | ast.Tuple)]
        words = {part.value for node in lists for part in node.elts if isinstance(part, ast.Constant)}
        runners |= {name} if words & tools else set()
    assert runners == set(RUNNERS)


NOT_SHIPPED = ROOT / "models" / "training"


def shipped() -> Iterator[tuple[str, str]]:
    """Every text that is installed with the package or an editor plugin: (name, text)."""
    for folder, kinds in (
        (PACKAGE, ("py", "c", "h", "scm", "toml")),
        (ROOT / "models", ("toml",)),
        (VSCODE / "src", ("ts",)),
        (ROOT / "editors/nvim", ("lua", "vim")),
    ):
        files = [
            file for kind in kinds for file in sorted(folder.rglob(f"*.{kind}")) if NOT_SHIPPED not in file.parents
        ]
        assert files, folder
        for file in files:
            yield str(file.relative_to(ROOT)), file.read_text(encoding="utf-8")


@pytest.mark.promise(27)
def test_shipped_texts_contain_only_known_addresses(promise):
    texts = dict(shipped())
    addresses = {(name, host) for name, text in texts.items() for host in ADDRESS.findall(text)}
    assert {(name, host) for name, host in addresses if host.strip(".") not in HOSTS} == set()
    promise.measured(f"{len(texts)} files are shipped: addresses are loopback's and PyTorch's index's", holds=True)


@pytest.mark.promise(27)
def test_the_vs_code_extension_connects_only_to_its_server():
    package = json.loads((VSCODE / "package.json").read_text(encoding="utf-8"))
    assert "dependencies" not in package, "esbuild packs vscode-languageclient into the bundle"
    assert "vscode-languageclient" in package["devDependencies"]
    text = "\n".join(text for name, text in shipped() if name.startswith("editors/vscode/src"))
    for way in (*WAYS_OUT, '"https"', '"http"', "node:http", "node:net", '"net"'):
        assert way not in text


@pytest.mark.promise(27)
@pytest.mark.skipif(not VSIX.exists(), reason="`make vsix` makes what is looked at here")
def test_the_packed_vs_code_extension_connects_no_further():
    with zipfile.ZipFile(VSIX) as packed:
        names = packed.namelist()
        bundle = packed.read("extension/dist/extension.js").decode()
        (server,) = [name for name in names if re.search(r"/server/speclsp-.*\.(whl|tar\.gz)$", name)]
        content = BytesIO(packed.read(server))
        with zipfile.ZipFile(content) if server.endswith(".whl") else tarfile.open(fileobj=content) as archive:
            files = archive.namelist() if isinstance(archive, zipfile.ZipFile) else archive.getnames()
    assert set(ADDRESS.findall(bundle)) <= {"download.pytorch.org"}, "an argument for pip"
    for way in WAYS_OUT:
        assert way not in bundle
    assert set(re.findall(r'require\("(?:node:)?(\w+)[^"]*"\)', bundle)) <= {
        "vscode", "child_process", "util", "crypto", "path", "os", "fs", "readline",
        "net",  # part of vscode-languageclient, for servers on a pipe or on loopback
    }  # fmt: skip
    inside = [name for name in files if name.endswith(".py")]
    assert inside and not any("telemetry" in name and "test" not in name for name in inside)


@pytest.mark.promise(27)
def test_no_setting_help_or_shipped_text_mentions_telemetry():
    settings = [f"{known.key}: {known.rule.meaning}" for known in config.KNOWN.values()]
    package = (VSCODE / "package.json").read_text(encoding="utf-8")
    for document in (*settings, package, entry.parser().format_help()):
        assert not WORDS.search(OURS_AGAINST_IT.sub("", document)), document[:80]
    for name, text in shipped():
        assert not WORDS.search(OURS_AGAINST_IT.sub("", text)), f"{name}: what is this?"


@pytest.mark.promise(27)
def test_requests_to_the_hub_carry_no_telemetry():
    code = (
        "import speclsp.weights.hub; from huggingface_hub import constants;"
        "from huggingface_hub.utils import build_hf_headers;"
        "print(constants.HF_HUB_DISABLE_TELEMETRY, sorted(build_hf_headers(token=False)),"
        " build_hf_headers(token=False)['user-agent'])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.startswith("True ['user-agent']"), output
    assert "torch" not in output
