"""How Sphinx builds these pages: `make docs`, without the network and with warnings as errors."""

from __future__ import annotations

import builtins

from mtlqwen import _core

project = "mtlqwen"
author = "mtlqwen"
version = release = _core.__version__
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"mtlqwen {release}"
html_copy_source = False
html_show_copyright = False
highlight_language = "text"  # what a fence does not name is no code
myst_heading_anchors = 3  # pages link to each other's headings

default_role = "code"  # docstrings say `name`
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "inherited-members": "str,dict,Mapping,Exception"}
napoleon_numpy_docstring = False

# Not links: Python's own names, whose inventory would be a download; names that api.md has in a
# table; and what napoleon takes for a name: sentences of "Raises".
_builtins = "|".join(name for name in dir(builtins) if not name.startswith("_"))
_typing = "Any|Callable|Iterable|Literal|Mapping|Path|Sequence|TracebackType|Unpack"
_table = "ChatKeywords|FinishReason|Keywords|Kind|Messages?|Progress|Prompts?|Results|Tools"
nitpick_ignore_regex = [
    (r"py:.*", rf"(.*[.])?({_builtins}|{_typing}|{_table})"),
    (r"py:exc", r".* .*"),
]
