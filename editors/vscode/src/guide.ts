/** The walkthrough, and the context keys that tick its steps. */
import { commands } from "vscode";

const told = new Map<string, boolean>(); // as VS Code knows them

/** Set a context key, where that changes anything. */
export function tell(context: string, value: boolean): void {
  if (told.get(context) === value) return;
  told.set(context, value);
  void setContext(context, value);
}

/** Open the walkthrough, with the steps that are done ticked: VS Code sees only what becomes true from here on. */
export async function openGuide(): Promise<void> {
  for (const context of told.keys()) await setContext(context, false);
  await commands.executeCommand("workbench.action.openWalkthrough", "speclsp.speclsp#first-minute", false);
  for (const [context, value] of told) await setContext(context, value);
}

function setContext(context: string, value: boolean): Thenable<unknown> {
  return commands.executeCommand("setContext", context, value);
}
