"""Models that a local provider has in memory, and their changes (`resident 1 swap 20s`).

A local provider answers from memory, and to load another model takes as long as many answers. It loads what it is asked
for and throws out what was asked for least lately, so what is in memory is known here from what was granted: the last
`resident` models. One with calls in flight stays, or its calls would be cut off or served beside each other by a
machine that has no room for both. So a call of another model may go only when a model can go for it.

With `affinity` calls of one model ride together: calls of another let those pass whose model is in memory, until they
have waited for `max`. Without it they take their turn; where it comes and no model can go, they are passed by what
fits, as calls are that are too large for a quota, and for as long. Who has been passed for too long has a *claim*: of
the model that is nearest to being idle no further call goes, over all lanes, until it has made room. A claim is its
model's: one call goes and loads it, and the others ride. And it is counted from when its model was taken out of memory,
so that each model comes in at most once per `max` however many wait, and two crowds do not take turns call by call.
A claim holds nobody up if all its calls lack something else, such as a slot of their agent.
"""

from __future__ import annotations

from collections.abc import Container, Hashable
from typing import Final, Protocol, final

import attrs

from hivemind_trio.model import Decision
from hivemind_trio.policy import Resident
from hivemind_trio.scheduler.limits.rate_limits import CLAIM_AFTER_NS
from hivemind_trio.scheduler.structures.indexed_heap import IndexedHeap

KEEP_NS: Final = 5 * 60 * 1_000_000_000
"""A model that nobody has asked for is thrown out after so long (Ollama's `keep_alive`), so its next call is cold."""

MODELS_MAX: Final = 64
"""That are told apart: models are the callers' words, and each has lines of its own. The others count as one."""

OTHERS: Final = "*"


class ModelPlacement(Protocol):
    """The model that a call is sent with."""

    @property
    def model(self) -> str:
        """Name of the model."""
        ...


class ModelUser(Hashable, Protocol):
    """A queued call, as far as its model needs it."""

    @property
    def seq(self) -> int:
        """Sequence number of the arrival."""
        ...

    @property
    def arrived_ns(self) -> int:
        """Time of arrival."""
        ...

    @property
    def treatment(self) -> Decision:
        """Decision of the policy."""
        ...

    @property
    def place(self) -> ModelPlacement:
        """Place among the queues."""
        ...


@final
@attrs.define(eq=False)
class _Model:
    """One that is in memory or waited for."""

    away_ns: int
    """When it was last taken out of memory."""
    inflight: int = attrs.field(default=0, init=False)
    used_ns: int | None = attrs.field(default=None, init=False)
    """When a call of it last began or ended; None: it has not answered since it was loaded."""
    passed_ns: int | None = attrs.field(default=None, init=False)
    """Since when it has been its turn, and no other model could go; None: it has not been."""
    waiting: int = attrs.field(default=0, init=False)
    _riders: dict[int, IndexedHeap[ModelUser]] = attrs.field(factory=dict, init=False)
    """Its calls with `affinity`, oldest first, by its `max`: there are as many as the policy names."""

    def put(self, waiter: ModelUser) -> None:
        self.waiting += 1
        if waiter.treatment.affinity_ns is not None:
            riders = self._riders.setdefault(waiter.treatment.affinity_ns, IndexedHeap())
            riders.put(waiter, (waiter.arrived_ns, waiter.seq))

    def remove(self, waiter: ModelUser) -> None:
        self.waiting -= 1
        if waiter.treatment.affinity_ns is not None:
            riders = self._riders[waiter.treatment.affinity_ns]
            riders.discard(waiter)
            if not riders:
                del self._riders[waiter.treatment.affinity_ns]
        if not self.waiting:
            self.passed_ns = None

    def forget_waiting(self) -> None:
        self.waiting, self.passed_ns, self._riders = 0, None, {}

    def claims_ns(self) -> int | None:
        """From when on it has been passed for too long; None: nobody waits for it who counts that."""
        times = [] if self.passed_ns is None else [self.passed_ns + CLAIM_AFTER_NS]
        for most_ns, riders in self._riders.items():
            first = riders.first
            assert first is not None, "an empty one is dropped"
            times.append(max(first.arrived_ns, self.away_ns) + most_ns)
        return min(times, default=None)


@final
@attrs.define(eq=False)
class LoadedModels:
    """One provider's models. Nothing is kept, and nothing held up, where the policy does not say how many fit."""

    enabled: bool = attrs.field(default=False, init=False)
    """The policy says how many fit."""
    _settings: Resident | None = attrs.field(default=None, init=False)
    models: dict[str, _Model] = attrs.field(factory=dict, init=False)
    loaded: dict[str, _Model] = attrs.field(factory=dict, init=False)
    """Those in memory, the one that was granted least lately first."""
    _away_ns: dict[str, int] = attrs.field(factory=dict, init=False)
    """When models were last taken out of memory, also of those that nobody waits for: at a reload everybody stands in
    line anew."""
    _yielding: str | None = attrs.field(default=None, init=False)
    """The model of which no call goes, so that another can be loaded."""

    @property
    def holding(self) -> bool:
        """Calls that could go are held back, for one that cannot yet."""
        return self._yielding is not None

    # ---- a policy ----

    def load(self, settings: Resident | None) -> None:
        """Take the settings of a new policy.

        Models in memory stay. Report calls in flight with `found`, then call `trim`.
        """
        self._settings, self._yielding = settings, None
        self.enabled = settings is not None
        if settings is None:
            self.models, self.loaded = {}, {}
        for model in self.models.values():
            model.inflight = 0
            model.forget_waiting()
        self.models = dict(self.loaded)

    def found(self, name: str) -> None:
        """Note a call of the model that is in flight while a policy is loaded."""
        if self._settings is not None and name:
            model = self._model(name)
            model.inflight += 1
            self.loaded.setdefault(name, model)

    def trim(self, now_ns: int) -> None:
        """No more stay in memory than fit, but for those with calls in flight."""
        if self._settings is None:
            return
        for name in [name for name, model in self.loaded.items() if not model.inflight]:
            if len(self.loaded) > self._settings.models:
                self._unload(name, now_ns)

    # ---- who waits ----

    def name(self, model: str) -> str:
        """Return the key of a model here; empty: the call has none."""
        model = model.removesuffix(":latest")  # Ollama's word for a model without a tag
        if not model or model in self.models or len(self.models) < MODELS_MAX:
            return model
        return OTHERS

    def put(self, waiter: ModelUser) -> None:
        """Register a queued call."""
        if self._settings is not None and waiter.place.model:
            self._model(waiter.place.model).put(waiter)

    def remove(self, waiter: ModelUser) -> None:
        """Forget a call that is no longer queued."""
        model = self.models.get(waiter.place.model)
        if model is not None:
            model.remove(waiter)
            self._forget(waiter.place.model)

    # ---- who may go ----

    def may(self, name: str) -> bool:
        """Return True if a call of this model may be dispatched, as far as memory is concerned."""
        if self._settings is None or not name:
            return True
        return self._fits(name) and name != self._yielding

    @property
    def can_change(self) -> bool:
        """There is room for another model, or one that is idle."""
        assert self._settings is not None
        return len(self.loaded) < self._settings.models or any(not one.inflight for one in self.loaded.values())

    def in_memory(self) -> Container[str]:
        """Return the models whose calls go without a change; no model is one of them."""
        return {"", *self.loaded} - {self._yielding}

    def wanted(self) -> Container[str]:
        """Return the models whose calls may be next."""
        return {"", *self.models} - {self._yielding}

    def claims(self, now_ns: int) -> list[str]:
        """Return the models that were passed for too long, the longest first. Nobody yields from now on: see `hold`."""
        self._yielding = None
        due: list[tuple[int, str]] = []
        for name, model in self.models.items():
            claims_ns = model.claims_ns() if name not in self.loaded else None
            if claims_ns is not None and claims_ns <= now_ns:
                due.append((claims_ns, name))
        return [name for _, name in sorted(due)]

    def make_room(self) -> bool:
        """Return True if another model can be loaded.

        Otherwise the loaded model with the fewest calls in flight, then the least recently granted, accepts no calls
        until it can.
        """
        if self.can_change:
            return True
        self._yielding = min(self.loaded, key=lambda name: self.loaded[name].inflight)
        return False

    def on_passed(self, waiter: ModelUser, now_ns: int) -> None:
        """Record that the model of the next call cannot be loaded."""
        model = self.models[waiter.place.model]
        if waiter.treatment.affinity_ns is None and model.passed_ns is None:
            model.passed_ns = now_ns

    # ---- who goes ----

    def swap_ns(self, name: str, now_ns: int) -> int:
        """Return the time by which loading the model delays the answer of a call dispatched now."""
        if self._settings is None or not name:
            return 0
        model = self.loaded.get(name)
        if model is not None and model.used_ns is not None and (model.inflight or now_ns - model.used_ns < KEEP_NS):
            return 0
        return self._settings.swap_ns

    def take(self, name: str, now_ns: int) -> None:
        """Note that a call of the model is dispatched, and load the model if need be."""
        if self._settings is None or not name:
            return
        model = self.loaded.pop(name, None)
        if model is None:
            if len(self.loaded) >= self._settings.models:
                self._unload(next(one for one, other in self.loaded.items() if not other.inflight), now_ns)
            model = self._model(name)
            model.used_ns = model.passed_ns = self._yielding = None
        elif model.used_ns is not None and not model.inflight and now_ns - model.used_ns >= KEEP_NS:
            model.used_ns = None  # it is loaded anew
        self.loaded[name] = model
        model.inflight += 1

    def on_answered(self, name: str, now_ns: int) -> None:
        """Record that the model has begun to answer a call in flight."""
        if (model := self.loaded.get(name)) is not None:
            model.used_ns = now_ns

    def give_back(self, name: str, now_ns: int) -> None:
        """Note that an attempt with the model is over."""
        model = self.loaded.get(name)
        if model is None:
            return
        model.inflight -= 1
        assert model.inflight >= 0
        if model.used_ns is not None:
            model.used_ns = now_ns
        self.trim(now_ns)

    # ---- the books ----

    def _fits(self, name: str) -> bool:
        return name in self.loaded or self.can_change

    def _model(self, name: str) -> _Model:
        if name not in self.models:
            self.models[name] = _Model(self._away_ns.get(name, 0))
        return self.models[name]

    def _unload(self, name: str, now_ns: int) -> None:
        self.loaded.pop(name).away_ns = now_ns
        self._away_ns.pop(name, None)
        self._away_ns[name] = now_ns
        if len(self._away_ns) > MODELS_MAX:
            del self._away_ns[next(iter(self._away_ns))]
        self._forget(name)

    def _forget(self, name: str) -> None:
        """Nobody waits for it and it is not in memory."""
        if name not in self.loaded and not self.models[name].waiting:
            del self.models[name]
