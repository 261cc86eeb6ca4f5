"""What of the pair is in memory, and why: loading, all of it, less of it where memory is short, asleep. No torch.

    loading ─────────────► ok ◄───────────► asleep (nothing was asked for a while: the next request wakes it)
       │  └► draft alone ─►│ ▲
       │          │        │ └ full ◄► small cache ◄► no draft ◄► asleep (another program needs the memory: requests
       └────┬─────┘        │                                              are refused until there is room again)
            └► error (why) ◄ a waking that failed: the next request after RETRY_S tries again

Where our own memory runs out in a request, the same steps are taken for that, and between the small cache and no draft
two more: short and shorter context. First what was read is forgotten; each further time within CALM_S one step is given
back, at last all of it, and the next request loads it again as small as it was. After CALM_S without it one step is
taken again, then the next.

Where loading the target takes long, the draft is read first and answers alone; the target is read beside it in another
thread, and takes over between two completions.

Everything that touches a model happens in the engine's one thread (turns.py), which calls `tend` before the first
request, between rounds, and when `due_s` has passed. While a completion is under way `tend` only looks; where it has
seen something to do, `quiet_wanted` asks that no further completion starts. The rest of the process reads the plain
attributes and `refusal`.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from speclsp.engine.api import Completer
from speclsp.engine.scheduling.device_errors import blames_the_device, let_go, one_line, ran_out_of_memory
from speclsp.engine.scheduling.device_memory import DeviceMemory
from speclsp.engine.scheduling.loaded_model import NO_DRAFT, Load, LoadedModel, Rest
from speclsp.engine.scheduling.memory_pressure import LOOK_S, WAIT_S, MemoryPressure
from speclsp.engine.scheduling.memory_steps import UNLOADED, MemorySteps

RETRY_S = 10.0  # after a waking that failed, until the next is tried
SOON_S = 1.0  # the same where there was no room: there may be some at any moment
CALM_S = 60.0  # without running out of memory, and one step is taken again
PAUSE_S = 5.0  # in which nothing was asked: a moment for the draft to come back
QUIET_S = 2.0  # for completions to end by themselves where something must be done without any
POLL_S = 0.05  # between looks at whether the target has been read

log = logging.getLogger("speclsp.engine")


class Memory(Protocol):
    """See memory.DeviceMemory."""

    def free_mib(self) -> int: ...

    def held_mib(self) -> int: ...

    def trim(self) -> None: ...

    def works(self) -> bool: ...


class Residency:
    """The completer, as long as there is one."""

    def __init__(
        self,
        load: Load,
        pair: str = "",
        *,
        idle_s: float = 0.0,
        keep_free_mib: int = 0,
        clock: Callable[[], float] = time.monotonic,
        memory_of: Callable[[str], Memory] = DeviceMemory,
    ) -> None:
        """`pair`: until it is known. `idle_s`: asleep after so long without a request; 0: never.

        `keep_free_mib`: memory of the device left to other programs; 0: no matter how little.
        """
        self.pair = pair
        self.state = "loading"  # "loading" | "ok" | "asleep" | "error"
        self.progress = 0.0  # while loading
        self.message = "starting"  # one line: what is being done, or why there is no completer, or not all of it
        self.draft_only = False  # while loading: `completer` is the draft alone
        self.completer: Completer | None = None
        self.settled = threading.Event()  # there is a completer, or an error
        self.on_change: Callable[[], None] = lambda: None  # told from the engine's thread, or the one that reads
        self.on_lost: Callable[[str], None] = lambda why: None  # told that the device does not answer any more
        self.quiet_wanted = False  # a change is due that needs no completion under way
        self._quiet_s = float("inf")  # since when
        self._load = load
        self._idle_s = idle_s
        self._clock = clock
        self._memory_of = memory_of
        self._memory: Memory = memory_of("cpu")
        self._device = ""
        self._courtesy = MemoryPressure(keep_free_mib, steps=1)
        self._ladder = MemorySteps(self._courtesy)
        self._empty: Callable[[], None] = lambda: None  # see Loaded
        self._ran_out = False  # of memory, in a request, since the last `tend`
        self._too_full = False  # not for the first time: a step is due
        self._tight_until_s = float("-inf")  # until then nothing is taken again
        self._rest: Rest | None = None
        self._reading: threading.Thread | None = None
        self._reading_failed: Exception | None = None
        self._asked = False  # since the last `tend`
        self._used_s = clock()  # when something was asked or under way
        self._look_s = 0.0  # when to look at the device's memory again
        self._was_ok = False  # once
        self._failed_s = float("-inf")  # when the last waking failed
        self._takes_mib = 0  # what waking needs: as much as falling asleep gave back

    # ── for the rest of the process ──────────────────────────────────────────────────────────────────────────

    @property
    def memory(self) -> str:
        """What was given back: "full" (nothing) | "small cache" | "short context" | "shorter context" | "no draft"."""
        return self._ladder.memory

    def refusal(self) -> str:
        """Why a request need not even queue now; "" when it may: it is served, or told why not, in its turn."""
        if self.state == "loading" and self.completer is None and not self._was_ok:
            return f"the model is loading ({self.progress:.0%}, {self.message}): ask again when /health says ok."
        if self.state in ("error", "asleep") and not self._may_retry:
            return self.message
        return ""

    def asked(self) -> None:
        """A request has come, from any thread."""
        self._used_s, self._asked = self._clock(), True

    def ran_out(self) -> None:
        """A request has run out of memory: `tend` makes room."""
        self._ran_out = True

    def lost(self, error: BaseException) -> str:
        """Whether `error` means that the device does not answer any more: the sentence about it, or ""."""
        if not blames_the_device(error) or self._memory.works():
            return ""
        return (
            f"{self._device or 'the device'} does not answer any more ({type(error).__name__}): the engine ends, and "
            "whoever needs it starts another."
        )

    @property
    def hurry(self) -> bool:
        """Whether the completions under way have had their time to end: what is to be done waits no longer."""
        return self.quiet_wanted and self._clock() - self._quiet_s >= QUIET_S

    # ── for the engine's thread ──────────────────────────────────────────────────────────────────────────────

    def tend(self, busy: bool = False) -> None:
        """Do what is due. `busy`: a completion is under way, and what it runs on must stay."""
        try:
            self._tend(busy)
        except Exception as error:  # a device that fails fails here too; without this thread nobody would be answered
            self._fail(error, "keep")

    def _tend(self, busy: bool) -> None:
        asked, self._asked = self._asked, False
        if busy:
            self._used_s = self._clock()
        else:
            self.quiet_wanted = False
        if self._ran_out or self._too_full:
            self._make_room(busy)
        if self._rest is not None:
            self._await_rest(busy)
        elif self.state == "loading":
            self._fetch()
        elif self.state == "ok":
            if not busy and self._idle_left_s() <= 0:
                self._sleep()
            else:
                self._look(busy)
        elif self._short:
            self._look(busy)
            if asked and self._short:
                self._say("asleep", self._no_room_words(self._free_mib()))
        elif asked:
            self._wake()

    def _want_quiet(self) -> None:
        if not self.quiet_wanted:
            self.quiet_wanted, self._quiet_s = True, self._clock()

    def due_s(self) -> float | None:
        """How long until something may be due; None when only a request can bring something."""
        now_s = self._clock()
        if self._rest is not None:
            return POLL_S
        if self.state == "loading":
            return 0.0
        if self.state == "error" or (self.state == "asleep" and not self._short):
            return None
        due_s = self._look_s - now_s if self._courteous or self._ladder.given else float("inf")
        if self.state == "ok":
            due_s = min(due_s, self._idle_left_s())
        return None if due_s == float("inf") else max(0.0, due_s)

    # ── loading ──────────────────────────────────────────────────────────────────────────────────────────────

    def _fetch(self, with_draft: bool = True) -> None:
        try:
            self._start(with_draft)
        except Exception as error:  # whatever it is, /health says it: the process stays to be asked
            self._fail(error)

    def _start(self, with_draft: bool) -> None:
        """Load all of it, or the draft, which answers alone while the rest is read."""
        made = self._load(self._tell) if with_draft else self._load(self._tell, False)
        loaded = made if isinstance(made, LoadedModel) else LoadedModel(completer=made)
        if loaded.rest is None:
            self._hold(loaded)
            return
        self.pair, self.completer, self.draft_only = loaded.completer.pair, loaded.completer, True
        self._empty = loaded.empty
        self._rest, self._reading_failed = loaded.rest, None
        self._reading = threading.Thread(target=self._read, args=(loaded.rest,), name="reading", daemon=True)
        self._reading.start()
        self.settled.set()
        self.on_change()

    def _read(self, rest: Rest) -> None:
        try:
            rest.read()
        except Exception as error:
            self._reading_failed = error

    def _await_rest(self, busy: bool) -> None:
        """Once the target has been read, and no completion is under way, it takes over from the draft alone."""
        if self._reading is not None and self._reading.is_alive():
            return
        if busy:
            self._want_quiet()
            return
        try:
            self._finish()
        except Exception as error:
            self._fail(error)

    def _finish(self) -> None:
        rest, failed = self._rest, self._reading_failed
        self._rest = self._reading = self._reading_failed = None
        if failed is not None:
            raise failed
        if rest is not None:
            self._hold(rest.finish())

    def _hold(self, loaded: LoadedModel) -> None:
        """All is there, or all but what other programs' need keeps out."""
        self.draft_only = False
        self.pair, self.completer = loaded.completer.pair, loaded.completer
        self._device, self._empty = loaded.device, loaded.empty
        self._memory = self._memory_of(loaded.device or "cpu")
        self._ladder.settle(loaded.steps)
        gc.collect()
        gc.freeze()  # what loading left stays for long: collecting must not walk over it in mid-request
        if self._courteous:
            self._courtesy.settle(self._free_mib())
        self._used_s = self._clock()
        self._look_s = self._used_s + LOOK_S
        self._was_ok = True
        self._say("ok", self._given_words())
        self.settled.set()

    def _fail(self, error: Exception, what: str = "load") -> None:
        full = self._was_ok and ran_out_of_memory(error)
        self._forget()
        self.draft_only, self._failed_s = False, self._clock()
        let_go(error)  # it would keep what was read in memory
        log.error("could not %s %s: %s", what, self.pair or "the model", one_line(error))
        self._rest = self._reading = None
        with suppress(Exception):  # where the device itself has failed nothing can be given back to it
            self._memory.trim()
        if full:
            self._tight_until_s = self._failed_s + CALM_S
            self._ladder.to_the_bottom()
        self._say("asleep" if full else "error", one_line(error))
        self.settled.set()
        if self._was_ok and (why := self.lost(error)):
            self.on_lost(why)

    def _tell(self, fraction: float, message: str) -> None:
        self.progress = min(1.0, max(0.0, fraction))
        self.message = f"waking up: {message}" if self._was_ok else message
        self.on_change()

    def _say(self, state: str, message: str) -> None:
        self.state, self.message = state, message
        self.on_change()

    # ── asleep ───────────────────────────────────────────────────────────────────────────────────────────────

    def _idle_left_s(self) -> float:
        return self._used_s + self._idle_s - self._clock() if self._idle_s else float("inf")

    def _sleep(self) -> None:
        """Nothing was asked for so long: all of it leaves memory."""
        self._takes_mib = self._drop()
        minutes = self._idle_s / 60
        log.warning("nothing was asked for %g min: unloaded, %d MiB given back", minutes, self._takes_mib)
        self._say("asleep", f"nothing was asked for {minutes:g} min; the next request loads the model again")

    def _drop(self) -> int:
        """Give back all of it; how many MiB that was."""
        before_mib = self._memory.held_mib()
        self._forget()
        self._memory.trim()
        return max(0, before_mib - self._memory.held_mib())

    def _forget(self) -> None:
        """Hold nothing of the models."""
        self.completer, self._empty = None, lambda: None
        self._ladder.steps = {}

    def _wake(self) -> None:
        """A request has come: load again, if what others need leaves room for it."""
        if not self._may_retry:
            return
        if self._courteous:
            free_mib = self._free_mib()
            if free_mib < self._takes_mib + self._courtesy.keep_mib:
                self._say("asleep", self._no_room_words(free_mib))
                return
        self._load_again()

    @property
    def _may_retry(self) -> bool:
        """Whether what failed may do better now: it has once, and some time has passed."""
        return self._was_ok and self._clock() - self._failed_s >= (SOON_S if self.state == "asleep" else RETRY_S)

    def _load_again(self) -> None:
        self.progress = 0.0
        self._say("loading", "waking up")
        self._fetch(with_draft=NO_DRAFT not in self._ladder.given)

    # ── one step down, one step up ───────────────────────────────────────────────────────────────────────────────

    def _down(self, for_others: bool) -> tuple[str, int] | None:
        """Give back the next step, or all of it: what, and how many MiB that gave. None: it failed, and all is gone."""
        step = self._ladder.next(for_others)
        if step is None:
            self._takes_mib = self._drop()
            return UNLOADED, self._takes_mib
        before_mib = self._memory.held_mib()
        try:
            step.give()
        except Exception as error:  # half done: what is left of it may not be able to complete
            self._fail(error, f"give back memory ({step.name}) of")
            return None
        self._memory.trim()
        return step.name, max(0, before_mib - self._memory.held_mib())

    def _up(self) -> bool:
        """Take the last step again; whether that could be done."""
        step = self._ladder.steps[self._ladder.given[-1]]
        try:
            step.take()
        except Exception as error:
            log.error("could not take back what was given (%s): %s", step.name, one_line(error))
            let_go(error)
            self._memory.trim()
            self._courtesy.failed()
            return False
        self._ladder.up()
        gc.collect()
        gc.freeze()
        return True

    # ── our own memory runs out ──────────────────────────────────────────────────────────────────────────────────

    def _make_room(self, busy: bool) -> None:
        """Forget what was read; where that was not enough the last time, one step down as soon as that can be."""
        if self._ran_out:
            self._ran_out, before_mib = False, self._memory.held_mib()
            self._too_full = self._clock() < self._tight_until_s
            self._tight_until_s = self._clock() + CALM_S
            self._empty()
            self._memory.trim()
            given_mib = max(0, before_mib - self._memory.held_mib())
            log.warning("memory ran out in a request: what was read is forgotten, %d MiB given back", given_mib)
        if self.state != "ok" or not self._too_full:
            self._too_full = False  # the draft alone has no steps
            return
        step = self._ladder.next(for_others=False)
        if busy and (step is None or not step.between_rounds):
            self._want_quiet()
            return
        self._too_full = False
        went = self._down(for_others=False)
        if went is None:
            return
        log.warning("memory ran out again: %s, %d MiB given back", *went)
        if self.completer is None:
            self._say("asleep", "memory ran out; the next request loads the model again")
        else:
            self._ladder.down(*went)
            self._say("ok", self._given_words())

    # ── courtesy ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _courteous(self) -> bool:
        """Whether it takes memory that others may need."""
        return bool(self._device) and self._courtesy.keep_mib > 0

    def _free_mib(self) -> int:
        """What other programs could have now; if that cannot be told, nothing is given back for them."""
        try:
            return self._memory.free_mib()
        except Exception as error:  # a driver's, a system's
            log.error("cannot tell how much of %s is free: %s", self._place, one_line(error))
            self._device = ""
            return 2**30

    @property
    def _short(self) -> bool:
        """Whether it is asleep because another program needs the memory."""
        return self.state == "asleep" and self._ladder.given[-1:] == [UNLOADED]

    def _look(self, busy: bool) -> None:
        """Look at the device's free memory, if it is time; go a step down or up, if no completion is under way."""
        now_s = self._clock()
        if now_s < self._look_s or not (self._courteous or self._ladder.given):
            return
        free_mib = self._free_mib() if self._courteous else 0
        move = self._courtesy.judge(now_s, free_mib) if self._courteous else -bool(self._ladder.given)
        if (move > 0 and self._short) or (move < 0 and now_s < self._tight_until_s):
            move = 0
        if move and busy:
            self._want_quiet()  # the look that counts is the one without a completion
            return
        if move > 0:
            self._give_way(free_mib)
        elif move < 0:
            self._come_back(free_mib)
        self._look_s = self._clock() + LOOK_S

    def _give_way(self, free_mib: int) -> None:
        """One step down; the next look says whether it was enough."""
        went = self._down(for_others=True)
        if went is None:
            return
        self._ladder.down(*went)
        log.warning(
            "another program needs memory (%d MiB of %s were free, %d are to be): %s, %d MiB given back",
            free_mib,
            self._place,
            self._courtesy.keep_mib,
            *went,
        )
        if self.completer is None:
            self._say("asleep", self._no_room_words(self._free_mib()))
        else:
            self._say("ok", self._given_words())

    def _come_back(self, free_mib: int) -> None:
        """One step up: there has been room for it."""
        words = f"there is room again ({free_mib} MiB of {self._place} are free)"
        if not self._courteous:
            words = f"memory has not run out for {CALM_S:.0f} s"
        if self._short:
            self._ladder.up()
            if self._idle_left_s() <= 0:
                log.warning("%s: the next request loads the model", words)
                self._say("asleep", f"{words}; the next request loads the model again")
            else:
                log.warning("%s: loading", words)
                self._load_again()
            return
        if self._ladder.given[-1] == NO_DRAFT and self._clock() - self._used_s < PAUSE_S:
            return  # reading it takes seconds, in which a request would wait: not while somebody types
        done = self._up()
        if self._tight_until_s > float("-inf"):
            self._tight_until_s = self._clock() + CALM_S if self._ladder.given else float("-inf")
        if done:
            log.warning("%s: back to %s", words, self.memory)
            self._say("ok", self._given_words())

    @property
    def _place(self) -> str:
        return "main memory" if self._device == "cpu" else "the GPU's memory"

    def _given_words(self) -> str:
        if not self._ladder.given:
            return ""
        own = self._tight_until_s > float("-inf")
        return f"memory ran out: {self.memory}" if own else f"another program needs {self._place}: {self.memory}"

    def _no_room_words(self, free_mib: int) -> str:
        if free_mib >= self._takes_mib + self._courtesy.keep_mib:
            return (
                f"unloaded for other programs' sake; there is room again, and it is back when that lasts {WAIT_S:.0f} s"
            )
        return (
            f"unloaded, because other programs need memory: {free_mib} MiB of {self._place} are free, the model takes "
            f"{self._takes_mib} and {self._courtesy.keep_mib} are kept for others. Close other programs, set a "
            "smaller pair (`speclsp models list`), or lower engine.keep_free_mib."
        )
