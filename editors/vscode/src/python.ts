/** Selected interpreter of the Python extension, where that is installed. Not asked in an untrusted workspace. */
import { Disposable, extensions, Uri, window, workspace } from "vscode";

const TIMEOUT_MS = 5000; // the Python extension may still be searching; PATH is available at once

interface Environments {
  getActiveEnvironmentPath(resource?: Uri): { path: string };
  resolveEnvironment(path: { path: string }): Promise<{ executable: { uri?: Uri } } | undefined>;
  onDidChangeActiveEnvironmentPath(listener: () => void): Disposable;
}

async function environments(): Promise<Environments | undefined> {
  const python = extensions.getExtension<{ environments?: Environments }>("ms-python.python");
  return python && workspace.isTrusted ? (await python.activate()).environments : undefined;
}

/** Path of the selected interpreter. It is never run: only the programs in its folder matter. */
export async function selectedPython(): Promise<string | undefined> {
  const timeout = new Promise<undefined>((resolve) => setTimeout(() => resolve(undefined), TIMEOUT_MS));
  const request = (async () => {
    const api = await environments();
    const resource = window.activeTextEditor?.document.uri ?? workspace.workspaceFolders?.[0]?.uri;
    return (await api?.resolveEnvironment(api.getActiveEnvironmentPath(resource)))?.executable.uri?.fsPath;
  })();
  return Promise.race([request.catch(() => undefined), timeout]);
}

/** Calls `listener` whenever another environment is selected. */
export async function onPythonSelected(listener: () => void): Promise<Disposable | undefined> {
  return (await environments().catch(() => undefined))?.onDidChangeActiveEnvironmentPath(listener);
}
