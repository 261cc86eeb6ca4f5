// An editor for tests: documents as JavaScript strings, random edits to them, and the text expected of a server.
//
//   node utf16_reference.js SEED ENCODING EDITS EDITS_PER_NOTIFICATION NOTIFICATIONS_PER_QUESTION
//
// One JSON line each: {uri, text} opens a document, {uri, changes} edits it, {uri, position, before, after, exact,
// there} sends a request. Positions are read as LSP says: only \n, \r\n and \r end a line. A position beyond a line is
// the line's end, one beyond the last line is the end of the text, and one inside a character is before it.

"use strict";
const { createHash } = require("node:crypto");
const { writeSync } = require("node:fs");

const [seed, encoding, edits, perNotification, perQuestion] = process.argv.slice(2).map((x) => (isNaN(x) ? x : +x));
const DOCUMENTS = 6;
const MOST_UNITS = [60, 400, 400, 1500, 1500, 12000]; // above this length more is deleted than inserted

const NASTY = [
  ..."abcxyz (){}[]\"'#/=.,;:_019\t",
  ..."\f\v\x1c\x1d\x1e\0\x7f\x85\u00a0\u200b\ufeff\u2028\u2029\ud7ff\ue000\uffff",
  "\n", "\n", "\n", "\r\n", "\r\n", "\r\n", "\r", "\r", "\n\r", "\r\r\n", "\n\n",
  "é", "ß", "漢", "字", "한", "e\u0301", "a\u0308\u0323", "\u0301", "नि", "ก็",
  "𐐀", "𝒙", "🚀", "😀", "👩\u200d🚀", "👨\u200d👩\u200d👧\u200d👦", "🇩🇪", "👍🏽", "1\ufe0f\u20e3", "\u200d", "\ufe0f", "\u{10ffff}",
  "\ud83d", "\ude80", "\ud800", "\udbff", "\udc00", "\udfff", "\ude80\ud83d", "\ud83d\ud83d", "\udc00\udc00",
  "def f(x):\n    return x\n", "  \r\n\t", "if (a) {\r\n}\r\n", "<|fim_middle|>", "\u202e", "\u{e0041}",
];

let state = seed >>> 0;
const random = () => {
  state = (state + 0x6d2b79f5) >>> 0; // mulberry32
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
};
const below = (n) => Math.floor(random() * n);
const pick = (list) => list[below(list.length)];

const isHigh = (unit) => unit >= 0xd800 && unit <= 0xdbff;
const isLow = (unit) => unit >= 0xdc00 && unit <= 0xdfff;
const isEnd = (unit) => unit === 10 || unit === 13;

/** The columns and the units of the character that begins at a unit. */
function size(text, at) {
  const point = text.codePointAt(at);
  const units = point > 0xffff ? 2 : 1;
  if (encoding === "utf-16") return [units, units];
  if (encoding === "utf-32") return [1, units];
  return [point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4, units];
}

/** The unit of a position. */
function offsetAt(text, { line, character }) {
  let at = 0;
  for (; line > 0; line--) {
    while (at < text.length && !isEnd(text.charCodeAt(at))) at++;
    if (at === text.length) return at;
    at += text.startsWith("\r\n", at) ? 2 : 1;
  }
  while (at < text.length && !isEnd(text.charCodeAt(at))) {
    const [columns, units] = size(text, at);
    if (columns > character) break;
    character -= columns;
    at += units;
  }
  return at;
}

/** A position for a unit, as an editor says it; inside a character or a line end: as a sloppy one does. */
function positionAt(text, offset) {
  let line = 0;
  let start = 0;
  for (let at = 0; at < offset; at++) {
    const unit = text.charCodeAt(at);
    if (isEnd(unit) && !(unit === 13 && text.charCodeAt(at + 1) === 10)) {
      line++;
      start = at + 1;
    }
  }
  let character = 0;
  for (let at = start; at < offset; ) {
    const [columns, units] = size(text, at);
    const inside = at + units > offset;
    character += inside ? Math.min(columns, 1) : columns;
    at += units;
  }
  return { line, character };
}

function place(text) {
  const kind = random();
  if (kind < 0.75) return positionAt(text, below(text.length + 1));
  if (kind < 0.85) return { line: below(12), character: below(12) };
  if (kind < 0.92) return { line: positionAt(text, below(text.length + 1)).line, character: pick([99, 65535, 2147483647]) };
  return { line: pick([0, 1, 7, 9999, 2147483647]), character: pick([0, 1, 5, 2147483647]) };
}

function change(text, most) {
  if (random() < 0.002) return { text: some(below(30)) }; // the whole document
  const full = text.length > most;
  const start = place(text);
  const kind = random();
  let end = start;
  if (full || kind < 0.35) {
    const from = offsetAt(text, start);
    end = positionAt(text, Math.min(text.length, from + 1 + below(full ? 40 : 4)));
  } else if (kind < 0.37) end = place(text); // anywhere, before it too
  const range = random() < 0.9 ? { start, end } : { start: end, end: start }; // some are sent backwards
  return { range, text: full || kind < 0.2 ? "" : some(1 + below(3)) };
}

const some = (count) => Array.from({ length: count }, () => pick(NASTY)).join("");

function applied(text, { range, text: what }) {
  if (range === undefined) return what;
  const ends = [offsetAt(text, range.start), offsetAt(text, range.end)].sort((a, b) => a - b);
  return text.slice(0, ends[0]) + what + text.slice(ends[1]);
}

/** UTF-8 as Python's "surrogatepass" writes it. */
function bytes(text) {
  if (text.isWellFormed()) return Buffer.from(text, "utf8");
  const parts = [];
  for (const character of text) {
    const point = character.codePointAt(0);
    parts.push(
      isHigh(point) || isLow(point)
        ? Buffer.from([0xe0 | (point >> 12), 0x80 | ((point >> 6) & 63), 0x80 | (point & 63)])
        : Buffer.from(character, "utf8"),
    );
  }
  return Buffer.concat(parts);
}

const sha = (data) => createHash("sha256").update(data).digest("hex").slice(0, 8);
const seen = (text) => sha(bytes(text.replace(/\r\n?/g, "\n")));

let out = [];
function say(message) {
  out.push(JSON.stringify(message));
  if (out.length >= 50) flush();
}
function flush() {
  let rest = Buffer.from(out.map((line) => line + "\n").join(""));
  while (rest.length) rest = rest.subarray(writeSync(1, rest));
  out = [];
}

const texts = Array.from({ length: DOCUMENTS }, () => some(below(20)));
texts.forEach((text, uri) => say({ uri, text }));
for (let done = 0, sent = 0; done < edits; sent++) {
  const uri = below(DOCUMENTS);
  const changes = [];
  for (let left = Math.min(edits - done, 1 + below(2 * perNotification - 1)); left > 0; left--, done++) {
    changes.push(change(texts[uri], MOST_UNITS[uri]));
    texts[uri] = applied(texts[uri], changes.at(-1));
  }
  say({ uri, changes });
  const asked = done >= edits ? texts.keys() : sent % perQuestion === perQuestion - 1 ? [uri] : [];
  for (const each of asked) {
    const text = texts[each];
    const position = place(text);
    const at = offsetAt(text, position);
    const exact = sha(Buffer.from(text, "utf16le"));
    say({ uri: each, position, before: seen(text.slice(0, at)), after: seen(text.slice(at)), exact, there: positionAt(text, at) });
  }
}
flush();
