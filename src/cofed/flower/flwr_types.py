"""Types of Flower and of what comes with it, for readers and type checkers.

Flower is an extra, and importing it takes seconds that every process at a site would pay. So these names are its
classes for a type checker only; at run time they stand for anything.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cryptography.x509 import GeneralName
    from flwr.app import Array as FlowerArray
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.clientapp.typing import Mod
    from flwr.serverapp import Grid, ServerApp
    from psutil import Process
else:
    FlowerArray = ArrayRecord = Context = Message = MetricRecord = RecordDict = Any
    ClientApp = Mod = Grid = ServerApp = Process = GeneralName = Any
