"""What the experiments of this paper share."""

OURS = ("FastFedDA", "CFedDA", "MCFedDA")  # the paper's own methods
BASELINES = ("FedDualAvg", "FedMiD")
