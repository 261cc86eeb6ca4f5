"""llama.cpp's own server as `remote.url`.

The wheel `xllamacpp` has the server, and the tiny trained model is its model.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gguf
import pytest
from safetensors.torch import load_file
from support.lsp.editor_client import Editor, Page

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


def test_llama_cpps_own_server_is_detected_and_completes(model: Path):
    """The suggestion is the text that transformers gives."""
    with llama_server(model) as address, Editor("--set", f"remote.url={address}", model="auto") as editor:
        page = Page(editor.begin(), TEXT)
        status = editor.statuses()[-1]
        assert (status["state"], status["model"], status["target"]) == ("ready", "tiny", "tiny")
        assert editor.text(page.ask(TEXT.index(" =\n") + 2)) == "s"
