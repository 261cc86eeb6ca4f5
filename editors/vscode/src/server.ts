/** Lifecycle of the language server: search, start, restart after a crash, and stop without a leftover process. */
import { ChildProcess, spawn } from "node:child_process";
import { homedir } from "node:os";
import {
  CancellationToken,
  EventEmitter,
  InlineCompletionTriggerKind,
  LogOutputChannel,
  Position,
  TextDocument,
} from "vscode";
import {
  CloseAction,
  ErrorAction,
  InitializeParams,
  RevealOutputChannelOn,
  WorkDoneProgressCancelNotification,
} from "vscode-languageclient";
import { LanguageClient, LanguageClientOptions } from "vscode-languageclient/node";
import { Found } from "./find";
import { endProcess, exitsWithin, killTree, startWords } from "./processes";
import { Notifications } from "./progress";
import { Status, SuggestionGrew, versionProblem } from "./protocol";
import { needingRestart } from "./settings";
import { hasItems, Items, Repeats, SCHEMES, suggest } from "./suggestions";

const CRASHES = 5; // within CRASH_WINDOW_MS; after that the server is not restarted
const CRASH_WINDOW_MS = 180_000;
const START_MS = 60_000; // limit for the reply to `initialize`; normally it takes half a second
const STOP_MS = 1200; // limit for an orderly shutdown; VS Code gives an extension little more
const EXIT_MS = 300; // limit from the end of its input to its exit

/** State of the server, as the extension knows it. */
export type Health =
  | { kind: "looking" }
  | { kind: "missing"; why: string }
  | { kind: "starting" }
  | { kind: "running"; status: Status | undefined }
  | { kind: "failed"; why: string; outdated?: true };

/**
 * State without the states that change with every key: `thinking` counts as ready, and so does `asleep`, because the
 * engine wakes by itself.
 */
export function phase(health: Health): string {
  if (health.kind !== "running") return health.kind;
  const state = health.status?.state ?? "";
  return state === "thinking" || state === "asleep" ? "ready" : state;
}

export const isReady = (health: Health): boolean => phase(health) === "ready";

/** Adds to the suggestions at a position; `ask` returns those of the server. */
export type Extend = (
  document: TextDocument,
  position: Position,
  byHand: boolean,
  ask: () => Promise<Items>,
) => Promise<Items>;

export type Locate = () => Promise<Found | { missing: string }>;

/** One language server for this window. */
export class Server {
  health: Health = { kind: "looking" };
  found: Found | undefined;
  version = "";
  crash = ""; // description of the last unexpected exit
  extend: Extend = (_document, _position, _byHand, ask) => ask();
  private sent: Record<string, unknown> = {}; // the settings last sent to the server
  private client: LanguageClient | undefined;
  private process: ChildProcess | undefined;
  private crashes: number[] = [];
  private stopped = false;
  private lastStderrLine = "";
  private queue: Promise<void> = Promise.resolve(); // starts and stops run one after the other
  private readonly repeats = new Repeats();
  private readonly changed = new EventEmitter<Health>();
  private readonly settingsSent = new EventEmitter<void>();
  private readonly suggested = new EventEmitter<Items>();
  readonly onDidChange = this.changed.event;
  readonly onDidSendSettings = this.settingsSent.event;
  readonly onDidSuggest = this.suggested.event;

  constructor(
    private readonly locate: Locate,
    private readonly settings: () => Record<string, unknown>,
    private readonly log: LogOutputChannel,
    private readonly isSnoozed: () => boolean,
  ) {}

  /** Find the server and start it, after ending the running one. */
  restart(): Promise<void> {
    this.crashes = [];
    this.crash = "";
    this.killIfStarting();
    return this.enqueue(async () => {
      await this.end();
      await this.begin();
    });
  }

  /** End the server until `restart`. Windows cannot replace the files of a running program. */
  pause(): Promise<void> {
    this.killIfStarting();
    return this.enqueue(async () => {
      await this.end();
      this.setHealth({ kind: "looking" });
    });
  }

  /** Stop the server for good: it is not started again. */
  stop(): Promise<void> {
    this.stopped = true;
    this.killIfStarting();
    return this.enqueue(() => this.end());
  }

  /** Send a speclsp request. Undefined when no server runs, it does not know the method, or the request failed. */
  async request<T>(method: string, params: object, token?: CancellationToken): Promise<T | undefined> {
    if (this.health.kind !== "running" || !this.client) return undefined;
    try {
      const { client } = this;
      return await (token ? client.sendRequest<T>(method, params, token) : client.sendRequest<T>(method, params));
    } catch (error) {
      this.log.debug(`${method}: ${String(error)}`);
      return undefined;
    }
  }

  /** Send a speclsp notification. Lost when no server runs. */
  notify(method: string, params: object): void {
    if (this.health.kind !== "running" || !this.client) return;
    this.client
      .sendNotification(method, params)
      .catch((error: unknown) => this.log.debug(`${method}: ${String(error)}`));
  }

  private enqueue(work: () => Promise<void>): Promise<void> {
    this.queue = this.queue
      .then(work)
      .catch((error: unknown) => this.setHealth({ kind: "failed", why: String(error) }));
    return this.queue;
  }

  private setHealth(health: Health): void {
    const becomesReady = isReady(health) && !isReady(this.health);
    this.health = health;
    if (health.kind !== "running")
      this.log.info(`${health.kind}${"why" in health && health.why ? `: ${health.why}` : ""}`);
    this.changed.fire(health);
    if (becomesReady) void this.repeats.whenReady();
  }

  private async begin(): Promise<void> {
    if (this.stopped) return;
    this.version = "";
    this.setHealth({ kind: "looking" });
    const found = await this.locate();
    if ("missing" in found) {
      this.found = undefined;
      return this.setHealth({ kind: "missing", why: found.missing });
    }
    this.found = found;
    this.setHealth({ kind: "starting" });
    this.log.info(`${found.path} lsp (from ${found.from})`);
    this.lastStderrLine = "";
    const client = (this.client = this.makeClient(found.path));
    client.onNotification("speclsp/status", (status: Status) => {
      if (this.client === client) this.setHealth({ kind: "running", status });
    });
    client.onNotification("speclsp/suggestionGrew", (grew: SuggestionGrew) => {
      const { uri, version } = grew.textDocument;
      const document = client.protocol2CodeConverter.asUri(uri).toString();
      const position = client.protocol2CodeConverter.asPosition(grew.position);
      if (this.client === client) void this.repeats.whenGrown({ uri: document, version, position });
    });
    let timedOut = false;
    const timer = setTimeout(() => ((timedOut = true), this.killIfStarting()), START_MS);
    try {
      await client.start();
    } catch (error) {
      const { process } = this;
      const exited = process?.pid !== undefined && (await exitsWithin(process, EXIT_MS));
      await this.end();
      const cause = exited ? `it ended ${this.exitReason(process)}` : plain(error);
      const why = timedOut ? `it did not answer within ${START_MS / 1000} s` : cause;
      return this.setHealth({ kind: "failed", why: `it did not start: ${why}` });
    } finally {
      clearTimeout(timer);
    }
    if (!client.isRunning()) return this.afterCrash(); // it crashed right after `initialize`
    const info = client.initializeResult?.serverInfo;
    const problem = versionProblem(info);
    this.version = info?.version ?? "";
    if (problem) {
      await this.end();
      return this.setHealth({ kind: "failed", why: `${problem} (${found.path}, from ${found.from}).`, outdated: true });
    }
    const { health } = this;
    if (health.kind !== "running") this.setHealth({ kind: "running", status: undefined });
  }

  private makeClient(program: string): LanguageClient {
    const notifications = new Notifications((token) => {
      void client.sendNotification(WorkDoneProgressCancelNotification.type, { token });
    });
    const options: LanguageClientOptions = {
      documentSelector: SCHEMES.map((scheme) => ({ scheme })),
      outputChannel: this.log,
      revealOutputChannelOn: RevealOutputChannelOn.Never,
      initializationOptions: () => this.readSettings(),
      initializationFailedHandler: () => false, // no popup: `begin` reports it
      errorHandler: {
        error: () => ({ action: ErrorAction.Continue, handled: true }),
        closed: () => {
          notifications.endAll();
          this.onClosed(client);
          return { action: CloseAction.DoNotRestart, handled: true }; // `afterCrash` makes a new client
        },
      },
      middleware: {
        provideInlineCompletionItems: async (document, position, asked, token) => {
          const context = this.repeats.contextOf(asked);
          const byHand = context.triggerKind === InlineCompletionTriggerKind.Invoke;
          if (!byHand && this.isSnoozed()) return [];
          const onError = (error: unknown): void => this.log.warn(`no suggestion: ${plain(error)}`);
          const ask = (): Promise<Items> => suggest(client, onError, document, position, context, token);
          const isFinal = byHand || isReady(this.health);
          const answer = await this.extend(document, position, byHand, ask);
          this.repeats.answered(document, position, isFinal || hasItems(answer));
          if (isReady(this.health)) void this.repeats.whenReady();
          this.suggested.fire(answer);
          return answer;
        },
        handleWorkDoneProgress: (token, part) => notifications.show(token, part),
        workspace: {
          configuration: (params) => params.items.map(() => this.readSettings()),
          didChangeConfiguration: async () => {
            const keys = needingRestart(this.sent, this.readSettings());
            if (keys.length) {
              this.log.info(`changed: ${keys.join(", ")}; a new start reads that`);
              return void this.restart();
            }
            await client.sendNotification("workspace/didChangeConfiguration", { settings: { speclsp: this.sent } });
            this.settingsSent.fire();
          },
        },
      },
    };
    const client: LanguageClient = new QuietClient("speclsp", "speclsp", () => this.spawn(program), options);
    return client;
  }

  private readSettings(): Record<string, unknown> {
    return (this.sent = this.settings());
  }

  private async spawn(program: string): Promise<ChildProcess> {
    // Started in the home directory, because Python may import from its working directory.
    const { file, args, ...options } = startWords(program, ["lsp"], process.platform, process.env);
    const child = spawn(file, args, { cwd: homedir(), stdio: "pipe", windowsHide: true, ...options });
    this.process = child;
    child.stderr.on("data", (bytes: Buffer) => {
      const lines = bytes
        .toString()
        .split("\n")
        .filter((line) => line.trim());
      this.lastStderrLine = lines.at(-1)?.trim() ?? this.lastStderrLine;
    });
    child.stdin.on("error", () => undefined); // the server has exited; `closed` reports it
    await new Promise<void>((resolve, reject) => {
      child.once("spawn", resolve);
      child.once("error", reject);
    });
    return child;
  }

  /** Handle a closed connection: expected while stopping, else a crash. */
  private onClosed(client: LanguageClient): void {
    if (this.client !== client || this.health.kind !== "running") return;
    void this.enqueue(() => (this.client === client ? this.afterCrash() : Promise.resolve()));
  }

  /** Start the server again, unless it crashes too often. */
  private async afterCrash(): Promise<void> {
    const { process } = this;
    await this.end();
    const why = `it ended unexpectedly ${this.exitReason(process)}`;
    this.crash = `${why}; started again`;
    const now = Date.now();
    this.crashes = [...this.crashes.filter((time) => now - time < CRASH_WINDOW_MS), now];
    if (this.crashes.length >= CRASHES) {
      return this.setHealth({ kind: "failed", why: `${why} (${CRASHES} times in a row). Restart it from the menu.` });
    }
    await this.begin();
  }

  /** Exit code or signal of the process, with the last line of its stderr. */
  private exitReason(process: ChildProcess | undefined): string {
    const how = process?.signalCode ? `by ${process.signalCode}` : `with code ${process?.exitCode ?? "unknown"}`;
    return how + (this.lastStderrLine && `: ${this.lastStderrLine}`);
  }

  /** Kill a server that is still starting, because one that never answers would block the queue. */
  private killIfStarting(): void {
    if (this.health.kind === "starting" && this.process) killTree(this.process);
  }

  /** Stop client and process within about STOP_MS + EXIT_MS, then by force. */
  private async end(): Promise<void> {
    const { client, process } = this;
    this.client = this.process = undefined;
    if (client?.isRunning()) await client.stop(STOP_MS).catch(() => undefined);
    if (process) await endProcess(process, EXIT_MS);
    if (client) await client.dispose().catch(() => undefined);
  }
}

/** Language client without popups: the status bar and the log show errors. */
class QuietClient extends LanguageClient {
  override error(message: string, data?: unknown): void {
    super.error(message, data, false);
  }

  /** VS Code shows an item whose range begins left of the cursor, and draws a suggestion again that has grown. */
  protected override fillInitializeParams(params: InitializeParams): void {
    super.fillInitializeParams(params);
    const speclsp = { outdent: true, suggestionGrew: true, nextEditElsewhere: true, nextEditPlaceholder: true };
    params.capabilities.experimental = { ...params.capabilities.experimental, speclsp };
  }
}

const plain = (error: unknown): string => (error instanceof Error ? error.message : String(error)).replace(/\.$/, "");
