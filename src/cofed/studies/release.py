"""A site's word that a fit may go on without it, signed with its long-term key."""

from pathlib import Path

from cofed._util.files import read_json, write_json
from cofed.sites.secure.cards import release_words
from cofed.sites.secure.keys import SiteKeys, is_signed
from cofed.studies.schema import Study


def write_release(path: Path, keep: Path, study: Study, site: str) -> None:
    """Write a site's release: sums with and without it may be told, and so what it has added to them.

    Parameters
    ----------
    path : Path
        The file to write, for the server.
    keep : Path
        The folder in which the site keeps its keys.
    study : Study
        The study, which names the site and its key.
    site : str
        The site's name.

    Raises
    ------
    ValueError
        Where the study does not name this site with the key that is in the folder.
    """
    keys = SiteKeys.found_in(keep)
    require_own_key(study, site, keys.public)
    signature = keys.sign(release_words(study.digest, site))
    write_json(path, {"study": study.digest, "site": site, "signature": signature})


def require_own_key(study: Study, site: str, public: str) -> None:
    """Refuse a study that does not name a site with this key."""
    named = {one.name: one.key for one in study.sites}
    if site not in named:
        raise ValueError(f"{site!r} is not one of the study's sites: {', '.join(named) or 'it names none'}")
    if named[site] is None:
        raise ValueError(f"the study names no key of {site!r}; it should be key = {public!r}")
    if named[site] != public:
        raise ValueError(f"the study names another key of {site!r} than the one in its folder, which is {public!r}")


def read_release(path: Path, study: Study) -> tuple[str, str]:
    """The site of a release, and its signature.

    Parameters
    ----------
    path : Path
        A file that `write_release` wrote.
    study : Study
        The study that it must be of.
    """
    content = read_json(path, f"{path} is not a site's release (cofed study release writes one)")
    site, signature = str(content.get("site")), str(content.get("signature"))
    key = {one.name: one.key for one in study.sites}.get(site)
    if content.get("study") != study.digest or key is None:
        raise ValueError(f"{path} is a release of another study, or of a site whose key this study does not name")
    if not is_signed(key, release_words(study.digest, site), signature):
        raise ValueError(f"{path} is not signed by the key that the study names for {site!r}")
    return site, signature
