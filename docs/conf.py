"""How the documentation is built: ``make docs``.

Neither building nor reading needs the network: MathJax, which draws formulas in the browser, is
copied from the package sphinx-mathjax-offline.
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_tools"))

from api_pages import write_api_pages  # noqa: E402

import rankrls  # noqa: E402

project = "rankrls"
author = "The rankrls developers"
copyright = author
version = release = rankrls.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_design",
    "sphinx-mathjax-offline",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_tools", "gallery/sg_execution_times.rst", "sg_execution_times.rst"]
default_role = "literal"

# Markdown: pages read well where they lie, too; only formulas and tables of contents are extra.
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 3

# Reference: a page for every public name, from its docstring.
write_api_pages(HERE / "api")
autosummary_generate = [str(path) for path in sorted((HERE / "api").glob("*.rst"))]
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"  # fit(), not RankRLS.fit(), in a narrow column
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# Examples on real data run where the data are, and are shown without results elsewhere.
data = Path(os.environ.setdefault("RANKRLS_DATA", str(HERE.parent / "data")))
runs = r"plot_" if data.exists() else rf"^((?!{os.sep}real{os.sep}).)*plot_"

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples" / "gallery"),
    "gallery_dirs": "gallery",
    "filename_pattern": runs,
    "within_subsection_order": "FileNameSortKey",
    "doc_module": ("rankrls",),
    "backreferences_dir": None,
    "download_all_examples": False,
    "capture_repr": (),  # what examples print, not what their last line returns
    "show_memory": False,
    "show_signature": False,
    "abort_on_example_error": False,
    "only_warn_on_example_error": False,
    "remove_config_comments": True,
    "write_computation_times": False,
    "min_reported_time": 1e9,
}
suppress_warnings = ["config.cache"]  # sphinx-gallery's settings cannot be pickled

html_theme = "pydata_sphinx_theme"
html_title = f"rankrls {release}"
html_static_path = ["_static"]
html_css_files = ["rankrls.css"]
html_show_sourcelink = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "navigation_with_keys": False,
}
html_sidebars = {
    page: []
    for page in ("index", "getting_started", "migration", "mathematics", "results", "speed", "data")
}
