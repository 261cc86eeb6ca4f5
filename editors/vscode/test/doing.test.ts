/** What the server is told of what is on the screen, and whether it wants to be. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { onScreen, wantsViewed } from "../src/protocol";

const lines = (start: number, end: number) => ({ start: { line: start }, end: { line: end } });

test("folded lines between two visible ranges count as seen", () => {
  assert.deepEqual(onScreen("file:///a.py", [lines(3, 10), lines(20, 42)]), {
    textDocument: { uri: "file:///a.py" },
    range: { start: { line: 3, character: 0 }, end: { line: 42, character: 0 } },
  });
});

test("an editor that shows nothing has nothing to tell", () => {
  assert.equal(onScreen("file:///a.py", []), undefined);
});

test("a server is told only what it announced", () => {
  assert.equal(wantsViewed({ speclsp: { viewed: true } }), true);
  for (const other of [undefined, null, {}, { speclsp: {} }, { speclsp: { viewed: "yes" } }, "viewed"]) {
    assert.equal(wantsViewed(other), false);
  }
});
