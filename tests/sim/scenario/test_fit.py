"""Scenarios and policies that do not speak of the same things, and the same work under two policies."""

from __future__ import annotations

import pytest

from hivemind_trio.sim import Scenario, Traits, UpstreamSpec, Way, World, misfits, same_truth, settled, side_by_side
from tests.sim.worlds import compiled, fleet, one_provider, scenario

OLD = one_provider("concurrency 3", rest="lane batch { max 1 }\nagent ci { lane batch }\nagent nightly { lane batch }")
NEW = one_provider("concurrency 3", rest="agent late { }\nagent ci { }")


@pytest.mark.parametrize(
    "of",
    [
        scenario(),
        scenario(fleet(identities=())),
        scenario(fleet(identities=("ci", "late"))),
        scenario(fleet(models=("anything",))),
        Scenario(upstreams=(UpstreamSpec(provider="anth*"),)),
    ],
    ids=["nothing is said", "unknown callers", "an agent of either", "any model of the API", "a glob"],
)
def test_what_one_of_the_policies_has_fits(of: Scenario) -> None:
    assert not list(misfits(of, [OLD, NEW]))


def test_a_model_fits_that_a_rule_for_long_calls_sends_somewhere() -> None:
    program = compiled(
        """
        provider small { api anthropic; base "http://127.0.0.1:9"; key env(K); serves ["small-*"] }
        provider big { api anthropic; base "http://127.0.0.1:8"; key env(K); serves ["big-*"] }
        rule long when tokens.in > 40 { model "big-1" }
        rule never when model == "forbidden" { deny "no" }
        """
    )

    assert not list(misfits(scenario(fleet(models=("other",))), [program]))
    assert not list(misfits(scenario(fleet(models=("forbidden",))), [program]))


def test_callers_are_given_to_the_agents_of_both_so_that_the_work_is_the_same() -> None:
    """Each is one of a policy's agents in turn: with one more declared, everybody would be somebody else."""
    work = settled(scenario(fleet(6, 2)), [OLD, NEW])

    assert work.fleets[0].identities == ("ci", "nightly", "late")
    assert work.fleets[0].models == ("claude-sonnet-4-5",)
    said = scenario(fleet(identities=(), models=("m",)))
    assert settled(said, [OLD, NEW]) == said


def test_side_by_side_each_seed_is_run_through_the_proxy_under_both() -> None:
    work = scenario(fleet(6, 3), traits=Traits(concurrency=2))

    ran = list(side_by_side(OLD, NEW, work, [4, 5]))

    assert [[run.digest for run in pair] for pair in ran] == [
        [World(program, work, seed, Way.PROXY).run().digest for program in (OLD, NEW)] for seed in (4, 5)
    ]
    assert ran[0][0].digest != ran[0][1].digest


@pytest.mark.parametrize(
    ("settings", "same"),
    [
        (["concurrency 3"], True),
        (["concurrency 3", "timeout first-byte 7s"], True),
        (["concurrency 4"], False),
        (["concurrency 3", "limits { requests 5/min }"], False),
        (["concurrency 3", 'limits "claude-*" { requests 5/min }'], False),
    ],
    ids=str,
)
def test_limits_that_differ_are_another_truth_where_the_policy_is_believed(settings: list[str], same: bool) -> None:
    other = one_provider(*settings)

    assert same_truth(OLD, other, Scenario()) is same
    assert same_truth(OLD, other, scenario()), "here the scenario says what the providers are like"


def test_an_account_is_a_name_of_the_policy() -> None:
    program = compiled("provider anthropic { account a { key env(A) }; account b { key env(B) } }")
    of = Scenario(
        upstreams=(UpstreamSpec(provider="anthropic.a"), UpstreamSpec(provider="anthropic.c"), UpstreamSpec())
    )

    (found,) = misfits(of, [program])

    assert "anthropic.c" in found
    kinds = [of.upstream(name).provider for name in ("anthropic.a", "anthropic.b", "other")]
    assert kinds == ["anthropic.a", "*", "*"]


def test_what_holds_for_a_provider_holds_for_its_accounts_before_what_holds_for_all() -> None:
    of = Scenario(upstreams=(UpstreamSpec(), UpstreamSpec(provider="anthropic")))
    turned = Scenario(upstreams=(UpstreamSpec(provider="anthropic"), UpstreamSpec()))

    assert turned.upstream("anthropic.a").provider == "anthropic"
    assert of.upstream("anthropic.a").provider == "*", "the first that fits"


def test_calls_that_any_account_may_serve_are_in_no_bound() -> None:
    program = compiled("provider anthropic { account a { key env(A) }; account b { key env(B) } }")
    found = World(program, scenario(fleet(2, 2)), 7).run()

    assert found.turns_done == 4
    assert found.bound_ns is not None
    assert found.bound_ns <= found.makespan_ns
