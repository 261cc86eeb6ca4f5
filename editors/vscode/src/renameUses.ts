/** Lists the uses that the last rename has left in the open files, in VS Code's view of references. */
import { commands, Location, Range, Uri, window } from "vscode";
import type { RenameUses } from "./protocol";
import { openRestoredTabs } from "./restoredTabs";
import { Server } from "./server";

export async function showUses(server: Server): Promise<void> {
  await openRestoredTabs();
  const answer = await server.request<RenameUses>("speclsp/renameUses", {});
  if (!answer) {
    void window.showInformationMessage("speclsp: the server does not run, or is too old to list uses.");
    return;
  }
  const editor = window.activeTextEditor;
  if (!answer.uses.length || !editor) {
    const name = answer.old && ` of ${answer.old}`;
    void window.showInformationMessage(`speclsp: no use${name} is left in the open files.`);
    return;
  }
  const locations = answer.uses.map(({ uri, range: { start, end } }) => {
    const range = new Range(start.line, start.character, end.line, end.character);
    return new Location(Uri.parse(uri), range);
  });
  const { document, selection } = editor;
  await commands.executeCommand("editor.action.peekLocations", document.uri, selection.active, locations, "peek");
}
