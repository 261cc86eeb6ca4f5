/** What server and extension say to each other beyond LSP; docs/protocol.md has the words. */

export interface Status {
  state: "starting" | "loading" | "ready" | "thinking" | "asleep" | "waiting" | "stopped" | "off" | "error";
  pair: string;
  target: string;
  draft: string;
  device: string;
  message: string;
  progress: number | null;
  last_latency_ms: number | null;
  acceptance: number | null;
  tokens_per_round: number | null;
  last_reason?: string;
  last_reason_meaning?: string;
  remote?: string; // whom the code is sent to, "" when it stays on this machine
  shared?: boolean;
  clients?: number; // windows and editors that use the engine, this one included
  engine_pid?: number;
  draft_only?: boolean;
  memory?: string; // "full", or what was given back
  problems: string[];
}

/** Whether suggestions come in a document, and if not, which setting says so. */
export interface Here {
  on: boolean;
  reason: string;
  message: string;
}

/** What came of asking the server to try again. */
export interface Retry {
  retrying: boolean;
  message: string; // why not, without a full stop
}

/** Whether the server has given something up that it would try again. */
export const gaveUp = (status: Status | undefined): boolean => status?.state === "error" || status?.state === "stopped";

/** How the last suggestion came about, or why there was none. */
export interface Explanation {
  asked: boolean;
  text: string; // for a person, several lines
}

export interface Pair {
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

export interface Pairs {
  current: string;
  pairs: Pair[];
}

const OLDEST: [number, number] = [0, 1];
const NEXT_MAJOR = 1; // may speak differently

/** Why the server that introduced itself so cannot be used; "" when it can. */
export function versionTrouble(info: { name: string; version?: string } | undefined): string {
  if (info?.name !== "speclsp") return "it does not introduce itself as speclsp";
  const [major = NaN, minor = NaN] = (info.version ?? "").split(".").map(Number);
  if (major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1])) {
    return major < NEXT_MAJOR ? "" : `speclsp ${info.version} is too new for this extension: update the extension`;
  }
  return `speclsp ${info.version ?? "without a version"} is too old: this extension needs ${OLDEST.join(".")} or newer`;
}
