"""The published law on the published design, with noise: what would a fit of those 116 runs say?

The paper released no runs, so this draws them: the joint law of arXiv 2604.21106 at its 116 designs, 0.3 % of noise.
"""

import loopworth as lw
from loopworth.cli.show import show_fit
from loopworth.laws.published import JOINT

runs = lw.simulate(lw.paper_grid(), lw.LAWS["joint"], JOINT, noise=0.003, seed=1)
fit = lw.fit(runs)
show_fit(fit)

print("\nparameter    truth     fitted    95 % interval")
for name, truth in JOINT.items():
    low, high = fit.interval[name] or (None, None)
    print(f"{name:<9} {truth:>8.5g} {fit.params[name]:>10.5g}    [{low:.5g}, {high:.5g}]")
