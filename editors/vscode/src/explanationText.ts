/** Text of an explanation: its headline, then a line for each member that says something. */
import type { Explanation } from "./protocol";

const LABEL_COLUMNS = 20;

/** A value in one line; "" for one that says nothing, as 0 and false. */
function flat(value: unknown): string {
  if (typeof value !== "object") return value ? String(value) : "";
  return Object.entries(value ?? {})
    .map(([name, part]): [string, string] => [Array.isArray(value) ? "" : `${name} `, flat(part)])
    .filter(([, text]) => text)
    .map(([name, text]) => name + text)
    .join(", ");
}

export function explanationText(explanation: Explanation): string {
  const { asked, meaning, ...members } = explanation;
  const shown = `suggested: ${members.shown_characters} characters`;
  const headline = members.outcome === "shown" ? shown : `nothing shown: ${meaning}`;
  const rows = Object.entries(members)
    .map(([name, value]): [string, string] => [name.replaceAll("_", " "), flat(value)])
    .filter(([, text]) => text);
  return [asked ? headline : "no requests yet", ...rows.map(([name, text]) => name.padEnd(LABEL_COLUMNS) + text)].join("\n");
}
