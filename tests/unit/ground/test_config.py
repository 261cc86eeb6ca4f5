"""Settings: one set of names, each checked separately, so a typo costs one setting and never the session."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rows import rows

from speclsp import config
from speclsp.config import Config, EngineConfig
from speclsp.errors import ConfigError

ROWS = rows(__file__)


def problems(settings: object) -> list[str]:
    return config.parse(settings)[1]  # type: ignore[arg-type]


def test_nested_and_dotted_keys_mean_the_same_and_a_leading_speclsp_is_dropped():
    wanted = Config(model="tiny", engine=EngineConfig(max_draft_tokens=4))
    for written in (
        {"model": "tiny", "engine": {"max_draft_tokens": 4}},
        {"model": "tiny", "engine.max_draft_tokens": 4},
        {"speclsp": {"model": "tiny", "engine": {"max_draft_tokens": 4}}},
        {"speclsp.model": "tiny", "speclsp.engine": {"max_draft_tokens": 4}},
        {"speclsp": {"model": "tiny", "engine.max_draft_tokens": 4}},
    ):
        assert config.parse(written) == (wanted, []), written
    base = Config(engine=EngineConfig(threads=2, max_draft_tokens=3))
    assert config.parse({"engine.max_draft_tokens": 5}, base)[0].engine == EngineConfig(threads=2, max_draft_tokens=5)


def test_good_settings_take_effect_beside_bad_ones():
    read, bad = config.parse({"model": "tiny", "engine": {"threads": "two", "max_draft_tokens": 2}, "nonsense": 1})
    assert read == Config(model="tiny", engine=EngineConfig(max_draft_tokens=2))
    assert len(bad) == 2


@pytest.mark.parametrize(("written", "meant"), ROWS["an_unknown_setting_is_named_with_the_nearest_known_one"])
def test_an_unknown_setting_is_named_with_the_nearest_known_one(written: str, meant: str):
    key = written.removeprefix("speclsp.")
    assert problems({written: 1}) == [f'unknown setting "{key}": did you mean "{meant}"?']


@pytest.mark.parametrize(("key", "value", "wanted"), ROWS["a_value_of_the_wrong_kind_is_named_with_what_was_expected"])
def test_a_value_of_the_wrong_kind_is_named_with_what_was_expected(key: str, value: object, wanted: str):
    read, bad = config.parse({key: value})
    assert read == Config()
    assert len(bad) == 1
    assert bad[0].startswith(f"{key} = ")
    assert bad[0].endswith(f"is not valid: expected {wanted}.")


def test_a_table_in_place_of_a_value_and_the_reverse_are_reported():
    assert problems({"engine": 5}) == ["engine = 5 is not valid: expected a table of settings."]
    assert problems({"model": {"name": "tiny"}}) == ["model = {'name': 'tiny'} is not valid: expected a text."]
    assert problems([1]) == ["settings = [1] is not valid: expected a table of settings."]


def test_null_keeps_a_setting():
    base = Config(model="tiny")
    assert config.parse({"model": None, "engine": None, "speclsp": None}, base) == (base, [])


def test_a_problem_stays_one_readable_line():
    assert all(len(line) < 300 and "\n" not in line for line in problems({"model": [0] * 999, "device": "x\n" * 999}))


def test_settings_nested_a_thousand_deep_are_reported():
    deep: dict[str, object] = {"a": 1}
    for _ in range(1000):
        deep = {"a": deep}
    assert len(problems(deep)) == 1


def test_a_tilde_is_replaced_by_the_home_directory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/ada")
    assert config.parse({"models_dir": "~/models"})[0].models_dir == "/home/ada/models"


keys = st.sampled_from([*config.KNOWN, *config.SECTIONS, "speclsp", "max_draft_tokens", ""]) | st.text(max_size=5)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(keys, json_values, max_size=6))
def test_arbitrary_settings_never_raise_and_the_kept_ones_are_valid(written: dict[str, object]):
    read, bad = config.parse(written)
    assert all(isinstance(line, str) for line in bad)
    assert config.parse(config.changes(read)) == (read, []), "kept settings pass their own check"


@given(st.dictionaries(keys, json_values, max_size=6))
def test_a_child_process_receives_the_same_settings(written: dict[str, object]):
    read, _ = config.parse(written)
    if any("," in word or word != word.strip() or not word for word in read.completion.disabled_languages):
        return  # a language id never looks like that
    words = config.as_flags(read)
    if any(isinstance(value, str) and value != value.strip() for value in config.changes(read).values()):
        return
    assert words[::2] == ["--set"] * (len(words) // 2)
    assert config.parse(dict(config.from_words(word) for word in words[1::2])) == (read, [])


def test_flags_are_parsed_by_the_type_of_their_setting():
    assert config.from_words("engine.draft=off") == ("engine.draft", False)
    assert config.from_words("model=1") == ("model", "1")
    assert config.from_words("completion.min_confidence=1") == ("completion.min_confidence", 1.0)
    assert config.from_words("completion.disabled_languages=go, rust,") == (
        "completion.disabled_languages",
        ["go", "rust"],
    )
    assert config.from_words("engine.threads=lots") == ("engine.threads", "lots")
    with pytest.raises(ConfigError, match="key=value"):
        config.from_words("engine.draft")


def write_toml(text: str) -> Path:
    path = config.config_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_flags_win_over_the_file_and_the_file_over_the_defaults():
    write_toml('model = "tiny"\n[engine]\nmax_draft_tokens = 4\nthreads = 1\n')
    assert config.load({"engine.threads": 2}) == Config(
        model="tiny", engine=EngineConfig(max_draft_tokens=4, threads=2)
    )


def test_a_bad_file_stops_a_command_and_not_an_editor():
    path = write_toml("model = tiny\n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        config.load()
    read, bad = config.gather({"model": "echo"})
    assert read.model == "echo"
    assert bad[0].startswith(str(path))


def test_a_setting_the_file_gets_wrong_is_named_with_the_file():
    path = write_toml('[engine]\nthread = 4\n[completion]\nmultiline = "no"\n')
    with pytest.raises(ConfigError) as caught:
        config.load()
    assert f'{path}: unknown setting "engine.thread": did you mean "engine.threads"?' in str(caught.value)
    assert "completion.multiline = 'no'" in str(caught.value)
    assert "\n" not in str(caught.value)
