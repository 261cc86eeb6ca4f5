"""Architecture law: allowed edges between packages, no cycle of imports or C headers, one entry point per library.

    top      cli, __main__                                   may import everything
    sides    lsp/     |     engine/                          never import each other, never import cli
    ground   config daemon observability weights errors plain_text private_files process_resources
             never import a side; torch in functions only

Every import counts: at module level, inside functions and under TYPE_CHECKING. `speclsp/engine/__init__.py` only sets
environment variables, so importing the bare package `speclsp.engine` is no edge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from support.source_tree import (
    ROOT,
    Import,
    all_imports,
    between_entries,
    cycles,
    graph_of,
    header_edges,
    imports_of,
    modules,
    own_module,
    package_of,
    private_definitions,
    private_uses,
)

BASE = {"errors", "plain_text", "private_files", "process_resources", "config"}
GROUND = {"daemon", "observability", "weights", *BASE}
TOP = {"cli", "__main__"}
EDGES: Mapping[str, set[str]] = {  # package -> the packages it may import directly
    "errors": set(),
    "plain_text": set(),
    "private_files": {"errors"},
    "process_resources": set(),
    "config": {"errors", "private_files"},
    "daemon": BASE,
    "observability": BASE,
    "weights": {"weights.gguf", "weights.untrusted", *BASE},
    "weights.gguf": {"errors"},
    "weights.untrusted": {"private_files", "errors"},
    "engine.api": set(),
    "engine.truncation": {"engine.api"},
    "engine.model": {"errors"},
    "engine.model.gguf_tensors": {
        *("engine.model", "weights.gguf", "weights.untrusted", "errors", "private_files", "process_resources"),
    },
    "engine.model.int8": {"engine.model", "errors", "process_resources"},
    "engine.model.cuda": {"engine.model", "weights", "errors"},
    "engine.scheduling": {"engine.api", "observability", "errors", "process_resources"},
    "engine.decoding": {
        *("engine.api", "engine.truncation", "engine.model", "engine.model.cuda"),
        *("weights", "config", "errors", "plain_text"),
    },
    "engine.loading.prepared": {
        *("engine.decoding", "engine.model", "engine.model.int8", "weights", "weights.untrusted", *BASE),
    },
    "engine.loading": {
        "engine.loading.prepared",
        *("engine.api", "engine.decoding", "engine.scheduling", "weights", "weights.gguf", "weights.untrusted"),
        *("engine.model", "engine.model.gguf_tensors", "engine.model.int8", "engine.model.cuda"),
        *BASE,
    },
    "engine.http": {"engine.api", "engine.scheduling", "daemon", "observability", *BASE},
    "engine.process": {
        *("engine.api", "engine.decoding", "engine.http", "engine.loading", "engine.scheduling"),
        *("daemon", "observability", "weights", *BASE),
    },
    "lsp.reasons": set(),
    "lsp.syntax.languages": set(),
    "lsp.syntax": {"lsp.syntax.languages"},
    "lsp.documents": {"lsp.syntax", "lsp.syntax.languages"},
    "lsp.protocol": {"lsp.documents", "lsp.visibility", "daemon", *BASE},
    "lsp.visibility": {"lsp.reasons", "lsp.documents", "lsp.syntax", *BASE},
    "lsp.index": {"lsp.documents", "lsp.syntax", "lsp.syntax.languages", "lsp.visibility", *BASE},
    "lsp.context": {"lsp.index", "lsp.documents", "lsp.syntax", "lsp.syntax.languages", "lsp.visibility", *BASE},
    "lsp.next_edit.changes": {"lsp.reasons", "lsp.syntax", "lsp.syntax.languages", "plain_text"},
    "lsp.next_edit.changes.calls": {"lsp.next_edit.changes", "lsp.reasons", "lsp.syntax", "lsp.syntax.languages"},
    "lsp.next_edit.changes.shapes": {"lsp.next_edit.changes", "lsp.reasons", "lsp.syntax", "lsp.syntax.languages"},
    "lsp.next_edit.renames": {"lsp.next_edit.changes", "lsp.reasons", "lsp.syntax", "lsp.syntax.languages"},
    "lsp.next_edit": {
        *(
            "lsp.next_edit.changes",
            "lsp.next_edit.changes.calls",
            "lsp.next_edit.changes.shapes",
            "lsp.next_edit.renames",
            "lsp.syntax.languages",
            "lsp.reasons",
            "lsp.backend",
        ),
        *("lsp.postprocess", "lsp.index", "lsp.documents", "lsp.syntax", "lsp.protocol", "lsp.visibility", *BASE),
    },
    "lsp.postprocess": {
        *("lsp.reasons", "lsp.documents", "lsp.syntax", "lsp.syntax.languages", "lsp.visibility", *BASE),
    },
    "lsp.backend": {"daemon", "lsp.syntax", *BASE},
    "lsp.backend.remote": {"lsp.backend", "weights", *BASE},
    "lsp.completion": {
        *("lsp.reasons", "lsp.backend", "lsp.context", "lsp.postprocess", "lsp.index"),
        *("lsp.documents", "lsp.syntax", "lsp.visibility", "observability", *BASE),
    },
    "lsp.server": {
        *("lsp.reasons", "lsp.protocol", "lsp.documents", "lsp.syntax", "lsp.visibility", "lsp.index", "lsp.context"),
        *("lsp.postprocess", "lsp.backend", "lsp.backend.remote", "lsp.completion", "lsp.next_edit"),
        *("daemon", "observability", "weights", *BASE),
    },
}
ENTRY_POINTS = {  # foreign library -> the modules that may import it
    "pygls": {"lsp.server.app", "lsp.server.server", "lsp.protocol.language_server"},
    "tree_sitter": {"lsp.syntax.tree", "lsp.syntax.parser"},
    "httpx": {"lsp.backend.remote.remote_http"},
    "starlette": {
        *("engine.http.routes", "engine.http.responses", "engine.http.leases", "engine.http.tcp_guard"),
        "engine.process.server_process",
    },
    "uvicorn": {"engine.http.tcp_guard", "engine.process.server_process"},
    "transformers": set(),  # of tests and benchmarks alone
    "bitsandbytes": {"engine.loading.nf4_linear"},
    "tokenizers": {"engine.loading.checkpoint", "weights.gguf.model_files"},
    "huggingface_hub": {"weights.hub"},
    "triton": {"engine.model.cuda.kernels"},
    "tomlkit": {"config.toml_edit"},
    "pathspec": {"lsp.visibility.ignore_files"},
}
HEAVY = {"torch", "transformers", "bitsandbytes"}
MODULES = modules()
FORWARD = ROOT / "speclsp/engine/model/int8"


def side_of(package: str) -> str:
    """ "lsp" | "engine" | "top" | "ground" for a package."""
    first = package.partition(".")[0]
    return first if first in ("lsp", "engine") else "top" if first in TOP else "ground"


def violations(statement: Import) -> Iterator[str]:
    """Sentences about the rules that one import breaks."""
    package = package_of(statement.importer, MODULES)
    target = own_module(statement, MODULES)
    if target is not None:
        other = package_of(target, MODULES)
        if other in ("", "engine") or other == package or side_of(package) == "top":
            return
        if side_of(other) == "top":
            yield f"{statement}: only cli imports cli"
        elif {side_of(package), side_of(other)} == {"lsp", "engine"}:
            yield f"{statement}: the language server and the engine do not import each other"
        elif other not in EDGES.get(package, set()):
            yield f"{statement}: {package or 'speclsp'} may import {sorted(EDGES.get(package, set()))}, not {other}"
        return
    library = statement.target.partition(".")[0]
    if library in ("benchmarks", "models", "tests"):
        yield f"{statement}: {library} is not in the wheel"
    library = "tree_sitter" if library.startswith("tree_sitter") else library
    if library in ENTRY_POINTS and statement.importer not in ENTRY_POINTS[library] and statement.kind != "types":
        yield f"{statement}: the entry point to {library} is {' and '.join(sorted(ENTRY_POINTS[library]))}"
    if library in HEAVY and side_of(package) == "lsp":
        yield f"{statement}: the language server does not load {library}"
    if library in HEAVY and side_of(package) != "engine" and statement.kind == "module":
        yield f"{statement}: outside the engine, {library} is imported inside functions only"


def test_every_import_is_an_allowed_edge_and_uses_the_one_entry_point():
    sentences = [sentence for statement in all_imports() for sentence in violations(statement)]
    assert sentences == [], "\n".join(sentences)


def test_the_allowed_edges_have_no_cycle_and_name_real_packages():
    assert cycles(EDGES) == []
    packages = {package_of(module, MODULES) for module in MODULES} - {"", "engine", "lsp"}
    packages = {package for package in packages if side_of(package) != "top"}
    assert packages - set(EDGES) == set()
    assert set(EDGES) - packages == set()


def test_files_import_each_other_without_a_cycle():
    assert cycles(graph_of("speclsp", all_imports(), MODULES)) == []


def test_the_folders_and_files_of_the_command_line_import_each_other_without_a_cycle():
    assert cycles(between_entries(graph_of("speclsp", all_imports(), MODULES), "cli")) == []


def test_the_benchmarks_import_each_other_without_a_cycle():
    assert cycles(graph_of("benchmarks", all_imports("benchmarks"), modules(ROOT / "benchmarks"))) == []


def c_headers() -> dict[str, str]:
    """{path: text} of the C headers but for the vector operations, of which each processor has its own."""
    files = sorted((FORWARD / "forward").rglob("*.h"))
    return {str(file.relative_to(FORWARD)): file.read_text("utf-8") for file in files}


def late_headers(sources: Mapping[str, str]) -> list[str]:
    """Sentences about the headers that rely on one that forward.c includes later."""
    lines = (FORWARD / "forward.c").read_text("utf-8").splitlines()
    order = [line.split('"')[1] for line in lines if line.startswith('#include "forward/')]
    edges = header_edges(sources)
    return [
        f"{header} relies on {later}, which is included after it"
        for number, header in enumerate(order)
        for later in sorted(edges[header].intersection(order[number + 1 :]))
    ]


def test_c_headers_rely_on_each_other_without_a_cycle_and_in_the_order_of_their_inclusion():
    sources = c_headers()
    edges = header_edges(sources)
    assert "forward/threads.h" in edges["forward/rows.h"] and "forward/finish.h" in edges["forward/products/int8.h"]
    assert cycles(edges) == []
    assert late_headers(sources) == []


def test_the_shipped_package_has_these_parts_and_no_other():
    parts = {name.partition(".")[0] for name in MODULES} - {"", "__main__"}
    assert parts == {"cli", "lsp", "engine", *GROUND}


@pytest.mark.parametrize(
    ("importer", "source", "complaint"),
    [
        ("lsp.completion.session", "from speclsp.engine import api", "do not import each other"),
        ("engine.decoding.accept", "def f():\n    import speclsp.lsp.context.build", "do not import each other"),
        ("weights.store", "from speclsp.lsp.documents.document import Snapshot", "weights may import"),
        ("lsp.server.handlers", "from speclsp.cli import entry", "only cli imports cli"),
        ("lsp.backend.engine_http", "from speclsp.lsp.context.build import build", "lsp.backend may import"),
        ("lsp.context.build", "def f():\n    from speclsp.lsp.protocol import stdio", "lsp.context may import"),
        (
            "lsp.protocol.stdio",
            "import typing\nif typing.TYPE_CHECKING:\n    from speclsp.lsp.server import items",
            "may",
        ),
        ("lsp.completion.session", "import pygls.server", "entry point to pygls"),
        ("lsp.context.build", "import tree_sitter_python", "entry point to tree_sitter"),
        (
            "lsp.context.build",
            "import importlib\nimportlib.import_module('tree_sitter_rust')",
            "entry point to tree_sitter",
        ),
        ("lsp.context.build", "import torch", "does not load torch"),
        ("weights.store", "import torch", "inside functions"),
        ("weights.store", "try:\n    import torch\nexcept ImportError:\n    pass", "inside functions"),
        ("cli.commands", "import torch", "inside functions"),
        ("weights.cards", "from huggingface_hub import hf_hub_download", "entry point to huggingface_hub"),
        ("cli.demo", "from benchmarks.speed import completions", "not in the wheel"),
        ("engine.loading.adapter_choice", "from models.training import lora", "not in the wheel"),
    ],
)
def test_a_forbidden_import_is_reported(importer: str, source: str, complaint: str):
    assert any(
        complaint in sentence for statement in imports_of(importer, source) for sentence in violations(statement)
    )


@pytest.mark.parametrize(
    ("importer", "source"),
    [
        ("weights.store", "def ensure():\n    import torch"),
        ("weights.store", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ("lsp.server.app", "from pygls import server\nfrom speclsp.lsp.completion import session"),
        ("engine.model.decoder", "import torch"),
        (
            "engine.decoding.prompt",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tokenizers import Tokenizer",
        ),
        ("cli.complete", "from speclsp.lsp.context import build\nfrom speclsp.engine import api"),
    ],
)
def test_an_allowed_import_is_not_reported(importer: str, source: str):
    assert [sentence for statement in imports_of(importer, source) for sentence in violations(statement)] == []


@pytest.mark.parametrize(
    "where", ["{}", "def f():\n    {}", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {}"]
)
def test_a_cycle_is_reported_wherever_its_imports_stand(where: str):
    there = "from speclsp.weights import cards"
    back = where.format("from speclsp.weights import store")
    statements = [*imports_of("weights.store", there), *imports_of("weights.cards", back)]
    assert cycles(graph_of("speclsp", statements, MODULES)) == [["weights.cards", "weights.store"]]


def test_a_cycle_between_folders_of_the_command_line_is_reported():
    graph = graph_of("speclsp", all_imports(), MODULES)
    graph["cli.complete.positions"].add("cli.models.table")
    assert cycles(between_entries(graph, "cli")) == [["cli.complete", "cli.models"]]


def test_a_cycle_between_benchmarks_is_reported():
    back = imports_of("editor.edit_replay.release_edits", "def f():\n    from benchmarks.editor import next_edit")
    graph = graph_of("benchmarks", [*all_imports("benchmarks"), *back], modules(ROOT / "benchmarks"))
    between = [
        "editor.edit_replay.release_edits",
        "editor.edit_replay.replay_states",
        "editor.next_edit",
    ]
    assert cycles(graph) == [between]


def test_a_cycle_of_c_headers_and_a_header_that_comes_too_late_are_reported():
    sources = c_headers()
    sources["forward/finish.h"] += "static void again(Model *m) { multiply(m, NULL, NULL, 0, PLAIN); }\n"
    assert any({"forward/finish.h", "forward/linears.h"} <= set(group) for group in cycles(header_edges(sources)))
    assert "forward/finish.h relies on forward/linears.h, which is included after it" in late_headers(sources)
    sources = c_headers()
    sources["forward/math.h"] += "#define SLOW 2 * SPREAD_ROWS\n"
    assert late_headers(sources) == [], "model.h stands before it"
    sources["forward/model.h"] += "#define SLOWER LOG2_E\n"
    assert late_headers(sources) == ["forward/model.h relies on forward/math.h, which is included after it"]


# ── private names ────────────────────────────────────────────────────────────────────────────────────────────────────


FOREIGN = {"_replace", "_actions"}  # the product has these names too, but tests use those of namedtuple and argparse


def test_tests_use_no_private_name_of_the_product():
    product_files = (file for top in ("speclsp", "benchmarks") for file in (ROOT / top).rglob("*.py"))
    product = set[str]().union(*(private_definitions(file.read_text("utf-8")) for file in product_files)) - FOREIGN
    files = {file: file.read_text("utf-8") for file in sorted((ROOT / "tests").rglob("*.py"))}
    tests = set[str]().union(*map(private_definitions, files.values()))
    places = [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for file, source in files.items()
        for line, name in private_uses(source, product, tests)
    ]
    assert places == [], "use a parameter, what users see, or a public name\n" + "\n".join(places)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("from speclsp.weights.hub import _within", ["_within"]),
        ("hub._within(1, ask)", ["_within"]),
        ("Hub(_within=1)", ["_within"]),
        ("class Test:\n    def f(self): return self._within", ["_within"]),
        ("class Test:\n    def _own(self): return self._own, super()._own, os._exit", []),
        ("monkeypatch.setattr(hub, '_within', ask)", ["_within"]),
        ("monkeypatch.setattr('speclsp.weights.hub._within', ask)", ["_within"]),
        ("from speclsp.weights import hub\nclass Test(hub.Hub):\n    def _within(self): pass", ["_within"]),
        ("run('import hub; hub.{}()')".format("_within"), ["_within"]),
    ],
)
def test_a_private_name_of_the_product_in_a_test_is_reported(source: str, names: list[str]):
    product = private_definitions("def _within(self): self._own = 1")
    assert [name for _, name in private_uses(source, product, {"_own"})] == names
