"""Schema of the settings: name, default, meaning and limits of each, for config.toml, editors and flags alike.

    speclsp settings  =  the defaults below  <  config.toml  <  what the editor sends, or the flags

A setting is written once, as a field with its default, meaning and limits. Checks, nearest-name hints, docs and the
editors' settings pages are derived from it. `parse` keeps every valid setting, with a sentence for each invalid one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from speclsp.config.rules import setting

SOCKET_PATH_BYTES = 103  # the shortest limit of the systems we run on (macOS 104 with the closing NUL, Linux 108)

PROSE = (  # language ids of prose and commit messages, as VS Code, Neovim, Helix and Emacs name them
    *("markdown", "plaintext", "text", "git-commit", "gitcommit", "git-rebase", "gitrebase", "jjdescription"),
    *("restructuredtext", "rst", "latex", "tex", "plaintex", "asciidoc", "asciidoctor", "org", "help", "mail"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Settings of the engine's process: its resources and its decoding."""

    shutdown_delay_seconds: float = setting(
        60.0,
        "Seconds that an engine waits after its last editor has disconnected, before it exits.",
        advanced=True,
        low=0,
        high=86_400,
    )
    idle_unload_minutes: float = setting(
        5.0, "Unload the model after this time without requests; the next request loads it again. 0 disables.", low=0
    )
    speculative_decoding: bool = setting(
        True,
        "Draft several tokens and verify them in one pass. The text is the same with and without it.",
        advanced=True,
    )
    context_tokens: int = setting(
        2048,
        "Capacity of the KV cache in tokens, for prompt and completion together.",
        advanced=True,
        low=256,
        high=131_072,
    )
    max_draft_tokens: int = setting(
        64, "Maximum number of tokens drafted in one decoding step.", advanced=True, low=0, high=64
    )
    quantization: str = setting(
        "auto",
        "Number format of the model's weights. `auto` picks one that suits the device.",
        advanced=True,
        choices={
            "auto": "Pick a format that suits the device.",
            "int8": "Integers of 8 bits.",
            "int4": "Integers of 4 bits, and of 6 where more are needed.",
            "bf16": "Brain floating point of 16 bits.",
            "fp32": "Floating point of 32 bits.",
            "nf4": "Normal float of 4 bits.",
        },
    )
    adapter: str = setting(
        "auto",
        "Adapter (LoRA) of the model.",
        advanced=True,
        choices={"auto": "The one whose card names the weights (docs/models.md).", "none": "No adapter."},
    )
    draft: bool = setting(
        False,
        "Load the model's draft model on a CPU too. Decoding is about 5 % faster then, for up to 1 GiB more memory. A "
        "GPU always uses it.",
        advanced=True,
    )
    threads: int = setting(
        0, "Number of CPU threads. 0 is one for each usable physical core.", advanced=True, low=0, high=1024
    )
    cpu_path: str = setting(
        "auto",
        "Processor instructions of the int8 engine. `auto` picks the fastest that the machine has.",
        advanced=True,
        choices={
            "auto": "Pick the fastest that the machine has.",
            "amx": "Matrix tiles: Intel Xeon since 2023.",
            "avx512-bf16": "Integer and bfloat16 products of 512 bits: AMD since Zen 4.",
            "avx512-vnni": "Integer products of 512 bits: Intel Ice Lake to Rocket Lake.",
            "avx-vnni": "Integer products of 256 bits: Intel Core since 2021.",
            "avx2": "Integer products of 256 bits in several steps: other processors since 2013.",
            "neon-dotprod": "Dot products of ARM64: Apple M1, Graviton 2 and later.",
            "neon": "Integer products of ARM64 in several steps.",
        },
    )
    offline: bool = setting(False, "Never download models.", group="Privacy")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionConfig:
    """Settings of suggestions: their kind, length and time."""

    enabled: bool = setting(True, "Enable suggestions.")
    trigger: str = setting(
        "automatic",
        "When suggestions appear.",
        choices={
            "automatic": "Suggest while the user types.",
            "manual": "Suggest only on request (the editor's command or key), and prefetch nothing.",
        },
    )
    disabled_languages: tuple[str, ...] = setting(
        PROSE,
        "Language ids without suggestions. The default is prose and commit messages. A list replaces the default, and "
        "an empty list enables suggestions everywhere.",
    )
    disabled_globs: tuple[str, ...] = setting(
        (),
        "Files without suggestions that no model sees, besides files that hold secrets (docs/privacy.md). `*` matches "
        "anything but `/`, `?` one such character, `[ab]` one of these, `**` any directories. A pattern without `/` "
        "matches a file's name; others match the path in the workspace folder or the whole path.",
    )
    eagerness: str = setting(
        "medium",
        "How readily suggestions appear (docs/confidence.md). A manual request uses at least `medium`.",
        choices={
            "low": "Fewer: six of ten are right; after a pause of 350 ms, none in mid-line.",
            "medium": "The usual: every second one is right.",
            "high": "All: one of four is right; inside words too, and longer blocks.",
        },
    )
    min_confidence: float = setting(0.0, "Lowest confidence shown. 0: by `eagerness`.", advanced=True, low=0, high=1)
    multiline: str = setting(
        "auto",
        "Whether suggestions have several lines.",
        choices={
            "auto": "Several lines where a block opens. Elsewhere, sure lines join the first one later.",
            "never": "One line at most.",
            "always": "Several lines everywhere.",
        },
    )
    max_tokens: int = setting(96, "Maximum length of a suggestion, in tokens.", low=1, high=4096)
    max_tokens_single_line: int = setting(
        32, "Maximum length of a suggestion inside a line, in tokens.", advanced=True, low=1, high=4096
    )
    timeout_ms: int = setting(3000, "Show the text that is ready after this many milliseconds.", low=1, high=600_000)
    alternatives: int = setting(3, "Number of different suggestions for a manual request.", low=1, high=10)
    debounce_ms: int = setting(
        0, "Delay (ms) after the last key press before a suggestion is requested.", low=0, high=10_000
    )
    prefetch_next: bool = setting(
        True,
        "Compute in advance what follows the shown suggestion, and the prompt of the next line where the cursor rests.",
        advanced=True,
    )
    show_in_menu: bool = setting(
        False, "List the suggestion in the completion menu too, for editors without inline completion."
    )
    show_latency: bool = setting(
        False,
        "Show the time of the model's last suggestion: VS Code's status bar, or the end of the line in Neovim.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextConfig:
    """Settings of the prompt's context."""

    prefix_tokens: int = setting(
        640, "Token budget for the text before the cursor and related code.", advanced=True, low=16
    )
    suffix_tokens: int = setting(128, "Token budget for the text after the cursor.", advanced=True, low=0)
    cross_file_tokens: int = setting(512, "Token budget for snippets of other files. 0 disables them.", low=0)
    index_workspace: bool = setting(True, "Index the workspace's other files and their imports, in memory.")
    parse_budget_ms: int = setting(
        10, "Processor time limit of a parse (ms). Beyond it the file counts as plain text.", advanced=True, low=1
    )
    max_file_bytes: int = setting(
        10_000_000, "Maximum size of a file in bytes. Larger files get no suggestions.", advanced=True, low=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NextEditConfig:
    """Settings of next edits."""

    enabled: bool = setting(
        True, "Suggest the next edit elsewhere in the open files, learned from the last edits (docs/next-edit.md)."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsConfig:
    """Settings of usage statistics."""

    enabled: bool = setting(
        True, "Count shown and accepted suggestions, on this machine only and without text (`speclsp stats`)."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EchoConfig:
    """Settings of the model `echo`, which has no weights, for tests."""

    round_ms: int = setting(
        0, "Time (ms) of each decoding step of the model `echo`, for tests.", advanced=True, low=0, high=60_000
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteConfig:
    """Settings of a remote server that replaces the engine on this machine."""

    url: str = setting(
        "",
        "Address of an OpenAI-compatible server, used instead of the local engine.",
        pattern=r"|https?://[^\s/]+.*",
        wanted="an http:// or https:// address, or nothing",
    )
    model: str = setting("", "Model name on the server. Empty picks the first supported one.")
    api: str = setting(
        "auto",
        "Request format of the server.",
        advanced=True,
        choices={
            "auto": "Detect the format; this can fail behind a gateway.",
            "infill": "The server's own `/infill`.",
            "template": "`/v1/completions` with the model's FIM tokens in the prompt.",
            "suffix": "`/v1/completions` with a suffix.",
        },
    )
    ca_file: str = setting("", "PEM file with additional certificate authorities.", advanced=True, is_path=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings. `parse` checks each value."""

    model: str = setting(
        "auto",
        "Model that writes the suggestions; `speclsp models list` shows the names. `auto` picks one that fits this "
        "machine, on a CPU among those whose suggestions were measured.",
    )
    device: str = setting(
        "auto",
        "Device that runs the model: `auto`, `cpu`, `cuda` or `cuda:N`.",
        pattern=r"auto|cpu|cuda(:\d+)?",
        wanted='"auto", "cpu", "cuda" or "cuda:0", "cuda:1", ...',
    )
    models_dir: str = setting("", "Directory searched first for model files.", advanced=True, is_path=True)
    engine: EngineConfig = field(default_factory=EngineConfig)
    completion: CompletionConfig = field(default_factory=CompletionConfig)
    context: ContextConfig = field(default_factory=ContextConfig)
    next_edit: NextEditConfig = field(default_factory=NextEditConfig)
    stats: StatsConfig = field(default_factory=StatsConfig)
    echo: EchoConfig = field(default_factory=EchoConfig)
    remote: RemoteConfig = field(default_factory=RemoteConfig)
