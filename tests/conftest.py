"""What every test run has in common: which build it tests, and how hypothesis behaves.

``GATEWAY_MODE`` says which build is meant: ``interpreted`` (the source tree, no compiled module) or
``compiled`` (the wheel in site-packages). A run that would test another build than it says ends at
once: a build that failed or is older than the source must not pass for the one that was asked for.
Without the variable whatever is on the path is tested; the header of the run says what that is.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import tomllib
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent

# What these test is never compiled, and they take their time: once is enough.
if os.environ.get("GATEWAY_MODE") == "compiled":
    collect_ignore = ["benchmarks", "certs", "certificates"]
SOURCE = ROOT / "gateway"

# A slow machine is not a failure. In CI (the variable CI is set) hypothesis itself takes a profile
# that also repeats the same examples in every run.
if "CI" not in os.environ:
    settings.register_profile("gateway", deadline=None, print_blob=True)
    settings.load_profile("gateway")


def listed_modules() -> list[str]:
    """Dotted names of the modules that are to be compiled."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        names: list[str] = tomllib.load(file)["tool"]["gateway"]["build"]["compiled"]
    return names


def compiled_modules() -> list[str]:
    """Those of them whose source is there."""
    return [name for name in listed_modules() if source_of(name).exists()]


def source_of(module: str) -> Path:
    """The source file of a dotted name, in the source tree."""
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")


def package_folder() -> Path:
    """Where the package ``gateway`` under test is, without importing it."""
    spec = importlib.util.find_spec("gateway")
    if spec is None or spec.origin is None:
        raise pytest.UsageError("gateway can't be imported: `make test`, or PYTHONPATH=. pytest")
    return Path(spec.origin).resolve().parent


def built_files(folder: Path) -> dict[str, Path]:
    """The compiled modules under the package folder: dotted name and file."""
    suffixes = tuple(importlib.machinery.EXTENSION_SUFFIXES)
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.name.endswith(suffixes):
            parts = path.relative_to(folder.parent).parts
            found[".".join([*parts[:-1], parts[-1].partition(".")[0]])] = path
    return found


def wrong_build(mode: str) -> list[str]:
    """Why the package on the path is not the build that ``mode`` names; empty if it is."""
    folder = package_folder()
    built = built_files(folder)
    if mode == "interpreted":
        problems = [f"{path} is compiled" for path in built.values()]
        if folder != SOURCE:
            problems.append(f"{folder} is not the source tree")
        return problems
    if folder == SOURCE:
        return [f"{folder} is the source tree, not an installed build"]
    wanted = compiled_modules()
    problems = [f"{name} is not compiled" for name in wanted if name not in built]
    problems += [f"{name} is compiled but not listed" for name in built if name not in wanted]
    ours = {path.relative_to(SOURCE) for path in SOURCE.rglob("*.py")}
    theirs = {path.relative_to(folder) for path in folder.rglob("*.py")}
    problems += [f"{path} is not installed" for path in sorted(ours - theirs)]
    problems += [f"{path} is installed, but has no source" for path in sorted(theirs - ours)]
    problems += [
        f"{path} was installed from another version of its source"
        for path in sorted(ours & theirs)
        if (SOURCE / path).read_bytes() != (folder / path).read_bytes()
    ]
    return problems


def pytest_configure(config: pytest.Config) -> None:
    mode = os.environ.get("GATEWAY_MODE")
    if mode is None:
        return
    if mode not in {"interpreted", "compiled"}:
        raise pytest.UsageError(f"GATEWAY_MODE is {mode!r}: interpreted or compiled")
    problems = wrong_build(mode)
    if problems:
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise pytest.UsageError(
            f"GATEWAY_MODE={mode}, but that is not what would run:\n{lines}\n"
            "(make venv; after a failed or interpreted build, make clean first)"
        )


def pytest_report_header(config: pytest.Config) -> str:
    folder = package_folder()
    built = built_files(folder)
    kind = f"compiled ({len(built)} modules)" if built else "interpreted"
    return f"gateway: {kind}, {folder}"


@pytest.fixture(scope="session")
def mode() -> str:
    """``interpreted`` or ``compiled``: the build under test."""
    return "compiled" if built_files(package_folder()) else "interpreted"
