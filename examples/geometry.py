"""Points, boxes and circles in the plane, enough to lay out a page."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """A place on the page, in millimetres from the top left corner."""

    x: float
    y: float

    def __add__(self, other: Point) -> Point:
        """This point, moved by the other."""
        return Point(self.x + other.x, self.y + other.y)

    def __sub__(self, other: Point) -> Point:
        """The way from the other point to this one."""
        # <cursor>

    def __mul__(self, factor: float) -> Point:
        """This point, farther from the corner by a factor."""
        return Point(self.x * factor, self.y * factor)

    def distance(self, other: Point) -> float:
        """Straight from here to there."""
        return math.hypot(self.x - other.x, self.y - other.y)


@dataclass(frozen=True)
class Box:
    """A rectangle with sides along the axes."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def height(self) -> float:
        return self.bottom - self.top

    @property
    def centre(self) -> Point:
        return Point((self.left + self.right) / 2, (self.top + self.bottom) / 2)

    def contains(self, point: Point) -> bool:
        """Whether the point lies in the box or on its edge."""
        return self.left <= point.x <= self.right and self.top <= point.y <= self.bottom

    def moved(self, by: Point) -> Box:
        """The same box somewhere else."""
        return Box(self.left + by.x, self.top + by.y, self.right + by.x, self.bottom + by.y)

    def union(self, other: Box) -> Box:
        """The smallest box that holds both."""
        return Box(
            min(self.left, other.left),
            min(self.top, other.top),
            max(self.right, other.right),
            max(self.bottom, other.bottom),
        )

    def intersection(self, other: Box) -> Box | None:
        """What both boxes cover, or None when they do not touch."""
        left, top = max(self.left, other.left), max(self.top, other.top)
        right, bottom = min(self.right, other.right), min(self.bottom, other.bottom)
        return Box(left, top, right, bottom) if left <= right and top <= bottom else None

    def area(self) -> float:
        return self.width * self.height


@dataclass(frozen=True)
class Circle:
    """A centre and a radius."""

    centre: Point
    radius: float

    def contains(self, point: Point) -> bool:
        """Whether the point lies in the circle or on its edge."""
        return self.centre.distance(point) <= self.radius

    def bounds(self) -> Box:
        """The smallest box around the circle."""
        x, y, r = self.centre.x, self.centre.y, self.radius
        return Box(x - r, y - r, x + r, y + r)
