/**
 * Life cycle of a next edit: requested when the user's edits have settled, shown as ghost text or decorations, and
 * accepted or dismissed by a key. Any other change of the document drops it.
 *
 *     change ─► settled ─► request ─► shown ─► Tab: jump if far, then accept ─► the next request
 *                                         └──► Escape: reject
 *
 * An edit of another document is announced by a hint. Tab shows it in its own editor. After a rename the hint counts the
 * uses in files that are not open. In one that is opened then the rename goes on.
 *
 * Tab is the edit's while one is shown: no ghost text is requested then, nor between an accepted edit and its follower.
 * Ghost text that was there before goes first, except where the edit is a rename.
 *
 * After an accepted edit a further Tab is swallowed, until the cursor or the text changes, or a limit (`Tail`).
 */
import {
  CancellationTokenSource,
  commands,
  Disposable,
  InlineCompletionItem,
  Position,
  Range,
  Selection,
  SnippetString,
  Tab,
  TabGroup,
  TabInputText,
  TextDocument,
  TextDocumentChangeEvent,
  TextEditor,
  window,
  workspace,
} from "vscode";
import { isBulk, isFar, placeholderIn } from "./nextEditPlan";
import { NextEditView, rangeOf } from "./nextEditView";
import type { NextEdit, NextEditAnswer } from "./protocol";
import { openRestoredTabs } from "./restoredTabs";
import type { Server } from "./server";
import { currentPlace, exclusionReason, hasItems, Items, placeKey } from "./suggestions";
import { setContextKey } from "./walkthrough";

const SETTLE_MS = 300; // pause after the last change, before a request
const COMPUTED_MS = 3000; // limit of the tail while the next edit is computed
const DONE_MS = 1000; // limit of the tail while "done" is shown
const BOX_LINES = 3; // below an edit, for a box with its new text
const VISIBLE = "speclsp.nextEditVisible";
const TAIL = "speclsp.nextEditTail"; // true while a further Tab is swallowed
const REJECTED = "speclsp.didRejectEdit"; // the server's command
const GHOST_ACCEPTED = "speclsp.nextEditGhostAccepted"; // internal: VS Code runs it when ghost text is accepted

/** The edit on the screen. */
interface Shown {
  edit: NextEdit;
  editor: TextEditor;
  cursor: Position; // at the time of the request
  jumped: boolean; // the cursor was moved to it
  other?: { document: TextDocument; version: number }; // the edit's document, and the version of the editor's one
}

/** An accepted edit whose follower is not known yet, or that has none. */
interface Tail {
  document: TextDocument;
  place: string; // of the cursor behind the edit; "" while the edit is applied
  isDone: boolean;
}

/** The next edits of this window: at most one is requested, and at most one is shown. */
export class NextEdits implements Disposable {
  private shown: Shown | undefined;
  private tail: Tail | undefined;
  private tailTimer: NodeJS.Timeout | undefined;
  private isUnfinished = false; // the last rename has uses in files that are not open
  private countedAt = ""; // the place of the cursor where the hint counts them
  private accepts = 0; // edits accepted since the user's own change
  private selectedIn: TextDocument | undefined; // the placeholder of the last accepted edit is selected
  private last: { editor: TextEditor; version: number } | undefined; // where the last edit was shown or accepted
  private timer: NodeJS.Timeout | undefined;
  private pending: CancellationTokenSource | undefined;
  private applyingTo: TextDocument | undefined; // an accepted edit is being applied
  private asksForGhost = false; // the next inline completion request is our own
  private asked: { document: TextDocument; version: number; line: number } | undefined; // after a change
  private suggestedAt = ""; // the last place where the server had a suggestion that VS Code shows
  private askedFor = ""; // the version of the last automatic request
  private readonly view = new NextEditView();
  private readonly listeners: Disposable[];

  constructor(
    private readonly server: Server,
    private readonly isSnoozed: () => boolean,
  ) {
    this.listeners = [
      workspace.onDidChangeTextDocument((event) => this.changed(event)),
      window.onDidChangeTextEditorSelection(({ textEditor }) => this.moved(textEditor)),
      window.onDidChangeTextEditorVisibleRanges(({ textEditor }) => {
        if (textEditor === this.shown?.editor) void this.draw();
      }),
      window.onDidChangeActiveTextEditor((editor) => {
        if (!editor || editor !== this.shown?.editor) this.drop();
        if (editor && this.isUnfinished) this.settle(editor.document);
      }),
      server.onDidChange(() => this.checkEnabled()),
      commands.registerCommand(GHOST_ACCEPTED, (edit: NextEdit) => this.ghostAccepted(edit)),
    ];
  }

  dispose(): void {
    this.drop();
    for (const disposable of [this.view, ...this.listeners]) disposable.dispose();
  }

  /** Drop the shown edit when next edits were turned off or snoozed. */
  checkEnabled(): void {
    if (!this.enabled) this.drop();
  }

  /**
   * Move the cursor to a far edit; accept a near one.
   *
   * VS Code runs this some milliseconds after the key. Text typed meanwhile has another version: then nothing is
   * inserted, because the place of the key is gone.
   */
  async accept(): Promise<void> {
    const { shown, tail } = this;
    if (this.applyingTo) return; // the key came before the result of the one before
    if (tail && tail.place === currentPlace()) {
      if (tail.isDone) this.endTail();
      return; // one Tab too many
    }
    if (!shown || !this.view.isDrawn) {
      if (isUnchanged(shown ? textOf(shown) : this.last)) await commands.executeCommand("tab"); // no edit is visible
      return;
    }
    if (!isUnchanged(textOf(shown))) return;
    const { edit, editor, other } = shown;
    if (other) return this.go(edit, other.document);
    const range = rangeOf(edit);
    if (!shown.jumped && isFar(edit, editor.selection.active.line, editor.visibleRanges)) {
      shown.jumped = true;
      editor.selection = new Selection(range.start, range.start);
      return editor.revealRange(new Range(range.start, range.end.translate(BOX_LINES))); // with the least scrolling
    }
    this.applyingTo = editor.document;
    this.beginTail(editor.document);
    this.hide();
    const applied = await insert(editor, edit);
    this.applyingTo = undefined;
    if (!applied) {
      this.endTail();
      this.settle(editor.document);
      return;
    }
    this.accepted(editor, edit);
    editor.revealRange(new Range(endOf(edit), endOf(edit)));
    this.report(edit);
    if (edit.placeholder) {
      this.selectedIn = editor.document;
      return this.endTail();
    }
    if (edit.kind === "rename") {
      const { version } = editor.document;
      await openRestoredTabs(editor.document.uri);
      if (window.activeTextEditor !== editor || editor.document.version !== version) return; // the user went on
    }
    await this.request();
  }

  /** Report the user's answer to an edit. */
  private report({ command }: NextEdit, answer = command.command): void {
    this.server.notify("workspace/executeCommand", { command: answer, arguments: command.arguments });
  }

  /** Show an edit in the editor of its own document, in the group that has it, with the cursor at it. */
  private async go(edit: NextEdit, document: TextDocument): Promise<void> {
    this.cancel();
    this.hide();
    const { start } = rangeOf(edit);
    const { viewColumn } = groupOf(document) ?? window.tabGroups.activeTabGroup;
    const editor = await window.showTextDocument(document, { selection: new Range(start, start), viewColumn });
    if (document.version === edit.textDocument.version && this.mayShow(editor)) {
      this.show({ edit, editor, cursor: start, jumped: true });
    }
  }

  /** Reject the shown edit. */
  dismiss(): void {
    const { shown } = this;
    this.drop();
    if (shown) this.report(shown.edit, REJECTED);
  }

  /** Suggestions at a position: those of the server, then the next edit if ghost text can show it there. */
  async withGhost(
    document: TextDocument,
    position: Position,
    byHand: boolean,
    ask: () => Promise<Items>,
  ): Promise<Items> {
    const isOurs = this.asksForGhost;
    this.asksForGhost = false;
    const first = this.ghostAt(document, position);
    if (first && (isOurs || this.shown?.edit.kind === "rename")) return [first];
    if (!byHand && this.hasTab(document)) return [];
    const place = placeKey(document, position);
    // VS Code requests once more when the cursor enters another line, for edits of its own, and draws no ghost text.
    const version = `${document.uri.toString()} ${document.version}`;
    const isDrawn = byHand || version !== this.askedFor || place === this.suggestedAt;
    this.askedFor = version;
    const answer = await ask();
    if (this.hasTab(document)) {
      if (!byHand) return []; // the edit came in the meantime
      if (hasItems(answer)) this.drop(); // the user wants this text
    }
    if (hasItems(answer) && isDrawn) this.suggestedAt = place;
    const ghost = this.ghostAt(document, position);
    return ghost ? [...(Array.isArray(answer) ? answer : answer.items), ghost] : answer;
  }

  /** True while Tab is for a next edit of the document, or for the one that follows an accepted one. */
  private hasTab(document: TextDocument): boolean {
    if (this.tail?.document === document && !this.tail.isDone) return true;
    return this.shown?.editor.document === document && !this.isGhost(this.shown);
  }

  private get enabled(): boolean {
    const { health } = this.server;
    return health.kind === "running" && health.status?.next_edit === true && !this.isSnoozed();
  }

  private changed({ document, contentChanges, reason }: TextDocumentChangeEvent): void {
    const editor = window.activeTextEditor;
    if (!contentChanges.length || document === this.applyingTo || document !== editor?.document) return;
    const { shown } = this;
    this.selectedIn = undefined;
    if (shown && this.isApplied()) {
      this.beginTail(document); // by GHOST_ACCEPTED, which tells the server
      this.hide();
      this.accepted(editor, shown.edit);
    } else {
      this.drop();
      this.accepts = 0;
    }
    const undone = reason !== undefined;
    if (!undone && !isBulk(contentChanges)) this.settle(document, document.uri.scheme === "file" && !document.isDirty);
  }

  /**
   * Request the next edit when no further change comes for a while. A clean document was changed from disk if it is
   * clean then, too: the event of a first change can come before the document is marked as changed.
   */
  private settle(document: TextDocument, isClean = false): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      if (isClean && !document.isDirty) return;
      const { activeTextEditor: current } = window;
      if (current) this.asked = { document, version: document.version, line: current.selection.active.line };
      void this.request();
    }, SETTLE_MS);
  }

  /** Request once more when the cursor leaves the line of the last change: the line is finished then. */
  private left({ document, selection }: TextEditor): void {
    const { asked } = this;
    if (asked?.document !== document || asked.version !== document.version) return;
    if (selection.active.line === asked.line) return;
    this.asked = undefined;
    this.cancel();
    this.timer = setTimeout(() => void this.request(), SETTLE_MS);
  }

  private moved(editor: TextEditor): void {
    const { shown } = this;
    if (this.selectedIn === editor.document && editor.selection.isEmpty) return this.leftPlaceholder(editor);
    if (placeKey(editor.document, editor.selection.active) !== this.suggestedAt) this.suggestedAt = ""; // it is hidden
    if (this.tail?.place && this.tail.place !== currentPlace()) this.endTail();
    if (!shown && this.countedAt && this.countedAt !== currentPlace()) this.hide();
    if (!shown) return this.left(editor);
    if (editor !== shown.editor) return;
    const { line } = editor.selection.active;
    if (shown.other) return void this.draw();
    if (line < shown.edit.range.start.line || line > shown.edit.range.end.line) shown.jumped = false;
    void this.draw();
  }

  /** Request the follower of an edit whose placeholder the user has left as it is. */
  private leftPlaceholder({ document, selection }: TextEditor): void {
    this.selectedIn = undefined;
    this.beginTail(document, placeKey(document, selection.active));
    void this.request();
  }

  /** True where an edit may be requested and shown: one cursor, no selection, a document that can be changed. */
  private mayShow(editor: TextEditor): boolean {
    const { document, selections } = editor;
    if (!this.enabled || selections.length !== 1 || !editor.selection.isEmpty) return false;
    if (workspace.fs.isWritableFileSystem(document.uri.scheme) === false) return false;
    return !exclusionReason(document, editor, window.tabGroups.activeTabGroup.activeTab);
  }

  private async request(): Promise<void> {
    this.cancel();
    const editor = window.activeTextEditor;
    if (!editor || !this.mayShow(editor)) return this.endTail();
    const { document } = editor;
    const cursor = editor.selection.active;
    const pending = (this.pending = new CancellationTokenSource());
    const textDocument = { uri: document.uri.toString(), version: document.version };
    const position = { line: cursor.line, character: cursor.character };
    const params = { textDocument, position };
    const answer = await this.server.request<NextEditAnswer>("textDocument/copilotInlineEdit", params, pending.token);
    if (pending !== this.pending) return; // a change or a newer request cancelled this one
    this.isUnfinished = answer?.unopened !== undefined;
    const edit = answer?.edits[0];
    if (edit && edit.textDocument.uri !== textDocument.uri) return this.showElsewhere(edit, editor, textDocument.version);
    const isCurrent = edit?.textDocument.version === document.version && this.mayShow(editor);
    if (edit && isCurrent && this.mayReplaceGhost(edit, editor)) this.show({ edit, editor, cursor, jumped: false });
    else this.finish(editor);
    if (answer?.unopened && this.mayShow(editor)) {
      this.countedAt = placeKey(document, cursor);
      this.view.drawDone(editor, this.accepts, answer.unopened);
    }
  }

  /** Announce an edit of another document, if both still have the text that the edit is about. */
  private showElsewhere(edit: NextEdit, editor: TextEditor, version: number): void {
    const document = workspace.textDocuments.find(({ uri }) => uri.toString() === edit.textDocument.uri);
    const isCurrent = document?.version === edit.textDocument.version && editor.document.version === version;
    if (!document || !isCurrent || !this.mayShow(editor) || !this.mayReplaceGhost(edit, editor)) return this.finish(editor);
    this.show({ edit, editor, cursor: editor.selection.active, jumped: false, other: { document, version } });
  }

  /** True unless ghost text at the cursor goes first. A rename is finished before. */
  private mayReplaceGhost({ kind, ghost }: NextEdit, { document, selection }: TextEditor): boolean {
    return ghost || kind === "rename" || this.suggestedAt !== placeKey(document, selection.active);
  }

  private show(shown: Shown): void {
    this.drop();
    this.shown = shown;
    this.asked = undefined;
    this.server.notify("textDocument/didShowInlineEdit", { item: { command: shown.edit.command } });
    void this.draw();
    const isSuggested = this.suggestedAt === placeKey(shown.editor.document, shown.cursor);
    if (!this.isGhost(shown)) {
      if (isSuggested) void commands.executeCommand("editor.action.inlineSuggest.hide");
    } else if (!isSuggested || shown.edit.kind === "rename") {
      this.asksForGhost = true;
      void commands.executeCommand("editor.action.inlineSuggest.trigger");
    }
  }

  /**
   * Draw the edit where it is no ghost text, and hide it where Tab is not its key: with a selection or several cursors.
   * The context key is first: a Tab after the drawing must reach `accept`.
   */
  private async draw(): Promise<void> {
    const { shown } = this;
    if (!shown) return;
    const isDrawn = !this.isGhost(shown) && this.mayShow(shown.editor);
    await setContextKey(VISIBLE, isDrawn);
    if (shown !== this.shown) return; // hidden in the meantime
    if (!isDrawn) this.view.clear();
    else if (shown.other) this.view.drawElsewhere(shown.editor, shown.edit, shown.other.document.uri.path);
    else this.view.draw(shown.editor, shown.edit, shown.jumped);
  }

  /** True while ghost text at the cursor shows the edit. */
  private isGhost({ edit, editor, cursor }: Shown): boolean {
    const { document, selection } = editor;
    const inline = workspace.getConfiguration("editor", document).get<boolean>("inlineSuggest.enabled", true);
    return edit.ghost && !edit.placeholder && inline && selection.active.isEqual(cursor);
  }

  /** True if ghost text was accepted: the document has the edit. Its range and text have one line. */
  private isApplied(): boolean {
    if (!this.shown?.edit.ghost) return false;
    const { edit, editor } = this.shown;
    return editor.document.getText(new Range(rangeOf(edit).start, endOf(edit))) === edit.text;
  }

  private ghostAt(document: TextDocument, position: Position): InlineCompletionItem | undefined {
    const { shown } = this;
    if (shown?.editor.document !== document || !position.isEqual(shown.cursor)) return undefined;
    if (!this.isGhost(shown)) return undefined;
    const { edit } = shown;
    const command = { title: edit.command.title, command: GHOST_ACCEPTED, arguments: [edit] };
    return new InlineCompletionItem(edit.text, rangeOf(edit), command);
  }

  private ghostAccepted(edit: NextEdit): void {
    this.report(edit);
    this.hide();
    void this.request();
  }

  /** Swallow further Tabs in a document, whose cursor will be behind an accepted edit. */
  private beginTail(document: TextDocument, place = ""): void {
    this.tail = { document, place, isDone: false };
    this.limitTail(COMPUTED_MS);
    void setContextKey(TAIL, true);
  }

  private accepted(editor: TextEditor, edit: NextEdit): void {
    this.accepts++;
    this.last = { editor, version: editor.document.version };
    if (this.tail) this.tail.place = placeKey(editor.document, endOf(edit));
  }

  /** No edit follows the last request: show that, if it was for the follower of an accepted edit. */
  private finish(editor: TextEditor): void {
    this.cancel();
    if (!this.tail || this.tail.isDone || this.tail.place !== currentPlace()) return this.endTail();
    this.tail.isDone = true;
    this.view.drawDone(editor, this.accepts);
    this.limitTail(DONE_MS);
  }

  private limitTail(limitMs: number): void {
    clearTimeout(this.tailTimer);
    this.tailTimer = setTimeout(() => this.endTail(), limitMs);
  }

  private endTail(): void {
    clearTimeout(this.tailTimer);
    if (this.tail?.isDone && !this.countedAt) this.view.clear();
    this.tail = undefined;
    void setContextKey(TAIL, false);
  }

  /** Cancel what is requested, and end the tail and what is shown. */
  private drop(): void {
    this.cancel();
    this.endTail();
    this.hide();
  }

  private hide(): void {
    if (this.shown) this.last = textOf(this.shown);
    this.shown = undefined;
    this.countedAt = "";
    this.view.clear();
    void setContextKey(VISIBLE, false);
  }

  private cancel(): void {
    clearTimeout(this.timer);
    this.pending?.cancel();
    this.pending?.dispose();
    this.pending = undefined;
  }
}

/**
 * Replace a range, and select the placeholder or move the cursor behind the new text, in one step, if the text is still
 * that of this version. A snippet is the only such step: after an edit the cursor would move later than the next key.
 */
function insert(editor: TextEditor, edit: NextEdit): Thenable<boolean> {
  const [{ text }, range] = [edit, rangeOf(edit)];
  // Older versions of VS Code indent further lines as the text left of the range, so there is none.
  const start = text.includes("\n") ? range.start.with(undefined, 0) : range.start;
  const head = editor.document.getText(new Range(start, range.start));
  const [from, to] = placeholderIn(edit);
  const snippet = new SnippetString().appendText(head + text.slice(0, from));
  if (edit.placeholder) snippet.appendPlaceholder(text.slice(from, to)).appendText(text.slice(to));
  const options = { undoStopBefore: true, undoStopAfter: true, keepWhitespace: true };
  return editor.insertSnippet(snippet, new Range(start, range.end), options);
}

/** The end of the new text in the document. */
function endOf({ range: { start }, text }: NextEdit): Position {
  const lines = text.split("\n");
  const last = lines.at(-1)?.length ?? 0;
  return new Position(start.line + lines.length - 1, lines.length > 1 ? last : start.character + last);
}

/** The group of editors that has a tab of the document; the active one goes first. */
function groupOf({ uri }: TextDocument): TabGroup | undefined {
  const { activeTabGroup, all } = window.tabGroups;
  const isTab = ({ input }: Tab): boolean => input instanceof TabInputText && input.uri.toString() === uri.toString();
  return [activeTabGroup, ...all].find(({ tabs }) => tabs.some(isTab));
}

/** The editor of a shown edit, and the version of the text that it is about. */
const textOf = ({ editor, edit, other }: Shown): { editor: TextEditor; version: number } => ({
  editor,
  version: other?.version ?? edit.textDocument.version,
});

/** True if the active editor has this text, and one cursor without a selection. */
function isUnchanged(text: { editor: TextEditor; version: number } | undefined): boolean {
  const editor = window.activeTextEditor;
  if (!text || text.editor !== editor || editor.selections.length !== 1) return false;
  return editor.selection.isEmpty && editor.document.version === text.version;
}
