"""Arguments that follow a changed signature or a changed call: f(a) -> f(a, b).

    newest edit ─► list that got or lost an item, or has another order
        parameters of a function of this file ─► its calls that fit the old parameters and not the new ones
        arguments of a call ─► the function's parameters, if it is of this file; then its other calls
                            ─► calls alike after two equal changes, if it is not

A new argument is the variable of the parameter's name that is in scope, or the literal that another changed call has.
Else it is the parameter's name, as a placeholder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from speclsp.lsp.next_edit.changes.calls import call_lists
from speclsp.lsp.next_edit.changes.calls.call_lists import Call, Changed, Item, Piece, fits, inserted
from speclsp.lsp.next_edit.changes.calls.call_resolver import CallResolver
from speclsp.lsp.next_edit.changes.calls.signatures import LITERAL, PATH, signature_pieces
from speclsp.lsp.next_edit.changes.recent_changes import Recent
from speclsp.lsp.next_edit.changes.substitutions import MAX_LINE_CHARACTERS, Evidence, Origin, Place, Substitution
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax.languages import BY_NAME
from speclsp.lsp.syntax.text_windows import WORD, line_at, line_end, line_start, nearest_line
from speclsp.lsp.syntax.tree import SyntaxTree

ARGUMENT = "argument"  # the kind of these edits
MIN_TIMES = 2  # equal changes by hand, for a function of another file


def argument_places(recent: Recent) -> Iterator[Place]:
    """The parameters and calls that follow the lists that the newest edit has changed, the nearest first."""
    tree = recent.parse(recent.cursor)
    if tree is not None and tree.has_section(call_lists.SECTION):
        search = ArgumentSearch(recent, tree)
        for number in reversed(range(len(recent.edits))):
            for change in search.changed(number):
                if search.is_meant(change, number):
                    yield from search.calls_after(change) if change.call.is_function else search.after_call(change)


class ArgumentSearch:
    """Finds what follows a changed list of parameters or arguments."""

    def __init__(self, recent: Recent, tree: SyntaxTree) -> None:
        self.recent, self.tree, self.text = recent, tree, recent.text
        self.resolver, self.changed = CallResolver(recent, tree), cache(lambda number: [*self._changed(number)])
        self.lines = {change.new.strip() for change in recent.changes}

    def _changed(self, number: int) -> Iterator[Changed]:
        """The lists that got or lost one item in an edit, or whose items it moved."""
        edit, line_break = self.recent.edits[number], "\r\n" if "\r\n" in self.text else "\n"
        before, after = (lines.replace("\n", line_break) for lines in (edit.before, edit.after))
        low = nearest_line(self.text, after.rstrip() or edit.above, self.recent.cursor) if after or edit.above else None
        if low is None:
            return
        low = low if after else min(len(self.text), line_end(self.text, low) + len(line_break))
        for call in call_lists.calls_in(self.tree, low, low + max(0, len(after) - 1)):
            head, rest = self.text[call.at : call.start], self.text[low + len(after) :][: call_lists.MAX_LIST]
            # a list that begins in the edit stands behind the same text as often repeated
            nth, parts = after.count(head, 0, max(0, call.start - low)), before.split(head)
            is_clear = call.start <= low or 0 < nth < len(parts) == after.count(head) + 1
            piece = self.text[call.start : low] + before if call.start <= low else head.join(parts[nth:])
            listed = call_lists.split(piece + rest, self.tree.grammar, call.is_function) if is_clear else None
            old, new = self._countable(call, listed), self._countable(call, call.items)
            change = call_lists.difference(call, old, new) if old is not None and new is not None else None
            if change is not None:
                yield change

    def _countable(self, call: Call, items: Sequence[Item] | None) -> Sequence[Item] | None:
        """The parameters of a function, or the arguments of a call; None if their number is not fixed."""
        if items is None or call.is_function:
            return None if items is None else call_lists.parameters(call, items)
        return None if any(call_lists.SPREAD.search(item.text) for item in items) else items

    def is_meant(self, change: Changed, number: int) -> bool:
        """True for a complete list where the newest change is, and while a function's body follows its new list."""
        call, newest, cursor = change.call, self.recent.edits[-1], self.recent.cursor
        at = nearest_line(self.text, newest.after.rstrip(), cursor) if newest.after.strip() else None
        written = newest.before + newest.after
        if number + 1 == len(self.recent.edits):
            is_inside = at is not None and at <= cursor <= at + len(newest.after)
            if not is_inside or line_start(self.text, call.at) <= cursor <= line_end(self.text, call.end) + len("\r\n"):
                return not self._is_being_typed(call)
            at, line = cursor - 1, line_at(self.text, cursor - 1)
            written = " ".join([line, *(pair.old for pair in self.recent.newest if pair.new.strip() == line)])
        around = self.tree.enclosing(at + 1) if at is not None and call.is_function else ()
        old, new = ({item.name for item in items} for items in (change.old, change.new))
        is_named = not (old ^ new or new).isdisjoint(WORD.findall(written))
        return is_named and line_start(self.text, call.at) in [scope.start for scope in around]

    def _is_being_typed(self, call: Call) -> bool:
        """True while the cursor is in a list, unless another list of this name was changed too."""
        changes = (change.call for number in range(len(self.recent.edits)) for change in self.changed(number))
        is_inside = call.start <= self.recent.cursor <= call.end and bool(self.recent.edits[-1].after)
        return is_inside and not any(other.name == call.name and other.at != call.at for other in changes)

    # ── what follows ──────────────────────────────────────────────────────────────────────────────────────────────────

    def after_call(self, change: Changed) -> Iterator[Place]:
        """The parameters of the called function, if they do not fit yet; then its other calls."""
        function = self.resolver.function(change.call)
        if function is None:
            yield from () if self.resolver.functions(change.call.name) else self.calls_alike(change)
            return
        for number in reversed(range(len(self.recent.edits))):
            for other in self.changed(number):
                if other.call.at == function.at and other.call.is_function:
                    yield from self.calls_after(other)
                    return
        present = self._countable(function, function.items)
        if present is None:
            return
        is_old, is_new = fits(change.old, present), fits(change.new, present)
        if is_old and (change.order or not is_new):
            yield from self._place(function, signature_pieces(self.resolver, change, function, present), change, True)
        elif is_new and not is_old and change.added >= 0:
            name = change.new[change.added].name
            at = next((n for n, item in enumerate(present) if item.name == name), change.added)
            yield from self.calls_after(Changed(function, [*present[:at], *present[at + 1 :]], present, added=at))

    def calls_after(self, change: Changed) -> Iterator[Place]:
        """The calls of a function that fit its old parameters, and not the new ones."""
        changed = self.resolver.calls(change.call.name, self.lines)
        done = [call for call in changed if fits(call.items, change.new)]
        for call in self.resolver.calls(change.call.name):
            items = self._countable(call, call.items)
            is_done = call in done if change.order else fits(call.items, change.new)
            if self.recent.is_late() or items is None or is_done or not fits(items, change.old):
                continue
            proof = self.resolver.means(call, change.call)
            if proof is not False:
                pieces, placeholder = self._pieces(call, change, done)
                if proof or not placeholder:
                    yield from self._place(call, pieces, change, bool(proof), placeholder)

    def calls_alike(self, change: Changed) -> Iterator[Place]:
        """The calls of a function of another file that are like those that got the same change twice by hand."""

        def shape(change: Changed) -> tuple[object, ...]:
            at = max(change.added, change.removed)
            item = change.new[change.added].text if change.added >= 0 else ""
            is_last = at + 1 >= max(len(change.old), len(change.new))
            return change.call.owner, change.call.name, item, tuple(change.order), -1 if is_last else at

        alike = list[Changed]()
        for number, edit in enumerate(self.recent.edits):
            alike += [other for other in self.changed(number) if shape(other) == shape(change)] * edit.times
        lengths, text = {len(other.old) for other in alike}, change.new[change.added].text if change.added >= 0 else ""
        common = set[str].intersection(
            *({item.text for item in other.old} for other in alike)
        )  # a word of each is shared
        if len(alike) < MIN_TIMES:
            self.recent.report(ARGUMENT, Reason.MADE_ONCE)
            return
        for call in self.resolver.calls(change.call.name):
            items = self._countable(call, call.items)
            words = {*WORD.findall(self.text[call.start : call.end])}
            is_alike = call.owner == change.call.owner and all(words & {*WORD.findall(item)} for item in common)
            if items is None or len(items) not in lengths or not is_alike or self._is_changed(call):
                continue
            pieces, _ = self._pieces(call, change, ()) if not text else ([], "")
            if text and self.resolver.is_known(text, call):
                at = change.added if change.added < len(change.old) else len(items)
                pieces = inserted(self.text, call, at, text)
            yield from self._place(call, pieces, change, True)

    # ── places ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _is_changed(self, call: Call) -> bool:
        """True if the line of a call was changed of late."""
        return line_at(self.text, call.at) in self.lines

    def _pieces(self, call: Call, change: Changed, done: Sequence[Call]) -> tuple[list[Piece], str]:
        """The replacements that make a call fit, and the placeholder in them; none where it is not clear."""
        items, count = call.items, call_lists.positional(call.items)
        if change.order:
            return call_lists.moved(items, change.order[:count]), ""
        if change.removed >= 0:
            name, at = change.old[change.removed].name, change.removed if change.removed < count else -1
            at = next((n for n, item in enumerate(items) if name and item.name == name), at)
            return call_lists.removed(call, at) if at >= 0 else [], ""
        at, parameter, mark = change.added, change.new[change.added], BY_NAME[self.tree.grammar].argument_mark
        used = [
            (item, call_lists.positional(other.items) == number)  # True: by name, where it need not be
            for other in done
            for number, item in enumerate(other.items)
            if item.name == parameter.name or (number == at and not item.name)
        ]
        by_name = parameter.is_named_only or at > count or any(is_first and item.name for item, is_first in used)
        if by_name and not mark:
            return [], ""
        texts = [item.value for item, _ in used if (LITERAL.fullmatch(item.value) or PATH.fullmatch(item.value))]
        known = [text for text in texts if self.resolver.is_known(text, call)]
        text = parameter.name if self.resolver.visible(parameter.name, call) else "".join(known[:1])
        written = (parameter.name + mark if by_name else "") + (text or parameter.name)
        return inserted(self.text, call, len(items) if by_name else at, written), "" if text else parameter.name

    def _place(
        self, call: Call, pieces: Sequence[Piece], change: Changed, is_proven: bool, placeholder: str = ""
    ) -> Iterator[Place]:
        """The lines of a call or a function with replaced pieces."""
        if not pieces:
            return
        start, end = line_start(self.text, pieces[0][0]), line_end(self.text, pieces[-1][1])
        done, new, selected = start, "", None
        for low, high, text in [*pieces, (end, end, "")]:
            text = text.replace("\r\n", "\n")
            new, done = new + self.text[done:low].replace("\r\n", "\n") + text, high
            if placeholder in text and placeholder:
                at = len(new) - len(text) + text.rindex(placeholder)
                selected = at, at + len(placeholder)
        changed = (other.call for number in range(len(self.recent.edits)) for other in self.changed(number))
        lines = {line_at(self.text, other.at) for other in changed if other.name == call.name}
        origins = [Origin("", line) for line in sorted(lines)]
        rule = f"{call.name}({change.added}, {change.removed}, {change.order})"  # that of one chain
        evidence = Evidence(max(1, len(origins)), len(self.recent.edits) - 1, origins)
        if end - start <= MAX_LINE_CHARACTERS:
            yield Place(start, end, new, Substitution(ARGUMENT, f"{call.name}(", rule), evidence, selected, is_proven)
