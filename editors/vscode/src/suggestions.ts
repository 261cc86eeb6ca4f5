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

/** The place of a suggestion that has grown. */
export interface Grown {
  uri: string;
  version: number;
  position: Position;
}

/** Repeats the request of the suggestion on the screen once further lines have joined it. */
export class Growth {
  private repeating = false;

  /** The context of a request. VS Code calls a repeated one explicit, but the user has not asked for alternatives. */
  contextOf(context: InlineCompletionContext): InlineCompletionContext {
    return this.repeating ? { ...context, triggerKind: InlineCompletionTriggerKind.Automatic } : context;
  }

  /**
   * The server has further lines of the suggestion that it sent for `grown`.
   *
   * "Show next" requests again, only while grey text is visible, and VS Code draws the old text until the answer. It
   * then keeps the old text as a first item, and goes on to the longer one.
   */
  async repeat(grown: Grown): Promise<void> {
    const editor = window.activeTextEditor;
    if (!editor || editor.selections.length > 1 || !editor.selection.isEmpty) return;
    const { document, selection } = editor;
    const isSame = document.uri.toString() === grown.uri && document.version === grown.version;
    if (!isSame || !selection.active.isEqual(grown.position)) return;
    this.repeating = true;
    try {
      await commands.executeCommand("editor.action.inlineSuggest.showNext");
    } finally {
      this.repeating = false;
    }
  }
}
