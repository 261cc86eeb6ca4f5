/** Runs programs so that they can be ended with everything they started, and their lines read. */
import { ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";

/** A command that did not end well. */
export class CommandFailed extends Error {}

/** Run `words` in `folder` to the end, handing each line to `onLine`. Rejects when it fails or `cancelled` aborts. */
export function run(
  words: readonly string[],
  folder: string,
  onLine: (line: string) => void,
  cancelled: AbortSignal,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const [program = "", ...args] = words;
    // A process group of its own, so that cancelling ends pip's children too.
    const child = spawn(program, args, { cwd: folder, detached: true, stdio: ["ignore", "pipe", "pipe"] });
    let last = "";
    for (const stream of [child.stdout, child.stderr]) {
      createInterface({ input: stream }).on("line", (line) => {
        if (line.trim()) onLine((last = line.trim()));
      });
    }
    const stop = (): void => endGroup(child);
    cancelled.addEventListener("abort", stop, { once: true });
    child.on("error", (error) => reject(new CommandFailed(`${program} could not be started: ${error.message}`)));
    child.on("close", (code, signal) => {
      cancelled.removeEventListener("abort", stop);
      if (code === 0) resolve();
      else if (cancelled.aborted) reject(new CommandFailed("cancelled"));
      else reject(new CommandFailed(`${words.slice(0, 3).join(" ")} ended with ${code ?? signal}: ${last}`));
    });
    if (cancelled.aborted) stop();
  });
}

function endGroup(child: ChildProcess): void {
  try {
    if (child.pid !== undefined) process.kill(-child.pid, "SIGTERM");
  } catch {
    // it has ended already
  }
}

/** Close `child`'s input and wait until it has ended; after `patience_ms` end it by force. */
export async function ended(child: ChildProcess, patience_ms: number): Promise<void> {
  child.stdin?.end();
  if (await gone(child, patience_ms)) return;
  child.kill("SIGKILL");
  await gone(child, patience_ms);
}

/** Whether `child` ends by itself within `patience_ms`. */
export async function gone(child: ChildProcess, patience_ms: number): Promise<boolean> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return true;
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(false), patience_ms);
    child.once("exit", () => {
      clearTimeout(timer);
      resolve(true);
    });
  });
}
