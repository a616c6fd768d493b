"""Table 1 of a federated study: what the rows of all sites look like, from sums and histograms.

description    the exchanges, and the numbers that come of them
quantiles      quantiles and pictures from histograms, refined once
show           the table for a terminal
page           the table as an HTML page
"""

from cofed.table_one.description import Description, describe
from cofed.table_one.page import write_page
from cofed.table_one.show import terminal

__all__ = ["Description", "describe", "terminal", "write_page"]
