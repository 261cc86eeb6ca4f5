/** Settings that reach the server. */
import assert from "node:assert/strict";
import { test } from "node:test";
import manifest from "../package.json";
import { versionProblem } from "../src/protocol";
import { asFlags, declaredSettings, globOf, Inspected, levels, needingRestart, setByUser, toggled } from "../src/settings";

const declared = declaredSettings(manifest.contributes.configuration);
const sentSettings = (values: Record<string, Inspected>) => setByUser(declared, (key) => values[key]);

test("nothing set, nothing sent: package.json's defaults never override config.toml", () => {
  assert.deepEqual(sentSettings({}), {});
  const defaults = Object.entries(declared).map(([key, made]) => [key, { defaultValue: (made as { default?: unknown }).default }]);
  assert.deepEqual(sentSettings(Object.fromEntries(defaults)), {});
});

test("what is set is sent by its own name, a false, a zero and an empty list too", () => {
  const sent = sentSettings({
    "speclsp.completion.enabled": { globalValue: false },
    "speclsp.engine.max_draft_tokens": { globalValue: 0 },
    "speclsp.completion.disabled_globs": { globalValue: [] },
  });
  assert.deepEqual(sent, { "completion.enabled": false, "engine.max_draft_tokens": 0, "completion.disabled_globs": [] });
});

test("the narrowest scope wins", () => {
  const key = "speclsp.completion.multiline";
  assert.equal(
    sentSettings({ [key]: { globalValue: "auto", workspaceValue: "never" } })["completion.multiline"],
    "never",
  );
  const all = { globalValue: "auto", workspaceValue: "never", workspaceFolderValue: "always" };
  assert.equal(sentSettings({ [key]: all })["completion.multiline"], "always");
});

test("a workspace cannot set a machine setting", () => {
  for (const [key, { scope }] of Object.entries(declared)) {
    const sent = sentSettings({
      [key]: { workspaceValue: "the workspace's", workspaceFolderValue: "the workspace's" },
    });
    if (scope === "machine") assert.deepEqual(sent, {}, key);
    else assert.deepEqual(Object.values(sent), ["the workspace's"], key);
  }
});

test("the extension's own settings stay with it", () => {
  const own = Object.keys(declared).filter((key) => /^speclsp\.(server|install)\./.test(key));
  assert.equal(own.length, 2);
  assert.deepEqual(sentSettings(Object.fromEntries(own.map((key) => [key, { globalValue: "mine" }]))), {});
});

test("a removed setting needs a restart, a changed one does not", () => {
  assert.deepEqual(needingRestart({ model: "tiny", device: "cpu" }, { model: "auto" }), ["device"]);
});

test("a change of where the code goes, or of whose weights answer, needs a restart", () => {
  const before = { "remote.url": "https://a.example", "engine.adapter": "/a" };
  assert.deepEqual(needingRestart(before, { ...before, model: "tiny" }), []);
  const now = { "remote.url": "https://b.example", "engine.adapter": "/a", models_dir: "/m" };
  assert.deepEqual(needingRestart(before, now), ["remote.url", "models_dir"]);
  const others = { "engine.adapter": "none", "engine.offline": true };
  assert.deepEqual(needingRestart({}, others), Object.keys(others));
});

test("settings become flags as the command line reads them", () => {
  const flags = asFlags({ "completion.disabled_languages": ["python", "c"], "engine.draft": false });
  assert.deepEqual(flags, ["--set", "completion.disabled_languages=python,c", "--set", "engine.draft=false"]);
});

test("toggling twice gives back the list", () => {
  assert.deepEqual(toggled(["a"], "b"), ["a", "b"]);
  assert.deepEqual(toggled(toggled(["a"], "b"), "b"), ["a"]);
});

test("a path with glob letters matches itself only", () => {
  assert.equal(globOf("/code/[draft]*?.py"), "/code/[[]draft[]][*][?].py");
  assert.equal(globOf("/code/a b.py"), "/code/a b.py");
});

test("a server of an unsupported version is named, a supported one is not", () => {
  assert.equal(versionProblem({ name: "speclsp", version: "0.1.0" }), "");
  assert.equal(versionProblem({ name: "speclsp", version: "0.12.3" }), "");
  assert.match(versionProblem({ name: "speclsp", version: "0.0.9" }), /0\.0\.9 is too old.*0\.1 or newer/);
  assert.match(versionProblem({ name: "speclsp", version: "1.0.0" }), /1\.0\.0 is too new/);
  assert.match(versionProblem({ name: "speclsp" }), /too old/);
  assert.match(versionProblem({ name: "pylsp", version: "1.0" }), /does not introduce itself/);
  assert.match(versionProblem(undefined), /does not introduce itself/);
});

test("the menu has every level of eagerness with the suggestions that it shows", () => {
  const offered = levels(declared);
  assert.deepEqual(offered.map(({ name }) => name), ["low", "medium", "high"]);
  for (const { shows } of offered) assert.match(shows, /^[A-Z].*\.$/);
});
