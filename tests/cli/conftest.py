"""The command line, called as a person calls it."""

import sys

import pytest

from cascader.cli import main


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command line; return exit code, standard output and standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["cascader", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        printed = capsys.readouterr()
        return stopped.value.code, printed.out, printed.err

    return run
