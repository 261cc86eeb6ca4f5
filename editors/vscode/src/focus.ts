/** Tells the server which document the user looks at: it reads that document's prompt before the first request. */
import { Disposable, window } from "vscode";
import { isReady, Server } from "./server";
import { exclusionReason } from "./suggestions";

/** Report the active editor when it changes, and once more when the model is ready. */
export function reportFocus(server: Server, isSnoozed: () => boolean): Disposable {
  let ready = false;
  const report = (): void => {
    const editor = window.activeTextEditor;
    const tab = window.tabGroups.activeTabGroup.activeTab;
    if (!ready || isSnoozed() || !editor || exclusionReason(editor.document, editor, tab)) return;
    const { line, character } = editor.selection.active;
    const textDocument = { uri: editor.document.uri.toString() };
    server.notify("speclsp/didFocus", { textDocument, position: { line, character } });
  };
  return Disposable.from(
    window.onDidChangeActiveTextEditor(report),
    server.onDidChange((health) => {
      if (ready !== (ready = isReady(health))) report();
    }),
  );
}
