/** Child processes: output, cancelling and ending. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { CommandFailed, endProcess, run } from "../src/processes";
import { shellQuote } from "../src/shellQuote";

const sh = (script: string): string[] => ["/bin/sh", "-c", script];
const never = new AbortController().signal;

test("every line of both streams is reported", async () => {
  const lines: string[] = [];
  await run(sh("echo one; echo two >&2; echo; echo three"), "/", (line) => lines.push(line), never);
  assert.deepEqual(lines.sort(), ["one", "three", "two"]);
});

test("a failure names the exit code and the last line", async () => {
  const failing = run(sh("echo disk full >&2; exit 3"), "/", () => undefined, never);
  await assert.rejects(failing, (error) => error instanceof CommandFailed && /3: disk full/.test(error.message));
  await assert.rejects(
    run(["/nowhere/uv"], "/", () => undefined, never),
    /could not be started/,
  );
});

test("cancelling ends the program and its children", async () => {
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
  for (let tries = 0; alive(grandchild) && tries < 600; tries++) await new Promise((done) => setTimeout(done, 50));
  assert.equal(alive(grandchild), false);
});

test("a process is awaited once its input has ended, and one that ignores that is killed", async () => {
  const polite = spawn("/bin/cat");
  await endProcess(polite, 60_000);
  assert.equal(polite.exitCode, 0);
  const stubborn = spawn("/bin/sleep", ["600"]);
  const exited = once(stubborn, "exit"); // a busy machine reports it late
  await endProcess(stubborn, 50);
  await exited;
  assert.equal(stubborn.signalCode, "SIGKILL");
  await endProcess(
    spawn("/nowhere/speclsp").on("error", () => undefined),
    60_000,
  );
});

test("a quoted word stays one word in a shell", async () => {
  const nasty = ["plain", "", "a b", "it's", '"$HOME"', "`id`", "a;b", "ä\n"];
  const lines: string[] = [];
  await run(
    sh(`printf '%s\\0' ${nasty.map(shellQuote).join(" ")} | od -An -tx1 -v`),
    "/",
    (line) => lines.push(line),
    never,
  );
  const bytes = Buffer.from(lines.join(" ").replaceAll(/\s+/g, ""), "hex").toString();
  assert.deepEqual(bytes.split("\0").slice(0, -1), nasty);
});

/** True while the process runs. A zombie counts as ended: the process that inherited it reaps it. */
function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  const stat = require("node:fs").readFileSync(`/proc/${pid}/stat`, "utf8") as string;
  return !/\) Z /.test(stat);
}
