"""Reference of the settings, generated from the schema: docs/configuration.md and a section of Neovim's help."""

from __future__ import annotations

import json
import textwrap

from speclsp.config.known_settings import Setting, by_group

HEAD = """\
# Configuration

`make docs` generates this page from the settings' schema.

Settings come from three places, and the later place wins:

1. `config.toml` (`speclsp config path` prints its path). `speclsp config set KEY VALUE` changes it.
2. The editor's settings: `speclsp.KEY` in VS Code, `settings = { ... }` in Neovim.
3. The command line: `--model`, `--device` and `--set KEY=VALUE`.

In `config.toml` the part before the dot is a table:

```toml
model = "auto"

[completion]
eagerness = "medium"
```

A wrong value or an unknown name is one sentence with the fix; all other settings still apply.
Settings marked *advanced* rarely need a change.
"""


def as_markdown() -> str:
    """The whole page."""
    lines = [HEAD]
    for heading, settings in by_group().items():
        lines += [f"## {heading}", "", "| setting | default | meaning |", "|---|---|---|"]
        lines += [f"| `{known.key}` | `{default(known)}` | {meaning(known)} |" for known in settings]
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def default(known: Setting) -> str:
    """The default as JSON."""
    return json.dumps(list(known.default) if isinstance(known.default, tuple) else known.default)


def meaning(known: Setting) -> str:
    """The setting's text, its choices and whether it is advanced."""
    rule = known.rule
    parts = [rule.meaning, *(f"<br>`{choice}`: {text}" for choice, text in rule.choices.items())]
    return " ".join(parts) + (" *(advanced)*" if rule.advanced else "")


def as_vimdoc() -> str:
    """The section of Neovim's help, *speclsp-settings*."""
    lines = ["=" * 78, "SERVER SETTINGS\t\t\t\t\t*speclsp-settings*", ""]
    lines += ["Values of `settings` in |speclsp.setup()|, and of config.toml.", ""]
    for heading, settings in by_group().items():
        lines += [f"{heading} ~", ""]
        for known in settings:
            rule = known.rule
            choices = [f"{choice}: {text}" for choice, text in rule.choices.items()]
            texts = [f"Default: {default(known)}", rule.meaning, *choices, *(["Advanced."] if rule.advanced else [])]
            lines.append(known.key)
            lines += [f"\t{line}" for text in texts for line in textwrap.wrap(text.replace("|", "/"), 66)]
        lines.append("")
    return "\n".join(lines)
