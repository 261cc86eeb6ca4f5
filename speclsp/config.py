"""Every setting, in one place and under one name: config.toml, the editor's settings and command-line flags alike.

    speclsp settings  =  the defaults below  <  config.toml  <  what the editor sends, or the flags

A setting is written once, as a field with its default, meaning and limits; the checks, the nearest-name hints and the
README's table are read from there. A bad value never takes the good ones down with it: `parse` keeps what it can and
says the rest in sentences.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from pathlib import Path
from typing import Any

from speclsp import plainfile
from speclsp.errors import ConfigError, SpeclspError, nearest

APP = "speclsp"
RUNTIME_DIRS = "/run/user"
MOST_BYTES = 2**20  # of a config.toml
SOCKET_PATH_BYTES = 103  # the shortest limit of the systems we run on (macOS 104 with the closing NUL, Linux 108)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What a setting means and which values it can have."""

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
    """The model's process: what it may use and how it decodes."""

    socket: str = setting(
        "",
        "attach to the engine listening on this Unix socket instead of starting one",
        is_path=True,
        pattern=rf"(?s).{{0,{SOCKET_PATH_BYTES}}}",
        wanted=f"a socket path of at most {SOCKET_PATH_BYTES} bytes",
    )
    shared: bool = setting(
        True, "one engine for all of this user's editors; false starts one of this editor's own, which ends with it"
    )
    grace_seconds: float = setting(
        60.0, "how long the shared engine stays when the last editor has gone", low=0, high=86_400
    )
    idle_unload_minutes: float = setting(
        15.0, "unload the weights when nothing was asked for so long; the next request loads them; 0 never does", low=0
    )
    keep_free_mib: int = setting(
        512,
        "when less of the device's memory is free, another program needs it: give back cache, then the draft model, "
        "then the weights; 0 never does",
        low=0,
    )
    speculation: bool = setting(True, "draft tokens and verify them together; the text is the same either way")
    context_tokens: int = setting(2048, "prompt and completion held in the KV cache", low=256, high=131_072)
    max_gamma: int = setting(16, "most tokens drafted in one round", low=0, high=64)
    model_gamma: int = setting(
        0, "most tokens the draft model guesses in one round; 0 leaves it to the policy", low=0, high=64
    )
    quantization: str = setting(
        "auto", "number format of the target's weights", choices=("auto", "int8", "bf16", "fp32", "nf4")
    )
    draft: bool = setting(True, "use the card's draft model where the policy finds that it pays")
    threads: int = setting(0, "CPU threads; 0 is one for each physical core", low=0, high=1024)
    offline: bool = setting(False, "never fetch weights")
    record: bool = setting(
        False,
        "keep the last requests on disk, with their text, so that `speclsp verify --recorded` can replay them in "
        "another session; `speclsp verify --forget` deletes them",
    )

    def __post_init__(self) -> None:
        check(self, "engine.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionConfig:
    """What is suggested, and how long it may take."""

    enabled: bool = setting(True, "suggest at all")
    languages_off: tuple[str, ...] = setting((), "language ids that get no suggestions")
    globs_off: tuple[str, ...] = setting(
        (),
        "files that get no suggestions and are shown to no model, beside those that hold secrets (docs/privacy.md): "
        "`*` is anything but `/`, `?` one of it, `[ab]` one of these, `**` any directories; a pattern without `/` is "
        "for a file's name, others are held against the path in the workspace folder and against the whole path",
    )
    eagerness: str = setting(
        "medium",
        "low: what is right more often than not, after a pause of 350 ms, one line at most, nothing in mid-line; "
        "medium: all but what is hardly ever of use (docs/confidence.md); high: anything, also inside words and "
        "what is quickly typed, blocks on blank lines too and up to twice as long; asked by hand it is never less than "
        "medium",
        choices=("low", "medium", "high"),
    )
    multiline: str = setting(
        "auto", "several lines where a block opens, never, or always", choices=("auto", "never", "always")
    )
    max_tokens: int = setting(96, "longest suggestion, in tokens", low=1, high=4096)
    max_tokens_single_line: int = setting(32, "the same inside a line", low=1, high=4096)
    deadline_ms: int = setting(3000, "what is decoded by then is shown", low=1, high=600_000)
    alternatives: int = setting(3, "different suggestions when asked for by hand", low=1, high=10)
    temperature: float = setting(0.0, "0 is greedy: the same text every time", low=0.0, high=2.0)
    debounce_ms: int = setting(0, "wait this long for the next key before asking the model", low=0, high=10_000)
    prepare_next: bool = setting(
        True, "while a suggestion is on the screen, make the one after it: it is there at once when that is accepted"
    )
    in_menu: bool = setting(
        False, "also as an item of the editor's completion menu, for editors without inline completion"
    )

    def __post_init__(self) -> None:
        check(self, "completion.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextConfig:
    """What the model is shown."""

    prefix_tokens: int = setting(640, "budget for the text before the cursor and the code that bears on it", low=16)
    suffix_tokens: int = setting(128, "budget for the text after the cursor", low=0)
    extra_tokens: int = setting(512, "budget for pieces of other files; 0 shows none", low=0)
    sources: tuple[str, ...] = setting(
        ("class", "similar"),
        "which pieces of other files are shown; docs/context.md says what each is",
        choices=("definition", "class", "skeleton", "test", "similar", "edit", "viewed", "copied"),
    )
    index: bool = setting(True, "know what the other files of the workspace define, from an index in the user's cache")
    parse_budget_ms: int = setting(10, "longest a parse may take; over it, the file counts as plain text", low=1)
    max_file_bytes: int = setting(10_000_000, "larger files get no suggestions", low=1)

    def __post_init__(self) -> None:
        check(self, "context.")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsConfig:
    """What is counted."""

    enabled: bool = setting(True, "count what is shown and accepted, on this machine only (`speclsp stats`); no text")

    def __post_init__(self) -> None:
        check(self, "stats.")


@dataclass(frozen=True, slots=True, kw_only=True)
class EchoConfig:
    """The model-free pair that tests use."""

    round_ms: int = setting(0, "how long the echo pair takes over each round", low=0, high=60_000)

    def __post_init__(self) -> None:
        check(self, "echo.")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendConfig:
    """Who completes, when it is not the engine on this machine."""

    url: str = setting(
        "",
        "an OpenAI-compatible server to ask instead of the local engine",
        pattern=r"|https?://[^\s/]+.*",
        wanted="an http:// or https:// address, or nothing",
    )
    model: str = setting("", "which of the server's models; empty is the first that a card describes")
    style: str = setting(
        "auto",
        "how the server is asked: `infill` its own /infill, `template` /v1/completions with the card's markers in the "
        "prompt, `suffix` /v1/completions with a suffix; auto finds out, and can be wrong about a gateway",
        choices=("auto", "infill", "template", "suffix"),
    )
    fallback: bool = setting(False, "start the local engine when the server cannot be used, until it can be again")
    ca_file: str = setting(
        "", "trust the certificate authorities in this PEM file too, as a company has its own", is_path=True
    )

    def __post_init__(self) -> None:
        check(self, "backend.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings, checked."""

    pair: str = setting("auto", "the model pair (`speclsp models list`); auto picks what fits this machine")
    device: str = setting(
        "auto",
        "where the model runs",
        pattern=r"auto|cpu|cuda(:\d+)?",
        wanted='"auto", "cpu", "cuda" or "cuda:0", "cuda:1", ...',
    )
    models_dir: str = setting("", "look here first for weights", is_path=True)
    engine: EngineConfig = field(default_factory=EngineConfig)
    completion: CompletionConfig = field(default_factory=CompletionConfig)
    context: ContextConfig = field(default_factory=ContextConfig)
    stats: StatsConfig = field(default_factory=StatsConfig)
    echo: EchoConfig = field(default_factory=EchoConfig)
    backend: BackendConfig = field(default_factory=BackendConfig)

    def __post_init__(self) -> None:
        check(self, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting as the README and the nearest-name hints need it."""

    key: str  # dotted: "engine.max_gamma"
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
    """Whether `value` has the type of `default` (a bool is not a number, a whole number is a float) and fits `rule`."""
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
    """The values a setting can have, in words; of a list, also what a word in `found` was probably meant to be."""
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
KEY = "backend.key"  # no setting like the others: it stands in no editor's settings, on no command line and in no log
NO_KEY = (
    "backend.key is not taken from here, where others may read it: `speclsp key set URL` stores it, or write it "
    "into config.toml, or set SPECLSP_API_KEY."
)
# Who gets the code, what is fetched and kept, and whose weights answer: an editor may mix a repository's settings into
# what it sends later. So may not `pair` when it is a path.
THE_USERS_OWN = ("backend.", "engine.socket", "engine.offline", "engine.record", "models_dir")


def parse(
    settings: Mapping[str, object], base: Config | None = None, fixed: tuple[str, ...] = (), own_file: bool = False
) -> tuple[Config, list[str]]:
    """`base` (or the defaults) with `settings` on top, and one sentence for each part that could not be used.

    Keys are nested or dotted, a leading `speclsp` is dropped, and null leaves a setting as it was. Never raises.

    Args:
        fixed: settings that begin so cannot be changed here.
        own_file: these are config.toml's, where a key may stand (secret.py reads it).
    """
    config, problems = base if base is not None else Config(), []
    for key, value in flatten(settings):
        if key == KEY:
            problems += [] if own_file else [NO_KEY]
            continue
        a_path = key == "pair" and isinstance(value, str) and ("/" in value or "\\" in value or value[:1] in (".", "~"))
        if fixed and (key.startswith(fixed) or a_path) and key in KNOWN:
            if value is not None and value != reduce(getattr, key.split("."), config):
                problems.append(f"{key} is taken from the user's own settings when the server starts: restart it.")
            continue
        if key in SECTIONS or key == "":
            problems.append(str(ConfigError(key or "settings", brief(value), "a table of settings")))
        elif key not in KNOWN:
            problems.append(unknown(key))
        elif value is not None:
            try:
                config = with_value(config, key, value)
            except ConfigError as error:
                problems.append(str(error))
    return config, problems


def unknown(key: str) -> str:
    """The sentence for a setting that does not exist, with the one that was probably meant."""
    snake = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", key).replace("-", "_").lower()
    tails = [known for known in KNOWN if known.rpartition(".")[2] == snake.rpartition(".")[2]]
    near = snake if snake in KNOWN else next(iter(tails), None) or nearest(snake, KNOWN)
    hint = f'did you mean "{near}"?' if near else "the README lists all."
    return f'unknown setting "{brief(key)}": {hint}'


def flatten(settings: object) -> Iterator[tuple[str, object]]:
    """(dotted key, value) of every leaf, in the order written, however deep the nesting."""
    waiting: list[tuple[str, object]] = [("", settings)]
    while waiting:
        key, value = waiting.pop()
        key = key.removeprefix(APP).removeprefix(".") if key == APP or key.startswith(APP + ".") else key
        if isinstance(value, Mapping) and key not in KNOWN:
            inner = [(f"{key}.{name}" if key else str(name), leaf) for name, leaf in value.items()]
            waiting.extend(reversed(inner))
        elif not (value is None and (key in SECTIONS or key == "")):
            yield key, value


def with_value(config: Config, key: str, value: Any) -> Config:
    """`config` with one known setting changed. Raises ConfigError when the value is not one it can have."""
    known = KNOWN[key]
    if isinstance(known.default, tuple) and isinstance(value, list):
        value = tuple(value)
    if known.rule.is_path and isinstance(value, str) and value.startswith("~"):
        value = os.path.expanduser(value)  # noqa: PTH111 - a path that stays text, and may name no user at all
    if not allowed(value, known.default, known.rule):
        raise ConfigError(key, brief(value), wanted(known.default, known.rule, value))
    section, _, name = key.rpartition(".")
    if not section:
        return replace(config, **{name: value})
    return replace(config, **{section: replace(getattr(config, section), **{name: value})})


def gather(flags: Mapping[str, object] | None = None) -> tuple[Config, list[str]]:
    """The defaults, then config.toml, then `flags`; and a sentence for each thing that could not be used."""
    path = config_path()
    written, problems = read_toml(path)
    config, bad = parse(written, own_file=True)
    problems += [f"{path}: {problem}" for problem in bad]
    config, bad = parse(flags or {}, config)
    return config, problems + bad


def load(flags: Mapping[str, object] | None = None) -> Config:
    """As `gather`, for commands that would rather stop than guess. Raises ConfigError naming every problem."""
    config, problems = gather(flags)
    if problems:
        raise BadSettings(problems)
    return config


class BadSettings(ConfigError):
    """One or more settings cannot be used."""

    def __init__(self, problems: list[str]) -> None:
        SpeclspError.__init__(self, " ".join(problems))
        self.key = ""


def read_toml(path: Path) -> tuple[dict[str, object], list[str]]:
    """The file's tables, or nothing and why. A file that is not there is no problem."""
    try:
        return from_toml(plainfile.read_bytes(path, MOST_BYTES).decode("utf-8-sig")), []
    except FileNotFoundError:
        return {}, []
    except OSError as error:
        return {}, [f"{path} cannot be read: {error.strerror}."]
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError
        return {}, [f"{path} is not valid TOML: {error}."]


def from_toml(text: str) -> dict[str, object]:
    """The tables of a TOML text. Raises ValueError when it is not one."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)


def changes(config: Config) -> dict[str, object]:
    """{dotted key: value} of the settings that differ from their defaults."""
    values = {key: reduce(getattr, key.split("."), config) for key in KNOWN}
    return {key: value for key, value in values.items() if value != KNOWN[key].default}


def as_flags(config: Config) -> list[str]:
    """`--set key=value` for every setting that is not at its default: what hands `config` to a child process."""
    return [word for key, value in changes(config).items() for word in ("--set", f"{key}={in_words(value)}")]


def in_words(value: object) -> str:
    """`value` as `from_words` reads it back."""
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def from_words(assignment: str) -> tuple[str, object]:
    """("engine.draft", False) for "engine.draft=false"; the setting's own type decides. Raises ConfigError.

    An unknown key keeps its text as the value, for `parse` to name with its nearest neighbour.
    """
    key, equals, text = assignment.partition("=")
    key, text = key.strip(), text.strip()
    if not equals:
        raise ConfigError("--set", assignment, "key=value, as in --set engine.max_gamma=8")
    known = KNOWN.get(key)
    if known is None or isinstance(known.default, str):
        return key, text
    if isinstance(known.default, tuple):
        return key, [word.strip() for word in text.split(",") if word.strip()]
    if isinstance(known.default, bool):
        return key, {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}.get(
            text.lower(), text
        )
    try:
        return key, (int if isinstance(known.default, int) else float)(text)
    except ValueError:
        return key, text  # not a number: `parse` says what was expected


def as_markdown() -> str:
    """The README's table of settings."""
    rows = ["| setting | default | meaning |", "|---|---|---|"]
    for known in settings():
        default = list(known.default) if isinstance(known.default, tuple) else known.default
        values = f" ({', '.join(known.rule.choices)})" if known.rule.choices else ""
        rows.append(f"| `{known.key}` | `{json.dumps(default)}` | {known.rule.meaning}{values} |")
    return "\n".join(rows)


# Where things live. XDG variables are honoured; directories are made by whoever writes to them, but for runtime_dir.


def users_dir(kind: str) -> Path:
    """The user's directory for our "cache", "config", "log" or "state". Raises SpeclspError: no home is known."""
    import platformdirs

    try:
        found: Path = getattr(platformdirs, f"user_{kind}_path")(APP, appauthor=False)
    except RuntimeError as error:  # a container's user without a name
        raise SpeclspError("this user has no home directory: set HOME to a directory of yours.") from error
    return found


def cache_dir() -> Path:
    """Weights, and nothing that cannot be fetched again."""
    return users_dir("cache")


def log_dir() -> Path:
    """Logs; they hold no source text."""
    return users_dir("log")


def stats_path() -> Path:
    """What `speclsp stats` shows: numbers by week, language and pair."""
    return users_dir("state") / "stats.db"


def config_path() -> Path:
    """The user's config.toml, whether or not it exists."""
    return users_dir("config") / "config.toml"


def systems_runtime_dir() -> str:
    """Where XDG_RUNTIME_DIR points by default on Linux; "" where there is no such directory of this user's."""
    path = Path(RUNTIME_DIRS) / str(os.getuid()) if sys.platform == "linux" else None
    try:
        return str(path) if path is not None and path.stat().st_uid == os.getuid() else ""
    except OSError:
        return ""


def runtime_dir() -> Path:
    """A directory for sockets that only this user can enter; made if missing.

    $XDG_RUNTIME_DIR, or without one a directory beside the logs: never a guessable name in a shared /tmp. A session
    that was not told the variable (cron, some remote shells) finds the same directory where systemd has made one.
    Raises SpeclspError when it cannot be made, or belongs to someone else.
    """
    given = os.environ.get("XDG_RUNTIME_DIR", "") or systems_runtime_dir()
    parent = Path(given) if given and Path(given).is_dir() else users_dir("state")
    path = parent / APP if parent == Path(given) else parent / "run"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise SpeclspError(f"{path} is a link and not a directory. Set XDG_RUNTIME_DIR to a directory of your own.")
        if hasattr(os, "getuid") and found.st_uid != os.getuid():
            raise SpeclspError(f"{path} belongs to another user. Set XDG_RUNTIME_DIR to a directory of your own.")
        if stat.S_IMODE(found.st_mode) != 0o700:
            path.chmod(0o700)
    except OSError as error:
        raise SpeclspError(
            f"cannot make {path}: {error.strerror}. Set XDG_RUNTIME_DIR to a writable directory."
        ) from error
    return path


if __name__ == "__main__":
    print(as_markdown())
