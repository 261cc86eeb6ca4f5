/** The first minute: says that speclsp is missing, and installs it with the tool at hand. */
import { mkdir } from "node:fs/promises";
import { commands, LogOutputChannel, ProgressLocation, window, workspace, ConfigurationTarget } from "vscode";
import { Machine } from "./find";
import { run } from "./processes";
import { Source, waysToInstall } from "./ways";

const CHOOSE = "Choose...";
const GUIDE = "Open the Guide";

/** Offer the ways out. Not modal, and not repeated until the window is opened again. */
export async function offer(why: string, install: "Install" | "Update"): Promise<void> {
  const chosen = await window.showWarningMessage(`speclsp: ${why}`, install, CHOOSE, GUIDE);
  if (chosen === install) await commands.executeCommand("speclsp.install");
  if (chosen === CHOOSE) await commands.executeCommand("speclsp.chooseCommand");
  if (chosen === GUIDE) await commands.executeCommand("speclsp.openGuide");
}

/** Install or update speclsp from the source that the extension carries, or the configured one, showing the tool's last line; whether it is there now. */
export async function install(machine: Machine, carried: Source, log: LogOutputChannel): Promise<boolean> {
  const server = workspace.getConfiguration("speclsp").get<string>("install.source");
  const way = await waysToInstall(machine, server ? { server } : carried);
  if (!way) {
    void window.showErrorMessage(
      "speclsp cannot be installed: no uv, pipx or Python 3.10 was found on PATH. Install one and try again.",
    );
    return false;
  }
  const options = {
    location: ProgressLocation.Notification,
    title: `Installing speclsp with ${way.name}`,
    cancellable: true,
  };
  return window.withProgress(options, async (progress, token) => {
    const cancelled = new AbortController();
    token.onCancellationRequested(() => cancelled.abort());
    try {
      await mkdir(machine.storage, { recursive: true });
      for (const words of way.steps) {
        log.info(`$ ${words.join(" ")}`);
        const tell = (line: string): void => (log.info(line), progress.report({ message: shorten(line) }));
        await run(words, machine.storage, tell, cancelled.signal);
      }
      log.info("speclsp is installed");
      return true;
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      log.error(`installing speclsp: ${why}`);
      if (!cancelled.signal.aborted) void tellFailure(why, log);
      return false;
    }
  });
}

async function tellFailure(why: string, log: LogOutputChannel): Promise<void> {
  const chosen = await window.showErrorMessage(
    `speclsp could not be installed: ${shorten(why, 300)}`,
    "Open Log",
    "Try Again",
  );
  if (chosen === "Open Log") log.show();
  if (chosen === "Try Again") await commands.executeCommand("speclsp.install");
}

/** Let the user point at the program. */
export async function chooseCommand(): Promise<void> {
  const [picked] = (await window.showOpenDialog({ title: "The program speclsp", openLabel: "Use This" })) ?? [];
  if (!picked) return;
  const settings = workspace.getConfiguration("speclsp");
  await settings.update("server.command", picked.fsPath, ConfigurationTarget.Global);
}

function shorten(line: string, limit = 100): string {
  return line.length <= limit ? line : `${line.slice(0, limit - 1)}…`;
}
