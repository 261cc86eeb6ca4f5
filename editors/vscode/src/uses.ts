/** Lists the uses that the last rename has left in other files. */
import { commands, Location, Range, Uri, window } from "vscode";
import type { Uses } from "./protocol";
import type { Server } from "./server";

/** Show the uses in the references view of the active editor; its list opens them. Without an editor, open the first. */
export async function listUses(server: Server): Promise<void> {
  const answer = await server.request<Uses>("speclsp/uses", {});
  const uses = (answer?.uses ?? []).map(
    ({ uri, range: { start, end } }) =>
      new Location(Uri.parse(uri), new Range(start.line, start.character, end.line, end.character)),
  );
  if (!uses[0]) {
    void window.showInformationMessage("speclsp: no use of a renamed name is left in other files.");
    return;
  }
  const editor = window.activeTextEditor ?? (await window.showTextDocument(uses[0].uri, { selection: uses[0].range }));
  await commands.executeCommand("editor.action.peekLocations", editor.document.uri, editor.selection.active, uses, "peek");
}
