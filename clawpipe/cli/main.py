"""The command line: which commands there are, and how a failure is told.

A command's module imports at its top only what `--help` needs; torch, mlflow, prefect, duckdb and pyarrow wait until
the command runs.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import typer
from typer import TyperUsageError  # placeholder
