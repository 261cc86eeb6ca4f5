"""Fill-in-the-middle tasks that the tiny models were trained on."""

from __future__ import annotations

HOLES = (  # prefix, suffix, with the cursor at the end of an unfinished line
    (
        "class Stack:\n    def __init__(self):\n        self._items = []\n\n    def push(self, item):\n        self.",
        "\n",
    ),
    ("def read(path):\n    with open(path) as f:\n        return f.", "\n\n\ndef write(path, data):\n    pass\n"),
    (
        "import os\nimport sys\n\ndef main():\n    if len(sys.argv) != 2:\n",
        "\n\nif __name__ == '__main__':\n    main()\n",
    ),
    (
        "class Error(Exception):\n    def __init__(self, message):\n        self.message = ",
        "\n\n    def __str__(self):\n",
    ),
    ("for name in names:\n    if name not in seen:\n        ", "\n        yield name\n"),
    ("try:\n    import ssl\nexcept ", ":\n    ssl = None\n"),
)
