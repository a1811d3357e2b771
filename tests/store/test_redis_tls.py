"""`store redis` over TLS, as a user that may do no more than the documents say."""

from __future__ import annotations

import gc
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
import trustme

from hivemind_trio.scheduler.learning.lesson import LearnAsk
from hivemind_trio.scheduler.sharing.budget_ask import BudgetAsk, BudgetsAsk
from hivemind_trio.scheduler.sharing.share_row import LeaseTerms, ShareRequest
from hivemind_trio.scheduler.sharing.window_ring import WindowAsk, WindowShape
from hivemind_trio.store.fleet.interface import StoreUnreachable
from hivemind_trio.store.fleet.node_cards import NodeCard
from hivemind_trio.store.fleet.redis_pools import open_pools
from hivemind_trio.store.fleet.scripts import CLOCK
from tests.support.ports import kept_port
from tests.support.redis import BINARY, needs_redis

pytestmark = [
    pytest.mark.slow,
    needs_redis,
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*MemoryObject:pytest.PytestUnraisableExceptionWarning"),
]

OPERATING = Path(__file__).parents[2] / "hivemind_trio" / "docs" / "operating.md"


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect what coredis left here, where the warning is ignored, and not in a test that comes later."""
    yield
    gc.collect()


def documented_user() -> str:
    """Return the line of the documents; it is for a file of users."""
    found = re.search(r"^user hivemind .*?(?=\n```)", OPERATING.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[0].replace("\\\n", " ")


@asynccontextmanager
async def tls_server(folder: Path, authority: trustme.CA) -> AsyncIterator[int]:
    assert BINARY is not None
    with kept_port() as port:
        server = authority.issue_cert("localhost")
        (folder / "key").write_bytes(server.private_key_pem.bytes())
        (folder / "cert").write_bytes(b"".join(blob.bytes() for blob in server.cert_chain_pems))
        (folder / "users").write_text(f"user default off\n{documented_user()}\n")
        options = {
            "port": "0", "tls-port": f"{port}", "bind": "127.0.0.1", "tls-auth-clients": "no", "save": "",
            "tls-cert-file": f"{folder / 'cert'}", "tls-key-file": f"{folder / 'key'}",
            "tls-ca-cert-file": f"{folder / 'authority'}", "aclfile": f"{folder / 'users'}", "dir": f"{folder}",
        }  # fmt: skip
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        process = await trio.lowlevel.open_process([BINARY, *words], stdout=subprocess.DEVNULL)
        try:
            with trio.fail_after(20):
                while True:
                    try:
                        await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
                        break
                    except OSError:
                        assert process.poll() is None, "the server does not take these options, or this user"
                        await trio.sleep(0.02)
            yield port
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()


async def test_a_user_with_the_documented_rights_shares_over_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "authority"))
    async with tls_server(tmp_path, authority) as port:
        url = f"rediss://hivemind:secret@localhost:{port}"
        async with open_pools(url, "team", LeaseTerms()) as stranger:
            with pytest.raises(StoreUnreachable):  # nobody vouches for the server
                await stranger.epoch()
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority"))
        async with open_pools(url, "team", LeaseTerms()) as store:
            slots = ShareRequest(
                node="a", epoch=1, seq=1, cap=8, nodes=1, run="", keep=2, held=0, demand=2, target=2, owed=0, floor=1
            )
            assert (await store.sync("p", slots)).share == 2
            window = WindowAsk(node="a", epoch=1, seq=1, run="", nodes=1, limit=5, least=3, want=3)
            life = (await store.draw("p", "w", window, WindowShape(60_000))).run
            window = attrs.evolve(window, seq=2, run=life, report=())
            assert (await store.draw("p", "w", window, WindowShape(60_000))).granted == 3
            one = BudgetAsk(
                life=0, limit=9, window_ms=60_000, slot=0, drawn=0, settled=0, returned=0, least=9, report=()
            )
            budgets = BudgetsAsk(node="a", epoch=1, seq=1, nodes=1, run="", complete=True, accounts=(("b", one),))
            budgets = attrs.evolve(budgets, seq=2, run=(await store.spend(budgets)).run)
            assert (await store.spend(budgets)).accounts[0].drawn == 9
            listed = await store.introduce(NodeCard(node="a", epoch=1, policy="one", version="1"))
            assert [one.card.node for one in listed] == ["a"]
            assert (await store.learn("p", LearnAsk(node="a", epoch=1, seq=1, held=0, binds=False))).leads
            assert await store.leader("p") == "a"
            await store.leave("a", 1)
            await store.bye("p", "a", 1)
            listens = trio.Event()
            with trio.fail_after(20):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(store.listen, "a", listens.set, lambda about: None)
                    await listens.wait()
                    channel = store.arguments(slots)[15:16]
                    assert await store.run(f"{CLOCK} return listeners()", (), ("",) * 15 + channel) == ["a"]
                    nursery.cancel_scope.cancel()
        async with open_pools(url, "other", LeaseTerms()) as elsewhere:
            with pytest.raises(StoreUnreachable, match=r"(?i)permission"):
                await elsewhere.sync("p", slots)
