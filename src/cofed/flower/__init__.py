"""The same algorithms and estimators over a real network, with Flower (the extra `cofed[flower]`)."""

from cofed.flower.client import client_app
from cofed.flower.privacy import Privacy
from cofed.flower.run_folder import SavedRun, read_saved
from cofed.flower.server import serve, server_app
from cofed.flower.site_app import site_app
from cofed.flower.sites import sites

__all__ = ["Privacy", "SavedRun", "client_app", "read_saved", "serve", "server_app", "site_app", "sites"]
