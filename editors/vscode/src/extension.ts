/** Starts speclsp and hands its suggestions to VS Code's own inline completions. What to complete is up to it. */
import { homedir } from "node:os";
import { commands, ExtensionContext, window, workspace } from "vscode";
import { StatusBar } from "./bar";
import { explain, forget } from "./explain";
import { find, Machine } from "./find";
import { openGuide, tell } from "./guide";
import { chooseCommand, install, offer } from "./install";
import { showMenu } from "./menu";
import { choosePair } from "./pairs";
import type { Retry } from "./protocol";
import { onPythonSelected, selectedPython } from "./python";
import { Server } from "./server";
import { asFlags, Declared, setByUser } from "./settings";
import { some } from "./suggestions";
import { inTerminal } from "./terminal";
import { toggleEverywhere, toggleFile, toggleLanguage } from "./toggles";

let server: Server | undefined;

export function activate(context: ExtensionContext): void {
  const log = window.createOutputChannel("speclsp", { log: true });
  const carried = {
    server: context.asAbsolutePath(`server/speclsp-${context.extension.packageJSON.version}.tar.gz`),
    constraints: context.asAbsolutePath("server/constraints.txt"),
  };
  const machine: Machine = { env: process.env, home: homedir(), storage: context.globalStorageUri.fsPath };
  const declared = context.extension.packageJSON.contributes.configuration.properties as Record<string, Declared>;
  const settings = (): Record<string, unknown> => {
    const written = workspace.getConfiguration();
    return setByUser(declared, (key) => written.inspect(key));
  };
  const look = async () => {
    const configured = workspace.getConfiguration("speclsp").get<string>("server.command", "");
    return find(machine, configured, configured ? undefined : await selectedPython());
  };
  const running = (server = new Server(look, settings, log));
  const bar = new StatusBar(running);
  const installed = async (): Promise<void> => {
    if (await install(machine, carried, log)) await begin(running);
  };
  const watchPython = (): void => {
    const watching = onPythonSelected(() => lookAgain(running));
    void watching.then((listener) => listener && context.subscriptions.push(listener));
  };
  const actions: Record<string, () => unknown> = {
    menu: () => showMenu(running, bar.here),
    suggest: () => commands.executeCommand("editor.action.inlineSuggest.trigger"),
    toggle: toggleEverywhere,
    toggleLanguage,
    toggleFile,
    choosePair: () => choosePair(running),
    retry: () => tryAgain(running),
    restart: () => begin(running),
    stopEngine: () => inTerminal(running, "engine", "--stop"),
    install: installed,
    chooseCommand,
    openLog: () => log.show(),
    doctor: () => inTerminal(running, "doctor", ...asFlags(settings())),
    statistics: () => inTerminal(running, "stats"),
    explain: () => explain(running),
    openSettings: () => commands.executeCommand("workbench.action.openSettings", "@ext:speclsp.speclsp"),
    openGuide,
  };
  context.subscriptions.push(
    log,
    bar,
    { dispose: forget },
    ...Object.entries(actions).map(([name, action]) => commands.registerCommand(`speclsp.${name}`, action)),
    workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("speclsp.server.command")) void running.restart();
    }),
    workspace.onDidGrantWorkspaceTrust(() => {
      lookAgain(running);
      watchPython();
    }),
    running.onDidSuggest((answer) => {
      if (some(answer)) tell("speclsp.suggested", true);
    }),
  );
  watchPython();
  void begin(running);
}

/** Start the server; where there is none to speak with, offer one. */
async function begin(running: Server): Promise<void> {
  await running.restart();
  const { health } = running;
  if (health.kind === "missing") void offer(health.why, "Install");
  else if (health.kind === "failed" && health.outdated) void offer(health.why, "Update");
}

/** Have the server try what it gave up; where none runs, start one. */
async function tryAgain(running: Server): Promise<void> {
  if (running.health.kind !== "running") return begin(running);
  const told = await running.request<Retry>("speclsp/retry", {});
  if (!told) return begin(running); // one that does not know the request
  if (!told.retrying) void window.showInformationMessage(`speclsp: ${told.message}.`);
}

/** Another place to look has opened; a server that runs is left alone. */
function lookAgain(running: Server): void {
  if (running.health.kind === "missing") void running.restart();
}

export const deactivate = (): Promise<void> | undefined => server?.stop();
