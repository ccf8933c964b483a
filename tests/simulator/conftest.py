from tests.cli.conftest import run as command  # noqa: F401  # the command, as a fixture under this name
