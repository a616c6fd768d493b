"""The public names of cofed.flower, and where each is: `__init__.py` loads them from there when they are first used."""

from .client import client_app as client_app
from .door import site_app as site_app
from .grid_sites import sites as sites
from .local_sites import ChosenColumns as ChosenColumns
from .local_sites import await_sites as await_sites
from .local_sites import start_sites as start_sites
from .privacy import ClientPrivacy as ClientPrivacy
from .privacy import Privacy as Privacy
from .run_folder import SavedRun as SavedRun
from .run_folder import read_saved as read_saved
from .server import serve as serve
from .server import server_app as server_app
