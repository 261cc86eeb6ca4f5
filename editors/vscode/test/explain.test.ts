/** Texts of explanations. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { explanationText } from "../src/explanationText";

test("an explanation has a headline, and a line for each member that says something", () => {
  const answer = {
    asked: true, outcome: "unsure", meaning: "the model is not sure enough", line: 3, reused: false, message: "",
    by_source: { ngram: { drafted: 4, accepted: 0 } }, cut: [{ why: "block_end", characters: 2 }], files: [], confidence: null,
  };
  assert.deepEqual(explanationText(answer).split("\n"), [
    "nothing shown: the model is not sure enough",
    "outcome             unsure",
    "line                3",
    "by source           ngram drafted 4",
    "cut                 why block_end, characters 2",
  ]);
  assert.equal(explanationText({ asked: true, outcome: "shown", shown_characters: 7 }).split("\n")[0], "suggested: 7 characters");
  assert.equal(explanationText({ asked: false }), "no requests yet");
});
