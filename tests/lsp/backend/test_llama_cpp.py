"""llama.cpp's own server as `remote.url`, alone and as a replica of a team behind vllm-router.

The wheel `xllamacpp` has the server, and the tiny trained model is its model.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import gguf
import httpx
import pytest
from safetensors.torch import load_file
from support.lsp.editor_client import Editor, Page
from support.waiting import becomes_true

from speclsp.weights import cards

TINY = Path(cards.__file__).parents[2] / "models/tiny/target"
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "model.layers": "blk",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.o_proj": "attn_output",
    "self_attn.": "attn_",
    "mlp.": "ffn_",
    "_proj": "",
}
SERVER = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.model_alias, params.n_ctx, params.n_parallel, params.port = sys.argv[1], ["tiny"], 1024, 1, 0
params.endpoint_metrics = True
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


def write_gguf(path: Path) -> None:
    """The tiny model in llama.cpp's format, float32."""
    config, tokenizer = (json.loads((TINY / name).read_text()) for name in ("config.json", "tokenizer.json"))
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    special = {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    tokens = {number: token for token, number in tokenizer["model"]["vocab"].items()} | special
    count = config["vocab_size"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([tokens.get(number, f"[PAD{number}]") for number in range(count)])
    writer.add_token_types([3 if number in special else 1 if number in tokens else 5 for number in range(count)])
    writer.add_token_merges([" ".join(merge) for merge in tokenizer["model"]["merges"]])
    writer.add_eos_token_id(config["eos_token_id"])
    for name, values in load_file(TINY / "model.safetensors").items():
        for old, new in NAMES.items():
            name = name.replace(old, new)
        writer.add_tensor(name, values.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama") / "tiny.gguf"
    write_gguf(path)
    return path


@contextmanager
def llama_server(model: Path) -> Iterator[str]:
    """The address of a llama.cpp server with the tiny model."""
    command = [sys.executable, "-c", SERVER, str(model)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdin and server.stdout
        yield server.stdout.readline().strip()
        server.stdin.close()


TEXT = "class A:\n    def __init__(self, name, value):\n        self.name =\n        self.value = value\n"


@contextmanager
def window(address: str) -> Iterator[tuple[Editor, Page]]:
    """An editor with this server, whose first suggestion is the text that transformers gives."""
    with Editor("--set", f"remote.url={address}", model="auto") as editor:
        page = Page(editor.begin(), TEXT)
        status = editor.statuses()[-1]
        assert (status["state"], status["model"], status["target"]) == ("ready", "tiny", "tiny")
        assert editor.text(page.ask(TEXT.index(" =\n") + 2)) == "s"
        yield editor, page


def test_llama_cpps_own_server_is_detected_and_completes(model: Path):
    with llama_server(model) as address, window(address):
        pass


# ── a team: a router and two replicas, as docs/teams.md describes ────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def vllm_router(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command `vllm-router`, installed from the package index into an environment of its own."""
    folder = tmp_path_factory.mktemp("router")
    venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin/pip", "install", "-q", "vllm-router==0.1.17"], check=True, timeout=600)
    return folder / "bin/vllm-router"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def team(vllm_router: Path, replicas: list[str], log: Path) -> Iterator[str]:
    """The address of a router before the replicas, with the flags of docs/teams.md."""
    port = free_port()
    words = ["--host", "127.0.0.1", "--port", str(port), "--policy", "consistent_hash", "--disable-retries"]
    words += ["--prometheus-port", str(free_port()), "--worker-urls", *replicas]
    with log.open("w") as out, subprocess.Popen([vllm_router, *words], stdout=out, stderr=out) as router:
        address = f"http://127.0.0.1:{port}"
        try:
            assert becomes_true(lambda: is_healthy(address), 60), log.read_text()
            yield address
        finally:
            router.kill()


def is_healthy(address: str) -> bool:
    try:
        return httpx.get(f"{address}/health").status_code == 200
    except httpx.HTTPError:
        return False


def prompt_tokens(address: str) -> int:
    """The prompt tokens that a replica has computed."""
    count = re.search(r"^llamacpp:prompt_tokens_total (\d+)", httpx.get(f"{address}/metrics").text, re.MULTILINE)
    assert count
    return int(count[1])


@pytest.mark.soak
def test_a_router_keeps_an_editor_on_one_replica(model: Path, vllm_router: Path, tmp_path: Path):
    with ExitStack() as servers:
        replicas = [servers.enter_context(llama_server(model)) for _ in range(2)]
        address = servers.enter_context(team(vllm_router, replicas, tmp_path / "router.log"))
        with window(address) as (editor, page):
            (own,) = [replica for replica in replicas if prompt_tokens(replica)]
            (other,) = set(replicas) - {own}
            cursor, before = TEXT.index(" =\n") + 2, prompt_tokens(own)
            for word in ("alpha", "beta", "gamma"):
                cursor = page.type(cursor, f" {word} +")
                editor.reply(page.ask(cursor))
            assert prompt_tokens(own) > before
            assert prompt_tokens(other) == 0, "an editor's prompts are in one replica's cache"
