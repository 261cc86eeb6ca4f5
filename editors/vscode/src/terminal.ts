/** Runs one of speclsp's subcommands in a terminal of the user's, where its tables and questions belong. */
import { homedir } from "node:os";
import { window } from "vscode";
import { quoted } from "./quoted";
import { Server } from "./server";

export function inTerminal(server: Server, subcommand: string, ...flags: string[]): void {
  if (!server.found) {
    void window.showInformationMessage("speclsp: the program is not installed.");
    return;
  }
  const name = `speclsp ${subcommand}`;
  const terminal = window.terminals.find((one) => one.name === name) ?? window.createTerminal({ name, cwd: homedir() });
  terminal.show();
  terminal.sendText([server.found.path, subcommand, ...flags].map(quoted).join(" "));
}
