/** Documents of restored tabs. VS Code reads one when its tab is first shown, and no language server knows it before. */
import { TabInputText, Uri, window, workspace } from "vscode";

const MOST_DOCUMENTS = 64; // the server examines no more
const FAMILIES = [/\.pyi?$/, /\.[cm]?[jt]sx?$/, /\.go$/, /\.rs$/]; // files that import one another, in languages with renames across files

/** Open the documents of tabs that may import `file`. VS Code closes them after some minutes, unless shown. */
export async function openRestoredTabs(file: Uri): Promise<void> {
  const families = FAMILIES.filter((pattern) => pattern.test(file.path));
  const known = new Set(workspace.textDocuments.map(({ uri }) => uri.toString()));
  const uris = window.tabGroups.all
    .flatMap(({ tabs }) => tabs.flatMap(({ input }) => (input instanceof TabInputText ? [input.uri] : [])))
    .filter((uri) => uri.scheme === "file" && families.some((pattern) => pattern.test(uri.path)) && !known.has(uri.toString()));
  await Promise.allSettled(uris.slice(0, MOST_DOCUMENTS).map((uri) => workspace.openTextDocument(uri)));
}
