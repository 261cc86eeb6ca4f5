/** Installation of speclsp: reports that it is missing and installs it with uv, pipx or pip. */
import { mkdir } from "node:fs/promises";
import { commands, LogOutputChannel, ProgressLocation, window, workspace, ConfigurationTarget } from "vscode";
import { Machine } from "./find";
import { findInstallMethod, Source } from "./installMethods";
import { run } from "./processes";

const CHOOSE = "Choose...";
const GUIDE = "Open the Guide";

/** Offer to install, to choose a program or to open the walkthrough. Not modal, and once per window. */
export async function offer(why: string, install: "Install" | "Update"): Promise<void> {
  const chosen = await window.showWarningMessage(`speclsp: ${why}`, install, CHOOSE, GUIDE);
  if (chosen === install) await commands.executeCommand("speclsp.install");
  if (chosen === CHOOSE) await commands.executeCommand("speclsp.chooseCommand");
  if (chosen === GUIDE) await commands.executeCommand("speclsp.openGuide");
}

/**
 * Install or update speclsp, and return true when that succeeded. The package is the configured source, else the one
 * bundled with the extension. The notification shows the tool's latest output line.
 */
export async function install(machine: Machine, bundled: Source, log: LogOutputChannel): Promise<boolean> {
  const server = workspace.getConfiguration("speclsp").get<string>("install.source");
  const method = await findInstallMethod(machine, server ? { server } : bundled);
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
      for (const command of method.steps) {
        log.info(`$ ${command.join(" ")}`);
        const report = (line: string): void => (log.info(line), progress.report({ message: shorten(line) }));
        await run(command, machine.storage, report, cancel.signal);
      }
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
  const [picked] = (await window.showOpenDialog({ title: "The program speclsp", openLabel: "Use This" })) ?? [];
  if (!picked) return;
  const settings = workspace.getConfiguration("speclsp");
  await settings.update("server.command", picked.fsPath, ConfigurationTarget.Global);
}

function shorten(line: string, limit = 100): string {
  return line.length <= limit ? line : `${line.slice(0, limit - 1)}…`;
}
