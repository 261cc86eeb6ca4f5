"""Versions, keys and the sample document of the Neovim tests."""

from __future__ import annotations

import pytest

VERSIONS = ("nvim-0.11", "nvim-0.12")
# Tests of processes and of long random work: the older version runs them in the soak, and its Lua specs everywhere.
NEWEST = (pytest.param("nvim-0.11", marks=pytest.mark.soak), "nvim-0.12")


OURS = "vim.opt.runtimepath:prepend(plugin)\nrequire('speclsp').setup({ cmd = cmd })"


BANK = '''class Account:
    """Money of one owner."""

    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance

    def deposit(self, amount):
        """Add money."""
        if amount <= 0:
            raise ValueError("amount must be positive")
        self.balance += amount
        return self.balance

    def withdraw(self, amount):
        """Take money."""
'''


ACCEPT, WORD, LINE, NEXT = "<Tab>", "<M-Right>", "<M-Down>", "<M-]>"
