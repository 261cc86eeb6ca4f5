/** Decorations of a next edit: removed text, new text, a hint at the cursor, and a hover with the diff. */
import {
  DecorationOptions,
  Disposable,
  MarkdownString,
  Position,
  Range,
  TextEditor,
  TextEditorDecorationType,
  ThemableDecorationAttachmentRenderOptions,
  ThemeColor,
  window,
} from "vscode";
import { doneText, hasRoom, hintElsewhere, hintText, isFar, Label, LINE_GAP, planOf } from "./nextEditPlan";
import type { NextEdit, Unopened } from "./protocol";

const KEYS = "speclsp: next edit. Tab accepts, Escape dismisses.";

// A box over the lines below its own. The API has no such option, but passes on CSS.
const BOX = "none; position: absolute; top: 100%; z-index: 1";
const WRAPPED = `${BOX}; left: 0; width: max-content; max-width: 80ch; white-space: pre-wrap; overflow-wrap: anywhere`;
const TINT = "background-image: linear-gradient(var(--vscode-diffEditor-insertedTextBackground) 0 0)"; // it is translucent
const background = new ThemeColor("editor.background");

/** The decorations, of one editor at a time. */
export class NextEditView implements Disposable {
  // Line-through and outline tell the same as the colours: high-contrast themes have no such backgrounds.
  private readonly removed = window.createTextEditorDecorationType({
    backgroundColor: new ThemeColor("diffEditor.removedTextBackground"),
    outline: "1px solid",
    outlineColor: new ThemeColor("diffEditor.removedTextBorder"),
    textDecoration: "line-through",
  });
  private readonly labels = window.createTextEditorDecorationType({});
  private readonly hovers = window.createTextEditorDecorationType({});
  private readonly types: TextEditorDecorationType[] = [this.removed, this.labels, this.hovers];
  private editor: TextEditor | undefined;

  /** Draw an edit of the editor's document. `jumped`: the user is at the edit, so there is no hint. */
  draw(editor: TextEditor, edit: NextEdit, jumped: boolean): void {
    if (this.editor !== editor) this.clear();
    this.editor = editor;
    const range = rangeOf(edit);
    const rows = new Range(range.start.with(undefined, 0), editor.document.lineAt(range.end.line).range.end);
    const plan = planOf(edit, editor.document.getText(rows).split(/\r?\n/));
    const hoverMessage = new MarkdownString(`${plan.diff}\n\n${KEYS}`);
    const labels = plan.labels.map(labelDecoration);
    const hovers: DecorationOptions[] = [{ range: rows, hoverMessage }];
    const cursor = editor.selection.active;
    if (!jumped && isFar(edit, cursor.line, editor.visibleRanges)) {
      labels.push(hint(editor, hintText(edit)));
      hovers.push({ range: editor.document.lineAt(cursor.line).range, hoverMessage });
    }
    const removed = plan.removed.map(({ line, start, end }) => new Range(line, start, line, end));
    editor.setDecorations(this.removed, removed);
    editor.setDecorations(this.labels, labels);
    editor.setDecorations(this.hovers, hovers);
  }

  /** Announce an edit of another document at the cursor's line. */
  drawElsewhere(editor: TextEditor, edit: NextEdit, path: string): void {
    if (this.editor !== editor) this.clear();
    this.editor = editor;
    editor.setDecorations(this.labels, [hint(editor, hintElsewhere(edit, path))]);
  }

  /** Draw at the cursor's line that no edit follows, and the uses of a renamed name in files that are not open. */
  drawDone(editor: TextEditor, edits: number, unopened?: Unopened): void {
    this.editor = editor;
    editor.setDecorations(this.labels, [hint(editor, doneText(edits, unopened))]);
  }

  get isDrawn(): boolean {
    return this.editor !== undefined;
  }

  clear(): void {
    for (const type of this.types) this.editor?.setDecorations(type, []);
    this.editor = undefined;
  }

  dispose(): void {
    for (const type of this.types) type.dispose();
  }
}

export const rangeOf = ({ range: { start, end } }: NextEdit): Range =>
  new Range(start.line, start.character, end.line, end.character);

function labelDecoration({ line, character, text, gap, isBelow }: Label): DecorationOptions {
  const after = {
    ...drawn(text, gap),
    color: new ThemeColor("editor.foreground"),
    backgroundColor: new ThemeColor("diffEditor.insertedTextBackground"),
    border: "1px solid",
    borderColor: new ThemeColor("diffEditor.insertedTextBorder"),
    // Plain blanks in a box: others would not wrap.
    ...(isBelow && { contentText: text, textDecoration: `${WRAPPED}; ${TINT}`, backgroundColor: background }),
  };
  const at = new Position(line, character);
  return { range: new Range(at, at), renderOptions: { after } };
}

/** A text behind the cursor's line; in a box below the cursor where the line leaves no room. */
function hint({ document, selection: { active } }: TextEditor, text: string): DecorationOptions {
  const line = document.lineAt(active.line);
  const after = { ...drawn(text, LINE_GAP), color: new ThemeColor("editorCodeLens.foreground") };
  if (hasRoom(line.text + text)) return { range: new Range(line.range.end, line.range.end), renderOptions: { after } };
  const box = { textDecoration: BOX, backgroundColor: background, border: "1px solid", margin: "0" };
  return { range: new Range(active, active), renderOptions: { after: { ...after, ...box } } };
}

const drawn = (text: string, gap: number): ThemableDecorationAttachmentRenderOptions => ({
  contentText: unbroken(text),
  margin: `0 0 0 ${gap}ch`,
});

/** The text with blanks that are drawn as they are: CSS joins the others. */
const unbroken = (text: string): string => text.replaceAll("\t", "    ").replaceAll(" ", "\u00a0");
