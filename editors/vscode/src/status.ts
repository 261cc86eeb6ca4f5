/** Texts of the status bar in each state. Pure functions, so that they are tested without VS Code. */
import { canRetry, Here, Status } from "./protocol";
import type { Health } from "./server";

/** Input of the status bar. */
export interface Situation {
  health: Health;
  here: Here | undefined; // undefined: no document is open
  trusted: boolean;
  version: string;
  snooze: string; // "until 14:35" or "for this session", "" without a snooze
  crash: string; // description of the last unexpected exit, "" if there was none
  installing: string; // the installer's latest line, "" while none runs
}

export interface Bar {
  text: string; // with icons
  label: string; // for a screen reader
  hover: string; // Markdown
  alarm?: "error" | "warning";
}

type Shown = Omit<Bar, "hover"> & { why: string };

/** Texts and alarm level of the status bar item for a situation. */
export function bar(situation: Situation): Bar {
  const { why, ...shown } = summary(situation);
  const status = situation.health.kind === "running" ? situation.health.status : undefined;
  const lines = [`**speclsp**${situation.version && ` ${situation.version}`}: ${escape(why)}`];
  if (status) lines.push(facts(status));
  for (const problem of status?.problems ?? []) lines.push(`$(warning) ${escape(problem)}`);
  if (status && situation.crash) lines.push(`$(history) ${escape(situation.crash)}`);
  if (!situation.trusted) {
    lines.push(
      "$(shield) Restricted Mode: nothing of this workspace is run, and its Python environment is not looked into.",
    );
  }
  lines.push(canRetry(status) ? "Click for the menu, then **Try again**." : "Click for the menu.");
  return { ...shown, hover: lines.join("\n\n") };
}

/** Short text of the situation, with its reason. */
function summary({ health, here, snooze, installing }: Situation): Shown {
  if (installing) {
    const why = `installing: ${installing}`;
    return { text: "$(loading~spin) speclsp: installing", label: `speclsp: ${why}`, why };
  }
  switch (health.kind) {
    case "looking":
      return waiting("looking for the program");
    case "starting":
      return waiting("the server starts");
    case "missing":
      return {
        text: "$(cloud-download) speclsp: not installed",
        label: "speclsp is not installed",
        why: health.why,
        alarm: "warning",
      };
    case "failed":
      return wrong(health.why);
    case "running":
      return health.status ? running(health.status, here, snooze) : waiting("the server starts");
  }
}

function running(status: Status, here: Here | undefined, snooze: string): Shown {
  if (status.state === "error") return wrong(status.message);
  if (status.state === "stopped") return off(status.message, "stopped");
  if (status.state === "off") return off("completion.enabled is off");
  if (here && !here.on) return off(here.message || here.reason, "off here");
  if (snooze) {
    const why = `suggestions are snoozed ${snooze}; Alt+\\ still requests one`;
    const label = `speclsp: snoozed ${snooze}`;
    return { text: `$(bell-slash) speclsp: snoozed ${snooze}`, label, why };
  }
  const latency = status.show_latency && status.last_latency_ms !== null ? ` ${milliseconds(status)}` : "";
  switch (status.state) {
    case "starting":
      return waiting(status.message || "the engine starts");
    case "loading": {
      const percent = status.progress === null ? "" : ` ${Math.floor(100 * status.progress)} %`;
      const text = `$(loading~spin) speclsp${percent}`;
      const why = status.message || "the model is loaded";
      return { text, label: `speclsp: loading${percent}`, why };
    }
    case "asleep": {
      const why = status.message || "the model is unloaded until the next suggestion is asked for";
      return { text: "$(circle-outline) speclsp", label: "speclsp: asleep", why: `asleep: ${why}` };
    }
    case "thinking":
      return { text: `$(pulse) speclsp${latency}`, label: "speclsp: thinking", why: "thinking" };
    case "ready": {
      const ready = status.trigger === "manual" ? "ready, suggestions on request only (Alt+\\)" : "ready";
      const why = status.message ? `${ready}: ${status.message}` : ready;
      if (status.remote) return { text: `$(cloud) speclsp${latency}`, label: `speclsp: ready, at ${status.remote}`, why };
      return { text: `$(zap) speclsp${latency}`, label: "speclsp: ready", why };
    }
  }
}

const waiting = (why: string): Shown => ({ text: "$(loading~spin) speclsp", label: `speclsp: ${why}`, why });

const off = (why: string, word = "off"): Shown => ({
  text: `$(circle-slash) speclsp: ${word}`,
  label: `speclsp: ${word}, ${why}`,
  why: `${word}: ${why}`,
});

const wrong = (why: string): Shown => ({
  text: "$(error) speclsp: error",
  label: `speclsp: ${why}`,
  why,
  alarm: "error",
});

const milliseconds = (status: Status): string => `${Math.round(status.last_latency_ms ?? 0)} ms`;

/** Tables of the hover: for users, then the figures of the decoding. */
function facts(status: Status): string {
  const others = (status.clients ?? 1) - 1;
  const users: Row[] = [
    ["Model", status.model],
    ["Running on", status.remote ? "" : status.device],
    ["Your code is sent to", status.remote ?? ""],
    ["Last suggestion", status.last_latency_ms === null ? "none yet" : milliseconds(status)],
    ["Why nothing", status.last_reason ? status.last_reason_meaning || status.last_reason : ""],
    ["Shared with", others > 0 ? `${others} more window${others > 1 ? "s" : ""}` : ""],
  ];
  const details: Row[] = [
    ["target", status.target],
    ["draft", status.target && (status.draft || "n-grams of the text")],
    ["engine", engine(status)],
  ];
  return `${table(users)}\n\n**Details**\n\n${table(details)}`;
}

type Row = [name: string, value: string];

/** Markdown table of the rows that have a value. */
function table(rows: Row[]): string {
  const nonEmpty = rows.filter(([, value]) => value);
  return ["| | |", "|:--|:--|", ...nonEmpty.map(([name, value]) => `| ${name} | ${escape(value)} |`)].join("\n");
}

/** Process id of the engine. */
function engine({ engine_pid }: Status): string {
  return engine_pid ? `process ${engine_pid}` : "";
}

/** Escapes untrusted text, so that it cannot become a link, a table cell or markup. */
export function escape(text: string): string {
  return text.replace(/[\\`*_{}[\]()#+\-!|<>~$&]/g, "\\$&").replace(/\s+/g, " ");
}
