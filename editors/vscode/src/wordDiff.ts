/** Words that differ between two lines, by the longest common subsequence of their tokens. Pure functions. */

/** Removed text of the old line, as columns from 0, and the new text behind it. */
export interface Word {
  start: number;
  end: number;
  added: string;
}

const TOKENS = /[\w\u0080-\uffff]+|\s+|[=<>!&|+*/%^-]+|./g; // identifiers, blanks, operators, other characters
const JOINING = /^(\s*|[.:?>-]+)$/; // unchanged text that does not part two changes: `console.log` into `logger.debug`
const MOST_KINDS = 2; // of changes in a line; more of them are easier to read as one
const MAX_CELLS = 40_000; // of the table of common subsequences; a larger one would delay the drawing

/** The changes of a line. Unchanged words stand between them. */
export function changedWords(before: string, after: string): Word[] {
  const [old, next] = [before, after].map((line): string[] => line.match(TOKENS) ?? []) as [string[], string[]];
  const { head, tail } = commonEnds(old, next);
  const words: Word[] = [];
  let at = old.slice(0, head).join("").length;
  let unchanged = ""; // text since the last change
  for (const { token, is } of steps(old.slice(head, old.length - tail), next.slice(head, next.length - tail))) {
    if (is === "kept") unchanged += token;
    else {
      let word = words.at(-1);
      if (word && JOINING.test(unchanged)) [word.end, word.added] = [at, word.added + unchanged];
      else words.push((word = { start: at, end: at, added: "" }));
      unchanged = "";
      if (is === "removed") word.end = at + token.length;
      else word.added += token;
    }
    if (is !== "added") at += token.length;
  }
  const kinds = new Set(words.map(({ start, end, added }) => `${before.slice(start, end)}\n${added}`));
  const isMixed = words.some(({ start, end }) => start < end) && words.some(({ added }) => added);
  const [first, last] = [words[0], words.at(-1)];
  if (!first || !last || kinds.size <= MOST_KINDS || !isMixed) return words;
  const added = after.slice(first.start, after.length - before.length + last.end);
  return [{ start: first.start, end: last.end, added }];
}

/** The numbers of equal items at both ends of two lists. */
export function commonEnds(before: readonly string[], after: readonly string[]): { head: number; tail: number } {
  const most = Math.min(before.length, after.length);
  let head = 0;
  while (head < most && before[head] === after[head]) head++;
  let tail = 0;
  while (tail < most - head && before.at(-1 - tail) === after.at(-1 - tail)) tail++;
  return { head, tail };
}

/** The tokens of both lists in order, those in common once. */
function* steps(old: string[], next: string[]): Generator<{ token: string; is: "kept" | "removed" | "added" }> {
  const isLarge = old.length * next.length > MAX_CELLS;
  const [left, right] = isLarge ? [[old.join("")], [next.join("")]] : [old, next];
  const common = charactersInCommon(left, right);
  const at = (row: number, column: number): number => common[row]?.[column] ?? -1;
  for (let [row, column] = [0, 0]; row < left.length || column < right.length; ) {
    const [removed, added] = [left[row], right[column]];
    if (removed !== undefined && removed === added) {
      yield { token: removed, is: "kept" };
      [row, column] = [row + 1, column + 1];
    } else if (removed !== undefined && at(row + 1, column) >= at(row, column + 1)) {
      yield { token: removed, is: "removed" };
      row++;
    } else {
      yield { token: added ?? "", is: "added" };
      column++;
    }
  }
}

/** [row][column]: the most characters in common from token `row` of `old` and token `column` of `next` on. */
function charactersInCommon(old: string[], next: string[]): number[][] {
  const common = [...old, ""].map(() => new Array<number>(next.length + 1).fill(0));
  for (let row = old.length - 1; row >= 0; row--) {
    const [here, below] = [common[row] ?? [], common[row + 1] ?? []];
    for (let column = next.length - 1; column >= 0; column--) {
      const token = next[column] ?? "";
      const skipped = Math.max(here[column + 1] ?? 0, below[column] ?? 0);
      here[column] = token === old[row] ? token.length + (below[column + 1] ?? 0) : skipped;
    }
  }
  return common;
}
