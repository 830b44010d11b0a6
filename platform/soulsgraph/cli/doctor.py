"""`soulsgraph doctor`: what this machine can do, and the tables of such checks."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.text import Text

from soulsgraph.cli.output import DEFAULT_OUTPUT, OutputOptions
from soulsgraph.cli.remedies import command_line
from soulsgraph.results.tables import TextTable
