"""Detects memorized secrets and licence headers in model output: keys, passwords, copyright lines.

    secret     a known format (AKIA..., ghp_..., -----BEGIN PRIVATE KEY-----), a password in an address, or a
               random-looking value assigned to a name such as `token`
    licence    the copyright and licence lines at the top of a file

Detection is by shape, one line at a time; it needs no network and no index of public code. Text that is also in the
document or in another open one is the user's own, so it passes. Placeholders ("your-api-key", AKIA...EXAMPLE), hashes,
UUIDs and references to a secret (os.environ["API_KEY"]) pass. An unfinished line may end in the first half of a key:
`torn` means that the text is complete, and then a beginning counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from speclsp.lsp.syntax import hidden_characters

SECRET, LICENCE = "secret", "licence"

# Special tokens of models and servers, in upper and lower case. "<pre>" (HTML) and "x[suffix]" (code) are none, and
# "<filename>" is one only before a file name. The last line matches a special token whose end is not generated yet.
_MARKER = re.compile(
    r"(?i:<\|[\w./▁-]{1,40}\|>|<｜[^｜\n]{1,40}｜>|<\[[\w▁-]{1,40}\]>|</s>|</?\[?fim[_-]\w{1,12}\]?>|<(?:file_?sep|repo_?name|endoftext|eos|bos"
    r"|jupyter_\w{1,20}|issue_\w{1,20}|commit_\w{1,20}|gh_stars|empty_output|start_of_turn|end_of_turn)>"
    r"|<(?:filename|reponame)>(?=[\w./~-]))|<(?:PRE|SUF|MID|EOT|EOM)>|\[(?:PREFIX|SUFFIX|MIDDLE|INST|/INST)\]"
    r"|(?P<begun>(?i:<\|(?:fim|endof|end_of|begin_of|file|repo|im)_?\w{0,40}\|?\Z|</?\[?fim[_-]\w{0,12}\]?\Z|<｜[^｜\n]{0,40}｜?\Z))"
)
FORBIDDEN = re.compile(f"{hidden_characters.HIDDEN.pattern}|{_MARKER.pattern}")


@dataclass(frozen=True)
class Shape:
    """One format of keys: `head`, then at least `least` of `body`."""

    head: str
    body: str
    least: int
    mixed: bool = False  # the body must look drawn by lot: words could begin like that

    @cached_property
    def whole(self) -> re.Pattern[str]:
        return re.compile(f"{self.head}(?P<body>{self.body}{{{self.least},4000}})")

    @cached_property
    def torn(self) -> re.Pattern[str]:
        """Its beginning at the end of a line."""
        return re.compile(f"{self.head}(?P<body>{self.body}{{{_MIN_TORN},4000}})\\Z")


_URL_SAFE, _ALNUM = r"[A-Za-z0-9_-]", r"[A-Za-z0-9]"
SHAPES = (
    Shape(r"(?:AKIA|ASIA|ABIA|ACCA)", r"[A-Z0-9]", 16),  # AWS
    Shape(r"gh[pousr]_", _ALNUM, 30),  # GitHub
    Shape(r"github_pat_", r"[A-Za-z0-9_]", 22),
    Shape(r"gl(?:pat|ptt|dt|rt|cbt|ft|soat|agent|oas)-", r"[A-Za-z0-9_.-]", 20),  # GitLab
    Shape(r"xox[abeoprs]-", r"[A-Za-z0-9-]", 10),  # Slack
    Shape(r"xapp-\d-", r"[A-Za-z0-9-]", 20),
    Shape(r"hooks\.slack\.com/services/", r"[A-Za-z0-9/]", 20),
    Shape(r"discord(?:app)?\.com/api/webhooks/\d{8,24}/", _URL_SAFE, 30),
    Shape(r"(?:[sr]k_(?:live|test|prod)|whsec)_", _ALNUM, 16),  # Stripe
    Shape(r"AIza", _URL_SAFE, 35),  # Google
    Shape(r"GOCSPX-", _URL_SAFE, 20),
    Shape(r"ya29\.", r"[A-Za-z0-9_.-]", 20, mixed=True),
    Shape(r"sk-(?:proj-|ant-|svcacct-|admin-|or-v1-)?", _URL_SAFE, 20, mixed=True),  # OpenAI, Anthropic
    Shape(r"(?:gsk|xai|pplx|r8|hf|nvapi|fw|csk|ctx7sk)[_-]", r"[A-Za-z0-9_-]", 30, mixed=True),
    Shape(r"npm_", _ALNUM, 36),
    Shape(r"pypi-", _URL_SAFE, 50),
    Shape(r"dckr_pat_", _URL_SAFE, 20),
    Shape(r"SG\.", r"[A-Za-z0-9_.-]", 40, mixed=True),  # SendGrid
    Shape(r"(?:SK|AC)", r"[0-9a-f]", 32),  # Twilio
    Shape(r"key-", r"[0-9a-f]", 32),  # Mailgun
    Shape(r"dop_v1_", r"[0-9a-f]", 64),  # DigitalOcean
    Shape(r"shp(?:at|ss|ca|pa)_", r"[0-9a-fA-F]", 32),  # Shopify
    Shape(r"EAAC", _ALNUM, 40),  # Facebook
    Shape(r"\d{8,10}:AA", _URL_SAFE, 33),  # Telegram
    Shape(r"(?:PMAK|NRAK|glsa|lin_api|sntrys|dapi|hvs|hvb|rubygems|AGE-SECRET-KEY)[_.-]?", _URL_SAFE, 26, mixed=True),
    Shape(r"eyJ[A-Za-z0-9_-]{8,4000}\.eyJ", r"[A-Za-z0-9_.-]", 16),  # a JSON Web Token
    Shape(r"(?:AccountKey|SharedAccessKey|SharedSecretValue)=", r"[A-Za-z0-9+/=]", 40),  # Azure
    Shape(r"[?&]sig=", r"[A-Za-z0-9%+/]", 40, mixed=True),
    Shape(r"AAAA[A-Za-z0-9_-]{7}:", _URL_SAFE, 100),  # Firebase
)
_LOOKED_AT = 64  # characters that words of placeholders are looked for in: a long value has any word by chance
_MIN_TORN = 6  # characters of a body at the end of a torn line

_NAMES = (
    r"(?:pass(?:word|wd|phrase)?|pwd|secret|token|credential|bearer"
    r"|(?:api|access|auth|account|private|encryption|signing)[_-]?key)"
)
_GIVEN = re.compile(  # ...password: "value", set("api_key", "value"), TOKEN=value, Bearer value
    rf"""(?ix) {_NAMES} [A-Za-z0-9_]{{0,24}} ["'\]`]{{0,2}} \s{{0,4}}
    (?: (?::=|=>|[:=]|,) \s{{0,4}} (?:[A-Za-z.]{{0,24}}[(\\])? \s{{0,4}} [bfru]? ["'`]{{1,3}}
        (?P<quoted>[^\s"'`]{{10,2000}}) (?:["'`]|\s|\Z)
      | (?:=\s{{0,4}}|:\s{{1,4}}|\s) (?P<bare>[A-Za-z0-9+/=_.~!@\#%^*-]{{16,2000}}) ["'`]?[\s,;)\]}}]{{0,8}}\Z )
    """
)
_ADDRESS = re.compile(r"://(?P<user>[^\s:/@'\"<>{}$\[\]]{0,64}):(?P<password>[^\s:/@'\"<>{}$\[\]]{3,256})@[\w.\[-]")
_ADDRESS_TORN = re.compile(r"://[^\s:/@'\"<>{}$\[\]]{1,64}:(?P<password>(?!\d{1,5}\Z)[^\s:/@'\"<>{}$\[\]]{6,256})\Z")
_PEM = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-\d")
_PEM_TORN = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE[ KEY-]{0,16}\Z")
_WORDS = re.compile(r"[a-z]{4,}|[A-Z]{5,}")
_PEM_LINE = re.compile(r"[A-Za-z0-9+/=]{16}")
_PLACEHOLDER = re.compile(
    r"(?i)example|sample|dummy|placeholder|change|replace|your|insert|redacted|fake|mock|test|todo|foobar|secret|passw|token"
    r"|xxxx|\*\*\*|\.\.\.|1234567|abcdef|0000000|environ|getenv|process\.env|\{[a-z_{]|\$\(|%\(|<[a-z]|lorem|deadbeef"
)
_DEFAULTS = "pass password passwd pwd secret root admin postgres mysql user guest test mongo redis rabbitmq letmein"
_MAYBE = re.compile(
    r"AKIA|ASIA|ABIA|ACCA|gh[pousr]_|github_pat|gl[a-z]{2,5}-|xox|xapp|slack\.com|webhooks|[sr]k_|whsec|AIza|GOCSPX|ya29|sk-"
    r"|gsk|xai|pplx|r8_|hf_|nvapi|fw_|csk-|ctx7|npm_|pypi-|dckr|SG\.|SK[0-9a-f]|AC[0-9a-f]|key-|dop_|shp|EAAC|:AA|PMAK|NRAK|glsa"
    r"|lin_|sntrys|dapi|hv[sb]|rubygems|SECRET-KEY|eyJ|Key=|Value=|sig=|AAAA|://|PRIVATE|PuTTY"
    r"|[Pp][Aa][Ss][Ss]|[Pp][Ww][Dd]|[Ss][Ee][Cc][Rr]|[Tt][Oo][Kk][Ee]|[Kk][Ee][Yy]|[Cc][Rr][Ee][Dd]|[Bb][Ee][Aa][Rr]"
)
_LICENCE = re.compile(
    r"(?i)SPDX-(?:License-Identifier|FileCopyrightText)\s{0,4}:\s{0,4}\S"
    r"|\bcopyright\s{1,4}(?:\(c\)|©|\d{4}|&copy;)[^\n]{0,200}|©\s{0,4}\d{4}[^\n]{0,200}|\ball rights reserved\b"
    r"|\blicensed under (?:the )?(?:terms of the )?"
    r"(?:apache|mit|bsd|gnu|mozilla|a?gpl|lgpl|isc|eclipse|creative|unlicense|zlib|boost|cc)"
    r"|\bpermission is hereby granted|\bpermission to use, copy, modify"
    r"|\bredistribution and use in source and binary|\byou can redistribute it and/or modify"
    r"|\bthis (?:program|library|software|project) is (?:free software|licensed under|distributed under)"
    r"|\byou may not use this file except|\bunless required by applicable law"
    r"|\bthis source code (?:form )?is (?:subject|licensed|governed)|\buse of this source code is governed"
    r"|\bthe software is provided .as is|\bthis software is provided by|\bwithout warranty of any kind"
    r"|\bgnu (?:lesser |affero |library )?general public licen[sc]e|\bapache licen[sc]e, version"
)
_LICENCE_MAYBE = re.compile(
    r"(?i)licen|copyright|©|spdx|rights|permi|redist|warrant|software|may not|applicable|governed"
)
_NUMBER = re.compile(r"\d+(?:\s{0,2}[-,–]\s{0,2}\d+)*")


def hidden_in(line: str, start: int, known: Sequence[str], *, torn: bool = False, above: Sequence[str] = ()) -> str:
    """SECRET or LICENCE where `line` holds one that ends after `start` and that no text in `known` has; else "".

    `above`: the lines above it, as far as they are known: the lines of a key look like any base64.
    """
    if _MAYBE.search(line) and any(not stands_in(value, known) for value in secrets(line, start, torn=torn)):
        return SECRET
    if above and len(line) > start and in_key(above):
        match = _PEM_LINE.search(line)
        if match and match.end() > start and not stands_in(line.strip(" \t\"'+,\\"), known):
            return SECRET
    if _LICENCE_MAYBE.search(line) and any(not is_ours(phrase, known) for phrase in licences(line, start)):
        return LICENCE
    return ""


def secrets(line: str, start: int = 0, *, torn: bool = False) -> list[str]:
    """Parts of a line that look like a key or a password and end after `start`."""
    values: list[str] = []
    for shape in SHAPES:
        for match in (*shape.whole.finditer(line), *(shape.torn.finditer(line) if torn else ())):
            body, before = match["body"], line[match.start() - 1 : match.start()] if match.start() else ""
            if match.end() <= start or before.isalnum() or _PLACEHOLDER.search(body, 0, _LOOKED_AT):
                continue
            if not is_plain(body) and (not shape.mixed or is_drawn(body, torn=torn)):
                values.append(match[0])
    for match in _GIVEN.finditer(line):
        value = match["quoted"] or match["bare"] or ""
        open_ended = torn and match.end() == len(line)
        if match.end() > start and is_drawn(value, torn=open_ended) and not _PLACEHOLDER.search(value, 0, _LOOKED_AT):
            values.append(value)
    for match in (*_ADDRESS.finditer(line), *(_ADDRESS_TORN.finditer(line) if torn else ())):
        password, user = match["password"], match.groupdict().get("user") or ""
        plain = password.lower() in _DEFAULTS.split() or password == user or _PLACEHOLDER.search(password)
        if match.end("password") > start and not plain:
            values.append(password)
    for match in (*_PEM.finditer(line), *(_PEM_TORN.finditer(line) if torn else ())):
        if match.end() > start:
            values.append(match[0])
    return values


def holds_secret(text: str) -> bool:
    """True if something in a piece of code looks like a key or a password."""
    lines = text.split("\n")
    return any(_MAYBE.search(line) and secrets(line) for line in lines) or in_key(lines)


def is_drawn(value: str, *, torn: bool = False) -> bool:
    """True if a value looks random, not made of words: letters and digits alternate many times."""
    bare = re.sub(r"[^A-Za-z0-9]", "", value)
    least = 10 if torn else 20
    if len(value) < least or len(bare) < least * 3 // 4:
        return False
    kinds = ["d" if c.isdigit() else "u" if c.isupper() else "l" for c in bare]
    between = sum((a == "d") != (b == "d") for a, b in pairwise(kinds))
    changes = sum(a != b for a, b in pairwise(kinds))
    if len(set(bare)) < (6 if torn else 8):
        return False
    if between >= (2 if torn else 3) and changes * 6 >= len(bare):
        return True
    in_words = sum(map(len, _WORDS.findall(bare)))
    return len(bare) >= 20 and changes * 3 >= len(bare) and in_words * 5 <= len(bare) * 2


def is_plain(body: str) -> bool:
    """True if a body repeats a few characters, as placeholders do."""
    return len(set(body.lower())) < 5


def in_key(above: Sequence[str]) -> bool:
    """True if the lines above are those of a private key that has not ended."""
    for line in reversed(above):
        if "-----END" in line:
            return False
        if _PEM.search(line):
            return True
    return False


def licences(line: str, start: int = 0) -> list[str]:
    """Parts of a line that belong to a licence or copyright header and end after `start`."""
    return [match[0] for match in _LICENCE.finditer(line) if match.end() > start]


def stands_in(value: str, known: Sequence[str]) -> bool:
    return any(value in text for text in known)


def is_ours(phrase: str, known: Sequence[str]) -> bool:
    """True if a known text contains the words, with any year."""
    parts = [part.strip() for part in _NUMBER.split(phrase)]
    words = [part for part in parts if len(part) > 1]
    pattern = re.compile(r".{0,24}?".join(re.escape(word) for word in words), re.IGNORECASE) if words else None
    return pattern is not None and any(pattern.search(text) for text in known)
