"""Detection of keys, passwords and licences in suggested lines, by their shape."""

from __future__ import annotations

import base64
import random
import string
import time
import uuid

import pytest
from support.rows import rows

from speclsp.lsp.visibility.secret_text import LICENCE, SECRET, hidden_in, secrets

ROWS = rows(__file__)

CHANCE = random.Random(34)
ALNUM = string.ascii_letters + string.digits


def drawn(count: int, letters: str = ALNUM) -> str:
    """Random characters. Keys are generated at run time so that no secret scanner reports this repository."""
    return "".join(CHANCE.choice(letters) for _ in range(count))


UPPER, HEX, SAFE = string.ascii_uppercase + string.digits, "0123456789abcdef", ALNUM + "-_"
BLOCKED = {
    "aws": f'aws_key = "AKIA{drawn(16, UPPER)}"',
    "aws, temporary": f"  key: ASIA{drawn(16, UPPER)}",
    "aws, secret": f"aws_secret_access_key = {drawn(40, ALNUM + '+/')}",
    "github": f'gh = Github("ghp_{drawn(36)}")',
    "github, oauth": f"GITHUB=gho_{drawn(36)}",
    "github, server": f"x ghs_{drawn(36)};",
    "github, fine": f"github_pat_{drawn(22)}_{drawn(59)}",
    "gitlab": f"glpat-{drawn(20, SAFE)}",
    "slack": f"xoxb-{drawn(12, string.digits)}-{drawn(12, string.digits)}-{drawn(24)}",
    "slack, hook": f"https://hooks.slack.com/services/T{drawn(8, UPPER)}/B{drawn(8, UPPER)}/{drawn(24)}",
    "stripe": f'stripe.api_key = "sk_live_{drawn(24)}"',
    "stripe, restricted": f"rk_live_{drawn(24)}",
    "google": f"const k = 'AIza{drawn(35, SAFE)}';",
    "google, client": f"GOCSPX-{drawn(28, SAFE)}",
    "openai": f"sk-{drawn(48)}",
    "openai, project": f'OpenAI(api_key="sk-proj-{drawn(80, SAFE)}")',
    "anthropic": f"sk-ant-api03-{drawn(90, SAFE)}AA",
    "npm": f"//registry.npmjs.org/:_authToken=npm_{drawn(36)}",
    "pypi": f"password = pypi-AgEIcHlwaS5vcmc{drawn(60, SAFE)}",
    "sendgrid": f"SG.{drawn(22, SAFE)}.{drawn(43, SAFE)}",
    "twilio": f'Client("AC{drawn(32, HEX)}")',
    "hugging face": f"hf_{drawn(34)}",
    "digital ocean": f"dop_v1_{drawn(64, HEX)}",
    "telegram": f"bot = Bot('{drawn(9, '123456789')}:AA{drawn(33, SAFE)}')",
    "jwt": f"eyJ{drawn(30, SAFE)}.eyJ{drawn(60, SAFE)}.{drawn(43, SAFE)}",
    "pem": "-----BEGIN RSA PRIVATE KEY-----",
    "pem, plain": '  "-----BEGIN PRIVATE KEY-----\\n" +',
    "openssh": "-----BEGIN OPENSSH PRIVATE KEY-----",
    "pgp": "-----BEGIN PGP PRIVATE KEY BLOCK-----",
    "azure": f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={drawn(86, ALNUM + '+/')}==;",
    "azure, bus": f"SharedAccessKey={drawn(43, ALNUM + '+/')}=",
    "database": f"postgres://app:{drawn(12)}@db.internal:5432/app",
    "proxy": f"http_proxy=http://ann:{drawn(9)}@proxy:3128",
    "password, given": f'PASSWORD = "{drawn(24)}"',
    "secret, json": f'  "client_secret": "{drawn(32)}",',
    "token, yaml": f"  auth_token: {drawn(32)}",
    "api key, js": f"const apiKey = '{drawn(32, HEX)}';",
    "api key, call": f'headers.set("X-Api-Key", "{drawn(40)}")',
    "token, uuid": f'HEROKU_TOKEN="{uuid.UUID(int=CHANCE.getrandbits(128))}"',
    "bearer": f"curl -H 'Authorization: Bearer {drawn(40)}'",
    "shell": f"export API_KEY={drawn(32)}",
    "go": f'apiKey := "{drawn(32)}"',
    "env, default": f'os.environ.get("SECRET_KEY", "{drawn(50)}")',
}
LINES = ROWS["lines"]
PASSES = LINES | {
    "uuid, drawn": f'user_id = "{uuid.UUID(int=CHANCE.getrandbits(128))}"',
    "base64 of a test": f'data = base64.b64decode("{base64.b64encode(CHANCE.randbytes(48)).decode()}")',
    "ssh, public": f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA{drawn(43)} ann@host",
}
LICENCES = ROWS["licences"]
NO_LICENCES = ROWS["no_licences"]


@pytest.mark.promise(34)
def test_each_kind_of_key_is_hidden_and_similar_text_passes(promise):
    missed = [name for name, line in BLOCKED.items() if hidden_in(line, 0, []) != SECRET]
    wrong = [name for name, line in PASSES.items() if hidden_in(line, 0, [])]
    promise.measured(
        f"{len(BLOCKED)} kinds of secret in lines: {len(missed)} let through; {len(PASSES)} lines that look like it: "
        f"{len(wrong)} kept back",
        holds=not missed and not wrong,
    )
    assert missed == []
    assert wrong == []


@pytest.mark.promise(34)
def test_random_passwords_are_mostly_distinguished_from_names(promise):
    tries = 3000
    missed = sum(not hidden_in(f'password = "{drawn(32)}"', 0, []) for _ in range(tries))
    words = ["company", "build", "server", "deploy", "user", "request", "response", "client", "session", "list"]
    names = ["".join(word.title() for word in CHANCE.choices(words, k=CHANCE.randint(3, 5))) for _ in range(tries)]
    wrong = sum(bool(hidden_in(f'password = "{name}{CHANCE.choice(["", "2"])}"', 0, [])) for name in names)
    promise.measured(
        f"passwords of 32 letters and figures drawn by lot: {missed / tries:.1%} not recognised; "
        f"names of several words in their place: {wrong / tries:.1%} kept back",
        holds=missed <= tries * 0.01 and wrong <= tries * 0.01,
    )
    assert missed <= tries * 0.02 and wrong <= tries * 0.02


@pytest.mark.promise(34)
def test_licence_headers_are_hidden_and_their_words_pass(promise):
    missed = [line for line in LICENCES if hidden_in(line, 0, []) != LICENCE]
    wrong = [line for line in NO_LICENCES if hidden_in(line, 0, [])]
    promise.measured(f"{len(LICENCES)} lines of licence headers: {len(missed)} let through", holds=not missed)
    assert missed == [] and wrong == []


def test_text_that_stands_in_the_workspace_may_be_suggested():
    for line in [*BLOCKED.values(), *LICENCES]:
        assert hidden_in(line, 0, ["x", f"something {line} else"]) == "", line
    header = "# Copyright (c) 2019-2023 Some One and others"
    assert hidden_in("# Copyright (c) 2026 Some One and others", 0, [header]) == "", "another year is the same holder"
    assert hidden_in("# Copyright (c) 2026 Anybody Else", 0, [header]) == LICENCE


def test_a_key_half_typed_and_half_suggested_is_hidden():
    for name, line in BLOCKED.items():
        key = secrets(line)
        assert key, name
        middle = line.index(key[0]) + len(key[0]) // 2
        assert hidden_in(line, middle, [line[:middle]]) == SECRET, name
        assert hidden_in(line + " and more", len(line), []) == "", f"{name}: it was there before"


def test_the_first_half_of_a_key_is_hidden_when_the_text_is_truncated():
    for name, line in BLOCKED.items():
        key = secrets(line)[0]
        end = line.index(key) + len(key) - max(3, len(key) // 4)
        if end - line.index(key) < 14 or "PRIVATE" in line:
            continue
        assert hidden_in(line[:end], 0, [], torn=True) == SECRET, (name, line[:end])
    assert hidden_in("-----BEGIN RSA PRIV", 0, [], torn=True) == ""
    assert hidden_in("-----BEGIN RSA PRIVATE KEY---", 0, [], torn=True) == SECRET


def test_the_lines_of_an_open_private_key_are_hidden_and_other_base64_is_not():
    line = drawn(64, ALNUM + "+/")
    above = ["key = '''", "-----BEGIN PRIVATE KEY-----", drawn(64)]
    assert hidden_in(line, 0, [], above=above) == SECRET
    assert hidden_in(line, 0, [], above=[*above, "-----END PRIVATE KEY-----"]) == ""
    assert hidden_in(line, 0, [], above=["-----BEGIN CERTIFICATE-----"]) == ""


UNITS = ("password", "key='", "AKIA", "eyJ", "://a:b", "-----BEGIN ", "sk-", "copyright (c) ", "a", " ", "=")


@pytest.mark.parametrize("unit", [*UNITS, "token = '" + "a1" * 40, "key_" * 3 + "('"])
@pytest.mark.parametrize("torn", [False, True])
def test_every_line_is_checked_in_bounded_time(unit: str, torn: bool):
    line = (unit * 16384)[:16384]
    start_s = time.thread_time()
    hidden_in(line, 0, [line[:100]], torn=torn)
    assert time.thread_time() - start_s < 2
