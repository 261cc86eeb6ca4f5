"""Next edits from a remote server's model, over the wire: the request, the gate and faults."""

from __future__ import annotations

from support.lsp.edited_document import ROOT, EditPage, until_answering
from support.lsp.editor_client import Editor
from support.lsp.faulty_http_server import (
    Behaviour,
    Connection,
    FaultyServer,
    HttpRequest,
    body_of,
    listing,
    refuses,
    silent,
)

from speclsp.lsp.next_edit import wire

MODEL = "sweepai/sweep-next-edit-1.5B"
TEXT = "class Job:\n    name = ''\n\n    def load(self, data):\n        self.name = data['name']\n        return self\n"
LOAD = "        self.name = data['name']\n"
ADDED = "        self.size = data['size']\n"


def window_in(prompt: str) -> str:
    """The window of a prompt in format sweep."""
    window = prompt.rpartition("<|file_sep|>current/")[2].partition("\n")[2].rpartition("<|file_sep|>updated/")[0]
    return window.replace("<|cursor|>", "")


def answers(logprob: float) -> Behaviour:
    """The current window with a line more. A line is a token."""

    async def behave(request: HttpRequest, connection: Connection) -> None:
        window = window_in(request.body["prompt"])
        await connection.head()
        for line in window.replace(LOAD, LOAD + ADDED).splitlines(keepends=True):
            probabilities = [{"token": line, "logprob": logprob}]
            await connection.event({"content": line, "stop": False, "completion_probabilities": probabilities})
        await connection.event({"content": "", "stop": True, "stop_type": "eos"})
        await connection.end()

    return behave


class LlamaServer(FaultyServer):
    """Every path of llama.cpp's server, with a model that has the markers. /completion is answered as scripted."""

    def __init__(self, model: str = MODEL, answer: Behaviour = silent) -> None:
        super().__init__()
        self.always, self.everywhere, listed = answer, self.behave, listing([model], "llamacpp")
        self.answers = {"/v1/models": listed, "/health": body_of("application/json", b"{}")}

    async def behave(self, request: HttpRequest, connection: Connection) -> None:
        if request.path == "/infill" and not request.body:
            await connection.whole(400, b"{}")
        elif request.path in self.answers:
            await self.answers[request.path](request, connection)
        else:
            await (self.then.popleft() if self.then else self.always)(request, connection)


def edited_page(editor: Editor) -> EditPage:
    """A page after an edit that the rules can do nothing with."""
    until_answering(editor)
    page = EditPage(editor, TEXT, "job.py")
    page.replace("\n\n    def", "\n    size = 0\n\n    def")
    return page


def editor_of(server: FaultyServer) -> Editor:
    return Editor("--set", f"remote.url={server.url}", model="auto")


def prompts(server: FaultyServer) -> list[HttpRequest]:
    ends = ("<|file_sep|>updated/", "<<<<<<< CURRENT\n")
    return [request for request in server.completions() if any(end in str(request.body.get("prompt")) for end in ends)]


def test_an_edit_comes_from_a_server_whose_model_has_the_format():
    with LlamaServer(answer=answers(-0.1)) as server, editor_of(server) as editor:
        editor.begin(**ROOT)
        page = edited_page(editor)
        edit = page.offer(20)
        assert edit is not None and edit["text"].strip("\n") == ADDED.strip("\n")
        assert page.outcome()["outcome"] == "shown"
        (request,) = prompts(server)
        assert request.path == "/completion"
        assert {"<|endoftext|>", "<|file_sep|>"} <= set(request.body["stop"])
        assert request.body["temperature"] == 0 and request.body["stream"] is True
        assert request.body["n_probs"] == 1
        assert not {"session", "previous", "idle"} & set(request.body)
        server.always = answers(-2.0)
        page.edit(0, 0, "import json\n")
        assert page.offer(20) is None and page.outcome()["outcome"] == "model_unsure"


def test_faults_give_no_edit_and_no_further_requests():
    with LlamaServer() as server, editor_of(server) as editor:
        editor.begin(**ROOT)
        page = edited_page(editor)
        server.then.append(silent)
        waiting = editor.request(wire.INLINE_EDIT, page.params(20))
        server.wait(lambda: len(prompts(server)) == 1)
        page.edit(0, 0, "import json\n")
        assert editor.reply(waiting)["result"] == {"edits": []}
        server.wait(lambda: prompts(server)[0].closed_at is not None)  # the next key closes the connection
        server.then.append(refuses(400, "n_probs is not supported"))
        for _ in range(3):
            assert page.offer(20) is None
        assert len(prompts(server)) == 2 and editor.statuses()[-1]["state"] in ("ready", "thinking")
        assert editor.popups() == []
