/** Types of the speclsp messages that extend LSP; docs/lsp-extensions.md describes them. */

export interface Status {
  state: "starting" | "loading" | "ready" | "thinking" | "asleep" | "stopped" | "off" | "error";
  model: string;
  target: string;
  draft: string;
  device: string;
  message: string;
  progress: number | null;
  last_latency_ms: number | null;
  last_reason?: string;
  last_reason_meaning?: string;
  remote?: string; // host that receives the code, "" when it stays on this machine
  clients?: number; // number of windows and editors that use the engine, including this one
  engine_pid?: number;
  trigger?: "automatic" | "manual"; // completion.trigger
  eagerness?: string; // completion.eagerness
  show_latency?: boolean; // completion.show_latency
  next_edit?: boolean; // next_edit.enabled
  problems: string[];
}

/** Reply to speclsp/here: whether suggestions are on in a document, and the setting that turns them off. */
export interface Here {
  on: boolean;
  reason: string;
  message: string;
}

/** A position of LSP: line and UTF-16 column, both from 0. */
export interface Place {
  line: number;
  character: number;
}

/** speclsp/suggestionGrew: further lines have joined the suggestion of a request. */
export interface SuggestionGrew {
  textDocument: { uri: string; version: number };
  position: Place;
}

/** One edit of the reply to textDocument/copilotInlineEdit. */
export interface NextEdit {
  text: string;
  range: { start: Place; end: Place };
  textDocument: { uri: string; version: number };
  command: { title: string; command: string; arguments: [string] }; // reports that it was accepted; names the edit
  kind: "edit" | "rename";
  ghost: boolean; // ghost text at the cursor can show it
  placeholder?: { start: Place; end: Place }; // a part of the new text to select, in the document after the edit
}

/** Reply to textDocument/copilotInlineEdit: one edit at most. */
export interface NextEditAnswer {
  edits: NextEdit[];
  unopened?: Unopened;
}

/** Uses of a name in files that are not open, after its rename in the open ones. */
export interface Unopened {
  uses: number;
  files: number;
}

/** Reply to speclsp/uses: the uses that the last rename has left in other files. */
export interface Uses {
  uses: { uri: string; range: { start: Place; end: Place }; line: string }[];
}

/** Reply to speclsp/retry. */
export interface Retry {
  retrying: boolean;
  message: string; // the reason for not retrying, without a full stop
}

/** True while the server is in a state that a retry can end. */
export const canRetry = (status: Status | undefined): boolean =>
  status?.state === "error" || status?.state === "stopped";

/** Reply to speclsp/explain: the origin of the last suggestion, or the reason why there was none. */
export interface Explanation {
  asked: boolean; // false: no request yet
  outcome?: string; // "shown", or a reason
  meaning?: string; // the reason in one line
  shown_characters?: number;
  [member: string]: unknown;
}

/** One model in the reply to speclsp/models. */
export interface Model {
  name: string;
  title: string;
  target: string;
  draft: string;
  download_mib: number;
  memory_mib: number;
  fits: boolean;
  fetched: boolean;
  licence: string;
  why: string;
}

/** Reply to speclsp/models. */
export interface Models {
  current: string;
  models: Model[];
}

const OLDEST: [number, number] = [0, 1]; // first supported server version: major, minor
const NEXT_MAJOR = 1; // first unsupported major version: its protocol may differ

/** Returns the reason why a server with this `serverInfo` cannot be used; "" when it can. */
export function versionProblem(info: { name: string; version?: string } | undefined): string {
  if (info?.name !== "speclsp") return "it does not introduce itself as speclsp";
  const [major = NaN, minor = NaN] = (info.version ?? "").split(".").map(Number);
  if (major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1])) {
    return major < NEXT_MAJOR ? "" : `speclsp ${info.version} is too new for this extension: update the extension`;
  }
  return `speclsp ${info.version ?? "without a version"} is too old: this extension needs ${OLDEST.join(".")} or newer`;
}
