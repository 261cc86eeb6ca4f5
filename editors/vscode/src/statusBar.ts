/** Status bar item: shows the state of the server and of the active document. */
import { commands, MarkdownString, StatusBarAlignment, ThemeColor, window, workspace, Disposable } from "vscode";
import { Here } from "./protocol";
import { isReady, phase, Server } from "./server";
import { Snooze } from "./snooze";
import { bar } from "./status";
import { exclusionReason } from "./suggestions";
import { setContextKey } from "./walkthrough";

const PRIORITY = 90; // to the right of most items

/** Visible from construction until `dispose`. */
export class StatusBar implements Disposable {
  here: Here | undefined;
  private installing = "";
  private readonly item = window.createStatusBarItem("speclsp.status", StatusBarAlignment.Right, PRIORITY);
  private readonly listeners: Disposable[];
  private requests = 0;
  private cursors = 1;
  private phase = "";

  constructor(
    private readonly server: Server,
    private readonly snooze: Snooze,
  ) {
    this.item.name = "speclsp";
    this.item.command = "speclsp.menu";
    const refresh = (): void => void this.refreshHere();
    this.listeners = [
      server.onDidChange(() => {
        this.draw();
        if (this.phase !== (this.phase = phase(server.health))) refresh();
      }),
      server.onDidSendSettings(refresh),
      window.onDidChangeActiveTextEditor(refresh),
      window.onDidChangeTextEditorSelection(({ selections }) => this.cursors !== selections.length && refresh()),
      window.tabGroups.onDidChangeTabs(refresh),
      workspace.onDidOpenTextDocument(refresh), // also fires when a document's language changes
      workspace.onDidGrantWorkspaceTrust(() => this.draw()),
    ];
    this.draw();
    this.item.show();
    refresh();
  }

  dispose(): void {
    for (const disposable of [this.item, ...this.listeners]) disposable.dispose();
  }

  /** Ask the server whether suggestions are on in the active document. Only the newest reply counts. */
  private async refreshHere(): Promise<void> {
    const editor = window.activeTextEditor;
    if (editor?.document.uri.scheme === "output") return; // an output panel; the document behind it is unchanged
    const request = ++this.requests;
    this.cursors = editor?.selections.length ?? 1;
    const excluded = editor && exclusionReason(editor.document, editor, window.tabGroups.activeTabGroup.activeTab);
    let here: Here | undefined;
    if (excluded) here = { on: false, reason: "left_alone", message: excluded };
    else if (editor) {
      const textDocument = { uri: editor.document.uri.toString() };
      here = await this.server.request<Here>("speclsp/here", { textDocument });
      if (here?.reason === "not_open") here = undefined; // `didOpen` is on its way
    }
    if (request !== this.requests) return;
    const turnedOff = here?.on === false && this.here?.on !== false;
    this.here = here;
    this.draw();
    if (turnedOff) await commands.executeCommand("editor.action.inlineSuggest.hide"); // hides a shown suggestion
  }

  /** Show the installer's latest line in place of the server's state; "" ends that. */
  showInstalling(line: string): void {
    this.installing = line;
    this.draw();
  }

  /** Show the present state. */
  draw(): void {
    const { health, version, crash } = this.server;
    const { here, installing } = this;
    const snooze = this.snooze.period;
    const shown = bar({ health, here, trusted: workspace.isTrusted, version, crash, snooze, installing });
    this.item.text = shown.text;
    this.item.tooltip = new MarkdownString(shown.hover, true);
    this.item.accessibilityInformation = { label: shown.label, role: "button" };
    this.item.backgroundColor = shown.alarm && new ThemeColor(`statusBarItem.${shown.alarm}Background`);
    void setContextKey("speclsp.found", this.server.found !== undefined);
    void setContextKey("speclsp.ready", isReady(this.server.health));
  }
}
