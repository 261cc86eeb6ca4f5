"""Bootstrap confidence intervals of 95 %: tasks drawn with replacement, the same draws for everything compared.

A figure is a sum over a sum: exact lines over tasks, characters saved over suggestions shown. Tasks are drawn with
replacement; the interval is from the 2.5th to the 97.5th percentile over the draws. Two variants are compared on the
same draws, so a task that is hard for both does not reduce the difference between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Draws = NDArray[np.int32]  # [draws, tasks]: how often each task was drawn
    Sums = NDArray[np.float64]

DRAWS, SEED = 2000, 7
LOW, HIGH = 2.5, 97.5


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and where it may as well lie."""

    value: float
    low: float
    high: float

    def json(self) -> dict[str, float]:
        """With the digits that mean something."""
        return {name: round(number, 4) for name, number in asdict(self).items()}


Counts = tuple[Sequence[float], Sequence[float]]  # for each task: (count, denominator)


def draws(tasks: int, times: int = DRAWS, seed: int = SEED) -> Draws:
    """The same for the same number of tasks."""
    import numpy as np

    return np.random.default_rng(seed).multinomial(tasks, [1 / tasks] * tasks, size=times).astype(np.int32)


def figure(counts: Counts, drawn: Draws) -> Interval | None:
    """The figure itself; None where there is nothing to count."""
    return interval(*_figures(counts, drawn))


def difference(one: Counts, other: Counts, drawn: Draws) -> Interval | None:
    """Difference of the first figure and the second."""
    (value, values), (base, bases) = _figures(one, drawn), _figures(other, drawn)
    return interval(value - base, values - bases)


def ratio(one: Counts, other: Counts, drawn: Draws) -> Interval | None:
    """Ratio of the first figure to the second; None where the second is zero."""
    import numpy as np

    (value, values), (base, bases) = _figures(one, drawn), _figures(other, drawn)
    with np.errstate(divide="ignore", invalid="ignore"):
        return interval(value / base if base else float("nan"), values / bases)


def interval(value: float, values: Sums) -> Interval | None:
    """Percentiles of the draws with a defined value."""
    import numpy as np

    finite = values[np.isfinite(values)]
    if not np.isfinite(value) or not finite.size:
        return None
    low, high = np.percentile(finite, [LOW, HIGH])
    return Interval(float(value), min(float(low), float(value)), max(float(high), float(value)))


def _figures(counts: Counts, drawn: Draws) -> tuple[float, Sums]:
    """(sum over sum, the same for each draw); not a number where the lower one is zero."""
    import numpy as np

    above, below = (np.asarray(count, dtype=np.float64) for count in counts)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = (drawn @ above) / (drawn @ below)
    return float(above.sum() / below.sum()) if below.sum() else float("nan"), values
