"""What a rehearsal says at its end, from a real ledger and a real upstream."""

from __future__ import annotations

import json
from pathlib import Path

from team.git import git, line
from team.ledger import Kind, Ledger, New
from team.places import Project
from team.rehearsal.project import make
from team.rehearsal.report import demo_report, own_report


def landed(project: Project, files: dict[str, str | None], parents: tuple[str, ...] = ()) -> str:
    """Put a commit on upstream's main whose tree differs from main's by ``files``."""
    work = project.state / "work"
    if not work.exists():
        git("clone", "-q", str(project.upstream), str(work), at=project.state)
    git("pull", "-q", at=work)
    for name, text in files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            (work / name).unlink()
        else:
            (work / name).write_text(text)
    git("add", "-A", at=work)
    tree = line("write-tree", at=work)
    main = line("rev-parse", "HEAD", at=work)
    new = line("commit-tree", tree, "-p", main, *(w for p in parents for w in ("-p", p)), "-m", "x", at=work)
    git("push", "-q", "origin", f"{new}:refs/heads/main", at=work)
    return new


def upstream(tmp_path: Path) -> tuple[Project, Ledger, str]:
    root = make(tmp_path / "demo")
    project = Project(root=root, id="demo-1", state=tmp_path / "the state")
    project.state.mkdir()
    git("clone", "-q", "--bare", str(root), str(project.upstream), at=tmp_path)
    return project, Ledger(project.ledger), line("rev-parse", "main", at=project.upstream)


def test_a_demo_that_is_not_finished_says_what_is_missing(tmp_path: Path) -> None:
    project, ledger, base = upstream(tmp_path)
    landed(project, {"tasks/add_mean.md": None, "current_tasks/add_roman.txt": "x\n"})
    ledger.append(Kind.CLAIM, agent="agent-01", task="add_mean")
    ledger.append(Kind.PUSH_REFUSED, agent="agent-02", rule="held", reason="taken")
    ledger.append(Kind.PUSH_REFUSED, agent="agent-02", rule="conflict", reason="NOTES.md")
    for kind in ("claim", "work"):
        ledger.append_all([New(Kind.LANDING_DONE, "agent-01", data={"kind": kind, "merge": True})])
    ledger.append(Kind.SESSION_ENDED, agent="agent-01", session="agent-01.1", outcome="done")
    reason = "evil\x1b[2J\nERROR lie"
    ledger.append(Kind.SESSION_ENDED, agent="agent-02", session="agent-02.1", outcome="failed", reason=reason)
    report = demo_report(project, ledger, base, seconds=61.2, agents=4, client="c", runtime="process")
    text = "\n".join(report.lines())
    assert not report.ok
    assert (report.done, report.tasks) == (1, 12) and "1 of 12" in text
    assert "1 granted, 1 refused" in text and "16 of 25 fail" in text
    assert "current_tasks/add_roman.txt" in text
    assert "\x1b" not in text and "agent-02.1: failed: evil ERROR lie" in text
    assert report.counts.merges == 1 and report.counts.conflicts == 1
    assert json.loads(json.dumps(report.as_json()))["ok"] is False


def test_merges_by_agents_are_told_from_those_by_upstream(tmp_path: Path) -> None:
    project, ledger, base = upstream(tmp_path)
    one = landed(project, {"a": "1"})
    work = project.state / "work"
    inner = line("commit-tree", "HEAD^{tree}", "-p", base, "-p", one, "-m", "by an agent", at=work)
    landed(project, {"b": "2"}, parents=(inner,))
    report = demo_report(project, ledger, base, seconds=1, agents=1, client="c", runtime="process")
    assert report.counts.resolved == 1
    assert "'" in report.trail, "the state has a space in its path"


def test_an_own_rehearsal_tells_who_landed_and_what_the_tests_said(tmp_path: Path) -> None:
    project, ledger, base = upstream(tmp_path)
    landed(project, {"team-rehearsal/agent-01.txt": "tests: exit 0\n\x1b[31m"})
    report = own_report(
        project, ledger, base, agents=["agent-01", "agent-02"], test="make", seconds=1, client="c", runtime="docker"
    )
    assert report.agents == {"agent-01": "tests: exit 0"} and report.missing == ("agent-02",)
    assert not report.ok and any("landed nothing   agent-02" in text for text in report.lines())


def test_a_test_command_that_cannot_run_is_no_success(tmp_path: Path) -> None:
    project, ledger, base = upstream(tmp_path)
    landed(project, {"team-rehearsal/agent-01.txt": "tests: exit 127: sh: 1: pytest: not found\n"})
    report = own_report(
        project, ledger, base, agents=["agent-01"], test="pytest", seconds=1, client="command", runtime="docker"
    )
    assert not report.ok and any("ERROR the image lacks" in line for line in report.lines())
