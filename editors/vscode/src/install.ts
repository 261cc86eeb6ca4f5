/** Installation of speclsp: reports that it is missing and installs it with uv, pipx or pip. */
import { mkdir } from "node:fs/promises";
import { commands, LogOutputChannel, ProgressLocation, window, workspace, ConfigurationTarget } from "vscode";
import { isWindows, Machine } from "./find";
import { findInstallMethod, Source } from "./installMethods";
import { run } from "./processes";
import { Server } from "./server";

const CHOOSE = "Choose Existing...";
const LEARN = "Learn More";
const FIRST_RUN =
  "speclsp needs its local server (1.1 to 1.4 GB on disk with PyTorch; 6 GB with an NVIDIA GPU). Install it now?";

/**
 * Offer to install, to choose a program or to open the walkthrough. Not modal, and once per window. A missing server is
 * the normal first run, so it is information; a wrong setting or an old server is a warning. Nothing is downloaded
 * before the user agrees.
 */
export async function offer(why: string, install: "Install" | "Update"): Promise<void> {
  const configured = workspace.getConfiguration("speclsp").get<string>("server.command", "");
  const firstRun = install === "Install" && !configured;
  const chosen = firstRun
    ? await window.showInformationMessage(FIRST_RUN, install, CHOOSE, LEARN)
    : await window.showWarningMessage(`speclsp: ${why}`, install, CHOOSE, LEARN);
  if (chosen === install) await commands.executeCommand("speclsp.install");
  if (chosen === CHOOSE) await commands.executeCommand("speclsp.chooseCommand");
  if (chosen === LEARN) await commands.executeCommand("speclsp.openGuide");
}

/**
 * On Windows, end this window's server and the engine before an update, and return true if there was a server. Windows
 * cannot replace the files of a running program.
 */
export async function releaseFiles(machine: Machine, server: Server, log: LogOutputChannel): Promise<boolean> {
  const { found } = server;
  if (!isWindows(machine) || !found) return false;
  await server.pause();
  const { signal } = new AbortController();
  const stop = run([found.path, "engine", "stop"], machine.home, (line) => log.info(line), signal);
  await stop.catch((error: unknown) => log.warn(String(error)));
  return true;
}

/**
 * Install or update speclsp from `source`, and return true when that succeeded. The notification shows the tool's
 * latest output line, and `onProgress` gets it.
 */
export async function install(
  machine: Machine,
  source: Source,
  log: LogOutputChannel,
  onProgress: (line: string) => void,
): Promise<boolean> {
  const method = await findInstallMethod(machine, source);
  if (!method) {
    void window.showErrorMessage(
      "speclsp cannot be installed: no uv, pipx or Python 3.10 was found on PATH. Install one and try again.",
    );
    return false;
  }
  const options = {
    location: ProgressLocation.Notification,
    title: `Installing speclsp with ${method.name}`,
    cancellable: true,
  };
  return window.withProgress(options, async (progress, token) => {
    const cancel = new AbortController();
    token.onCancellationRequested(() => cancel.abort());
    try {
      await mkdir(machine.storage, { recursive: true });
      const report = (line: string): void => {
        log.info(line);
        progress.report({ message: shorten(line) });
        onProgress(line);
      };
      const runAll = async (steps: string[][]): Promise<void> => {
        for (const command of steps) {
          const variables = Object.entries(method.variables ?? {}).map(([name, value]) => `${name}=${value}`);
          log.info(`$ ${[...variables, ...command].join(" ")}`);
          await run(command, machine.storage, report, cancel.signal, method.variables);
        }
      };
      let attempt = runAll(method.steps);
      for (const fallback of method.fallbacks ?? []) {
        attempt = attempt.catch((error: unknown) => {
          if (cancel.signal.aborted) throw error;
          log.warn(`${String(error)}; trying again with another choice of PyTorch's build`);
          return runAll(fallback);
        });
      }
      await attempt;
      log.info("speclsp is installed");
      return true;
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      log.error(`installing speclsp: ${why}`);
      if (!cancel.signal.aborted) void showFailure(why, log);
      return false;
    }
  });
}

async function showFailure(why: string, log: LogOutputChannel): Promise<void> {
  const chosen = await window.showErrorMessage(
    `speclsp could not be installed: ${shorten(why, 300)}`,
    "Open Log",
    "Try Again",
  );
  if (chosen === "Open Log") log.show();
  if (chosen === "Try Again") await commands.executeCommand("speclsp.install");
}

/** Let the user pick the speclsp program in a file dialog; it becomes speclsp.server.command. */
export async function chooseCommand(): Promise<void> {
  const filters = process.platform === "win32" ? { Programs: ["exe", "cmd", "bat"] } : undefined;
  const options = { title: "The program speclsp", openLabel: "Use This", ...(filters && { filters }) };
  const [picked] = (await window.showOpenDialog(options)) ?? [];
  if (!picked) return;
  const settings = workspace.getConfiguration("speclsp");
  await settings.update("server.command", picked.fsPath, ConfigurationTarget.Global);
}

function shorten(line: string, limit = 100): string {
  return line.length <= limit ? line : `${line.slice(0, limit - 1)}…`;
}
