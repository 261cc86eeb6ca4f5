/** Programs that are run, and ended. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { test } from "node:test";
import { CommandFailed, ended, run } from "../src/processes";
import { quoted } from "../src/quoted";

const sh = (script: string): string[] => ["/bin/sh", "-c", script];
const never = new AbortController().signal;

test("every line of both streams is told", async () => {
  const lines: string[] = [];
  await run(sh("echo one; echo two >&2; echo; echo three"), "/", (line) => lines.push(line), never);
  assert.deepEqual(lines.sort(), ["one", "three", "two"]);
});

test("a failure names the end and the last line", async () => {
  const failing = run(sh("echo disk full >&2; exit 3"), "/", () => undefined, never);
  await assert.rejects(failing, (error) => error instanceof CommandFailed && /3: disk full/.test(error.message));
  await assert.rejects(
    run(["/nowhere/uv"], "/", () => undefined, never),
    /could not be started/,
  );
});

test("cancelling ends the program and what it started", async () => {
  const cancel = new AbortController();
  let grandchild = 0;
  const running = run(
    sh("sleep 600 & echo $!; wait"),
    "/",
    (line) => {
      grandchild = Number(line);
      cancel.abort();
    },
    cancel.signal,
  );
  await assert.rejects(running, /cancelled/);
  assert.ok(grandchild > 0);
  for (let tries = 0; alive(grandchild) && tries < 600; tries++) await new Promise((then) => setTimeout(then, 50));
  assert.equal(alive(grandchild), false);
});

test("a process is waited for once its input has ended, and one that does not care is killed", async () => {
  const polite = spawn("/bin/cat");
  await ended(polite, 60_000);
  assert.equal(polite.exitCode, 0);
  const stubborn = spawn("/bin/sleep", ["600"]);
  await ended(stubborn, 50);
  assert.equal(stubborn.signalCode, "SIGKILL");
  await ended(
    spawn("/nowhere/speclsp").on("error", () => undefined),
    60_000,
  );
});

test("a word stays one word in a shell", async () => {
  const nasty = ["plain", "", "a b", "it's", '"$HOME"', "`id`", "a;b", "ä\n"];
  const lines: string[] = [];
  await run(
    sh(`printf '%s\\0' ${nasty.map(quoted).join(" ")} | od -An -tx1 -v`),
    "/",
    (line) => lines.push(line),
    never,
  );
  const bytes = Buffer.from(lines.join(" ").replaceAll(/\s+/g, ""), "hex").toString();
  assert.deepEqual(bytes.split("\0").slice(0, -1), nasty);
});

/** A zombie counts as ended: whoever inherited it reaps it. */
function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  const stat = require("node:fs").readFileSync(`/proc/${pid}/stat`, "utf8") as string;
  return !/\) Z /.test(stat);
}
