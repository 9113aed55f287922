"""One source, two speeds: every compiled module is the same file as the interpreted one.

Which build a run tests is checked before any test (``conftest.py``); here is what must hold for
each module that is compiled.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import subprocess
import sys
import sysconfig
import types
from importlib import metadata
from pathlib import Path

import pytest

import gateway
from gateway.config import load
from tests.conftest import (
    ROOT,
    SOURCE,
    compiled_modules,
    listed_modules,
    package_folder,
    source_of,
)


def interpreted(name: str) -> types.ModuleType:
    """The module of that name made from its source file, whatever is installed beside it."""
    spec = importlib.util.spec_from_file_location(name, source_of(name))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def public_classes(module: types.ModuleType) -> dict[str, set[str]]:
    """The classes a module defines for others, each with the public methods it defines itself."""
    return {
        name: {
            key for key, value in vars(item).items() if callable(value) and not key.startswith("_")
        }
        for name, item in vars(module).items()
        if inspect.isclass(item) and item.__module__ == module.__name__ and not name.startswith("_")
    }


def test_every_listed_module_is_there():
    """setup.py skips what is not there: a module that moved would quietly run interpreted."""
    assert [name for name in listed_modules() if not source_of(name).exists()] == []


@pytest.mark.parametrize("name", compiled_modules())
def test_module_is_of_the_build_under_test(name: str, mode: str):
    file = importlib.import_module(name).__file__
    assert file is not None
    if mode == "compiled":
        assert file.endswith(sysconfig.get_config_var("EXT_SUFFIX"))
        beside = Path(file).with_name(Path(file).name.partition(".")[0] + ".py")
        assert beside.read_bytes() == source_of(name).read_bytes()
    else:
        assert Path(file) == source_of(name)


@pytest.mark.parametrize("name", compiled_modules())
def test_module_runs_interpreted_in_both_builds(name: str):
    from_source = interpreted(name)
    assert from_source.__file__ == str(source_of(name))
    loaded = importlib.import_module(name)
    assert public_classes(from_source).keys() == public_classes(loaded).keys()


@pytest.mark.parametrize("name", compiled_modules())
def test_compiled_module_has_no_coroutine(name: str):
    tree = ast.parse(source_of(name).read_bytes())
    found = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith)
    ]
    assert found == [], f"async at line {found}: compiled code waits for nothing"


def test_source_tree_holds_nothing_built():
    suffixes = {".so", ".pyd", ".c", ".cpp", ".o"}
    assert [path for path in SOURCE.rglob("*") if path.suffix in suffixes] == []


def test_every_package_says_so():
    """A folder without ``__init__.py`` is neither installed nor seen by import-linter."""
    folders = {path.parent for path in SOURCE.rglob("*.py")}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_version_is_said_once():
    assert metadata.version("trio-gateway") == gateway.__version__


def test_command_says_which_build_runs(mode: str):
    command = Path(sys.executable).with_name("gateway")
    run = subprocess.run([command, "version"], capture_output=True, text=True, check=True)
    assert run.stdout.startswith(f"gateway {gateway.__version__} ({mode},")


def test_readme_configuration_is_right(tmp_path: Path):
    """The configuration that a newcomer copies."""
    text = (ROOT / "README.md").read_text().partition("```toml\n")[2].partition("```")[0]
    file = tmp_path / "gateway.toml"
    file.write_text(text)
    config = load(file)
    assert config.listeners
    assert config.clusters


def test_subprocess_runs_the_same_build():
    """What ``python -m gateway...`` in a test starts is what the test imports."""
    code = "import gateway; print(gateway.__file__)"
    run = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert Path(run.stdout.strip()).resolve().parent == package_folder()
