/** Extension entry point: starts the server and connects it to VS Code's inline completions. */
import { homedir } from "node:os";
import { commands, ExtensionContext, window, workspace } from "vscode";
import { disposeChannel, explain } from "./explain";
import { find, Machine } from "./find";
import { reportFocus } from "./focus";
import { chooseCommand, install, offer, releaseFiles } from "./install";
import { chosenSource } from "./installMethods";
import { showMenu } from "./menu";
import { selectModel } from "./models";
import { NextEdits } from "./nextEdit";
import type { Retry } from "./protocol";
import { onPythonSelected, selectedPython } from "./python";
import { Server } from "./server";
import { asFlags, declaredSettings, levels, setByUser } from "./settings";
import { Snooze } from "./snooze";
import { StatusBar } from "./statusBar";
import { hasItems } from "./suggestions";
import { inTerminal } from "./terminal";
import { toggleEverywhere, toggleFile, toggleLanguage } from "./toggles";
import { listUses } from "./uses";
import { openWalkthrough, setContextKey } from "./walkthrough";

let server: Server | undefined;

export function activate(context: ExtensionContext): void {
  const log = window.createOutputChannel("speclsp", { log: true });
  const { env, platform } = process;
  const machine: Machine = { env, platform, home: homedir(), storage: context.globalStorageUri.fsPath };
  const declared = declaredSettings(context.extension.packageJSON.contributes.configuration);
  const settings = (): Record<string, unknown> => {
    const configuration = workspace.getConfiguration();
    return setByUser(declared, (key) => configuration.inspect(key));
  };
  const locate = async () => {
    const configured = workspace.getConfiguration("speclsp").get<string>("server.command", "");
    return find(machine, configured, configured ? undefined : await selectedPython());
  };
  const snooze = new Snooze(() => {
    bar.draw();
    nextEdits.checkEnabled();
  });
  const running = (server = new Server(locate, settings, log, () => snooze.isActive));
  const bar = new StatusBar(running, snooze);
  const nextEdits = new NextEdits(running, () => snooze.isActive);
  running.extend = (...request) => nextEdits.withGhost(...request);
  let installation: Promise<boolean> | undefined;
  const installAndStart = async (): Promise<void> => {
    if (installation) return void window.showInformationMessage("speclsp is already being installed.");
    bar.showInstalling("looking for uv, pipx or Python");
    let paused = false;
    const work = async (): Promise<boolean> => {
      paused = await releaseFiles(machine, running, log);
      const configured = workspace.getConfiguration("speclsp").get<string>("install.source", "");
      const source = chosenSource(configured, context.asAbsolutePath("server"));
      return install(machine, source, log, (message) => bar.showInstalling(message));
    };
    installation = work();
    const installed = await installation.finally(() => {
      installation = undefined;
      bar.showInstalling("");
    });
    if (installed || paused) await start(machine, running);
  };
  const watchPython = (): void => {
    const subscription = onPythonSelected(() => restartIfMissing(running));
    void subscription.then((listener) => listener && context.subscriptions.push(listener));
  };
  const actions: Record<string, () => unknown> = {
    menu: () => showMenu(running, bar.here, levels(declared)),
    suggest: () => commands.executeCommand("editor.action.inlineSuggest.trigger"),
    acceptNextEdit: () => nextEdits.accept(),
    dismissNextEdit: () => nextEdits.dismiss(),
    snooze: () => snooze.choose(),
    toggle: toggleEverywhere,
    toggleLanguage,
    toggleFile,
    selectModel: () => selectModel(running),
    retry: () => retry(machine, running),
    restart: () => start(machine, running),
    stopEngine: () => inTerminal(running, "engine", "stop"),
    install: installAndStart,
    chooseCommand,
    openLog: () => log.show(),
    doctor: () => inTerminal(running, "doctor", ...asFlags(settings())),
    statistics: () => inTerminal(running, "stats"),
    explain: () => explain(running),
    listUses: () => listUses(running),
    openSettings: () => commands.executeCommand("workbench.action.openSettings", "@ext:speclsp.speclsp"),
    openGuide: openWalkthrough,
  };
  context.subscriptions.push(
    log,
    bar,
    snooze,
    nextEdits,
    reportFocus(running, () => snooze.isActive),
    { dispose: disposeChannel },
    ...Object.entries(actions).map(([name, action]) => commands.registerCommand(`speclsp.${name}`, action)),
    workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("speclsp.server.command")) void running.restart();
    }),
    workspace.onDidGrantWorkspaceTrust(() => {
      restartIfMissing(running);
      watchPython();
    }),
    running.onDidSuggest((answer) => {
      if (hasItems(answer)) void setContextKey("speclsp.suggested", true);
    }),
  );
  watchPython();
  void start(machine, running);
}

/** Start the server; where it is missing or too old, offer to install or update it. */
async function start(machine: Machine, running: Server): Promise<void> {
  await running.restart();
  const { health } = running;
  if (health.kind === "missing") void offer(machine, health.why, "Install");
  else if (health.kind === "failed" && health.outdated) void offer(machine, health.why, "Update");
}

/** Ask the server to retry after an error or a stop; where no server runs, start one. */
async function retry(machine: Machine, running: Server): Promise<void> {
  if (running.health.kind !== "running") return start(machine, running);
  const reply = await running.request<Retry>("speclsp/retry", {});
  if (!reply) return start(machine, running); // an older server does not know the request
  if (!reply.retrying) void window.showInformationMessage(`speclsp: ${reply.message}.`);
}

/** Search again, because another location became available. A running server is not touched. */
function restartIfMissing(running: Server): void {
  if (running.health.kind === "missing") void running.restart();
}

export const deactivate = (): Promise<void> | undefined => server?.stop();
