/** Reports where the cursor rests, so that the server prefills the prompts there. */
import { Disposable, window } from "vscode";
import { isReady, Server } from "./server";
import { currentPlace, exclusionReason, placeKey } from "./suggestions";

const REST_MS = 300; // shorter pauses are parts of one movement

/**
 * Report the cursor of the active editor when the editor changes, when the model gets ready, and when the cursor has
 * rested at a new place.
 */
export function reportFocus(server: Server, isSnoozed: () => boolean): Disposable {
  let ready = false;
  let reportedPlace = "";
  let timer: NodeJS.Timeout | undefined;
  const report = (): void => {
    const editor = window.activeTextEditor;
    const tab = window.tabGroups.activeTabGroup.activeTab;
    if (!ready || isSnoozed() || !editor || exclusionReason(editor.document, editor, tab)) return;
    const { line, character } = editor.selection.active;
    const textDocument = { uri: editor.document.uri.toString() };
    reportedPlace = placeKey(editor.document, editor.selection.active);
    server.notify("speclsp/didFocus", { textDocument, position: { line, character } });
  };
  const reportRest = (): void => {
    const place = window.state.focused && currentPlace();
    if (place && place !== reportedPlace) report();
  };
  return Disposable.from(
    { dispose: () => clearTimeout(timer) },
    window.onDidChangeActiveTextEditor(report),
    window.onDidChangeTextEditorSelection(({ textEditor }) => {
      if (textEditor !== window.activeTextEditor) return;
      clearTimeout(timer);
      timer = setTimeout(reportRest, REST_MS);
    }),
    server.onDidChange((health) => {
      if (ready !== (ready = isReady(health))) report();
    }),
  );
}
