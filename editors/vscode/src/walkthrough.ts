/** The Getting Started walkthrough, and the context keys that mark its steps as done. */
import { commands } from "vscode";

const contextKeys = new Map<string, { value: boolean; sent: Thenable<unknown> }>(); // what VS Code was sent last

/** Set a context key, and resolve when VS Code has it. Nothing is sent while its value is unchanged. */
export async function setContextKey(key: string, value: boolean): Promise<void> {
  if (contextKeys.get(key)?.value !== value) contextKeys.set(key, { value, sent: send(key, value) });
  await contextKeys.get(key)?.sent;
}

/**
 * Open the walkthrough with the finished steps ticked. VS Code ticks a step only when its key becomes true while the
 * walkthrough is open, so all keys are reset first and set again afterwards.
 */
export async function openWalkthrough(): Promise<void> {
  for (const key of contextKeys.keys()) await send(key, false);
  await commands.executeCommand("workbench.action.openWalkthrough", "speclsp.speclsp#first-minute", false);
  for (const [key, { value }] of contextKeys) await send(key, value);
}

function send(key: string, value: boolean): Thenable<unknown> {
  return commands.executeCommand("setContext", key, value);
}
