/** Runs a speclsp subcommand in an integrated terminal, where its tables and prompts are readable. */
import { homedir } from "node:os";
import { env, window } from "vscode";
import { Server } from "./server";
import { commandLine } from "./shellQuote";

export function inTerminal(server: Server, subcommand: string, ...flags: string[]): void {
  if (!server.found) {
    void window.showInformationMessage("speclsp: the program is not installed.");
    return;
  }
  const name = `speclsp ${subcommand}`;
  const terminal = window.terminals.find((t) => t.name === name) ?? window.createTerminal({ name, cwd: homedir() });
  terminal.show();
  terminal.sendText(commandLine([server.found.path, subcommand, ...flags], env.shell));
}
