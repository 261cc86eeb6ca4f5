/** Turns suggestions on and off, everywhere, in a language or a file: settings, written where they are set now. */
import { ConfigurationTarget, TextDocument, window, workspace } from "vscode";
import { globOf, toggled } from "./settings";

/** completion.enabled. */
export function toggleEverywhere(): Thenable<void> {
  return write("completion.enabled", !workspace.getConfiguration("speclsp").get<boolean>("completion.enabled", true));
}

/** The active document's language, in or out of completion.languages_off. */
export async function toggleLanguage(): Promise<void> {
  const document = active();
  if (document) await write("completion.languages_off", toggled(list("completion.languages_off"), document.languageId));
}

/** The active document's path, in or out of completion.globs_off. */
export async function toggleFile(): Promise<void> {
  const document = active();
  if (document?.isUntitled) void window.showInformationMessage("speclsp: this document has no path until it is saved.");
  else if (document)
    await write("completion.globs_off", toggled(list("completion.globs_off"), globOf(document.uri.fsPath)));
}

function active(): TextDocument | undefined {
  const document = window.activeTextEditor?.document;
  if (!document) void window.showInformationMessage("speclsp: open a file first.");
  return document;
}

function list(key: string): string[] {
  return workspace.getConfiguration("speclsp").get<string[]>(key, []);
}

/** A value is always written out, never removed: the server then hears it without a new start. */
function write(key: string, value: unknown): Thenable<void> {
  const settings = workspace.getConfiguration("speclsp");
  const inWorkspace = settings.inspect(key)?.workspaceValue !== undefined;
  return settings.update(key, value, inWorkspace ? ConfigurationTarget.Workspace : ConfigurationTarget.Global);
}
