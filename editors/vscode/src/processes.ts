/** Child processes: run a command with its output line by line, and end it together with its children. */
import { ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";

/** A command that could not start, exited with an error or was cancelled. */
export class CommandFailed extends Error {}

/** Run `command` in `folder`, passing each output line to `onLine`. Rejects when it fails or `cancelled` aborts. */
export function run(
  command: readonly string[],
  folder: string,
  onLine: (line: string) => void,
  cancelled: AbortSignal,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const [program = "", ...args] = command;
    // A process group of its own, so that cancelling also ends the children of pip.
    const child = spawn(program, args, { cwd: folder, detached: true, stdio: ["ignore", "pipe", "pipe"] });
    let lastLine = "";
    for (const stream of [child.stdout, child.stderr]) {
      createInterface({ input: stream }).on("line", (line) => {
        if (line.trim()) onLine((lastLine = line.trim()));
      });
    }
    const stop = (): void => endGroup(child);
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

/** Close the input of `child` and wait until it exits; kill it after `timeoutMs`. */
export async function endProcess(child: ChildProcess, timeoutMs: number): Promise<void> {
  child.stdin?.end();
  if (await exitsWithin(child, timeoutMs)) return;
  child.kill("SIGKILL");
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
