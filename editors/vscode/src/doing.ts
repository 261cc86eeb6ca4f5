/** Tells the server which lines are looked at: what was read a moment ago bears on what is written now. */
import { Disposable, TextEditor, window } from "vscode";
import { onScreen, Viewed } from "./protocol";
import { SCHEMES } from "./suggestions";

const STILL_MS = 1000; // on the screen without scrolling: what is scrolled past was not read

/** Watch the active editor; `tell` is called once its lines have been still for a while, and not twice for the same. */
export function watchWhatIsViewed(tell: (viewed: Viewed) => void): Disposable {
  let timer: NodeJS.Timeout | undefined;
  let told = "";
  const later = (editor: TextEditor | undefined): void => {
    clearTimeout(timer);
    if (!editor || !SCHEMES.includes(editor.document.uri.scheme)) return;
    timer = setTimeout(() => {
      if (editor !== window.activeTextEditor) return;
      const viewed = onScreen(editor.document.uri.toString(), editor.visibleRanges);
      const now = JSON.stringify(viewed);
      if (viewed && now !== told) tell(viewed);
      told = now;
    }, STILL_MS);
  };
  later(window.activeTextEditor);
  return Disposable.from(
    window.onDidChangeActiveTextEditor(later),
    window.onDidChangeTextEditorVisibleRanges(({ textEditor }) => {
      if (textEditor === window.activeTextEditor) later(textEditor);
    }),
    { dispose: () => clearTimeout(timer) },
  );
}
