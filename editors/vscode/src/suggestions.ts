/** Inline completion requests to the server: which documents are asked about, and with which document version. */
import {
  CancellationToken,
  InlineCompletionContext,
  InlineCompletionItem,
  InlineCompletionList,
  InlineCompletionTriggerKind,
  Position,
  Tab,
  TabInputNotebookDiff,
  TabInputTextDiff,
  TextDocument,
  TextEditor,
  commands,
  window,
} from "vscode";
import { InlineCompletionRequest } from "vscode-languageclient";
import type { LanguageClient } from "vscode-languageclient/node";

export const SCHEMES = ["file", "untitled", "vscode-notebook-cell"];

/** Returns the reason why this editor gets no suggestions; "" when it gets them. */
export function exclusionReason(document: TextDocument, editor: TextEditor | undefined, tab: Tab | undefined): string {
  if (!SCHEMES.includes(document.uri.scheme)) return `documents of the kind "${document.uri.scheme}" are left alone`;
  if (editor?.document === document && editor.selections.length > 1) return "several cursors are left alone";
  const diff = tab?.input instanceof TabInputTextDiff || tab?.input instanceof TabInputNotebookDiff;
  return diff ? "a comparison is left alone" : "";
}

export type Items = InlineCompletionItem[] | InlineCompletionList;

/** Request suggestions from `client`. A cancelled or failed request returns none; `onError` gets the failure. */
export async function suggest(
  client: LanguageClient,
  onError: (error: unknown) => void,
  document: TextDocument,
  position: Position,
  context: InlineCompletionContext,
  token: CancellationToken,
): Promise<Items> {
  if (exclusionReason(document, window.activeTextEditor, window.tabGroups.activeTabGroup.activeTab)) return [];
  const converted = client.code2ProtocolConverter.asInlineCompletionParams(document, position, context);
  const params = { ...converted, textDocument: { ...converted.textDocument, version: document.version } };
  try {
    const answer = await client.sendRequest(InlineCompletionRequest.type, params, token);
    if (token.isCancellationRequested) return [];
    return (await client.protocol2CodeConverter.asInlineCompletionResult(answer, token)) ?? [];
  } catch (error) {
    if (!token.isCancellationRequested) onError(error);
    return [];
  }
}

/** True if the answer contains at least one item. */
export const hasItems = (answer: Items): boolean => (Array.isArray(answer) ? answer : answer.items).length > 0;

/** A cursor in a version of a document. */
export interface Place {
  uri: string;
  version: number;
  position: Position;
}

/** The key of the only cursor's place in the active editor; undefined with several or with a selection. */
export function currentPlace(): string | undefined {
  const { activeTextEditor: editor } = window;
  if (editor?.selections.length !== 1 || !editor.selection.isEmpty) return undefined;
  return placeKey(editor.document, editor.selection.active);
}

/** A cursor in a version of a document, as text. */
export const placeKey = (document: TextDocument, { line, character }: Position): string =>
  [document.uri.toString(), document.version, line, character].join(" ");

/** Repeats requests as automatic ones. VS Code calls a repeated one explicit, but no user has asked for alternatives. */
export class Repeats {
  private repeating = false;
  private waiting: Place | undefined; // of the last request, if the model could not answer it yet

  /** The context of a request. */
  contextOf(context: InlineCompletionContext): InlineCompletionContext {
    return this.repeating ? { ...context, triggerKind: InlineCompletionTriggerKind.Automatic } : context;
  }

  /** A request has been answered. `isFinal`: the same request would have the same answer later. */
  answered(document: TextDocument, position: Position, isFinal: boolean): void {
    this.waiting = isFinal ? undefined : { uri: document.uri.toString(), version: document.version, position };
  }

  /**
   * The model has become ready: request again where the last request was made, if the cursor is still there.
   *
   * VS Code makes no second request for this answer until the next key, so no further lines join it.
   */
  async whenReady(): Promise<void> {
    const { waiting } = this;
    this.waiting = undefined;
    if (waiting) await this.run("editor.action.inlineSuggest.trigger", waiting);
  }

  /**
   * The server has further lines of the suggestion that it sent for `grown`.
   *
   * "Show next" requests again, only while grey text is visible, and VS Code draws the old text until the answer. It
   * then keeps the old text as a first item, and goes on to the longer one.
   */
  async whenGrown(grown: Place): Promise<void> {
    await this.run("editor.action.inlineSuggest.showNext", grown);
  }

  /** Run a command that requests suggestions, if the only cursor is at `place`. */
  private async run(command: string, place: Place): Promise<void> {
    const editor = window.activeTextEditor;
    if (!editor || editor.selections.length > 1 || !editor.selection.isEmpty) return;
    const { document, selection } = editor;
    const isSame = document.uri.toString() === place.uri && document.version === place.version;
    if (!isSame || !selection.active.isEqual(place.position)) return;
    this.repeating = true;
    try {
      await commands.executeCommand(command);
    } finally {
      this.repeating = false;
    }
  }
}
