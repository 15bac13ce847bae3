"""The picture of the README: what r passes over a block are worth, from a fit of simulated runs.

python examples/picture.py docs/worth.svg    (needs the extra `figures`)
"""

import sys

import matplotlib as mpl
import numpy as np

mpl.use("svg")
import matplotlib.pyplot as plt

import loopworth as lw
from loopworth.laws.published import JOINT

runs = lw.simulate(lw.paper_grid(), lw.LAWS["joint"], JOINT, noise=0.01, seed=1)
fit = lw.fit(runs, diagnostics=False)
assert fit.phi is not None
low, high = fit.interval["phi"] or (None, None)
assert low is not None
assert high is not None

plt.rcParams.update({"font.size": 11, "svg.hashsalt": "loopworth"})
figure, axes = plt.subplots(figsize=(7.2, 4.2))
r = np.geomspace(1, 8, 200)
axes.fill_between(r, r**low, r**high, color="#7fb3d5", alpha=0.6, lw=0, label=f"95 % interval [{low:.2f}, {high:.2f}]")
axes.plot(r, r**fit.phi, color="#1b4f72", lw=2.2, label=f"fitted: phi = {fit.phi:.2f}")
axes.plot(r, r, color="black", lw=1.2, ls="--")
axes.plot(r, np.ones_like(r), color="black", lw=1.2, ls=":")
axes.annotate(
    "each pass as good as a fresh block (phi = 1)", (4.1, 4.1), (1.45, 6.6), arrowprops={"arrowstyle": "-", "lw": 0.7}
)
axes.annotate("extra passes buy nothing (phi = 0)", (1.6, 1), (1.6, 1.05))
axes.plot([4, 4], [0.9, 4**fit.phi], color="#1b4f72", lw=0.8)
axes.annotate(f"4 passes = {4**fit.phi:.2f} blocks", (4, 4**fit.phi), (4.25, 1.62), color="#1b4f72")
axes.set(
    xscale="log",
    yscale="log",
    xlim=(1, 8),
    ylim=(0.9, 8),
    xlabel="passes of the loop, r",
    ylabel="worth in fresh blocks, r^phi",
)
for axis in (axes.xaxis, axes.yaxis):
    axis.set_major_locator(mpl.ticker.FixedLocator([1, 2, 4, 8]))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(mpl.ticker.NullLocator())
axes.legend(loc="upper left", bbox_to_anchor=(0.02, 0.84), frameon=False)
axes.spines[["top", "right"]].set_visible(False)
figure.tight_layout()
figure.savefig(sys.argv[1], metadata={"Date": None})
