"""Names for plain data whose fields are decided elsewhere: by a file, by a contract, or by the function that takes them."""

from __future__ import annotations

from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]  # a JSON object, as it is stored or printed
Row: TypeAlias = dict[str, Any]  # a row of a dataset by column; data_contracts/ names the columns and their types
Options: TypeAlias = dict[str, Any]  # keyword arguments by name, for a function or a library's class
