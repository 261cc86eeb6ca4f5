/** The status bar item, kept in step with the server and with the document one looks at. */
import { commands, MarkdownString, StatusBarAlignment, ThemeColor, window, workspace, Disposable } from "vscode";
import { tell } from "./guide";
import { Here } from "./protocol";
import { Server } from "./server";
import { bar } from "./status";
import { leftAlone } from "./suggestions";

const RIGHT_OF_MOST = 90;

/** Shows it from the start, and until it is disposed. */
export class StatusBar implements Disposable {
  here: Here | undefined;
  private readonly item = window.createStatusBarItem("speclsp.status", StatusBarAlignment.Right, RIGHT_OF_MOST);
  private readonly listeners: Disposable[];
  private questions = 0;
  private cursors = 1;
  private phase = "";

  constructor(private readonly server: Server) {
    this.item.name = "speclsp";
    this.item.command = "speclsp.menu";
    const look = (): void => void this.lookHere();
    this.listeners = [
      server.onDidChange(() => {
        this.draw();
        if (this.phase !== (this.phase = phase(server))) look();
      }),
      server.onDidHearSettings(look),
      window.onDidChangeActiveTextEditor(look),
      window.onDidChangeTextEditorSelection(({ selections }) => this.cursors !== selections.length && look()),
      window.tabGroups.onDidChangeTabs(look),
      workspace.onDidOpenTextDocument(look), // also when a document's language changes
      workspace.onDidGrantWorkspaceTrust(() => this.draw()),
    ];
    this.draw();
    this.item.show();
    look();
  }

  dispose(): void {
    for (const one of [this.item, ...this.listeners]) one.dispose();
  }

  /** Ask whether suggestions come in the active document; the answer to the newest question counts. */
  private async lookHere(): Promise<void> {
    const editor = window.activeTextEditor;
    if (editor?.document.uri.scheme === "output") return; // a panel: the document it was about is still there
    const question = ++this.questions;
    this.cursors = editor?.selections.length ?? 1;
    const why = editor && leftAlone(editor.document, editor, window.tabGroups.activeTabGroup.activeTab);
    let here: Here | undefined;
    if (why) here = { on: false, reason: "left_alone", message: why };
    else if (editor) {
      const textDocument = { uri: editor.document.uri.toString() };
      here = await this.server.request<Here>("speclsp/here", { textDocument });
      if (here?.reason === "not_open") here = undefined; // it is about to be
    }
    if (question !== this.questions) return;
    const turnedOff = here?.on === false && this.here?.on !== false;
    this.here = here;
    this.draw();
    if (turnedOff) await commands.executeCommand("editor.action.inlineSuggest.hide"); // what is on the screen
  }

  private draw(): void {
    const { health, version, crash } = this.server;
    const shown = bar({ health, here: this.here, trusted: workspace.isTrusted, version, crash });
    this.item.text = shown.text;
    this.item.tooltip = new MarkdownString(shown.hover, true);
    this.item.accessibilityInformation = { label: shown.label, role: "button" };
    this.item.backgroundColor = shown.alarm && new ThemeColor(`statusBarItem.${shown.alarm}Background`);
    tell("speclsp.found", this.server.found !== undefined);
    tell("speclsp.ready", phase(this.server) === "ready");
  }
}

/** What changes now and then, unlike `thinking`, which comes and goes with every key; an engine wakes by itself. */
function phase({ health }: Server): string {
  if (health.kind !== "running") return health.kind;
  const state = health.status?.state ?? "";
  return state === "thinking" || state === "asleep" ? "ready" : state;
}
