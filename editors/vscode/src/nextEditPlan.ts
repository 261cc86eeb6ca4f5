/**
 * Plan of a next edit on the screen: removed text, labels with the new text, and the diff of the hover. Pure functions,
 * so that they are tested without VS Code. Lines and columns are from 0.
 */
import type { NextEdit, Place, Unopened } from "./protocol";

export const FAR_LINES = 2; // an edit further from the cursor gets a hint, and Tab moves the cursor there first
const BULK_CHARACTERS = 200;
const BULK_LINES = 8;
const LABELLED_LINES = 3; // of a replacement of several lines; the hover has all of them
const LABEL_CHARACTERS = 100;
const GAP = 0.5; // before a label inside a line
export const LINE_GAP = 3; // before a label at the end of a line

/** A part of one line. */
export interface Span {
  line: number;
  start: number;
  end: number;
}

/** New text, drawn behind a column of a line, after a gap. */
export interface Label {
  line: number;
  character: number;
  text: string;
  gap: number; // in widths of a character
}

export interface Plan {
  removed: Span[];
  labels: Label[];
  diff: string; // Markdown
}

type Edit = Pick<NextEdit, "range" | "text">;

/** A change of a document, as VS Code reports it. */
export interface Change {
  range: { start: Place; end: Place };
  rangeLength: number;
  text: string;
}

/** True for a paste, a formatter or a branch switch: after it the user's intent is unknown. */
export function isBulk(changes: readonly Change[]): boolean {
  const characters = sum(changes.map(({ rangeLength, text }) => Math.max(rangeLength, text.length)));
  const rows = sum(changes.map(({ range, text }) => Math.max(range.end.line - range.start.line, newlines(text))));
  return characters > BULK_CHARACTERS || rows > BULK_LINES;
}

/** True if the edit is out of the visible lines, or too far from the cursor to be noticed. */
export function isFar({ range }: Edit, cursorLine: number, visible: readonly { start: Place; end: Place }[]): boolean {
  const distance = Math.max(range.start.line - cursorLine, cursorLine - range.end.line);
  const seen = visible.some(({ start, end }) => start.line <= range.start.line && range.start.line <= end.line);
  return distance > FAR_LINES || !seen;
}

export const hintText = ({ range }: Edit): string => `→ Edit at line ${range.start.line + 1} (Tab)`;

/** The hint of an edit in another file. */
export const hintElsewhere = ({ range }: Edit, path: string): string =>
  `→ Edit in ${path.split("/").at(-1)}, line ${range.start.line + 1} (Tab)`;

/** The hint after the last edit of a rename that has uses in other files. */
export const hintUnopened = ({ uses, files }: Unopened): string =>
  `${uses} ${uses === 1 ? "use" : "uses"} in ${files} ${files === 1 ? "file that is" : "files that are"} not open (speclsp: List Uses)`;

/** The plan of an edit. `lines`: the whole lines of its range, without line ends. */
export function planOf({ range, text }: Edit, lines: readonly string[]): Plan {
  const { start, end } = range;
  const head = (lines[0] ?? "").slice(0, start.character);
  const tail = (lines.at(-1) ?? "").slice(end.character);
  const rows = changedRows(lines, `${head}${text}${tail}`.split("\n"), start.line);
  const diff = fenced([...rows.before.map((line) => `-${line}`), ...rows.after.map((line) => `+${line}`)].join("\n"));
  if (start.line !== end.line || text.includes("\n")) return { ...planOfRows(rows, lines, start.line), diff };
  const removed = { line: start.line, start: start.character, end: end.character };
  const isInsertion = removed.start === removed.end;
  const shown = short(isInsertion ? text : `→ ${text}`);
  const label = { line: end.line, character: end.character, text: shown, gap: isInsertion ? 0 : GAP };
  return { removed: isInsertion ? [] : [removed], labels: text ? [label] : [], diff };
}

/** Lines that differ, without equal ones at their ends. `first`: the line number of `before[0]`. */
interface Rows {
  before: readonly string[];
  after: readonly string[];
  first: number;
}

function changedRows(before: readonly string[], after: readonly string[], first: number): Rows {
  const most = Math.min(before.length, after.length);
  let head = 0;
  while (head < most && before[head] === after[head]) head++;
  let tail = 0;
  while (tail < most - head && before.at(-1 - tail) === after.at(-1 - tail)) tail++;
  const changed = (lines: readonly string[]): string[] => lines.slice(head, lines.length - tail);
  return { before: changed(before), after: changed(after), first: first + head };
}

/** Labels behind the lines: a new line for each old one, then the number of further lines. */
function planOfRows({ before, after, first }: Rows, lines: readonly string[], top: number): Omit<Plan, "diff"> {
  const removed = before
    .map((line, row) => ({ line: first + row, start: line.search(/\S|$/), end: line.trimEnd().length }))
    .filter(({ start, end }) => start < end);
  const shown = after.slice(0, Math.min(LABELLED_LINES, Math.max(before.length, 1)));
  const further = after.length - shown.length;
  const labels = shown.map((line, row) => {
    const more = further && row === shown.length - 1 ? ` (+${further} ${further > 1 ? "lines" : "line"})` : "";
    const at = before.length ? first + row : Math.max(first - 1, top); // an insertion: behind the line above it
    const text = `${before.length ? "→" : "+"} ${short(line.trim() || "(empty line)")}${more}`;
    return { line: at, character: (lines[at - top] ?? "").length, text, gap: LINE_GAP };
  });
  return { removed, labels };
}

/** A Markdown code block that the text cannot end. */
function fenced(text: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}diff\n${text}\n${fence}`;
}

const short = (text: string): string =>
  text.length > LABEL_CHARACTERS ? `${text.slice(0, LABEL_CHARACTERS - 1)}…` : text;

const newlines = (text: string): number => text.split("\n").length - 1;

const sum = (numbers: readonly number[]): number => numbers.reduce((total, number) => total + number, 0);
