"""Building images: what is there is used, what changed is built, and failures name the mend."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from team import images
from team.config import Image
from team.errors import TeamError

NONE = Path("/nonexistent")
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nnot a real one\n-----END CERTIFICATE-----\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: docker.APIClient) -> Iterator[Path]:
    """A work tree with a name of its own; the images built for it are removed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    root = tmp_path / f"images-{uuid.uuid4().hex[:8]}"
    root.mkdir()
    yield root
    for image in engine.images(name=f"team-{root.name}"):
        for tag in image["RepoTags"]:
            engine.remove_image(tag)


def run(engine: docker.APIClient, tag: str, *argv: str) -> str:
    """What ``argv`` prints in a container of ``tag``, as any uid."""
    made = engine.create_container(tag, list(argv), user="1234:1234", network_disabled=True)
    try:
        engine.start(made)
        engine.wait(made)
        return engine.logs(made).decode()
    finally:
        engine.remove_container(made, force=True)


@pytest.mark.engine
def test_a_warm_look_costs_nothing(agent_image: str) -> None:
    said: list[str] = []
    began = time.perf_counter()
    assert images.ensure("command", Image(), NONE, say=said.append) == agent_image
    assert time.perf_counter() - began < 0.5
    assert said == []


@pytest.mark.engine
def test_the_image_keeps_its_contract(engine: docker.APIClient, agent_image: str) -> None:
    script = (
        "git --version; socat -V | head -1; python3 -c 'import sys; print(sys.version_info >= (3, 11))';"
        "stat -c '%a %n' /workspace /home/agent; git config --system safe.directory; id -un 1000; pwd"
    )
    out = run(engine, agent_image, "sh", "-c", script).splitlines()
    assert out[0].startswith("git version 2.")
    assert out[1].startswith("socat")
    assert out[2:] == ["True", "1777 /workspace", "1777 /home/agent", "*", "agent", "/workspace"]


@pytest.mark.engine
def test_claude_code_has_the_pinned_version(engine: docker.APIClient, claude_image: str) -> None:
    assert run(engine, claude_image, "claude", "--version").startswith("2.1.332 ")
    assert engine.inspect_image(claude_image)["Config"]["Labels"]["team.client.version"] == "2.1.332"  # type: ignore[no-untyped-call]
    assert not engine.images(filters={"dangling": True, "label": "team.stage=fetch"})


@pytest.mark.engine
def test_the_users_dockerfile_stands_on_ours(engine: docker.APIClient, agent_image: str, root: Path) -> None:
    (root / "Dockerfile.team").write_text("ARG BASE\nFROM ${BASE}\nCOPY . /copied\nRUN ls -A /copied >/list\n")
    (root / ".dockerignore").write_text("# not this\nignored\n")
    (root / ".git").mkdir()
    for name in ("kept", "ignored", ".git/config"):
        (root / name).write_text("x")
    settings, said = Image(dockerfile="Dockerfile.team"), list[str]()
    tag = images.ensure("command", settings, root, say=said.append)
    assert tag.startswith(f"team-{root.name}:")
    assert run(engine, tag, "cat", "/list").split() == [".dockerignore", ".team.Dockerfile", "Dockerfile.team", "kept"]
    assert any("Step 3" in line for line in said)

    said.clear()
    assert images.ensure("command", settings, root, say=said.append) == tag
    assert said == []
    (root / "ignored").write_text("changed")
    assert images.ensure("command", settings, root, say=said.append) == tag
    (root / "kept").write_text("changed")
    assert images.ensure("command", settings, root, say=said.append) != tag


@pytest.mark.engine
def test_a_build_failure_is_one_line(root: Path) -> None:
    (root / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nRUN echo the reason; exit 3\n")
    with pytest.raises(TeamError, match=r"could not be built: the reason; the whole output is in (.*)") as caught:
        images.ensure("command", Image(dockerfile="Dockerfile"), root, say=print)
    log = Path(str(caught.value).rpartition(" ")[2])
    assert "returned a non-zero code: 3" in log.read_text()
    (root / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nNONSENSE\n")
    with pytest.raises(TeamError, match=r"(?i)unknown instruction"):
        images.ensure("command", Image(dockerfile="Dockerfile"), root, say=print)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (Image(dockerfile="missing"), "image.dockerfile missing: No such file"),
        (Image(dockerfile="../outside"), "leads out of the project"),
        (Image(dockerfile="plain"), "must begin with `ARG BASE`"),
        (Image(ca="/no/such.pem"), "image.ca /no/such.pem: No such file"),
        (Image(ca="/etc/passwd"), "holds no certificates"),
    ],
)
def test_bad_settings_name_the_mend(tmp_path: Path, settings: Image, words: str) -> None:
    (tmp_path / "plain").write_text("FROM debian\n")
    with pytest.raises(TeamError) as caught:
        images.plan("command", settings, tmp_path)
    assert words in str(caught.value)


def test_an_unknown_client_image(tmp_path: Path) -> None:
    with pytest.raises(TeamError, match=r"images/nonsense.Dockerfile is missing"):
        images.plan("nonsense", Image(), tmp_path)


def test_tags_follow_what_goes_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in images._CA_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    ca = tmp_path / "ca.pem"
    ca.write_text(CERTIFICATE)
    plain = images.plan("claude-code", Image(), tmp_path)
    again = images.plan("claude-code", Image(), tmp_path)
    assert [b.tag for b in plain] == [b.tag for b in again]
    for other in (Image(ca=str(ca)), Image(base="ubuntu:24.04")):
        assert images.plan("claude-code", other, tmp_path)[-1].tag != plain[-1].tag
    monkeypatch.setenv("SSL_CERT_FILE", str(ca))
    assert images.plan("claude-code", Image(), tmp_path)[-1].tag == images.plan(
        "claude-code", Image(ca=str(ca)), tmp_path
    )[-1].tag  # fmt: skip


def test_files_end_their_lines_with_lf() -> None:
    here = Path(images.__file__).parent
    for path in (here.parent / "Dockerfile", *(here.parent / "images").iterdir(), *(here / "inside").glob("*")):
        if path.is_file():
            assert b"\r" not in path.read_bytes(), path
