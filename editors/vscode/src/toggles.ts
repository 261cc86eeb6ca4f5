/** Menu actions that write a setting, in the scope where it is set: toggles of suggestions, and their eagerness. */
import { ConfigurationTarget, TextDocument, window, workspace } from "vscode";
import { globOf, toggled } from "./settings";

/** Toggle completion.enabled. */
export function toggleEverywhere(): Thenable<void> {
  return write("completion.enabled", !workspace.getConfiguration("speclsp").get<boolean>("completion.enabled", true));
}

/** Add the active document's language to completion.disabled_languages, or remove it. */
export async function toggleLanguage(): Promise<void> {
  const document = active();
  if (document) await write("completion.disabled_languages", toggled(list("completion.disabled_languages"), document.languageId));
}

/** Add the active document's path to completion.disabled_globs, or remove it. */
export async function toggleFile(): Promise<void> {
  const document = active();
  if (document?.isUntitled) void window.showInformationMessage("speclsp: this document has no path until it is saved.");
  else if (document)
    await write("completion.disabled_globs", toggled(list("completion.disabled_globs"), globOf(document.uri.fsPath)));
}

/** Set completion.eagerness. */
export const setEagerness = (level: string): Thenable<void> => write("completion.eagerness", level);

function active(): TextDocument | undefined {
  const document = window.activeTextEditor?.document;
  if (!document) void window.showInformationMessage("speclsp: open a file first.");
  return document;
}

function list(key: string): string[] {
  return workspace.getConfiguration("speclsp").get<string[]>(key, []);
}

/** Write a setting. It is never removed: a running server accepts a change, but a removal needs a restart. */
function write(key: string, value: unknown): Thenable<void> {
  const settings = workspace.getConfiguration("speclsp");
  const inWorkspace = settings.inspect(key)?.workspaceValue !== undefined;
  return settings.update(key, value, inWorkspace ? ConfigurationTarget.Workspace : ConfigurationTarget.Global);
}
