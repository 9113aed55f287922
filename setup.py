"""Compiles the modules that ``[tool.gateway.build]`` of pyproject.toml names.

Everything else about the distribution is said in pyproject.toml. Each compiled module stays in the
wheel as ``.py`` beside its ``.so``, so that a traceback shows its lines.

Without Cython, or without a C compiler, the same files are installed to run interpreted. With
``GATEWAY_REQUIRE_COMPILED=1`` in the environment a file that can't be compiled is an error instead.
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import CompileError

try:
    from Cython import __version__ as cython_version
    from Cython.Build import cythonize
except ModuleNotFoundError:
    cython_version = ""

ROOT = Path(__file__).resolve().parent
TRANSLATED = "build/cython"

# Safe by default: C integers wrap and indexes are unchecked only where a hot file says so itself,
# beside the check that makes it right.
DIRECTIVES: dict[str, Any] = {
    "language_level": 3,
    "annotation_typing": True,
    "boundscheck": True,
    "wraparound": True,
    "initializedcheck": True,
    # An attribute of a C layout that is None against its annotation is an error, not a crash.
    "nonecheck": True,
    "cdivision": False,
    "binding": True,
    "embedsignature": False,
    "profile": False,
}


def compiled_modules() -> list[str]:
    """Dotted names of the modules to compile that are there."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        names: list[str] = tomllib.load(file)["tool"]["gateway"]["build"]["compiled"]
    return [name for name in names if source_of(name).exists()]


def source_of(module: str) -> Path:
    """Where the source of a dotted name is."""
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")


def extensions() -> list[Extension]:
    """One extension for each module to compile; empty without Cython."""
    if not cython_version:
        print("Cython is not installed: gateway will run interpreted")
        return []
    found = [
        Extension(
            name,
            [str(source_of(name).relative_to(ROOT))],
            depends=["setup.py"],
            extra_compile_args=["-O3", "-g0"],
        )
        for name in compiled_modules()
    ]
    drop_changed()
    modules: list[Extension] = cythonize(
        found, build_dir=TRANSLATED, compiler_directives=DIRECTIVES, quiet=True
    )
    required = os.environ.get("GATEWAY_REQUIRE_COMPILED") == "1"
    for module in modules:
        module.optional = not required  # said here because cythonize() doesn't pass it on
    return modules


def drop_changed() -> None:
    """Removes what an earlier build made of a source, or with options, that are no longer the same.

    Cython and setuptools compare ages only, and a source that was restored, copied or saved while
    a build ran can be older than a module that was not made from it.
    """
    options = f"{cython_version} {sorted(DIRECTIVES.items())}".encode()
    # A C layout concerns whoever imports it, so a changed one builds everything anew.
    options += b"".join(path.read_bytes() for path in sorted(ROOT.glob("gateway/**/*.pxd")))
    record = ROOT / TRANSLATED / "made-from.json"
    made_from = json.loads(record.read_text()) if record.exists() else {}
    current = {
        name: hashlib.sha256(options + source_of(name).read_bytes()).hexdigest()
        for name in compiled_modules()
    }
    for name, digest in current.items():
        if made_from.get(name) != digest:
            path = name.replace(".", "/")
            for made in [f"{TRANSLATED}/{path}.c", *ROOT.glob(f"build/lib*/{path}.*.so")]:
                (ROOT / made).unlink(missing_ok=True)
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps(current, indent=1))


class BuildPy(build_py):
    """Drops from a reused build folder what is no longer in the source tree.

    Without this a module that was renamed, or is no longer compiled, would stay in the wheel.
    """

    def run(self) -> None:
        library = Path(self.build_lib)
        kept = {extension.name for extension in self.distribution.ext_modules or []}
        for path in [*library.rglob("*.py"), *library.rglob("*.so")]:
            relative = path.relative_to(library)
            if path.suffix == ".py":
                gone = not (ROOT / relative).exists()
            else:
                name = ".".join([*relative.parent.parts, relative.name.partition(".")[0]])
                gone = name not in kept
            if gone:
                path.unlink()
        super().run()


class BuildExt(build_ext):
    """Leaves nothing behind of a module that could not be compiled."""

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:
            # The one from an earlier build would win over the source that is newer.
            Path(self.get_ext_fullpath(ext.name)).unlink(missing_ok=True)
            if isinstance(error, OSError):  # no compiler at all, which `optional` does not cover
                raise CompileError(str(error)) from error
            raise


if __name__ == "__main__":
    os.chdir(ROOT)
    setup(
        ext_modules=extensions(),
        cmdclass={"build_ext": BuildExt, "build_py": BuildPy},
        options={"build_ext": {"parallel": os.cpu_count()}},
    )
