"""What is installed: the version, and the packages that the distribution's extras add to its core."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from soulsgraph_envs.core.errors import SoulsGraphError

DISTRIBUTION = "soulsgraph"
#: The group of entry points by which an installed package offers a project of skills and graphs.
PROJECTS = "soulsgraph.projects"
#: The modules of each extra without which whole commands do nothing; other extras are asked for where they are used.
EXTRAS: Mapping[str, tuple[str, ...]] = {
    "data": ("pyarrow", "jinja2"),
    "train": (
        *("ray", "torch", "pyarrow", "scipy", "pandas", "matplotlib"),
        *("jinja2", "markdown_it", "tensorboard", "prometheus_client"),
    ),
    "onnx": ("onnx", "onnxruntime"),
    "minari": ("pyarrow", "jinja2", "minari", "h5py"),
    "pettingzoo": ("pettingzoo",),
}


def installed_version() -> str:
    """Return the version that is installed, "unknown" for a tree that is not."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


def pip_install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def check_extra(what: str, extra: str) -> None:
    """Check that the modules of an extra are installed, without importing them.

    Raises:
        SoulsGraphError: naming what needs them, and the command that installs them.
    """
    missing = next((module for module in EXTRAS[extra] if find_spec(module) is None), None)
    if missing is not None:
        raise _missing(what, extra, missing)


def missing_module(what: str, module: str) -> SoulsGraphError | None:
    """Return the refusal of what failed to import a module that an extra brings; None for any other module."""
    package = module.partition(".")[0]
    extra = next((extra for extra, modules in EXTRAS.items() if package in modules), None)
    return None if extra is None or find_spec(package) is not None else _missing(what, extra, package)


def _missing(what: str, extra: str, module: str) -> SoulsGraphError:
    return SoulsGraphError(f"{what}: expected {module} to be installed, found none; install it: {pip_install(extra)}.")
