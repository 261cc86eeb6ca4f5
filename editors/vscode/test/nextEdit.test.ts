/** The plan of a next edit on the screen, and which changes get no request. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { doneText, hintElsewhere, hintText, isBulk, isFar, placeholderIn, Plan, planOf } from "../src/nextEditPlan";
import { changedWords } from "../src/wordDiff";

type Corner = [line: number, character: number];

const edit = ([line, character]: Corner, [endLine, endCharacter]: Corner, text: string) => ({
  range: { start: { line, character }, end: { line: endLine, character: endCharacter } },
  text,
});
const lines = (...numbers: [number, number][]) =>
  numbers.map(([start, end]) => ({ start: { line: start, character: 0 }, end: { line: end, character: 0 } }));
const change = (text: string, removed = "") => {
  const { range } = edit([0, 0], [removed.split("\n").length - 1, 0], text);
  return { range, rangeLength: removed.length, text };
};
const texts = (plan: Plan): string[] => plan.labels.map(({ text }) => text);

test("a replacement in one line: the old text is marked, the new text follows it", () => {
  const plan = planOf(edit([4, 8], [4, 13], "total"), ["    log(count + 1)"]);
  assert.deepEqual(plan.removed, [{ line: 4, start: 8, end: 13 }]);
  assert.deepEqual(plan.labels, [{ line: 4, character: 13, text: "→ total", gap: 0.5 }]);
  assert.equal(plan.diff, "```diff\n-    log(count + 1)\n+    log(total + 1)\n```");
});

test("an insertion has no arrow, a deletion has no label", () => {
  const inserted = planOf(edit([0, 7], [0, 7], ", timeout=5"), ["fetch(a)"]);
  assert.deepEqual([inserted.removed, texts(inserted)], [[], [", timeout=5"]]);
  const deleted = planOf(edit([0, 0], [0, 6], ""), ["await load()"]);
  assert.deepEqual([deleted.removed, texts(deleted)], [[{ line: 0, start: 0, end: 6 }], []]);
});

const marked = (line: string, after: string): string =>
  changedWords(line, after).reduceRight(
    (drawn, { start, end, added }) => `${drawn.slice(0, start)}[${drawn.slice(start, end)}|${added}]${drawn.slice(end)}`,
    line,
  );

test("each changed word has a mark of its own, and words that stay have none", () => {
  assert.equal(marked("f(width, width)", "f(breadth, breadth)"), "f([width|breadth], [width|breadth])");
  assert.equal(marked("    x = f(a)", "    x = await f(a, b)"), "    x = [|await ]f(a[|, b])");
  assert.equal(marked("f(a, b, c)", "f(b, c)"), "f([a, |]b, c)");
  assert.equal(marked("console.log(a)", "logger.debug(a)"), "[console.log|logger.debug](a)");
  assert.equal(marked("if (x == null)", "if (x === undefined)"), "if (x [== null|=== undefined])");
  assert.equal(marked("p('%s is %d' % (a, b), c)", "p(f'{a} is {b}', c)"), "p(['%s is %d' % (a, b)|f'{a} is {b}'], c)");
  assert.equal(marked("def f(a, b):", "def f(a: A, b: B) -> C:"), "def f(a[|: A], b[|: B])[| -> C]:");
  assert.equal(marked("# the old words", "# some new ones"), "# [the old words|some new ones]");
  assert.equal(marked("a = '😀 漢字'", "a = '😀 漢語'"), "a = '😀 [漢字|漢語]'");
  assert.equal(marked("\tsame", "\tsame"), "\tsame");
  const long = Array.from({ length: 5000 }, (_, number) => `n${number}`).join(",");
  assert.equal(changedWords(long, long.replaceAll("n", "m")).length, 1);
  assert.equal(changedWords(long, long.replace("n7,", "x,")).length, 1);
});

test("in several lines the changed words are marked, or whole lines where most is new", () => {
  const old = ["def f():", "  x = first(1)", "  y = second(2)", "z"];
  const few = planOf(edit([2, 0], [5, 0], "def f():\n  a = first(1)\n  b = second(2)\n"), old);
  assert.deepEqual(few.removed, [
    { line: 3, start: 2, end: 3 },
    { line: 4, start: 2, end: 3 },
  ]);
  assert.deepEqual(texts(few), ["→ a", "→ b"]);
  assert.equal(few.diff, "```diff\n-  x = first(1)\n-  y = second(2)\n+  a = first(1)\n+  b = second(2)\n```");
  assert.deepEqual(texts(planOf(edit([3, 0], [3, 2], "      "), ["  x = 1"])), ["→ x = 1"], "a new indentation");
  const most = planOf(edit([2, 8], [4, 15], "\n  pass\n  return third(x)"), old);
  assert.deepEqual(most.labels, [
    { line: 3, character: 14, text: "→ pass", gap: 3 },
    { line: 4, character: 15, text: "→ return third(x)", gap: 3 },
  ]);
});

test("new text without room beside its line is a box below it, at the line's indentation", () => {
  const [old, text] = ["    total = price(items)", "    total = price(items, taxes=taxes_of(items))"];
  const near = planOf(edit([1, 0], [1, old.length], text), [old]);
  assert.deepEqual(texts(near), [", taxes=taxes_of(items)"]);
  const wide = text.replace("taxes_of", "t".repeat(80));
  const far = planOf(edit([1, 0], [1, old.length], wide), [old]);
  assert.deepEqual(far.labels, [{ line: 1, character: old.length, text: wide.trim(), gap: 4, isBelow: true }]);
  assert.deepEqual(texts(planOf(edit([1, 4], [1, 5], "sum"), [`    s = f("${"x".repeat(200)}")`])), ["→ sum"]);
  assert.equal(texts(planOf(edit([1, 4], [1, 4], "字".repeat(5000)), [old]))[0]?.length, 800);
});

test("lines without a place of their own are counted", () => {
  assert.deepEqual(texts(planOf(edit([0, 0], [0, 1], "a\nb\nc"), ["x"])), ["→ a (+2 lines)"]);
  assert.deepEqual(texts(planOf(edit([1, 0], [1, 0], "a\nb\n"), ["x"])), ["+ a (+1 line)"]);
  const many = planOf(edit([0, 0], [4, 1], "a\nb\nc\nd\ne"), ["v", "w", "x", "y", "z"]);
  assert.deepEqual(texts(many), ["→ a", "→ b", "→ c (+2 lines)"]);
  assert.equal(many.removed.length, 5);
  const shrunk = planOf(edit([0, 0], [2, 0], ""), ["gone", "gone too", "stays"]);
  assert.deepEqual([shrunk.removed.length, texts(shrunk)], [2, []]);
});

test("text cannot end the code block of the hover, and a long label is cut", () => {
  assert.match(planOf(edit([0, 0], [0, 1], "````"), ["x"]).diff, /^`{5}diff\n-x\n\+````\n`{5}$/);
  assert.equal(texts(planOf(edit([0, 1], [0, 1], `\n${"y".repeat(500)}`), ["x"]))[0]?.length, 98);
});

test("a placeholder has its place in the new text", () => {
  const at = (line: number, start: number, end: number) => ({
    placeholder: { start: { line, character: start }, end: { line, character: end } },
  });
  assert.deepEqual(placeholderIn({ ...edit([4, 8], [4, 8], ", depth"), ...at(4, 10, 15) }), [2, 7]);
  assert.deepEqual(placeholderIn({ ...edit([4, 8], [4, 9], "a,\n  depth"), ...at(5, 2, 7) }), [5, 10]);
  assert.deepEqual(placeholderIn(edit([4, 8], [4, 8], "ab")), [2, 2]);
});

test("an edit is far when it is out of view or more than two lines from the cursor", () => {
  const far = (cursorLine: number, ...visible: [number, number][]) =>
    isFar(edit([10, 0], [12, 0], ""), cursorLine, lines(...visible));
  assert.deepEqual([7, 8, 11, 14, 15].map((line) => far(line, [0, 40])), [true, false, false, false, true]);
  assert.equal(far(11, [0, 5], [20, 40]), true);
  assert.equal(far(11, [0, 5], [9, 40]), false);
  assert.equal(hintText(edit([10, 0], [12, 0], "")), "→ Edit at line 11 (Tab)");
  assert.equal(hintElsewhere(edit([10, 0], [10, 4], ""), "/project/app.py"), "→ Edit in app.py, line 11 (Tab)");
  assert.equal(doneText(1), "done: 1 edit");
  assert.equal(doneText(0, { uses: 1, files: 1 }), "1 use in 1 file that is not open (speclsp: List Uses)");
  assert.equal(doneText(7, { uses: 3, files: 2 }), "done: 7 edits; 3 uses in 2 files that are not open (speclsp: List Uses)");
});

test("a paste, a formatter and a large deletion are bulk changes; typing and a rename are not", () => {
  assert.equal(isBulk([change("x".repeat(201))]), true);
  assert.equal(isBulk([change("x\n".repeat(9))]), true);
  assert.equal(isBulk([change("", "x\n".repeat(9))]), true);
  assert.equal(isBulk(Array.from({ length: 40 }, () => change("longer"))), true);
  assert.equal(isBulk([change("x".repeat(200))]), false);
  assert.equal(isBulk([change("x\n".repeat(8))]), false);
  assert.equal(isBulk([change("name", "old_name"), change("name", "old_name")]), false);
});
