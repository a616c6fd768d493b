"""Federations: the data of all clients, in memory, on disk or drawn from a stream.

    base.py       the abstract class that runs, problems and checks know
    memory.py     `Federation`: all samples in memory, or drawn afresh at every step (a stream)
    disk/         `DiskFederation`: the samples stay on disk, and only the clients that take part are read
    arrays.py     arrays that users give, checked
    frames.py     one table of all clients, taken apart
    files.py      CSV and Parquet files as tables
    splitting.py  train and test samples, cross-validation folds
    rows.py       how the samples lie in memory

The classes are loaded when they are first used, so that mathematics that only names the abstract class loads no pandas.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
