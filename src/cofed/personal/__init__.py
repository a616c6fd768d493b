"""A model for each client, one model for all, or something between: chen2021."""

from cofed.personal.alternative import Alternative
from cofed.personal.fedprox import FedProx
from cofed.personal.fits import LocalFits, local_fits
from cofed.personal.heterogeneity import Heterogeneity, heterogeneity, heterogeneity_of
from cofed.personal.purelocal import PureLocal
from cofed.personal.risk import ExcessRisk, excess_risk

__all__ = ["Alternative", "FedProx", "PureLocal"]
