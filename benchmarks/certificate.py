"""How often a certificate or a warning is false: random problems of every family and scale beside an exact solver.

    python -m benchmarks.certificate [--problems N] [--seed S] [--families squared,logistic,...]

N problems of each family and shape (n > p and n < p): scales of X and y from 1e-8 to 1e8, means up to 1e6 standard
deviations, alpha down to 1e-12 of the largest, collinear columns, with and without an intercept and standardisation.
"""

import argparse
from collections import Counter

from tests.estimators import fuzz


def main():
    """Count, and print what is wrong in full."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--families", default=",".join(fuzz.FAMILIES))
    options = parser.parse_args()
    total = Counter()
    for family in options.families.split(","):
        for shape in fuzz.SHAPES:
            count, worst = Counter(), 0.0
            for seed in range(options.seed, options.seed + options.problems):
                verdict = fuzz.judge(seed, family, shape)
                count[verdict.outcome] += 1
                count["tried"] += 1
                count["false certificates"] += verdict.false_certificate
                count["false warnings"] += verdict.false_warning
                count["false limits"] += verdict.false_limit
                count["without a minimum"] += verdict.without_end
                worst = max(worst, 0.0 if verdict.outcome == "not converged" else verdict.suboptimality)
                if verdict.false_certificate or verdict.false_warning or verdict.false_limit:
                    print(verdict)
            total.update(count)
            print(f"{family:12s} n = {shape[0]:3d}, p = {shape[1]:3d}: {dict(count)}, worst {worst:.1e}", flush=True)
    print(dict(total))


if __name__ == "__main__":
    main()
