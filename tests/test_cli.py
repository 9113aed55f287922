"""The command line: what each command prints, and its exit code."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import types
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway import _build
from gateway.cli import main
from gateway.config import Config
from gateway.errors import ConfigError, ListenError

RIGHT = """\
[[listeners]]
address = "127.0.0.1:0"
[[routes]]
cluster = "llama"
[clusters.llama]
endpoints = [{ address = "127.0.0.1:9001" }, { address = "127.0.0.1:9002" }]
"""
WRONG = RIGHT + 'policy = "ring_hsh"\n'


def python(*args, cwd):
    """A Python process with ``args``, run to its end."""
    return subprocess.run(
        [sys.executable, *args], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Calls the command line in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return lambda *args: CliRunner().invoke(main, args)


@pytest.fixture
def supervised(monkeypatch):
    """The configurations that were served, and what serving does: return a code or raise."""
    served = types.SimpleNamespace(configs=[], result=0)

    def serve(config):
        served.configs.append(config)
        if isinstance(served.result, Exception):
            raise served.result
        return served.result

    monkeypatch.setattr("gateway.supervisor.run", serve)
    return served


# ------------------------------------------------------------------------------ check


def test_check_counts_what_it_read(run):
    Path("g.toml").write_text(RIGHT)
    result = run("check", "g.toml")
    assert result.exit_code == 0
    assert result.stdout == "g.toml: right (1 listener, 1 route, 1 cluster, 2 endpoints)\n"
    assert result.stderr == ""


def test_check_takes_gateway_toml_by_itself(run):
    Path("gateway.toml").write_text(RIGHT)
    assert run("check").stdout.startswith("gateway.toml: right")


def test_check_names_what_is_wrong(run):
    Path("g.toml").write_text(WRONG)
    result = run("check", "g.toml")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == (
        'g.toml:7: clusters.llama.policy: unknown value "ring_hsh"; allowed: "least_connections", '
        '"ring_hash", "round_robin", "random"; did you mean "ring_hash"?\n'
    )


def test_check_of_a_file_that_is_not_there(run):
    result = run("check", "nothing.toml")
    assert result.exit_code == 2
    assert result.stderr == "nothing.toml: No such file or directory\n"


# ------------------------------------------------------------------------------ serve


@pytest.mark.parametrize("code", [0, 1])
def test_serve_ends_with_the_code_of_the_supervisor(run, supervised, code):
    Path("g.toml").write_text(RIGHT)
    supervised.result = code
    assert run("serve", "-c", "g.toml").exit_code == code
    (config,) = supervised.configs
    assert isinstance(config, Config)
    assert list(config.clusters) == ["llama"]


def test_serve_takes_gateway_toml_by_itself(run, supervised):
    Path("gateway.toml").write_text(RIGHT)
    assert run("serve").exit_code == 0
    assert len(supervised.configs) == 1


def test_serve_does_not_start_what_is_wrong(run, supervised):
    Path("gateway.toml").write_text(WRONG)
    result = run("serve")
    assert result.exit_code == 2
    assert result.stderr.startswith("gateway.toml:7: clusters.llama.policy: ")
    assert supervised.configs == []


@pytest.mark.parametrize(("error", "code"), [(ListenError, 1), (ConfigError, 2)])
def test_an_error_of_the_supervisor_is_one_line(run, supervised, error, code):
    Path("gateway.toml").write_text(RIGHT)
    supervised.result = error("127.0.0.1:80: Permission denied")
    result = run("serve")
    assert result.exit_code == code
    assert result.stderr == "127.0.0.1:80: Permission denied\n"


# ------------------------------------------------------------------------------ version


def test_version_says_how_it_runs(run):
    result = run("version")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"gateway {_build.version()} ({_build.describe()}, Python 3.")


def module(name, file):
    made = types.ModuleType(name)
    made.__file__ = file
    return made


@pytest.mark.parametrize(
    ("files", "compiled", "description"),
    [
        (["a.py", "b.py"], False, "interpreted"),
        (["a.cpython-311-x86_64-linux-gnu.so", "b.abi3.so"], True, "compiled"),
        (["a.so", "b.py"], False, "compiled but for hot_b"),
        ([None, None], False, "interpreted"),
    ],
)
def test_the_loaded_file_tells_whether_a_module_is_compiled(
    monkeypatch, files, compiled, description
):
    names = ("hot_a", "hot_b", "hot_absent")
    monkeypatch.setattr(_build, "HOT_MODULES", names)
    for name, file in zip(names, files, strict=False):
        monkeypatch.setitem(sys.modules, name, module(name, file))
    assert _build.compiled() is compiled
    assert _build.describe() == description


def test_the_hot_modules_are_those_that_are_built():
    pyproject = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert list(_build.HOT_MODULES) == pyproject["tool"]["gateway"]["build"]["compiled"]
    assert pyproject["project"]["name"] == _build.DISTRIBUTION


# ------------------------------------------------------------------------------ demo


@pytest.mark.parametrize(("args", "once"), [((), False), (("--once",), True)])
def test_demo_ends_with_its_own_code(run, monkeypatch, args, once):
    calls = []
    fake = types.ModuleType("gateway.demo.run")

    def fake_main(*, once):
        calls.append(once)
        return 1

    fake.main = fake_main  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gateway.demo.run", fake)
    assert run("demo", *args).exit_code == 1
    assert calls == [once]


def test_demo_without_grpcio_says_what_to_install(tmp_path):
    script = "import sys; sys.modules['grpc'] = None; from gateway.cli import main; main(['demo'])"
    result = python("-c", script, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "the demo needs grpcio: pip install 'trio-gateway[demo]'\n"


# ------------------------------------------------------------------------------ usage


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("srve",),
        ("serve", "--confg", "x"),
        ("serve", "x"),
        ("check", "a", "b"),
        ("certs", "all"),
    ],
)
def test_wrong_usage(run, args):
    result = run(*args)
    assert result.exit_code == 2
    assert "Usage:" in result.output


def test_help_lists_the_commands(run):
    result = run("--help")
    assert result.exit_code == 0
    for command in ("serve", "check", "demo", "version"):
        assert f"\n  {command} " in result.output


# ------------------------------------------------------------------------------ a real process


def test_the_program_itself(tmp_path):
    (tmp_path / "right.toml").write_text(RIGHT)
    (tmp_path / "wrong.toml").write_text(WRONG)

    right = python("-m", "gateway", "check", "right.toml", cwd=tmp_path)
    assert (right.returncode, right.stderr) == (0, "")
    assert right.stdout == "right.toml: right (1 listener, 1 route, 1 cluster, 2 endpoints)\n"

    wrong = python("-m", "gateway", "serve", "-c", "wrong.toml", cwd=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("wrong.toml:7: clusters.llama.policy: ")

    usage = python("-m", "gateway", "srve", cwd=tmp_path)
    assert usage.returncode == 2
    assert usage.stderr.startswith("Usage: gateway ")
