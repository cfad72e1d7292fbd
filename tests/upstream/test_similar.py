"""The same task under another name: judged by words, and what a claimer is told of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.similar import Judged, judge, measure
from team.ledger import Kind
from team.upstream.refusal import Refused
from team.upstream.similar import REFUSE, WARN, Named, Vocabulary, likeness, overlap, stem
from tests.upstream.conftest import Site
from tests.upstream.test_calls import claim, release

# A shop, so that nothing here is one of the pairs that the thresholds were looked at with.
TREE = [
    "README.md", "shop/cart/model.py", "shop/cart/views.py", "shop/checkout/views.py", "shop/payment/stripe.py",
    "shop/payment/paypal.py", "shop/search/index.py", "shop/search/README.md", "mobile/ios/App.swift",
    "mobile/android/App.kt", "docs/install.md", "docs/README.md",
]  # fmt: skip
NAMES = [
    "fix_cart_readme", "fix_search_readme", "fix_payment_readme", "add_voucher_codes", "ios_push_messages",
    "android_push_messages", "speed_up_product_listing", "fix_rounding_of_totals", "document_install_steps",
    "retry_failed_webhooks", "fix_login_crash", "fix_signup_crash", "fix_profile_crash", "task_0412", "task_0413",
]  # fmt: skip
WORDS = Vocabulary.of(NAMES, TREE)


def like(one: str, two: str) -> float:
    there, back = likeness(Named(one), Named(two), WORDS), likeness(Named(two), Named(one), WORDS)
    assert there == pytest.approx(back)
    return there


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("fix_cart_readme", "fix_search_readme"),
        ("ios_push_messages", "android_push_messages"),
        ("task_0412", "task_0413"),
        ("agent-10_11", "agent-11_10"),
        ("step_11_11", "step_11_10"),
        ("support_utf8_names", "support_utf16_names"),
        ("fix_login_crash", "fix_signup_crash"),
        ("fix_parser", "write_docs"),
        ("fix", "add"),
        ("port_to_api_v1", "port_to_api_v2"),
    ],
)
def test_names_that_differ_in_what_matters_are_different_tasks(one: str, two: str) -> None:
    assert like(one, two) < WARN


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("retry_failed_webhooks", "webhooks_retry_on_failure"),
        ("speed_up_product_listing", "product_listing_is_slow_speed"),
        ("add_voucher_codes", "voucher_codes_at_checkout"),
        ("fix_rounding_of_totals", "rounding_totals_wrong"),
    ],
)
def test_the_same_in_other_words_is_noticed(one: str, two: str) -> None:
    assert like(one, two) >= WARN


@pytest.mark.parametrize(
    ("one", "two"),
    [("add_voucher_code", "implement_voucher_codes"), ("voucher_codes", "codes_voucher_v2"), ("x", "fix_x")],
)
def test_another_verb_number_or_order_is_near_certain(one: str, two: str) -> None:
    assert like(one, two) >= REFUSE


def test_scopes_that_do_not_meet_speak_against_it() -> None:
    one, two = "speed_up_product_listing", "faster_product_listing"
    free = likeness(Named(one), Named(two), WORDS)
    apart = likeness(Named(one, scope=("shop/cart/**",)), Named(two, scope=("shop/search/*",)), WORDS)
    assert apart < free
    assert overlap(("src/**",), ("src/parser/a.py",)) and overlap(("a/*.py",), ("a/b.py",))
    assert not overlap(("src/a/**",), ("src/b/**",)) and not overlap((), ("x",))


def test_pairs_of_invented_projects_are_told_as_well_as_those_of_the_real_one() -> None:
    """A web shop, a database port, a game engine, a browser and an interpreter: no word of them is in a rule."""
    judged: list[Judged] = []
    for line in (Path(__file__).parent / "similar_pairs.jsonl").read_text("utf-8").splitlines():
        project = json.loads(line)
        pairs = [dict(zip(("first", "second", "label"), pair, strict=True)) for pair in project["pairs"]]
        judged += judge(pairs, project["tree"])
    result = measure(judged)
    assert result["f1"] >= 0.75 and result["f1_left_out"] >= 0.75, result
    assert result["refused_wrongly"] == 0 and result["refused_rightly"] >= 15, result


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("voucher_codes", "voucher_codes_export_admin"),  # says much that the other does not
        ("export_voucher_codes_csv", "import_voucher_codes_csv"),
        ("alter_voucher_table_add_column", "alter_voucher_table_drop_column"),
        ("retry_failed_webhooks_of_stripe", "retry_failed_webhooks_of_paypal"),
        ("box_box_collision", "box_sphere_collision"),
        ("compress_uploaded_product_images", "decompress_uploaded_product_images"),
    ],
)
def test_what_may_well_be_another_part_of_the_same_is_not_refused(one: str, two: str) -> None:
    assert like(one, two) < REFUSE


def test_equal_words_in_scopes_that_do_not_meet_are_not_refused() -> None:
    one, two = Named("fix_rounding", scope=("shop/cart/**",)), Named("rounding_fix", scope=("shop/payment/**",))
    assert likeness(one, two, WORDS) < REFUSE <= likeness(Named(one.name), Named(two.name), WORDS)


def test_stems() -> None:
    assert len({stem(w) for w in ("link", "links", "linker", "linking", "linked")}) == 1
    assert len({stem(w) for w in ("query", "queries")}) == 1
    assert stem("class") == "class" and stem("x86") == "x86" and stem("bus") == "bus"


def test_a_claim_like_a_held_one_is_refused_and_can_be_forced(site: Site) -> None:
    one, two = site.agent(1), site.agent(2)
    claim(site, one, "add_voucher_codes")
    with pytest.raises(Refused, match=r"looks like the same task as add_voucher_codes, held by agent-01 since 0 min"):
        claim(site, two, "voucher_code")
    assert site.upstream.held_by("s2") == []
    two.claim("voucher_code")
    assert "looks like the same task" in two.refused()
    assert site.rule() == "similar"
    assert "forced: voucher_code may be the same task" in two.lands("-o", "force-claim")
    assert site.events(Kind.CLAIM)[-1].data["forced"] is True
    assert "forced" not in site.events(Kind.CLAIM)[0].data


def test_a_likely_one_is_accepted_with_a_warning_also_from_a_push_with_work(site: Site) -> None:
    one, two = site.agent(1), site.agent(2)
    claim(site, one, "retry_failed_webhooks_after_timeout")
    answer = claim(site, two, "retry_failed_webhooks_twice")
    assert (
        "warning: retry_failed_webhooks_twice may be the same task as retry_failed_webhooks_after_timeout, h" in answer
    )
    three = site.agent(3)
    three.commit_paths("claim and work", {"current_tasks/failed_webhooks_retry_delay.txt": "me", "x": "x"})
    assert "warning: failed_webhooks_retry_delay may be" in three.lands()


def test_what_was_finished_lately_counts_and_what_was_given_up_does_not(site: Site) -> None:
    one, two = site.agent(1), site.agent(2)
    claim(site, one, "add_voucher_codes")
    release(site, one, reason="stuck")
    assert claim(site, two, "voucher_codes").count("\n") == 1
    release(site, two, done="1")
    with pytest.raises(Refused, match="voucher_codes, finished by agent-02 0 min ago"):
        claim(site, one, "implement_voucher_code")
