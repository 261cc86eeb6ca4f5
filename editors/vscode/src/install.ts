/** Installation of speclsp: reports that it is missing and installs it with uv, pipx or pip. */
import { mkdir, statfs } from "node:fs/promises";
import { commands, LogOutputChannel, ProgressLocation, window, workspace, ConfigurationTarget } from "vscode";
import { isWindows, Machine } from "./find";
import { diskFull, failureReason } from "./installFailure";
import { findInstallMethod, hasNvidiaDriver, InstallMethod, installedSize, sizeInWords, Source } from "./installMethods";
import { InstallProgress } from "./installProgress";
import { run } from "./processes";
import { Server } from "./server";

const CHOOSE = "Choose Existing...";
const LEARN = "Learn More";

/**
 * Offer to install, to choose a program or to open the walkthrough. Not modal, and once per window. A missing server is
 * the normal first run, so it is information; a wrong setting or an old server is a warning. Nothing is downloaded
 * before the user agrees.
 */
export async function offer(machine: Machine, why: string, install: "Install" | "Update"): Promise<void> {
  const configured = workspace.getConfiguration("speclsp").get<string>("server.command", "");
  const firstRun = install === "Install" && !configured;
  const size = sizeInWords(await hasNvidiaDriver(machine));
  const need = `speclsp needs its local server: ${size}. Then it downloads a model of 0.5 GB or more. Install it now?`;
  const chosen = firstRun
    ? await window.showInformationMessage(need, install, CHOOSE, LEARN)
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
 * Install or update speclsp from `source`, and return true when that succeeded. The notification shows the state in
 * words, and `onProgress` gets it; the tool's own lines are in the log.
 */
export async function install(
  machine: Machine,
  source: Source,
  log: LogOutputChannel,
  onProgress: (message: string) => void,
): Promise<boolean> {
  const hasGpu = await hasNvidiaDriver(machine);
  const method = await findInstallMethod(machine, source, hasGpu);
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
  return window.withProgress(options, async (notification, token) => {
    const cancel = new AbortController();
    token.onCancellationRequested(() => cancel.abort());
    const { downloadMb, diskMb } = installedSize(hasGpu);
    const output: string[] = [];
    const progress = new InstallProgress(downloadMb);
    let shownPercent = 0;
    const show = (message: string, percent = 0): void => {
      notification.report({ message, increment: Math.max(0, percent - shownPercent) });
      shownPercent = Math.max(shownPercent, percent);
      onProgress(message);
    };
    show(sizeInWords(hasGpu));
    try {
      await mkdir(machine.storage, { recursive: true });
      if (await isFull(machine.storage, diskMb)) {
        void showFailure(diskFull(diskMb), log);
        return false;
      }
      await runMethod(method, machine, log, cancel.signal, (line) => {
        output.push(line);
        const state = progress.read(line);
        if (state) show(state.message, state.percent);
      });
      log.info("speclsp is installed");
      return true;
    } catch (error) {
      log.error(`installing speclsp: ${asText(error)}`);
      const reason = failureReason([...output, asText(error)], method.name, diskMb);
      if (!cancel.signal.aborted) void showFailure(reason, log);
      return false;
    }
  });
}

/** Run the steps of `method`, and its fallback if they fail. The log gets the commands and every output line. */
async function runMethod(
  method: InstallMethod,
  machine: Machine,
  log: LogOutputChannel,
  cancelled: AbortSignal,
  onLine: (line: string) => void,
): Promise<void> {
  const variables = Object.entries(method.variables ?? {}).map(([name, value]) => `${name}=${value}`);
  const report = (line: string): void => {
    log.info(line);
    onLine(line);
  };
  const runAll = async (steps: string[][]): Promise<void> => {
    for (const command of steps) {
      log.info(`$ ${[...variables, ...command].join(" ")}`);
      await run(command, machine.storage, report, cancelled, method.variables);
    }
  };
  try {
    await runAll(method.steps);
  } catch (error) {
    if (cancelled.aborted || !method.fallback) throw error;
    log.warn(`${asText(error)}; trying again with another choice of PyTorch's build`);
    await runAll(method.fallback);
  }
}

/** True if the disk of `folder` has less than `neededMb` free. */
async function isFull(folder: string, neededMb: number): Promise<boolean> {
  const { bavail, bsize } = await statfs(folder);
  return bavail * bsize < neededMb * 1e6;
}

async function showFailure(reason: string, log: LogOutputChannel): Promise<void> {
  const chosen = await window.showErrorMessage(
    `speclsp could not be installed: ${reason}`,
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

const asText = (error: unknown): string => (error instanceof Error ? error.message : String(error));
