/** What passes between VS Code's inline completions and the server: where to ask, and about which version. */
import {
  CancellationToken,
  InlineCompletionContext,
  InlineCompletionItem,
  InlineCompletionList,
  Position,
  Tab,
  TabInputNotebookDiff,
  TabInputTextDiff,
  TextDocument,
  TextEditor,
  window,
} from "vscode";
import { InlineCompletionRequest } from "vscode-languageclient";
import type { LanguageClient } from "vscode-languageclient/node";

export const SCHEMES = ["file", "untitled", "vscode-notebook-cell"];

/** Why no suggestion is wanted in this editor; "" where it is. */
export function leftAlone(document: TextDocument, editor: TextEditor | undefined, tab: Tab | undefined): string {
  if (!SCHEMES.includes(document.uri.scheme)) return `documents of the kind "${document.uri.scheme}" are left alone`;
  if (editor?.document === document && editor.selections.length > 1) return "several cursors are left alone";
  const diff = tab?.input instanceof TabInputTextDiff || tab?.input instanceof TabInputNotebookDiff;
  return diff ? "a comparison is left alone" : "";
}

type Items = InlineCompletionItem[] | InlineCompletionList;

/** Ask `client`. A cancelled question and a failed one have an empty answer; a failure is told to `onError`. */
export async function suggest(
  client: LanguageClient,
  onError: (error: unknown) => void,
  document: TextDocument,
  position: Position,
  context: InlineCompletionContext,
  token: CancellationToken,
): Promise<Items> {
  if (leftAlone(document, window.activeTextEditor, window.tabGroups.activeTabGroup.activeTab)) return [];
  const asked = client.code2ProtocolConverter.asInlineCompletionParams(document, position, context);
  const params = { ...asked, textDocument: { ...asked.textDocument, version: document.version } };
  try {
    const answer = await client.sendRequest(InlineCompletionRequest.type, params, token);
    if (token.isCancellationRequested) return [];
    return (await client.protocol2CodeConverter.asInlineCompletionResult(answer, token)) ?? [];
  } catch (error) {
    if (!token.isCancellationRequested) onError(error);
    return [];
  }
}

export const some = (answer: Items): boolean => (Array.isArray(answer) ? answer : answer.items).length > 0;
