"""How the site is built: `make docs`. Warnings are errors; nothing is loaded from elsewhere."""

import sys
from pathlib import Path

import cofed

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))
version = release = cofed.__version__

project = "cofed"
author = "The cofed developers"
project_copyright = author
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "plain_docstrings",
    "data_docstrings",
    "pages_from_code",
    "cross_links",
]
exclude_patterns = [
    "_build",
    "**/*.ipynb",
    "gallery/**/*.zip",
    "sg_execution_times.rst",
    "**/sg_execution_times.rst",
]
nitpicky = True
# Beside a page, `fit()` and not the class before it
toc_object_entries_show_parents = "hide"
default_role = "code"  # docstrings write `name`, as Markdown does
suppress_warnings = [
    "config.cache",  # the gallery's settings hold functions
    "misc.highlighting_failure",  # messages of programs are no code
]

# Markdown
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "linkify"]
myst_linkify_fuzzy_links = False  # https://..., and not every word with a point in it
myst_heading_anchors = 4
myst_url_schemes = ["http", "https", "mailto"]

# What is copied runs: no prompts, and nothing that was printed
copybutton_exclude = ".linenos, .gp, .go, .gt"

# API: NumPy's sections; types are said in Parameters, not in the signature
autodoc_typehints = "none"
autosummary_generate = False
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = False

# Gallery: run where a script changed; also as notebooks to download
sphinx_gallery_conf = {
    "examples_dirs": ["../examples/gallery"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "capture_repr": (),  # what is printed, and not what a line happens to return
    "abort_on_example_error": True,
    "only_warn_on_example_error": False,
    "show_signature": False,
    "show_memory": False,
    "min_reported_time": 1_000_000,
    "remove_config_comments": True,
    "write_computation_times": False,
    "copyfile_regex": r".*\.(csv|toml)",
}

# Theme
html_theme = "pydata_sphinx_theme"
html_title = "cofed"
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_css_files = ["cofed.css"]
html_show_sourcelink = False
alone = ("choose", "sharp-edges", "changelog", "commands")  # no pages below them
html_sidebars = {page: [] for page in alone}
html_context = {"default_mode": "auto"}  # light or dark, as the system is
html_theme_options = {
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    # A table of eight columns and a drawing take the room of the second sidebar.
    "secondary_sidebar_items": {
        "**": ["page-toc"],
        "comparison": [],
        "architecture": [],
    },
    "show_toc_level": 2,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
