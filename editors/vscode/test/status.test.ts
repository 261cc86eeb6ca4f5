/** Texts of the status bar, state by state. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { canRetry, type Status } from "../src/protocol";
import type { Health } from "../src/server";
import { Bar, bar, escape, Situation } from "../src/status";

const ready: Status = {
  state: "ready",
  model: "qwen2.5-coder-0.5b-instruct",
  target: "Qwen2.5-Coder-0.5B-Instruct int8",
  draft: "",
  device: "cpu",
  message: "",
  progress: null,
  last_latency_ms: null,
  problems: [],
};
const open = { on: true, reason: "", message: "" };
const at = (health: Health, more: Partial<Situation> = {}): Bar =>
  bar({ health, here: open, trusted: true, version: "0.1.0", snooze: "", crash: "", installing: "", ...more });
const running = (more: Partial<Status>, situation: Partial<Situation> = {}): Bar =>
  at({ kind: "running", status: { ...ready, ...more } }, situation);

test("each state has a text of its own", () => {
  const texts = [
    running({}),
    running({ state: "thinking" }),
    running({ state: "loading", progress: 0.4 }),
    running({ state: "starting" }),
    running({ state: "off" }),
    running({}, { here: { on: false, reason: "glob_off", message: "the file matches" } }),
    running({ state: "asleep" }),
    running({ state: "stopped" }),
    running({ remote: "gpu.example:8000" }),
    running({ state: "error", message: "no memory" }),
    at({ kind: "missing", why: "not found" }),
    at({ kind: "missing", why: "not found" }, { installing: "Downloading torch" }),
  ].map(({ text }) => text);
  assert.equal(new Set(texts).size, texts.length);
});

test("the hover names the menu's own word for a retry, where there is one", () => {
  for (const state of ["stopped", "error", "ready"] as const)
    assert.equal(running({ state, message: "why" }).hover.includes("**Try again**"), ["stopped", "error"].includes(state));
});

test("a retry is offered after an error or a stop, and nowhere else", () => {
  const states = ["starting", "loading", "ready", "thinking", "asleep", "stopped", "off", "error"] as const;
  assert.deepEqual(
    states.filter((state) => canRetry({ ...ready, state })),
    ["stopped", "error"],
  );
  assert.equal(canRetry(undefined), false);
});

test("while the installer runs, its latest line replaces the server's state and raises no alarm", () => {
  const states: Health[] = [
    { kind: "missing", why: "not found" },
    { kind: "failed", why: "too old", outdated: true },
    { kind: "running", status: ready },
  ];
  for (const health of states) {
    const shown = at(health, { installing: "Downloading torch (180 MiB)" });
    assert.match(shown.text, /spin.*installing/);
    assert.match(shown.hover, /installing: Downloading torch/);
    assert.match(shown.label, /Downloading torch/);
    assert.equal(shown.alarm, undefined);
    assert.doesNotMatch(shown.text + shown.label + shown.hover.split("\n")[0], /not found|too old|ready/);
  }
});

test("loading shows its percentage", () => {
  assert.match(running({ state: "loading", progress: 0.406 }).text, / 40 %$/);
  assert.match(running({ state: "loading", progress: null }).text, /speclsp$/);
});

test("an error is in the hover and in the screen reader label, and coloured", () => {
  for (const shown of [running({ state: "error", message: "no memory" }), at({ kind: "failed", why: "no memory" })]) {
    assert.equal(shown.alarm, "error");
    assert.match(shown.hover, /no memory/);
    assert.match(shown.label, /no memory/);
  }
  assert.equal(at({ kind: "missing", why: "not found" }).alarm, "warning");
});

test("an unloaded or stopped engine raises no alarm", () => {
  for (const state of ["asleep", "stopped"] as const) assert.equal(running({ state, message: "why" }).alarm, undefined);
  assert.doesNotMatch(running({ state: "asleep" }).text, /spin/);
  const here = { on: false, reason: "language_off", message: "python is off" };
  const stopped = running({ state: "stopped", message: "it was stopped" }, { here });
  assert.match(stopped.hover, /it was stopped/);
  assert.match(stopped.label, /it was stopped/);
});

test("the hover names the engine's users and the host that receives the code", () => {
  const hover = (more: Partial<Status>): string => running({ engine_pid: 7, clients: 1, ...more }).hover;
  assert.match(hover({}), /process 7/);
  assert.match(hover({ clients: 2 }), /Shared with \| 1 more window \|/);
  assert.match(hover({ clients: 4 }), /Shared with \| 3 more windows/);
  assert.doesNotMatch(running({}).hover, /engine \|/);
  assert.match(running({ remote: "gpu.example:8000" }).hover, /sent to \| gpu.example:8000/);
  assert.match(running({ remote: "gpu.example:8000" }).label, /gpu.example:8000/);
});

test("off here names the reason; off everywhere and an error take precedence", () => {
  const here = { on: false, reason: "language_off", message: "python is in completion.disabled_languages" };
  assert.match(running({}, { here }).text, /off here/);
  assert.match(running({}, { here }).label, /python is in completion.disabled_languages/);
  assert.doesNotMatch(running({ state: "off" }, { here }).text, /here/);
  assert.equal(running({ state: "error", message: "no memory" }, { here }).alarm, "error");
});

test("a snooze shows when it ends; an error and off here take precedence", () => {
  const snooze = "until 14:35";
  assert.match(running({}, { snooze }).text, /snoozed until 14:35/);
  assert.match(running({}, { snooze }).hover, /until 14:35/);
  assert.equal(running({ state: "error", message: "no memory" }, { snooze }).alarm, "error");
  const here = { on: false, reason: "language_off", message: "python is off" };
  assert.match(running({}, { snooze, here }).text, /off here/);
});

test("without a document there is nothing to be off in", () => {
  assert.equal(running({}, { here: undefined }).text, running({}).text);
});

test("with a manual trigger the hover says that suggestions appear on request", () => {
  assert.match(running({ trigger: "manual" }).hover, /on request only/);
  assert.doesNotMatch(running({ trigger: "automatic" }).hover, /on request only/);
});

test("a thinking bar is as wide as a ready one", () => {
  const words = (shown: Bar): string => shown.text.replace(/\$\([^)]*\)/, "icon");
  assert.equal(words(running({ state: "thinking" })), words(running({})));
});

test("the hover has the figures, and says none yet before the first", () => {
  const { hover } = running({ last_latency_ms: 111.4 });
  for (const figure of ["111 ms", "cpu"]) assert.ok(hover.includes(escape(figure)), figure);
  assert.match(running({}).hover, /Last suggestion \| none yet/);
});

test("the latency is in the status bar where the setting asks for it", () => {
  const status = { show_latency: true, last_latency_ms: 85.4 };
  assert.match(running(status).text, /speclsp 85 ms$/);
  assert.match(running({ ...status, state: "thinking" }).text, /speclsp 85 ms$/);
  assert.doesNotMatch(running({ last_latency_ms: 85.4 }).text, /ms/);
  assert.doesNotMatch(running({ show_latency: true }).text, /ms/);
});

test("the hover begins with the users' rows; the figures of the decoding are under Details", () => {
  const { hover } = running({ last_latency_ms: 85, last_reason: "manual", last_reason_meaning: "on request only" });
  const [users = "", details = ""] = hover.split("**Details**");
  for (const name of ["Model", "Running on", "Last suggestion", "Why nothing"]) assert.match(users, new RegExp(name));
  for (const name of ["target", "draft"]) {
    assert.match(details, new RegExp(name));
    assert.doesNotMatch(users, new RegExp(name));
  }
});

test("the hover has the reason for no suggestion and the problems of the settings", () => {
  const status = { last_reason: "inside_word", last_reason_meaning: "an identifier goes on", problems: ["unknown x"] };
  assert.match(running(status).hover, /an identifier goes on/);
  assert.match(running(status).hover, /unknown x/);
});

test("the hover mentions a crash after the server runs again", () => {
  assert.match(running({}, { crash: "it ended by SIGKILL" }).hover, /SIGKILL/);
  assert.equal(running({}, { crash: "it ended by SIGKILL" }).text, running({}).text);
});

test("Restricted Mode is mentioned there, and only there", () => {
  assert.match(running({}, { trusted: false }).hover, /Restricted Mode/);
  assert.doesNotMatch(running({}).hover, /Restricted Mode/);
});

test("a message cannot become a link, a command or a table", () => {
  const nasty = "[x](command:evil) | `a` <b> $(zap)\n\n# c";
  const { hover } = running({ state: "error", message: nasty, model: nasty });
  assert.doesNotMatch(hover, /(?<!\\)\]\(command/);
  assert.doesNotMatch(hover, /(?<!\\)<b>/);
  assert.doesNotMatch(hover, /\n# c/);
});
