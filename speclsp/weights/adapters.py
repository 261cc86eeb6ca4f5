"""Adapters (LoRA): their cards, the checks of their files, and the search for the one of given weights. No torch.

    adapters/NAME.toml in models/ and <models_dir> ─► cards ─► read ─► AdapterFile: checked, not decoded

An adapter belongs to weights, not to a model's name: its file has the sum of the files that the weights come from
(`sum_of_weights`). models/README.md describes both. engine/loading/adapter_merge.py merges the matrices.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from speclsp import config
from speclsp.errors import SpeclspError, WeightsError
from speclsp.weights import cards, model_directory
from speclsp.weights.cards import CardError, Weights
from speclsp.weights.untrusted import safetensors_header, untrusted_files
from speclsp.weights.untrusted.safetensors_header import StoredTensor
from speclsp.weights.untrusted.untrusted_files import Unreadable

FORMAT = "speclsp-lora-1"
MAX_BYTES = 8 << 20
MAX_RANK = 1024
MAX_CARD_BYTES = 1 << 16
KEYS = ("weights", "sha256", "licence", "data")  # of a card
NUMBERS = ("I8", "BF16", "F16", "F32")
LINEAR = r"model\.layers\.\d{1,4}\.(?:self_attn\.[qkvo]_proj|mlp\.(?:gate|up|down)_proj)"
TENSOR = re.compile(rf"base_model\.model\.({LINEAR})\.lora_[AB]\.weight(?:\.scale)?")
SHA256 = r"[0-9a-f]{64}"
METADATA = {  # of a file: the pattern of each value, and its description
    "format": (re.escape(FORMAT), repr(FORMAT)),
    "weights_sha256": (SHA256, "64 hexadecimal digits"),
    "rank": (r"[1-9]\d{0,3}", f"a number from 1 to {MAX_RANK}"),
    "scale": (r"-?\d+(\.\d+)?([eE][+-]?\d+)?", "a number"),
}
WITHOUT = 'The model runs without it: replace the file, or set engine.adapter = "none".'


class AdapterError(WeightsError):
    """An adapter that cannot be used; the model runs without it."""


@dataclass(frozen=True, slots=True)
class AdapterCard:
    """An adapter as one adapters/NAME.toml describes it."""

    name: str
    file: Path
    weights: str  # the card whose target it belongs to, or the name of the weights
    sha256: str  # of the file
    licence: str
    data: str  # the training data, in a line

    def belongs_to(self, weights: Weights) -> bool:
        """True if the card names these weights."""
        if self.weights == weights.name:
            return True
        try:
            return cards.load(self.weights).target == weights
        except SpeclspError:  # a model that is not known here
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterFile:
    """A file whose header, names and shapes agree. `content` has the tensors' bytes from `body` on."""

    path: Path
    sha256: str
    tensors: Mapping[str, StoredTensor]
    content: bytes
    body: int
    weights_sha256: str
    rank: int
    scale: float

    @property
    def name(self) -> str:
        """The name of its card."""
        return self.path.stem

    @property
    def label(self) -> str:
        """The name and the beginning of the sum: two adapters of one name differ."""
        return f"{self.name} {self.sha256[:8]}"

    @property
    def linears(self) -> list[str]:
        """The adapted linears: "model.layers.0.self_attn.q_proj"."""
        return sorted({match[1] for name in self.tensors if (match := TENSOR.fullmatch(name))})

    def bytes_of(self, name: str) -> bytes:
        """A tensor's bytes."""
        stored = self.tensors[name]
        return self.content[self.body + stored.start : self.body + stored.end]

    def use(self) -> dict[str, object]:
        """The adapter in the engine's state."""
        return {"name": self.name, "sha256": self.sha256, "jobs": ["fill"]}

    def error(self, problem: str) -> AdapterError:
        """`problem` continues a sentence that begins with the file."""
        return AdapterError(f"{self.path} {problem}. {WITHOUT}")


# ── cards ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def listing(models_dir: str = "") -> tuple[list[AdapterCard], list[str]]:
    """All cards by name, and a sentence for each that cannot be read. A user's card replaces a built-in one."""
    known: dict[str, AdapterCard] = {}
    problems = []
    roots = [cards.models_root(), *([Path(models_dir).expanduser()] if models_dir else [])]
    for root in roots:
        for path in sorted((root / "adapters").glob("*.toml")):
            try:
                known[path.stem] = read_card(path)
            except CardError as error:
                problems.append(str(error))
    return [known[name] for name in sorted(known)], problems


def of_weights(weights: Weights, known: Sequence[AdapterCard]) -> AdapterCard | None:
    """The first card for these weights whose file exists."""
    return next((card for card in known if card.belongs_to(weights) and card.file.exists()), None)


def read_card(path: Path) -> AdapterCard:
    """The card in a file. Raises CardError."""
    try:
        values = config.from_toml(untrusted_files.read_plain(path, MAX_CARD_BYTES).decode())
    except Unreadable as error:
        raise CardError(f"{path} {error}. {error.fix}".rstrip()) from None
    except ValueError as error:
        raise CardError(f"{path} is not valid TOML: {error}.") from None
    texts = {key: value for key, value in values.items() if isinstance(value, str)}
    if values.keys() != texts.keys() or texts.keys() != set(KEYS):
        raise CardError(f"{path} has {', '.join(values) or 'no keys'}: expected the texts {', '.join(KEYS)}.")
    return AdapterCard(path.stem, path.with_suffix(".safetensors"), **texts)


def sum_of_weights(directory: Path) -> str:
    """The sum that names the weights in a model's directory: that of the file they were published in.

    Of several safetensors files it is the sum of the text "SHA-256, two spaces, name, newline" for each, by name: what
    `LC_ALL=C sha256sum *.safetensors | sha256sum` prints. Raises AdapterError.
    """
    recorded = model_directory.sums_of(directory)
    names = [file.name for file in model_directory.weight_files(directory)]
    try:
        sums = {name: recorded.get(name) or model_directory.sum_of(directory / name) for name in names}
    except Unreadable as error:
        raise AdapterError(f"a file in {directory} {error}, so no adapter belongs to it. {WITHOUT}") from None
    if len(sums) == 1:
        return sums[names[0]]
    return hashlib.sha256("".join(f"{digest}  {name}\n" for name, digest in sums.items()).encode()).hexdigest()


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def read(card: AdapterCard) -> AdapterFile:
    """The file of a card. Raises AdapterError: it is missing or damaged, or it is another one than the card says."""
    file = read_file(card.file)
    if file.sha256 != card.sha256:
        raise file.error(f"was altered: its sha256 is {file.sha256}, and its card says {card.sha256}")
    return file


def read_file(path: Path) -> AdapterFile:
    """A file whose header, names and shapes agree. Raises AdapterError."""
    try:
        content = untrusted_files.read_plain(path, MAX_BYTES)
        body = 8 + safetensors_header.header_bytes(content[:64], len(content))
        tensors, metadata = safetensors_header.parse(content[8:body], len(content))
        for key, (pattern, wanted) in METADATA.items():
            if not re.fullmatch(pattern, value := metadata.get(key, "")):
                raise Unreadable(f"has {key} = {value[:80]!r} in its metadata: expected {wanted}")
    except Unreadable as error:
        raise AdapterError(f"{path} {error}. {WITHOUT}") from None
    file = AdapterFile(
        path=path, sha256=hashlib.sha256(content).hexdigest(), tensors=tensors, content=content, body=body,
        weights_sha256=metadata["weights_sha256"], rank=int(metadata["rank"]), scale=float(metadata["scale"]),
    )  # fmt: skip
    check(file)
    return file


def check(file: AdapterFile) -> None:
    """Check the tensors' names, number formats and shapes against each other. Raises AdapterError.

    A is [rank, in], B is [out, rank], and a matrix in int8 has a scale for each row.
    """
    if file.rank > MAX_RANK or not math.isfinite(file.scale) or not file.tensors:
        raise file.error(
            f"has rank {file.rank}, scale {file.scale} and {len(file.tensors)} tensors: expected at most {MAX_RANK}, "
            "a number, and matrices"
        )
    unread = dict(file.tensors)
    for linear in file.linears:
        for side, wanted in (("A", f"[{file.rank}, in]"), ("B", f"[out, {file.rank}]")):
            name = f"base_model.model.{linear}.lora_{side}.weight"
            stored = unread.pop(name, None)
            if stored is None:
                raise file.error(f"has no tensor {name!r}")
            shape = list(stored.shape)
            if len(shape) != 2 or 0 in shape or shape["AB".index(side)] != file.rank or stored.dtype not in NUMBERS:
                expected = f"{wanted} in {', '.join(NUMBERS)}"
                raise file.error(f"holds {name!r} as {shape} {stored.dtype}: rank {file.rank} expects {expected}")
            scale = unread.pop(f"{name}.scale", None) if stored.dtype == "I8" else None
            if stored.dtype == "I8" and (scale is None or scale.dtype != "F32" or list(scale.shape) != shape[:1]):
                raise file.error(f"holds {name!r} in int8: expected {name + '.scale'!r} as {shape[:1]} F32")
    if unread:
        name = next(iter(unread))[:120]
        raise file.error(f"has a tensor {name!r}: expected matrices of attention and MLP, as PEFT names them")
