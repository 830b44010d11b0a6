"""Make a script of a module from npm, for pages that have none: `make three` runs it.

    python site/script_of_module.py MODULE LICENSE NAME SCRIPT

The script defines NAME, an object of what the module exports, and begins with the module's licence.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_EXPORTS = re.compile(r"export\s*\{([^{}]*)\};?\s*$")


def to_script(module: str, licence: str, name: str) -> str:
    """Return a minified module that imports nothing as a script.

    Raises:
        ValueError: if the module has imports, or does not end with its only list of exports.
    """
    found = _EXPORTS.search(module)
    if found is None or re.search(r"\b(import|export)\b\s*[{*\"]", module[: found.start()]):
        raise ValueError("expected a module without imports that ends with its only list of exports")
    pairs = (one.split(" as ") for one in found[1].split(","))
    exported = ",".join(f"{pair[-1].strip()}:{pair[0].strip()}" for pair in pairs)
    body = module[: found.start()]
    return f"/*\n{licence.strip()}\n*/\nconst {name}=(()=>{{{body}return{{{exported}}}}})();\n"


def main() -> None:
    """Write the script."""
    module, licence, name, script = sys.argv[1:]
    text = to_script(Path(module).read_text(encoding="utf-8"), Path(licence).read_text(encoding="utf-8"), name)
    Path(script).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
