"""A race of all algorithms, over a battery of problems: `cofed race`.

problems.py   the battery: families of problems, each with dials for heterogeneity, conditioning, noise and graph
entrants.py   the algorithms, from the public list, and each one's small grid of hyperparameters
knowledge.py  what is known of a problem before the race: its curvature and its optimum
work.py       what a round costs: bytes, and gradients of a client
measure.py    one algorithm on one problem: the whole grid by `cofed.tune`, every round evaluated
field.py      all of them, over several processes; what is finished is kept
costs.py      what it took to come within a gap of the optimum: rounds, bytes, gradients, seconds
profiles.py   performance profiles
table.py      which algorithm when
page.py       the page with all of it
"""
