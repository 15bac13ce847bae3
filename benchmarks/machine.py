"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from datetime import date
from pathlib import Path

import numpy as np

import loopworth


def machine() -> str:
    """One line: processor, cores, Python, numpy, loopworth, date."""
    cpuinfo = Path("/proc/cpuinfo")
    names = (
        [x.split(":")[1].strip() for x in cpuinfo.read_text().splitlines() if "model name" in x]
        if (cpuinfo.exists())
        else []
    )
    return (
        f"{names[0] if names else platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
        f"{platform.system()}, Python {platform.python_version()}, numpy {np.__version__}, "
        f"loopworth {loopworth.__version__}, {date.today().isoformat()}"
    )
