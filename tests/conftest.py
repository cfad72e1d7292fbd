"""What tests share: the engine, and the images that sessions run in. Both are used as found, or made once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from team import images
from team.config import Image
from team.runtimes import EngineLost
from team.runtimes.docker import connect

# A shell starts background commands with SIGINT ignored, and everything that a test starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def engine() -> Iterator[docker.APIClient]:
    """The Docker engine. Tests that need one fail without it: a skipped test proves nothing."""
    try:
        client = connect()
    except EngineLost as e:
        pytest.fail(f"no Docker engine answers ({e}): run .ci/engine, then the tests again", pytrace=False)
    yield client
    client.close()


@pytest.fixture(scope="session")
def agent_image(engine: docker.APIClient) -> str:
    """The image without any client; built when its hash is new."""
    return images.ensure(images.AGENT, Image(), Path("/nonexistent"), say=print)


@pytest.fixture(scope="session")
def claude_image(engine: docker.APIClient) -> str:
    """The image with the real Claude Code; built when its hash is new."""
    return images.ensure("claude-code", Image(), Path("/nonexistent"), say=print)
