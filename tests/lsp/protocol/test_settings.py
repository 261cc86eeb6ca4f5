"""Settings from the editor: valid ones apply at once, each invalid one is reported once and affects no other."""

from __future__ import annotations

import os
import time
from pathlib import Path

from support.lsp.editor_client import CAPABILITIES, Editor, Page

SOURCE = "def f():\n    return \n"
CURSOR = len(SOURCE) - 1
PULLS = {**CAPABILITIES, "workspace": {"configuration": True}}


def warnings(editor: Editor) -> list[str]:
    return [
        message["params"]["message"]
        for message in list(editor.notifications)
        if message["method"] == "window/logMessage" and message["params"]["type"] == 2
    ]


def change(editor: Editor, settings: object) -> None:
    editor.notify("workspace/didChangeConfiguration", {"settings": settings})


def problems(editor: Editor) -> list[str]:
    return editor.statuses()[-1]["problems"]


def test_every_invalid_setting_is_reported_with_the_nearest_name_and_the_others_apply():
    invalid = {"complettion": {"enabled": False}, "completion": {"max_tokens": "many", "timeout_mss": 7}, "model": 3}
    with Editor() as editor:
        editor.begin(initializationOptions={**invalid, "echo": {"round_ms": 30}})
        assert len(problems(editor)) == 4
        for sentence, words in zip(
            sorted(problems(editor)),
            (["completion.max_tokens", "many"], ["model"], ["completion.timeout_ms"], ["completion.enabled"]),
            strict=True,
        ):
            assert all(word in sentence for word in words), sentence
        assert sorted(warnings(editor)) == sorted(problems(editor))
        page = Page(editor, SOURCE)
        start = time.perf_counter()
        assert editor.text(page.ask(CURSOR)) == page.expected(CURSOR)
        assert time.perf_counter() - start > 0.5, "echo.round_ms holds"
        change(editor, {"speclsp": invalid})
        change(editor, invalid)
        assert editor.wait_for(lambda: len(problems(editor)) == 8)
        assert len(warnings(editor)) == 4, "each is said once"
        assert editor.popups() == []


def test_settings_that_are_not_an_object_are_one_problem():
    with Editor() as editor:
        editor.begin(initializationOptions=[])
        assert len(problems(editor)) == 1 and "expected an object" in problems(editor)[0]
        for count, settings in enumerate(("x", 7, True), start=2):
            change(editor, settings)
            assert editor.wait_for(lambda count=count: len(warnings(editor)) == count)
            kind = type(settings).__name__  # the status with the problem comes after the warning
            assert editor.wait_for(
                lambda kind=kind: any(f"settings is {kind}" in problem for problem in problems(editor))
            )
            assert len(problems(editor)) == 2, "the latest of each kind"


def test_no_engine_is_started_while_completion_is_off():
    with Editor() as editor:
        editor.initialize(initializationOptions={"completion": {"enabled": False}})
        editor.until("off")
        time.sleep(0.5)
        assert editor.engines() == []
        change(editor, {"completion": {"enabled": True}})
        editor.until("ready")


def test_the_settings_are_pulled_from_the_client_and_pulled_again_on_its_change():
    with Editor(settings={"completion": {"enabled": False}}) as editor:
        editor.initialize(PULLS)
        editor.until("off")
        pulls = [request for request in editor.requests if request["method"] == "workspace/configuration"]
        assert pulls[0]["params"] == {"items": [{"section": "speclsp"}]}
        editor.settings = {"completion": {"enabled": True, "enabledd": 1}}
        change(editor, None)
        editor.until("ready")
        assert editor.wait_for(lambda: len(problems(editor)) == 1)


def test_a_client_without_settings_for_us_has_no_problems():
    with Editor(settings=None) as editor:
        editor.begin(
            {**PULLS, "workspace": {"configuration": True, "didChangeConfiguration": {"dynamicRegistration": True}}}
        )
        assert problems(editor) == []
        registrations = [request for request in editor.requests if request["method"] == "client/registerCapability"]
        assert registrations[0]["params"]["registrations"][0]["method"] == "workspace/didChangeConfiguration"


def test_an_invalid_config_file_is_a_problem_and_flags_still_apply():
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "speclsp" / "config.toml"
    path.parent.mkdir()
    path.write_text('pairr = "x"\n[completion]\nmax_tokens_single_line = 40\n')
    with Editor() as editor:
        editor.begin()
        assert len(problems(editor)) == 1
        assert "pairr" in problems(editor)[0] and str(path) in problems(editor)[0]
        page = Page(editor, SOURCE)
        assert editor.text(page.ask(CURSOR)) == page.expected(CURSOR)
