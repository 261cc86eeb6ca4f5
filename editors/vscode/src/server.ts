/** The server's life: found, started, restarted when it crashes, stopped without leaving a process behind. */
import { ChildProcess, spawn } from "node:child_process";
import { homedir } from "node:os";
import { EventEmitter, InlineCompletionItem, InlineCompletionList, LogOutputChannel } from "vscode";
import {
  CloseAction,
  ErrorAction,
  RevealOutputChannelOn,
  WorkDoneProgressCancelNotification,
} from "vscode-languageclient";
import { LanguageClient, LanguageClientOptions } from "vscode-languageclient/node";
import { Found } from "./find";
import { ended, gone } from "./processes";
import { Notifications } from "./progress";
import { Status, versionTrouble } from "./protocol";
import { forAFreshStart } from "./settings";
import { SCHEMES, suggest } from "./suggestions";

const CRASHES = 5; // in CRASH_WINDOW_MS; then it is left alone
const CRASH_WINDOW_MS = 180_000;
const START_MS = 60_000; // to answer `initialize`; it takes half a second where nothing is wrong
const STOP_MS = 1200; // for a shutdown in order; VS Code gives an extension little more
const EXIT_MS = 300; // from the end of its input to its end

/** What the extension knows about the server. */
export type Health =
  | { kind: "looking" }
  | { kind: "missing"; why: string }
  | { kind: "starting" }
  | { kind: "running"; status: Status | undefined }
  | { kind: "failed"; why: string; outdated?: true };

export type Look = () => Promise<Found | { missing: string }>;

/** One language server for this window. */
export class Server {
  health: Health = { kind: "looking" };
  found: Found | undefined;
  version = "";
  crash = ""; // how it ended the last time, where nobody asked for that
  private sent: Record<string, unknown> = {}; // the settings it has heard
  private client: LanguageClient | undefined;
  private process: ChildProcess | undefined;
  private crashes: number[] = [];
  private stopped = false;
  private lastWords = ""; // the last line on its stderr
  private turn: Promise<void> = Promise.resolve(); // starts and stops, one after the other
  private readonly changed = new EventEmitter<Health>();
  private readonly heard = new EventEmitter<void>();
  private readonly answered = new EventEmitter<InlineCompletionItem[] | InlineCompletionList>();
  readonly onDidChange = this.changed.event;
  readonly onDidHearSettings = this.heard.event;
  readonly onDidSuggest = this.answered.event;

  constructor(
    private readonly look: Look,
    private readonly settings: () => Record<string, unknown>,
    private readonly log: LogOutputChannel,
  ) {}

  /** Look for the server and start it, after ending the one that runs. */
  restart(): Promise<void> {
    this.crashes = [];
    this.crash = "";
    this.giveUpStarting();
    return this.inTurn(async () => {
      await this.end();
      await this.begin();
    });
  }

  /** For good: nothing is started any more. */
  stop(): Promise<void> {
    this.stopped = true;
    this.giveUpStarting();
    return this.inTurn(() => this.end());
  }

  /** Ask for one of ours. Undefined when there is no server, it does not know the request, or it failed. */
  async request<Answer>(method: string, params: object): Promise<Answer | undefined> {
    if (this.health.kind !== "running" || !this.client) return undefined;
    try {
      return await this.client.sendRequest<Answer>(method, params);
    } catch (error) {
      this.log.debug(`${method}: ${String(error)}`);
      return undefined;
    }
  }

  private inTurn(work: () => Promise<void>): Promise<void> {
    this.turn = this.turn.then(work).catch((error: unknown) => this.become({ kind: "failed", why: String(error) }));
    return this.turn;
  }

  private become(health: Health): void {
    this.health = health;
    if (health.kind !== "running")
      this.log.info(`${health.kind}${"why" in health && health.why ? `: ${health.why}` : ""}`);
    this.changed.fire(health);
  }

  private async begin(): Promise<void> {
    if (this.stopped) return;
    this.version = "";
    this.become({ kind: "looking" });
    const found = await this.look();
    if ("missing" in found) {
      this.found = undefined;
      return this.become({ kind: "missing", why: found.missing });
    }
    this.found = found;
    this.become({ kind: "starting" });
    this.log.info(`${found.path} lsp (from ${found.from})`);
    this.lastWords = "";
    const client = (this.client = this.makeClient(found.path));
    client.onNotification("speclsp/status", (status: Status) => {
      if (this.client === client) this.become({ kind: "running", status });
    });
    let late = false;
    const timer = setTimeout(() => ((late = true), this.giveUpStarting()), START_MS);
    try {
      await client.start();
    } catch (error) {
      const { process } = this;
      const itself = process?.pid !== undefined && (await gone(process, EXIT_MS));
      await this.end();
      const ended = itself ? `it ended ${this.ending(process)}` : plain(error);
      const why = late ? `it did not answer within ${START_MS / 1000} s` : ended;
      return this.become({ kind: "failed", why: `it did not start: ${why}` });
    } finally {
      clearTimeout(timer);
    }
    if (!client.isRunning()) return this.afterCrash(); // at once
    const info = client.initializeResult?.serverInfo;
    const trouble = versionTrouble(info);
    this.version = info?.version ?? "";
    if (trouble) {
      await this.end();
      return this.become({ kind: "failed", why: `${trouble} (${found.path}, from ${found.from}).`, outdated: true });
    }
    const { health } = this;
    if (health.kind !== "running") this.become({ kind: "running", status: undefined });
  }

  private makeClient(program: string): LanguageClient {
    const notifications = new Notifications((token) => {
      void client.sendNotification(WorkDoneProgressCancelNotification.type, { token });
    });
    const options: LanguageClientOptions = {
      documentSelector: SCHEMES.map((scheme) => ({ scheme })),
      outputChannel: this.log,
      revealOutputChannelOn: RevealOutputChannelOn.Never,
      initializationOptions: () => this.hear(),
      initializationFailedHandler: () => false, // no popup: `begin` says it
      errorHandler: {
        error: () => ({ action: ErrorAction.Continue, handled: true }),
        closed: () => {
          notifications.endAll();
          this.onClosed(client);
          return { action: CloseAction.DoNotRestart, handled: true }; // a new client is made instead
        },
      },
      middleware: {
        provideInlineCompletionItems: async (document, position, context, token) => {
          const failed = (error: unknown): void => this.log.warn(`no suggestion: ${plain(error)}`);
          const answer = await suggest(client, failed, document, position, context, token);
          this.answered.fire(answer);
          return answer;
        },
        handleWorkDoneProgress: (token, part) => notifications.show(token, part),
        workspace: {
          configuration: (params) => params.items.map(() => this.hear()),
          didChangeConfiguration: async () => {
            const fresh = forAFreshStart(this.sent, this.hear());
            if (fresh.length) {
              this.log.info(`changed: ${fresh.join(", ")}; a new start reads that`);
              return void this.restart();
            }
            await client.sendNotification("workspace/didChangeConfiguration", { settings: { speclsp: this.sent } });
            this.heard.fire();
          },
        },
      },
    };
    const client: LanguageClient = new QuietClient("speclsp", "speclsp", () => this.spawn(program), options);
    return client;
  }

  private hear(): Record<string, unknown> {
    return (this.sent = this.settings());
  }

  private async spawn(program: string): Promise<ChildProcess> {
    const child = spawn(program, ["lsp"], { cwd: homedir(), stdio: "pipe" }); // Python may import from where it is
    this.process = child;
    child.stderr.on("data", (bytes: Buffer) => {
      const lines = bytes
        .toString()
        .split("\n")
        .filter((line) => line.trim());
      this.lastWords = lines.at(-1)?.trim() ?? this.lastWords;
    });
    child.stdin.on("error", () => undefined); // it has gone; `closed` says so
    await new Promise<void>((resolve, reject) => {
      child.once("spawn", resolve);
      child.once("error", reject);
    });
    return child;
  }

  /** The connection closed. Expected while ending; else it crashed. */
  private onClosed(client: LanguageClient): void {
    if (this.client !== client || this.health.kind !== "running") return;
    void this.inTurn(() => (this.client === client ? this.afterCrash() : Promise.resolve()));
  }

  /** Start it again, unless that happens too often. */
  private async afterCrash(): Promise<void> {
    const { process } = this;
    await this.end();
    const why = `it ended unexpectedly ${this.ending(process)}`;
    this.crash = `${why}; started again`;
    const now = Date.now();
    this.crashes = [...this.crashes.filter((when) => now - when < CRASH_WINDOW_MS), now];
    if (this.crashes.length >= CRASHES) {
      return this.become({ kind: "failed", why: `${why} (${CRASHES} times in a row). Restart it from the menu.` });
    }
    await this.begin();
  }

  /** How it ended, with the last it said. */
  private ending(process: ChildProcess | undefined): string {
    const how = process?.signalCode ? `by ${process.signalCode}` : `with code ${process?.exitCode ?? "unknown"}`;
    return how + (this.lastWords && `: ${this.lastWords}`);
  }

  /** A server that never answers would hold up all that waits for its turn. */
  private giveUpStarting(): void {
    if (this.health.kind === "starting") this.process?.kill("SIGKILL");
  }

  /** Stop what runs; within STOP_MS and a little, and by force if it must be. */
  private async end(): Promise<void> {
    const { client, process } = this;
    this.client = this.process = undefined;
    if (client?.isRunning()) await client.stop(STOP_MS).catch(() => undefined);
    if (process) await ended(process, EXIT_MS);
    if (client) await client.dispose().catch(() => undefined);
  }
}

/** The language client, without its popups: what is wrong stands in the status bar and in the log. */
class QuietClient extends LanguageClient {
  override error(message: string, data?: unknown): void {
    super.error(message, data, false);
  }
}

const plain = (error: unknown): string => (error instanceof Error ? error.message : String(error)).replace(/\.$/, "");
