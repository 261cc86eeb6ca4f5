/** Child processes: output, cancelling and ending. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { CommandFailed, endProcess, run, startWords } from "../src/processes";
import { commandLine, shellQuote } from "../src/shellQuote";

const onWindows = process.platform === "win32";
const sh = (script: string): string[] => ["/bin/sh", "-c", script];
const node = (script: string): string[] => [process.execPath, "-e", script];
const SLEEP = "setTimeout(() => {}, 600000)";
const never = new AbortController().signal;

test("every line of both streams is reported", async () => {
  const lines: string[] = [];
  const script = 'console.log("one"); console.error("two"); console.log("\\nthree")';
  await run(node(script), homedir(), (line) => lines.push(line), never);
  assert.deepEqual(lines.sort(), ["one", "three", "two"]);
});

test("a failure names the exit code and the last line", async () => {
  const failing = run(node('console.error("disk full"); process.exitCode = 3'), homedir(), () => undefined, never);
  await assert.rejects(failing, (error) => error instanceof CommandFailed && /3: disk full/.test(error.message));
  await assert.rejects(
    run(["/nowhere/uv"], homedir(), () => undefined, never),
    /could not be started/,
  );
});

test("variables are added to the environment", async () => {
  const lines: string[] = [];
  const script = "console.log(process.env.PIP_CONSTRAINT, Boolean(process.env.PATH))";
  await run(node(script), homedir(), (line) => lines.push(line), never, { PIP_CONSTRAINT: "file:///c.txt" });
  assert.deepEqual(lines, ["file:///c.txt true"]);
});

test("cancelling ends the program and its children", async () => {
  const cancel = new AbortController();
  let grandchild = 0;
  const words = `process.execPath, ["-e", ${JSON.stringify(SLEEP)}]`;
  const start = `require("child_process").spawn(${words}, { stdio: "ignore" })`;
  const running = run(
    node(`console.log(${start}.pid)`),
    homedir(),
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
  const [program = "", ...args] = node("process.stdin.resume()");
  const polite = spawn(program, args);
  await endProcess(polite, 60_000);
  assert.equal(polite.exitCode, 0);
  const stubborn = spawn(program, ["-e", SLEEP]);
  const exited = once(stubborn, "exit"); // a busy machine reports it late
  await endProcess(stubborn, 50);
  await exited;
  if (onWindows) assert.notEqual(stubborn.exitCode, 0);
  else assert.equal(stubborn.signalCode, "SIGKILL");
  await endProcess(
    spawn("/nowhere/speclsp").on("error", () => undefined),
    60_000,
  );
});

test("a batch file whose path needs quotes is started, and ends with its input", { skip: !onWindows }, async () => {
  const folder = mkdtempSync(join(tmpdir(), "a & b ü "));
  try {
    const program = join(folder, "speclsp.cmd");
    writeFileSync(program, `@"${process.execPath}" -e "process.stdin.resume(); console.log(process.argv[1])" %1\r\n`);
    const { file, args, ...options } = startWords(program, ["lsp"], process.platform, process.env);
    const child = spawn(file, args, { windowsHide: true, stdio: ["pipe", "pipe", "inherit"], ...options });
    const [output] = (await once(child.stdout!, "data")) as [Buffer];
    assert.equal(output.toString().trim(), "lsp");
    await endProcess(child, 60_000);
    assert.equal(child.exitCode, 0);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

// Wine's taskkill has no /T.
const hasTreeKill = onWindows && !("WINEDLLDIR0" in process.env);
test("a forced end reaches the children of a launcher", { skip: !hasTreeKill }, async () => {
  const line = `""${process.execPath}" -e "console.log(process.pid); ${SLEEP}""`;
  const launcher = spawn(process.env["ComSpec"]!, ["/d", "/s", "/c", line], { windowsVerbatimArguments: true });
  const [output] = (await once(launcher.stdout, "data")) as [Buffer];
  await endProcess(launcher, 50);
  const program = Number(output.toString());
  for (let tries = 0; alive(program) && tries < 600; tries++) await new Promise((done) => setTimeout(done, 50));
  assert.equal(alive(program), false);
});

test("a line for cmd.exe starts a program with its words", { skip: !onWindows }, async () => {
  const words = ["plain", "a b", "it's", "a=b;c,d", "ä & | ^"];
  const line = commandLine([process.execPath, "-p", "JSON.stringify(process.argv.slice(1))", ...words], "cmd.exe");
  const child = spawn(process.env["ComSpec"]!, ["/d", "/s", "/c", `"${line}"`], {
    windowsVerbatimArguments: true,
    stdio: ["ignore", "pipe", "inherit"],
  });
  const chunks: Buffer[] = [];
  child.stdout!.on("data", (chunk: Buffer) => chunks.push(chunk));
  await once(child, "close");
  assert.deepEqual(JSON.parse(Buffer.concat(chunks).toString()), words);
});

test("a quoted word stays one word in a shell", { skip: onWindows }, async () => {
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
  return !existsSync(`/proc/${pid}`) || !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
}
