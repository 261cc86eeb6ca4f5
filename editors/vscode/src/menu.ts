/** Status bar menu: the actions that apply to the current state. Each command is also in the command palette. */
import { commands, QuickPickItem, QuickPickItemKind, window, workspace } from "vscode";
import { canRetry, Here } from "./protocol";
import { Server } from "./server";
import { globOf, Level } from "./settings";
import { setEagerness } from "./toggles";

interface Action extends QuickPickItem {
  command?: string;
  level?: string;
}

export async function showMenu(server: Server, here: Here | undefined, levels: Level[]): Promise<void> {
  const chosen = await window.showQuickPick(actions(server, levels), {
    title: "speclsp",
    placeHolder: headline(server, here),
  });
  if (chosen?.level) await setEagerness(chosen.level);
  if (chosen?.command) await commands.executeCommand(chosen.command);
}

function actions(server: Server, levels: Level[]): Action[] {
  const running = server.health.kind === "running";
  return [
    ...(server.health.kind === "running" && canRetry(server.health.status) ? [retry] : []),
    ...(running ? [...switches(), ...eagerness(server, levels), ...model(server)] : remedies(server)),
    separator("diagnose"),
    ...(running ? [explanation] : []),
    { label: "$(output) Open log", command: "speclsp.openLog" },
    { label: "$(heart) Diagnose problems", description: "doctor", command: "speclsp.doctor" },
    { label: "$(graph) Show statistics", description: "shown, accepted, saved", command: "speclsp.statistics" },
    { label: "$(gear) Settings", command: "speclsp.openSettings" },
  ];
}

/** The levels of completion.eagerness; the current one has a mark. */
function eagerness({ health }: Server, levels: Level[]): Action[] {
  const current = health.kind === "running" ? health.status?.eagerness : undefined;
  const actions = levels.map(({ name, shows }) => ({
    label: `$(${name === current ? "check" : "blank"}) ${name}`,
    description: shows,
    level: name,
  }));
  return [separator("how many"), ...actions];
}

function remedies(server: Server): Action[] {
  return [
    { label: "$(refresh) Restart server", command: "speclsp.restart" },
    { label: `$(cloud-download) ${server.found ? "Update" : "Install"} speclsp`, command: "speclsp.install" },
    { label: "$(folder) Choose the program...", command: "speclsp.chooseCommand" },
  ];
}

/** Toggles of suggestions, and the snooze. */
function switches(): Action[] {
  const settings = workspace.getConfiguration("speclsp.completion");
  const document = window.activeTextEditor?.document;
  const toggles: Action[] = [];
  const offer = (on: boolean, where: string, command: string): void => {
    const label = on ? `$(circle-slash) No suggestions ${where}` : `$(check) Suggestions ${where} again`;
    toggles.push({ label, command });
  };
  if (document) {
    const off = settings.get<string[]>("disabled_globs", []).includes(globOf(document.uri.fsPath));
    if (!document.isUntitled) offer(!off, "in this file", "speclsp.toggleFile");
    const language = document.languageId;
    offer(!settings.get<string[]>("disabled_languages", []).includes(language), `in ${language}`, "speclsp.toggleLanguage");
  }
  toggles.push({ label: "$(bell-slash) Snooze...", description: "10 minutes, or this session", command: "speclsp.snooze" });
  offer(settings.get<boolean>("enabled", true), "anywhere", "speclsp.toggle");
  return toggles;
}

/** The choice of a model, and the stop of the engines. An unused engine exits by itself after a while. */
function model({ health }: Server): Action[] {
  const select: Action = { label: "$(server) Select model...", command: "speclsp.selectModel" };
  const status = health.kind === "running" ? health.status : undefined;
  if (!status?.engine_pid) return [separator("model"), select];
  const description = (status.clients ?? 1) > 1 ? "for all windows; frees its memory" : "frees its memory";
  const stop: Action = { label: "$(debug-stop) Stop the model process", description, command: "speclsp.stopEngine" };
  return [separator("model"), select, stop];
}

function headline(server: Server, here: Here | undefined): string {
  const { health } = server;
  if (health.kind === "running")
    return here?.on === false ? here.message : health.status?.message || "Choose an action";
  return "why" in health ? health.why : "";
}

const retry: Action = { label: "$(debug-restart) Try again", command: "speclsp.retry" };

const explanation: Action = {
  label: "$(question) Explain the last suggestion",
  description: "or why there was none",
  command: "speclsp.explain",
};

const separator = (label: string): Action => ({ label, kind: QuickPickItemKind.Separator });
