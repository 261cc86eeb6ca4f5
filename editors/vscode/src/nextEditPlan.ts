/**
 * Plan of a next edit on the screen: removed text, labels with the new text, and the diff of the hover. Pure functions,
 * so that they are tested without VS Code. Lines and columns are from 0.
 */
import type { NextEdit, Place, Unopened } from "./protocol";
import { changedWords, commonEnds } from "./wordDiff";

export const FAR_LINES = 2; // an edit further from the cursor gets a hint, and Tab moves the cursor there first
const BULK_CHARACTERS = 200;
const BULK_LINES = 8;
const LABELLED_LINES = 3; // of a replacement of several lines; the hover has all of them
const MOST_COLUMNS = 100; // of a line with its labels: the width of an editor is unknown to an extension
const LEAST_COLUMNS = 30; // of a label behind a long line
const BOX_CHARACTERS = 800; // of a wrapped line; the hover has all of it
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
  isBelow?: boolean; // a whole line, which wraps in a box below the old one
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

/** The hint after the last edit of a chain. `unopened`: uses of a renamed name in other files. */
export function doneText(edits: number, unopened?: Unopened): string {
  const done = `done: ${counted(edits, "edit")}`;
  if (!unopened) return done;
  const { uses, files } = unopened;
  const places = `${counted(uses, "use")} in ${counted(files, "file")} that ${files === 1 ? "is" : "are"} not open`;
  return `${edits ? `${done}; ` : ""}${places} (speclsp: List Uses)`;
}

/** The offsets of the placeholder in the new text; both are at its end where there is none. */
export function placeholderIn({ range: { start }, text, placeholder }: Edit & Pick<NextEdit, "placeholder">): number[] {
  const end = { line: start.line, character: start.character + text.length };
  return [placeholder?.start ?? end, placeholder?.end ?? end].map(({ line, character }) => {
    const above = text.split("\n").slice(0, line - start.line);
    return sum(above.map((row) => row.length + 1)) + character - (above.length ? 0 : start.character);
  });
}

/** The plan of an edit. `lines`: the whole lines of its range, without line ends. */
export function planOf({ range: { start, end }, text }: Edit, lines: readonly string[]): Plan {
  const head = (lines[0] ?? "").slice(0, start.character);
  const tail = (lines.at(-1) ?? "").slice(end.character);
  const after = `${head}${text}${tail}`.split("\n");
  const ends = commonEnds(lines, after);
  const changed = (all: readonly string[]): string[] => all.slice(ends.head, all.length - ends.tail);
  const rows = { before: changed(lines), after: changed(after), first: start.line + ends.head };
  const diff = fenced([...rows.before.map((line) => `-${line}`), ...rows.after.map((line) => `+${line}`)].join("\n"));
  return { ...(planOfWords(rows) ?? planOfRows(rows, lines, start.line)), diff };
}

/** Lines that differ, without equal ones at their ends. `first`: the line number of `before[0]`. */
interface Rows {
  before: readonly string[];
  after: readonly string[];
  first: number;
}

/** Labels behind the changed words. Undefined: lines without pairs or room, too many, indented anew, or mostly new. */
function planOfWords({ before, after, first }: Rows): Omit<Plan, "diff"> | undefined {
  if (before.length !== after.length || before.length > LABELLED_LINES) return undefined;
  if (before.some((line, row) => indentation(line) !== indentation(after[row] ?? ""))) return undefined;
  const plans = before.map((line, row) => planOfLine(line, after[row] ?? "", first + row));
  const labels = plans.flatMap((plan) => plan.labels);
  const added = sum(plans.map((plan) => plan.added));
  const isMostlyNew = 2 * added > sum(after.map((line) => line.trim().length));
  if (plans.length > 1 && (isMostlyNew || labels.some(({ isBelow }) => isBelow))) return undefined;
  return { removed: plans.flatMap((plan) => plan.removed), labels };
}

/** The changed words of a line. Without room for labels, its new text is a box below it. */
function planOfLine(before: string, after: string, line: number): Omit<Plan, "diff"> & { added: number } {
  const words = changedWords(before, after);
  const removed = words.filter(({ start, end }) => start < end).map(({ start, end }) => ({ line, start, end }));
  const labels = words
    .filter(({ added }) => added)
    .map(({ start, end, added }): Label => {
      const [text, gap] = start < end ? [`→ ${added}`, GAP] : [added, 0];
      return { line, character: end, text, gap };
    });
  const added = sum(words.map((word) => word.added.trim().length));
  const drawn = before.slice(0, labels.at(-1)?.character ?? 0) + labels.map(({ text }) => text).join("");
  if (hasRoom(drawn)) return { removed, labels, added };
  const gap = columns(indentation(after));
  const text = short(after.trim(), BOX_CHARACTERS);
  return { removed, labels: [{ line, character: before.length, text, gap, isBelow: true }], added };
}

/** Labels behind the lines: a new line for each old one, then the number of further lines. */
function planOfRows({ before, after, first }: Rows, lines: readonly string[], top: number): Omit<Plan, "diff"> {
  const removed = before
    .map((line, row) => ({ line: first + row, start: line.search(/\S|$/), end: line.trimEnd().length }))
    .filter(({ start, end }) => start < end);
  const shown = after.slice(0, Math.min(LABELLED_LINES, Math.max(before.length, 1)));
  const further = after.length - shown.length;
  const labels = shown.map((line, row) => {
    const more = further && row === shown.length - 1 ? ` (+${counted(further, "line")})` : "";
    const at = before.length ? first + row : Math.max(first - 1, top); // an insertion: behind the line above it
    const old = lines[at - top] ?? "";
    const room = Math.max(MOST_COLUMNS - columns(old) - LINE_GAP, LEAST_COLUMNS) - more.length;
    const text = `${before.length ? "→" : "+"} ${short(line.trim() || "(empty line)", room)}${more}`;
    return { line: at, character: old.length, text, gap: LINE_GAP };
  });
  return { removed, labels };
}

/** A Markdown code block that the text cannot end. */
function fenced(text: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}diff\n${text}\n${fence}`;
}

const short = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** True if most editors are wide enough for a line with this text. */
export const hasRoom = (text: string): boolean => columns(text) <= MOST_COLUMNS;

/** The width on the screen, about: tabs of 4, and wide characters of 2. */
const columns = (text: string): number =>
  text.replaceAll("\t", " ".repeat(4)).replace(/[\u1100-\ud7ff\uf900-\ufaff\uff00-\uff60]/g, "  ").length;

const indentation = (line: string): string => line.slice(0, line.search(/\S|$/));

const counted = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? "" : "s"}`;

const newlines = (text: string): number => text.split("\n").length - 1;

const sum = (numbers: readonly number[]): number => numbers.reduce((total, number) => total + number, 0);
