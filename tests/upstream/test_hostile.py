"""What hostile or merely clever agents push: refused with a reason, and nothing of it stays in upstream."""

from __future__ import annotations

import io
import os
import subprocess

from team.config import Landing
from team.ledger import Kind
from team.upstream import leaks, protected
from tests.upstream.conftest import Clone, Site


def objects(site: Site) -> set[str]:
    out = site.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    return set(out.split())


def test_protected_paths_are_a_persons(site: Site) -> None:
    site.reopen(protected=("*.key",))
    one, ann = site.agent(1), site.person()
    for path in ("team.toml", ".claude/settings.json", "deep/claude.MD", "secret/deep/x.key", "CLAUDE\u200d.md"):
        one.commit_paths("obey me", {path: "x\n"})
        assert "only a person may change" in one.refused()
        one.git("reset", "-q", "--hard", "HEAD~1")
    ann.commit_paths("my own", {"CLAUDE.md": "x\n", ".gitattributes": "* text=auto\n"})
    ann.lands()
    one.commit("stale", other="x\n")  # neither stale nor merged does it touch what the person changed
    one.lands()
    one.pull()
    one.commit_paths("away", {"CLAUDE.md": None})
    assert "held as" in one.refused()


def test_default_protection_in_any_spelling() -> None:
    paths = """team.toml Dockerfile images/x images roles/worker.md AGENT_PROMPT.md CLAUDE.md src/claude.MD a/AGENTS.md
        .claude/settings.json deep/.Claude/settings.json .mcp.json .codex/config.toml opencode.json .envrc x/.envrc
        .vscode/tasks.json
        .github/workflows/x.yml src/.gitattributes .gitmodules CLAUDE\u200d.md ＣLAUDE.md .claude""".split()
    assert protected.touched(paths) == paths
    free = "src/team.toml docker/Dockerfile claude.md.txt src/images/x README.md src/roles/x CLAUDEmd".split()
    assert protected.touched(free) == []


def test_protected_globs() -> None:
    assert protected.touched(["src/images/a", "docs/x.md", "src/claude.md/x"]) == ["src/claude.md/x"]
    assert protected.touched(["docs/a/b.md", "docs/b.txt", "x/docs/c.md"], ["docs/**/*.md"]) == ["docs/a/b.md"]
    assert protected.touched(["ci/run", "x/ci/run"], ["/ci/"]) == ["ci/run"]
    assert protected.touched(["a1", "az"], ["a[0-9]", "b[z-a]"]) == ["a1"]
    assert protected.reserved([".TEAM/x", "agent_logs", "x/.team"]) == [".TEAM/x", "agent_logs"]


def test_our_own_names_and_control_characters_do_not_land(site: Site) -> None:
    names = [
        ".team/hooks/x",
        ".TEAM",
        "agent_logs",
        "Agent_Logs/x",
        "agent\u200b_logs",
        "ａgent_logs",
        "a\x1b[31mb",
        ".team.",
    ]
    one, ann = site.agent(1), site.person()
    for clone, path in [(one, name) for name in names] + [(ann, "agent_logs")]:
        clone.commit_paths("mine", {path: "x\n"})
        assert "\x1b[31m" not in clone.refused()
        assert site.rule() == "name"
        clone.git("reset", "-q", "--hard", "HEAD~1")


def test_git_directories_in_disguise_do_not_land(site: Site) -> None:
    one = site.agent(1)
    blob = one.git("hash-object", "-w", "--stdin", stdin=b"x")
    inner = one.git("mktree", stdin=f"100644 blob {blob}\tconfig\n".encode())
    for name in (".git", ".GIT", "git~1", ".g\u200cit"):
        root = one.git("ls-tree", "HEAD") + f"\n040000 tree {inner}\t{name}\n"
        tree = one.git("mktree", stdin=root.encode())
        head = one.git("commit-tree", "-p", "HEAD", "-m", "x", tree)
        one.refused("origin", f"{head}:refs/for/main")
        assert site.rule() == "fsck"


def test_names_with_spaces_newlines_dashes_and_other_letters_land_rightly(site: Site) -> None:
    one = site.agent(1)
    names = ["a b/c d", "-rf", "--help/x", "new\nline", "tab\there", "grün/λ", 'quo"te', "back\\slash", "*?[x]"]
    one.commit_paths("odd", dict.fromkeys(names, "x\n"))
    one.commit_paths("more", {os.fsdecode(b"latin\xe9"): "x\n"})
    one.lands()
    two = site.agent(2)
    assert all((two.path / name).is_file() for name in names)
    two.commit("stale", x="y")
    one.commit_paths("away", dict.fromkeys(names, None))
    one.lands()
    two.lands()
    assert not set(names) & set(site.files())


def test_acting_as_another_is_refused(site: Site) -> None:
    one = site.agent(1)
    one.git("-c", "user.name=x", "commit", "-q", "--allow-empty", "-m", "mine")
    fake = Clone(one.path, "agent-02", "agent-02@team.invalid")
    fake.commit("as another", x="x")
    one.commit("on top", y="y")
    said = " ".join(one.refused().split())
    assert "was committed as agent-02 <agent-02@team.invalid>, you are agent-01 <agent-01@team.invalid>" in said
    assert site.rule() == "identity"


def test_refused_objects_are_nowhere_in_upstream(site: Site) -> None:
    one = site.agent(1)
    before = objects(site)
    key = "-----BEGIN " + "RSA PRIVATE KEY-----\nMIIEow\n"
    one.commit_paths("key", {"id_rsa": "\n\n" + key})
    shown = one.refused()
    assert "id_rsa:3 looks like a private key" in " ".join(shown.split())
    assert "MIIEow" not in shown
    assert site.rule() == "secret"
    one.commit_paths("away", {"id_rsa": None})
    one.refused()  # it is still in the history that would land
    assert objects(site) == before
    one.pull()
    one.git("reset", "-q", "--soft", "origin/main")
    one.commit("without", other="x\n")
    one.lands()


def test_tokens_are_noticed(site: Site) -> None:
    secrets = [
        "AKIA" + "Q3EGRIXL5OWGV4EN",
        "sk-ant-" + "api03-" + "a" * 40,
        "ghp_" + "a1" * 18,
        "github_pat_" + "a" * 70,
    ]
    for secret in [*secrets, "sk-proj-" + "a1" * 30, "-----BEGIN " + "PRIVATE KEY-----\\nMII"]:
        assert leaks.find(f"\nKEY={secret}\n".encode()), secret
    assert leaks.find(b"AKIA" + b"IOSFODNN7EXAMPLE sk-something -----BEGIN PUBLIC KEY-----") is None
    one = site.agent(1)
    one.commit_paths("token", {"x.env": f"KEY={secrets[0]}\n"})
    one.refused()
    site.reopen(Landing(secrets=False))
    one.lands()


def test_a_tree_bomb_is_counted_without_being_unfolded(site: Site) -> None:
    one = site.agent(1)
    blob = one.git("hash-object", "-w", "--stdin", stdin=b"x")
    tree = one.git("mktree", stdin="".join(f"100644 blob {blob}\tf{n}\n" for n in range(10)).encode())
    for _ in range(9):
        tree = one.git("mktree", stdin="".join(f"040000 tree {tree}\td{n}\n" for n in range(10)).encode())
    head = one.git("commit-tree", "-p", "HEAD", "-m", "bomb", tree)
    one.refused("origin", f"{head}:refs/for/main")
    assert site.rule() == "entries"
    nested = one.git("mktree", stdin=f"100644 blob {blob}\tf\n".encode())
    for _ in range(60):
        nested = one.git("mktree", stdin=f"040000 tree {nested}\td\n".encode())
    head = one.git("commit-tree", "-p", "HEAD", "-m", "deep", nested)
    one.refused("origin", f"{head}:refs/for/main")
    assert site.rule() == "depth"


def test_bounds_on_size(site: Site) -> None:
    one = site.agent(1)
    before = objects(site)

    def check(rule: str, **bounds: int) -> None:
        site.reopen(Landing(**bounds))  # type: ignore[arg-type]
        assert "max_" in one.refused() or "session_quota" in one.refused()
        assert site.rule() == rule

    one.commit_paths("big", {"zeros": b"\0" * (3 << 20), "noise": os.urandom(1 << 20)})
    check("size", max_push=1 << 19)
    check("inflated", max_inflated=2 << 20)
    check("file", max_file=2 << 20)
    check("binary", max_binary=1 << 19)
    check("quota", session_quota=1 << 19)
    for n in range(4):
        one.commit(f"c{n}")
    check("commits", max_commits=3)
    one.commit_paths("long", {"d" * 200 + "/" + "f" * 200: "x"})
    check("path", max_path=300)
    assert objects(site) == before
    site.reopen()
    one.lands()


def test_a_large_file_that_main_has_already_may_be_moved(site: Site) -> None:
    ann, one = site.person(), site.agent(1)
    ann.commit_paths("big", {"big": os.urandom(1 << 20)})
    ann.lands()
    site.reopen(Landing(max_file=1 << 10))
    one.pull()
    one.git("mv", "big", "bigger")
    one.commit("moved")
    one.lands()


def test_a_large_text_is_no_binary_and_a_binary_that_main_has_may_be_moved(site: Site) -> None:
    ann, one = site.person(), site.agent(1)
    site.reopen(Landing(max_binary=10_000))
    ann.commit_paths("binary", {"assets/old.bin": b"\0" * 20_000})
    ann.lands()
    one.pull()
    one.git("mv", "assets/old.bin", "assets/new.bin")
    one.commit_paths("moved, and a text", {"assets/large.txt": "text\n" * 10_000})
    one.lands()
    one.commit_paths("a build", {"app.o": b"\0\1" * 10_000})
    assert "app.o is no text and has 20000 bytes, at most 10000 ([landing] max_binary)" in one.refused()
    assert site.rule() == "binary"


def test_many_objects_land_as_a_pack_and_a_stowaway_does_not(site: Site) -> None:
    one = site.agent(1)
    one.commit_paths("many", {f"many/{n}": f"{n}\n" for n in range(300)})
    one.lands()
    assert len([name for name in site.files() if name.startswith("many/")]) == 300
    assert len(list((site.project.upstream / "objects/pack").glob("*.pack"))) == 2
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in site.project.upstream.rglob("*"))
    before = objects(site)
    secret = one.git("hash-object", "-w", "--stdin", stdin=b"stowaway")
    head = one.commit_paths("more", {f"more/{n}": f"{n} more\n" for n in range(300)})
    listed = one.git("rev-list", "--objects", "--no-object-names", f"{head}", f"^{site.upstream.main()}")
    pack = raw(one, "pack-objects", "--stdout", "-q", stdin=(listed + "\n" + secret + "\n").encode())
    reply = send(site, one, head, pack)
    assert b"ng refs/for/main the push holds objects that its commit does not need" in reply
    assert objects(site) == before
    one.lands()


def test_deltas_against_what_main_has_land(site: Site) -> None:
    one = site.agent(1)
    text = "".join(f"{n * n % 7919} line\n" for n in range(20_000))
    one.commit_paths("large", {"large": text})
    one.lands()
    one.commit_paths("changed", {"large": text + "more\n"})
    wanted = f"HEAD\n^{site.upstream.main()}\n".encode()
    assert len(raw(one, "pack-objects", "--stdout", "-q", "--thin", "--revs", stdin=wanted)) < 2000
    one.lands()
    assert site.git("show", "main:large").endswith("more")


def raw(clone: Clone, *args: str, stdin: bytes) -> bytes:
    return subprocess.run(["git", *args], cwd=clone.path, input=stdin, capture_output=True, check=True).stdout


def line(data: bytes) -> bytes:
    return b"%04x" % (len(data) + 4) + data


def send(site: Site, clone: Clone, head: str, pack: bytes, old: str = "0" * 40) -> bytes:
    """A push made by hand, without side-band, so that the answer is plain."""
    command = line(f"{old} {head} refs/for/main\0report-status\n".encode())
    out = bytearray()
    site.upstream.receive(site.pushers[clone.session or ""], io.BytesIO(command + b"0000" + pack), out.extend)
    return bytes(out)


def test_a_commit_whose_objects_were_refused_or_never_sent_is_refused(site: Site) -> None:
    one = site.agent(1)
    empty = raw(one, "pack-objects", "--stdout", "-q", stdin=b"")
    assert b"ng refs/for/main 123412341234 is missing" in send(site, one, "1234" * 10, empty)
    head = one.commit("work", x="x")
    only_commit = raw(one, "pack-objects", "--stdout", "-q", stdin=f"{head}\n".encode())
    main = site.upstream.main()
    assert b"ng refs/for/main" in send(site, one, head, only_commit)
    blob = one.git("rev-parse", "HEAD:x")
    without = one.git("rev-list", "--objects", "--no-object-names", head, f"^{main}").replace(blob, "").split()
    assert b"ng refs/for/main" in send(
        site, one, head, raw(one, "pack-objects", "--stdout", "-q", stdin="\n".join(without).encode())
    )
    assert b"ng refs/for/main" in send(site, one, one.git("rev-parse", "HEAD^{tree}"), empty)
    assert site.upstream.main() == main


def test_garbage_gets_a_clean_answer(site: Site) -> None:
    one = site.agent(1)
    garbage = [
        b"",
        b"0000",
        b"hello",
        b"0009hello",
        b"00",
        b"fffe",
        b"0003",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0" * 100,
        b"00a0" + b"x" * 200,
    ]
    for data in garbage:
        out = bytearray()
        site.upstream.receive(site.pushers[one.session or ""], io.BytesIO(data), out.extend)
        assert bytes(out) == b"" if data in (b"", b"0000") else b"ERR" in bytes(out)


def test_a_damaged_pack_is_refused(site: Site) -> None:
    one = site.agent(1)
    head = one.commit("work", x="x" * 1000)
    main = site.upstream.main()
    listed = one.git("rev-list", "--objects", "--no-object-names", head, f"^{main}")
    pack = raw(one, "pack-objects", "--stdout", "-q", stdin=listed.encode())
    for cut in (0, 10, 40, -1, -30):
        assert b"ng refs/for/main" in send(site, one, head, pack[:cut])
    for place in (5, 9, 13, 60, len(pack) - 5):
        broken = bytearray(pack)
        broken[place] ^= 0x3F
        assert b"ng refs/for/main" in send(site, one, head, bytes(broken))
    assert b"ok refs/for/main" in send(site, one, head, pack)


def test_a_symlink_and_a_submodule_of_the_project_land(site: Site) -> None:
    one = site.agent(1)
    (one.path / "link").symlink_to("README.md")
    one.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    one.git("add", "link")
    one.git("commit", "-q", "-m", "links")
    one.lands()
    assert {"link", "sub"} <= set(site.files())


def test_an_octopus_lands(site: Site) -> None:
    one = site.agent(1)
    for name in ("a", "b", "c"):
        one.git("checkout", "-q", "-B", name, "origin/main")
        one.commit_paths(name, {name: "x\n"})
    one.git("checkout", "-q", "main")
    one.git("merge", "-q", "-m", "octopus", "a", "b", "c")
    one.lands()
    assert {"a", "b", "c"} <= set(site.files())


def test_an_escape_sequence_in_a_subject_does_not_reach_the_landing_commit(site: Site) -> None:
    one = site.agent(1)
    one.commit("evil \x1b[2Jsubject\u202e", x="x")
    one.lands()
    assert site.git("log", "-1", "--format=%s", "main") == "Land evil subject (agent-01)"


def test_a_name_that_is_not_the_pushers_own_is_refused(site: Site) -> None:
    one = site.agent(1)
    Clone(one.path, "Ann", one.email).commit("as the person", x="x")
    said = " ".join(one.refused().split())
    assert "was committed as Ann <agent-01@team.invalid>, you are agent-01 <agent-01@team.invalid>" in said
    assert site.rule() == "identity"
    one.git("commit", "-q", "--amend", "--no-edit", "--reset-author")
    one.lands()


def test_the_quota_outlives_the_supervisor(site: Site) -> None:
    one, two = site.agent(1, "s-1"), site.agent(2)
    limits = Landing(session_quota=1 << 20)
    site.reopen(limits)
    one.commit_paths("first", {"noise": os.urandom(700 << 10)})
    one.lands()
    site.reopen(limits)
    one.commit_paths("second", {"noise": os.urandom(400 << 10)})
    one.refused()
    assert site.rule() == "quota"
    two.pull()
    two.commit_paths("another session has its own", {"other": os.urandom(400 << 10)})
    two.lands()
    for n in range(3):
        two.claim(f"task_{'abc'[n]}")
        two.lands()
        two.drop(f"task_{'abc'[n]}")
        two.lands()
    assert [e.session for e in site.events(Kind.PUSH_BYTES)] == ["s-1", "s-1", two.session]  # small ones cost nothing
