"""The same algorithms and estimators over a real network, with Flower (the extra `cofed[flower]`).

The public names are listed in `__init__.pyi`. Each is loaded when it is first used: a process that only carries
messages needs no JAX.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
