"""Runs of a benchmark, several at once: a thread each, and large pages as `loopworth train` has them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")  # for the processes that are started here

from loopworth.study import RunRecord, RunSpec
from loopworth.train import train


def trained(specs: Sequence[RunSpec], root: str) -> list[RunRecord]:
    """The records in the order of the specs; what is finished in `root` is not done again."""
    with ProcessPoolExecutor(min(len(specs), os.cpu_count() or 1), get_context("spawn")) as pool:
        return list(pool.map(partial(train, root=root, threads=1), specs))
