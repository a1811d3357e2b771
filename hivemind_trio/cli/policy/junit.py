"""Results of policies and their tests as JUnit XML, for CI services.

What services read of it has no one schema; this is what they have in common (https://github.com/testmoapp/junitxml):
`testsuites`, `testsuite`, `testcase` with `failure`, `error` or `skipped`, each with its `file`, `line` and `time`. The
schema of Jenkins' xUnit plugin does not know a case's `file` and `line`; Jenkins' own `junit` step does not mind them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias
from xml.etree import ElementTree as ET

import attrs

if TYPE_CHECKING:
    from hivemind_trio.policy import Checked, Diagnostic, PolicyTest, RanTest

Ran: TypeAlias = "Sequence[tuple[Checked, Sequence[RanTest]]]"


def junit(ran: Ran, fails: Callable[[Diagnostic], bool]) -> str:
    """Return an XML document: a suite for each policy, a case for the policy itself and for each of its tests.

    Args:
        ran: Policies with all their findings, and what came of their tests.
        fails: Whether a finding is a failure: an error is, and what the caller denies.
    """
    root = ET.Element("testsuites", name="hivemind-trio")
    for checked, tests in ran:
        suite = ET.SubElement(root, "testsuite", name=_name(checked), file=_name(checked))
        own = {one for test in tests for one in test.diagnostics}
        _case(suite, checked, "the policy itself", [one for one in checked.diagnostics if one not in own], fails)
        done = {test.test.span: test for test in tests}  # names may be alike
        for test in checked.tests:
            _of_test(suite, checked, test, done.get(test.span), fails)
        _count(suite)
    _count(root)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _of_test(
    suite: ET.Element, checked: Checked, test: PolicyTest, ran: RanTest | None, fails: Callable[[Diagnostic], bool]
) -> None:
    if ran is None:
        case = _case(suite, checked, test.name, [], fails)
        why = "left out" if checked.program is not None else "the policy has errors"
        ET.SubElement(case, "skipped", message=why)
        _place(case, checked, test)
        return
    found = [one for one in ran.diagnostics if one in checked.diagnostics]  # what is allowed is not there
    case = _case(suite, checked, test.name, found, fails)
    _place(case, checked, test)
    if ran.seconds is not None:
        case.set("time", f"{ran.seconds:.3f}")


def _place(case: ET.Element, checked: Checked, test: PolicyTest) -> None:
    source = checked.sources[test.span.source]
    case.set("file", _readable(source.name))
    case.set("line", str(source.text.count("\n", 0, test.span.start) + 1))


def _case(
    suite: ET.Element,
    checked: Checked,
    name: str,
    found: Sequence[Diagnostic],
    fails: Callable[[Diagnostic], bool],
) -> ET.Element:
    from hivemind_trio.policy import render, visible

    case = ET.SubElement(suite, "testcase", classname=_name(checked), name=visible(name), file=_name(checked))
    case.set("time", "0.000")
    failing = [one for one in found if fails(one)]
    if failing:
        # One that could not be run to its end has not failed: nobody knows.
        kind = "error" if failing[0].code == "HM504" else "failure"
        first = failing[0]
        said = visible(f"{first.message}: {first.note}" if first.note else first.message)
        one = ET.SubElement(case, kind, type=first.code, message=said)
        shown = render([attrs.evolve(checked, diagnostics=tuple(failing))], "text")
        one.text = shown.rpartition("\n\n")[0] + "\n"  # the last line counts them
    return case


def _name(checked: Checked) -> str:
    return _readable(checked.sources[0].name)


def _readable(name: str) -> str:
    from hivemind_trio.policy import visible

    return visible(name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))


def _count(element: ET.Element) -> None:
    cases = element.findall(".//testcase")
    element.set("tests", str(len(cases)))
    element.set("time", f"{sum(float(case.get('time', '0')) for case in cases):.3f}")
    for kind, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        element.set(attribute, str(len(element.findall(f".//{kind}"))))
