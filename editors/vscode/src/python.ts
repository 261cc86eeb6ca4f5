/** Asks the Python extension, where there is one, for the selected interpreter; never in an untrusted workspace. */
import { Disposable, extensions, Uri, window, workspace } from "vscode";

const PATIENCE_MS = 5000; // the Python extension may still be looking around; PATH is there at once

interface Environments {
  getActiveEnvironmentPath(resource?: Uri): { path: string };
  resolveEnvironment(path: { path: string }): Promise<{ executable: { uri?: Uri } } | undefined>;
  onDidChangeActiveEnvironmentPath(listener: () => void): Disposable;
}

async function environments(): Promise<Environments | undefined> {
  const python = extensions.getExtension<{ environments?: Environments }>("ms-python.python");
  return python && workspace.isTrusted ? (await python.activate()).environments : undefined;
}

/** The path of the selected interpreter, which is never run: the programs beside it are what is looked at. */
export async function selectedPython(): Promise<string | undefined> {
  const late = new Promise<undefined>((resolve) => setTimeout(() => resolve(undefined), PATIENCE_MS));
  const asked = (async () => {
    const known = await environments();
    const resource = window.activeTextEditor?.document.uri ?? workspace.workspaceFolders?.[0]?.uri;
    return (await known?.resolveEnvironment(known.getActiveEnvironmentPath(resource)))?.executable.uri?.fsPath;
  })();
  return Promise.race([asked.catch(() => undefined), late]);
}

/** Calls `then` whenever another environment is selected. */
export async function onPythonSelected(then: () => void): Promise<Disposable | undefined> {
  return (await environments().catch(() => undefined))?.onDidChangeActiveEnvironmentPath(then);
}
