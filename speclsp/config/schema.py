"""Schema of the settings: name, default, meaning and limits of each, for config.toml, editors and flags alike.

    speclsp settings  =  the defaults below  <  config.toml  <  what the editor sends, or the flags

A setting is written once, as a field with its default, meaning and limits. The checks, the nearest-name hints, the
README's table and VS Code's schema are derived from it. A bad value never discards the good ones: `parse` keeps every
valid setting and returns a sentence for each invalid one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from speclsp.errors import ConfigError, nearest

SOCKET_PATH_BYTES = 103  # the shortest limit of the systems we run on (macOS 104 with the closing NUL, Linux 108)

PROSE = (  # language ids of prose and commit messages, as VS Code, Neovim, Helix and Emacs name them
    *("markdown", "plaintext", "text", "git-commit", "gitcommit", "git-rebase", "gitrebase", "jjdescription"),
    *("restructuredtext", "rst", "latex", "tex", "plaintex", "asciidoc", "asciidoctor", "org", "help", "mail"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A setting's meaning and its valid values."""

    meaning: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    pattern: str = ""
    wanted: str = ""  # words for `pattern`
    is_path: bool = False  # a leading ~ is the home directory


def setting(default: Any, meaning: str, **limits: Any) -> Any:
    """A dataclass field that carries its Rule."""
    return field(default=default, metadata={"rule": Rule(meaning=meaning, **limits)})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Settings of the engine's process: its resources and its decoding."""

    socket: str = setting(
        "",
        "attach to the engine on this Unix socket instead of starting one",
        is_path=True,
        pattern=rf"(?s).{{0,{SOCKET_PATH_BYTES}}}",
        wanted=f"a socket path of at most {SOCKET_PATH_BYTES} bytes",
    )
    shared: bool = setting(
        True,
        "share one engine between all editors of this user; false starts a separate engine, which ends with its editor",
    )
    shutdown_delay_seconds: float = setting(
        60.0, "seconds the shared engine waits after the last editor has disconnected", low=0, high=86_400
    )
    idle_unload_minutes: float = setting(
        15.0, "unload the weights after this time without requests; the next request loads them; 0 disables", low=0
    )
    min_free_memory_mib: int = setting(
        512,
        "release memory when the device has less than this free: first cache, then the draft model, then the weights; "
        "0 disables",
        low=0,
    )
    speculative_decoding: bool = setting(
        True, "draft tokens and verify them in one pass; the text is the same with and without"
    )
    context_tokens: int = setting(
        2048, "capacity of the KV cache: prompt and completion together", low=256, high=131_072
    )
    max_draft_tokens: int = setting(16, "maximum number of tokens drafted in one round", low=0, high=64)
    max_model_draft_tokens: int = setting(
        0, "maximum number of tokens from the draft model in one round; 0 lets the policy decide", low=0, high=64
    )
    quantization: str = setting(
        "auto", "number format of the target's weights", choices=("auto", "int8", "bf16", "fp32", "nf4")
    )
    draft: bool = setting(True, "use the model's draft model where the policy measures a gain")
    threads: int = setting(0, "number of CPU threads; 0 is one for each physical core", low=0, high=1024)
    offline: bool = setting(False, "never download weights")
    record_requests: bool = setting(
        False,
        "record recent requests on disk, with their text, for `speclsp verify --recorded`; `speclsp verify --forget` "
        "deletes them",
    )

    def __post_init__(self) -> None:
        check(self, "engine.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionConfig:
    """Settings of suggestions: their kind, length and time."""

    enabled: bool = setting(True, "enable suggestions")
    trigger: str = setting(
        "automatic",
        "automatic: suggest while the user types; manual: suggest only on request (the editor's command or key), and "
        "prefetch nothing",
        choices=("automatic", "manual"),
    )
    disabled_languages: tuple[str, ...] = setting(
        PROSE,
        "language ids without suggestions; the default is prose and commit messages; a list replaces the default, and "
        "an empty list enables suggestions everywhere",
    )
    disabled_globs: tuple[str, ...] = setting(
        (),
        "files without suggestions that no model sees, besides files that hold secrets (docs/privacy.md): `*` matches "
        "anything but `/`, `?` one such character, `[ab]` one of these, `**` any directories; a pattern without `/` "
        "matches a file's name, others match the path in the workspace folder or the whole path",
    )
    eagerness: str = setting(
        "medium",
        "low: suggestions that are more often right than wrong, after a pause of 350 ms, at most one line, none in "
        "mid-line; medium: all but those that are rarely useful (docs/confidence.md); high: all, also inside words and "
        "short ones, blocks on blank lines too and up to twice as long; a manual request uses at least medium",
        choices=("low", "medium", "high"),
    )
    multiline: str = setting(
        "auto", "suggest several lines: where a block opens, never, or always", choices=("auto", "never", "always")
    )
    max_tokens: int = setting(96, "maximum length of a suggestion, in tokens", low=1, high=4096)
    max_tokens_single_line: int = setting(
        32, "maximum length of a suggestion inside a line, in tokens", low=1, high=4096
    )
    timeout_ms: int = setting(3000, "show the text decoded by this time", low=1, high=600_000)
    alternatives: int = setting(3, "number of different suggestions for a manual request", low=1, high=10)
    temperature: float = setting(0.0, "sampling temperature; 0 is greedy: the same text every time", low=0.0, high=2.0)
    debounce_ms: int = setting(0, "delay between the last key and the request to the model", low=0, high=10_000)
    prefetch_next: bool = setting(
        True, "prepare the next suggestion while one is shown, so that it appears at once after an accept"
    )
    show_in_menu: bool = setting(
        False, "also list the suggestion in the completion menu, for editors without inline completion"
    )

    def __post_init__(self) -> None:
        check(self, "completion.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextConfig:
    """Settings of the prompt's context."""

    prefix_tokens: int = setting(640, "token budget for the text before the cursor and related code", low=16)
    suffix_tokens: int = setting(128, "token budget for the text after the cursor", low=0)
    cross_file_tokens: int = setting(512, "token budget for snippets of other files; 0 disables", low=0)
    sources: tuple[str, ...] = setting(
        ("class", "similar"),
        "kinds of snippets of other files; docs/context.md defines each",
        choices=("definition", "class", "similar", "edit"),
    )
    index_workspace: bool = setting(True, "index the definitions of the workspace's other files, in the user's cache")
    parse_budget_ms: int = setting(10, "time limit of a parse; beyond it the file counts as plain text", low=1)
    max_file_bytes: int = setting(10_000_000, "maximum size of a file; larger files get no suggestions", low=1)

    def __post_init__(self) -> None:
        check(self, "context.")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsConfig:
    """Settings of usage statistics."""

    enabled: bool = setting(
        True, "count shown and accepted suggestions, on this machine only and without text (`speclsp stats`)"
    )

    def __post_init__(self) -> None:
        check(self, "stats.")


@dataclass(frozen=True, slots=True, kw_only=True)
class EchoConfig:
    """Settings of the model-free pair that tests use."""

    round_ms: int = setting(0, "time that the echo pair takes for each round", low=0, high=60_000)

    def __post_init__(self) -> None:
        check(self, "echo.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteConfig:
    """Settings of a remote server that replaces the engine on this machine."""

    url: str = setting(
        "",
        "address of an OpenAI-compatible server, used instead of the local engine",
        pattern=r"|https?://[^\s/]+.*",
        wanted="an http:// or https:// address, or nothing",
    )
    model: str = setting("", "model on the server; empty is the first one with a model definition")
    api: str = setting(
        "auto",
        "request format: `infill` is the server's /infill, `template` is /v1/completions with the model's FIM tokens "
        "in the prompt, `suffix` is /v1/completions with a suffix; auto detects it, which can fail behind a gateway",
        choices=("auto", "infill", "template", "suffix"),
    )
    fallback: bool = setting(False, "use the local engine while the server is unavailable")
    ca_file: str = setting("", "PEM file of additional certificate authorities", is_path=True)

    def __post_init__(self) -> None:
        check(self, "remote.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings, checked."""

    model: str = setting(
        "auto", "model (with its draft model; `speclsp models list`); auto picks one that fits this machine"
    )
    device: str = setting(
        "auto",
        "device that runs the model",
        pattern=r"auto|cpu|cuda(:\d+)?",
        wanted='"auto", "cpu", "cuda" or "cuda:0", "cuda:1", ...',
    )
    models_dir: str = setting("", "directory searched first for weights", is_path=True)
    engine: EngineConfig = field(default_factory=EngineConfig)
    completion: CompletionConfig = field(default_factory=CompletionConfig)
    context: ContextConfig = field(default_factory=ContextConfig)
    stats: StatsConfig = field(default_factory=StatsConfig)
    echo: EchoConfig = field(default_factory=EchoConfig)
    remote: RemoteConfig = field(default_factory=RemoteConfig)

    def __post_init__(self) -> None:
        check(self, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting, for the README and the nearest-name hints."""

    key: str  # dotted: "engine.max_draft_tokens"
    default: object
    rule: Rule


def check(section: Any, prefix: str) -> None:
    """Raise ConfigError for the first field whose value has the wrong type or lies outside its Rule."""
    for item in fields(section):
        value, rule = getattr(section, item.name), item.metadata.get("rule")
        if rule is None:  # a section in Config
            if not isinstance(value, item.default_factory):  # type: ignore[arg-type]
                raise ConfigError(prefix + item.name, value, f"{item.default_factory.__name__}(...)")  # type: ignore[union-attr]
        elif not allowed(value, item.default, rule):
            raise ConfigError(prefix + item.name, brief(value), wanted(item.default, rule, value))


def allowed(value: object, default: object, rule: Rule) -> bool:
    """True when `value` has the type of `default` (a bool is no number, a whole number is a float) and fits `rule`."""
    if isinstance(default, bool):
        return isinstance(value, bool)
    if isinstance(default, int | float):
        numbers = int if isinstance(default, int) else (int, float)
        if isinstance(value, bool) or not isinstance(value, numbers):
            return False
        low, high = rule.low, rule.high  # written so that NaN, which compares to nothing, is refused
        return (low is None or value >= low) and (high is None or value <= high)
    if isinstance(default, tuple):
        words = value if isinstance(value, tuple) else (None,)
        return all(isinstance(word, str) and (not rule.choices or word in rule.choices) for word in words)
    if not isinstance(value, str) or "\0" in value:
        return False
    if rule.choices:
        return value in rule.choices
    return not rule.pattern or re.fullmatch(rule.pattern, value) is not None


def wanted(default: object, rule: Rule, found: object = None) -> str:
    """The valid values of a setting, in words; for a list, also the nearest valid word to a wrong one in `found`."""
    if rule.wanted:
        return rule.wanted
    if rule.choices:
        choices = " or ".join([", ".join(f'"{choice}"' for choice in rule.choices[:-1]), f'"{rule.choices[-1]}"'])
        if not isinstance(default, tuple):
            return choices
        words = [word for word in found if isinstance(word, str)] if isinstance(found, tuple) else []
        odd = next((word for word in words if word not in rule.choices), "")
        near = nearest(odd[:60], rule.choices) if odd else None
        return f"a list of {choices}" + (f' (did you mean "{near}"?)' if near else "")
    if isinstance(default, bool):
        return "true or false"
    if isinstance(default, int | float):
        kind = "a whole number" if isinstance(default, int) else "a number"
        if rule.low is not None and rule.high is not None:
            return f"{kind} from {rule.low} to {rule.high}"
        return kind if rule.low is None else f"{kind}, {rule.low} or more"
    return "a list of texts" if isinstance(default, tuple) else "a text"


def brief(value: object) -> object:
    """`value`, cut so that an error stays one readable line."""
    if len(repr(value)) <= 80:
        return value
    return value[:60] + "…" if isinstance(value, str) else type(value).__name__ + "(…)"


def settings() -> list[Setting]:
    """Every setting, in the order of this file."""

    def walk(section: Any, prefix: str) -> Iterator[Setting]:
        for item in fields(section):
            if "rule" in item.metadata:
                yield Setting(key=prefix + item.name, default=item.default, rule=item.metadata["rule"])
            else:
                yield from walk(item.default_factory, f"{prefix}{item.name}.")

    return list(walk(Config, ""))


KNOWN: Mapping[str, Setting] = {known.key: known for known in settings()}
SECTIONS = frozenset(key.partition(".")[0] for key in KNOWN if "." in key)
KEY = "remote.key"  # not an ordinary setting: never in an editor's settings, on a command line or in a log
NO_KEY = (
    "remote.key is not taken from here, where others may read it: `speclsp key set URL` stores it, or write it "
    "into config.toml, or set SPECLSP_API_KEY."
)


def as_markdown() -> str:
    """The README's table of settings."""
    rows = ["| setting | default | meaning |", "|---|---|---|"]
    for known in settings():
        default = list(known.default) if isinstance(known.default, tuple) else known.default
        values = f" ({', '.join(known.rule.choices)})" if known.rule.choices else ""
        rows.append(f"| `{known.key}` | `{json.dumps(default)}` | {known.rule.meaning}{values} |")
    return "\n".join(rows)
