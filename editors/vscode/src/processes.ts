/** Child processes: run a command with its output line by line, and end it together with its children. */
import { ChildProcess, spawn } from "node:child_process";
import { win32 } from "node:path";
import { createInterface } from "node:readline";

const ON_WINDOWS = process.platform === "win32";
const BATCH_FILE = /\.(bat|cmd)$/i;

/** A command that could not start, exited with an error or was cancelled. */
export class CommandFailed extends Error {}

/**
 * Run `command` in `folder`, passing each output line to `onLine`. Rejects when it fails or `cancelled` aborts.
 * `variables` are added to the environment.
 */
export function run(
  command: readonly string[],
  folder: string,
  onLine: (line: string) => void,
  cancelled: AbortSignal,
  variables: Record<string, string> = {},
): Promise<void> {
  return new Promise((resolve, reject) => {
    const [program = "", ...args] = command;
    const child = spawn(program, args, {
      cwd: folder,
      env: { ...process.env, ...(ON_WINDOWS ? { PYTHONIOENCODING: "utf-8" } : {}), ...variables },
      // A process group of its own, so that cancelling also ends the children of pip. On Windows it would be a console.
      detached: !ON_WINDOWS,
      windowsHide: true,
      stdio: ["ignore", "pipe", "pipe"],
    });
    let lastLine = "";
    for (const stream of [child.stdout, child.stderr]) {
      createInterface({ input: stream }).on("line", (line) => {
        if (line.trim()) onLine((lastLine = line.trim()));
      });
    }
    const stop = (): void => (ON_WINDOWS ? killTree(child) : endGroup(child));
    cancelled.addEventListener("abort", stop, { once: true });
    child.on("error", (error) => reject(new CommandFailed(`${program} could not be started: ${error.message}`)));
    child.on("close", (code, signal) => {
      cancelled.removeEventListener("abort", stop);
      if (code === 0) resolve();
      else if (cancelled.aborted) reject(new CommandFailed("cancelled"));
      else reject(new CommandFailed(`${command.slice(0, 3).join(" ")} ended with ${code ?? signal}: ${lastLine}`));
    });
    if (cancelled.aborted) stop();
  });
}

function endGroup(child: ChildProcess): void {
  try {
    if (child.pid !== undefined) process.kill(-child.pid, "SIGTERM");
  } catch {
    // the process has already ended
  }
}

/**
 * Kill a process at once. On Windows with its children: `speclsp.exe` is a launcher, whose child is Python. The shared
 * engine is no child of it, because the process that started the engine has ended.
 */
export function killTree(child: ChildProcess): void {
  if (!ON_WINDOWS || child.pid === undefined) return void child.kill("SIGKILL");
  const taskkill = win32.join(process.env["SystemRoot"] ?? "C:\\Windows", "System32", "taskkill.exe");
  const killer = spawn(taskkill, ["/PID", `${child.pid}`, "/T", "/F"], { stdio: "ignore", windowsHide: true });
  killer.once("error", () => child.kill());
  killer.once("exit", (code) => code && child.kill());
}

/** Words and options for `spawn` that start a program, which may be a batch file. */
export interface StartWords {
  file: string;
  args: string[];
  windowsVerbatimArguments?: true;
}

/**
 * The words that start `program`. Node starts no batch file without cmd.exe (CVE-2024-27980), which parses the line
 * itself: so `args` must be plain words, and a path must not contain `%`, which cannot be quoted there.
 */
export function startWords(program: string, args: string[], platform: string, env: NodeJS.ProcessEnv): StartWords {
  if (platform !== "win32" || !BATCH_FILE.test(program)) return { file: program, args };
  if (program.includes("%") || args.some((word) => !/^[\w-]+$/.test(word))) {
    throw new Error(`${program} cannot be started, because cmd.exe would change its line: name an .exe file`);
  }
  const shell = env["ComSpec"] ?? win32.join(env["SystemRoot"] ?? "C:\\Windows", "System32", "cmd.exe");
  const line = `""${program}" ${args.join(" ")}"`;
  return { file: shell, args: ["/d", "/v:off", "/s", "/c", line], windowsVerbatimArguments: true };
}

/** Close the input of `child` and wait until it exits; kill it after `timeoutMs`. */
export async function endProcess(child: ChildProcess, timeoutMs: number): Promise<void> {
  child.stdin?.end();
  if (await exitsWithin(child, timeoutMs)) return;
  killTree(child);
  await exitsWithin(child, timeoutMs);
}

/** True if `child` exits by itself within `timeoutMs`. */
export async function exitsWithin(child: ChildProcess, timeoutMs: number): Promise<boolean> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return true;
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(false), timeoutMs);
    child.once("exit", () => {
      clearTimeout(timer);
      resolve(true);
    });
  });
}
