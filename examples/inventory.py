"""Keeps count of what is in a small shop's stock room."""

from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal


class StockError(Exception):
    """The stock room cannot do what was asked."""


@dataclass
class Item:
    """One kind of thing on the shelves."""

    sku: str
    name: str
    price: Decimal
    quantity: int = 0
    reorder_level: int = 5
    tags: set[str] = field(default_factory=set)


@dataclass
class Movement:
    """Something went in or out."""

    day: date
    sku: str
    change: int
    note: str = ""


class Inventory:
    """All items by SKU, and every movement since the book was opened."""

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self.movements: list[Movement] = []

    def add_item(self, item: Item) -> None:
        """Put a new kind of item on the shelves."""
        if item.sku in self.items:
            raise StockError(f"{item.sku} is already in the inventory")
        self.items[item.sku] = item

    def remove_item(self, sku: str) -> Item:
        """Take a kind of item out of the book."""
        if sku not in self.items:
            raise StockError(f"{sku} is not in the inventory")
        return self.items.pop(sku)

    def receive(self, sku: str, quantity: int, day: date, note: str = "") -> None:
        """Add a delivery to the stock."""
        if sku not in self.items:
            raise StockError(f"{sku} is not in the inventory")
        if quantity <= 0:
            raise StockError(f"cannot receive {quantity} of {sku}")
        self.items[sku].quantity += quantity
        self.movements.append(Movement(day, sku, quantity, note))

    def ship(self, sku: str, quantity: int, day: date, note: str = "") -> None:
        """Take an order out of the stock. Never ships more than there is."""
        # <cursor>

    def to_reorder(self) -> list[Item]:
        """Items at or below their reorder level, lowest stock first."""
        low = [item for item in self.items.values() if item.quantity <= item.reorder_level]
        return sorted(low, key=lambda item: item.quantity)

    def total_value(self) -> Decimal:
        """What the whole stock is worth."""
        return sum((item.price * item.quantity for item in self.items.values()), Decimal(0))

    def with_tag(self, tag: str) -> list[Item]:
        """Items that carry a tag, by name."""
        tagged = [item for item in self.items.values() if tag in item.tags]
        return sorted(tagged, key=lambda item: item.name)

    def history(self, sku: str) -> list[Movement]:
        """Every movement of one item, oldest first."""
        moves = [movement for movement in self.movements if movement.sku == sku]
        return sorted(moves, key=lambda movement: movement.day)
