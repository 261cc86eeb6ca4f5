/** The Getting Started walkthrough, and the context keys that mark its steps as done. */
import { commands } from "vscode";

const contextKeys = new Map<string, boolean>(); // the values last sent to VS Code

/** Set a context key; does nothing while its value is unchanged. */
export function setContextKey(key: string, value: boolean): void {
  if (contextKeys.get(key) === value) return;
  contextKeys.set(key, value);
  void send(key, value);
}

/**
 * Open the walkthrough with the finished steps ticked. VS Code ticks a step only when its key becomes true while the
 * walkthrough is open, so all keys are reset first and set again afterwards.
 */
export async function openWalkthrough(): Promise<void> {
  for (const key of contextKeys.keys()) await send(key, false);
  await commands.executeCommand("workbench.action.openWalkthrough", "speclsp.speclsp#first-minute", false);
  for (const [key, value] of contextKeys) await send(key, value);
}

function send(key: string, value: boolean): Thenable<unknown> {
  return commands.executeCommand("setContext", key, value);
}
