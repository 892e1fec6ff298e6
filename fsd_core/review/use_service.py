"""Actions on uses: they are made, changed and rolled back."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

from fsd_core.errors import Malformed, NotGiven, Overtaken, Taken, WrongState
from fsd_core.formatting import slug
from fsd_core.review import history
from fsd_core.review.history import Use
from fsd_core.review.log_access import LONGEST_USE_ID, ReviewLog, news_text
from fsd_core.roles import Person, require, require_person
from fsd_core.storage.review_events import AliasMoved, Requirements, UseDescribed


class UseService(ReviewLog):
    """Acts on uses. For the errors and ``key``, see :class:`ReviewService`."""

    def describe(
        self,
        person: Person,
        name: str,
        description: str = "",
        requirements: Requirements | None = None,
        approvals: int = 1,
        days: int | None = None,
        key: str | None = None,
    ) -> Use:
        """Make a use."""
        require(person, "author", "Making a use")
        event = UseDescribed.checked(
            name=name.strip(),
            description=description.strip(),
            requirements=requirements or Requirements(),
            approvals=approvals,
            days=days,
        )
        id = id_of(event.name)
        if not self._stored(key, id, person, event.as_json()):
            if log := self.repository.review_log(id):
                raise Taken(f"There is a use of the name “{history.use(id, log).name}” already: choose another name.")
            self._append(id, person, [event], 0, key)
        return self.use(id)

    def change_use(
        self, person: Person, use_id: str, changes: Mapping[str, Any], seen: int, key: str | None = None
    ) -> Use:
        """Change parts of a use: fields of ``UseDescribed``, with some of the ``requirements`` by name.

        Open proposals are held against the new requirements, so verdicts on them become stale, as does the approval
        in force. Raises ``Overtaken`` if somebody changed the use after the log entry ``seen``.
        """
        require_person(person, "admin", "Changing a use")
        use = self.use(use_id)
        former = use.described
        asked = {**former.requirements.model_dump(), **(changes.get("requirements") or {})}
        fields = {name: getattr(former, name) for name in UseDescribed.model_fields if name != "kind"}
        fields |= {**changes, "requirements": Requirements.named(asked)}
        event = UseDescribed.checked(**{n: v.strip() if isinstance(v, str) else v for n, v in fields.items()})
        if self._stored(key, use_id, person, event.as_json()):
            return use
        if use.described_at > seen:
            raise Overtaken(news_text([logged for logged in use.log if logged.sequence == use.described_at]))
        if event == former:
            raise WrongState("The use asks for this already: change something first.")
        self._append(use_id, person, [event], use.sequence, key)
        return self.use(use_id)

    def roll_back(self, person: Person, use_id: str, comment: str, seen: int, key: str | None = None) -> str | None:
        """Move the alias ``approved`` back to its previous setting and return that setting."""
        require_person(person, "admin", "Rolling back")
        use = self.use(use_id)
        if stored := self._stored(key, use_id, person, {"kind": "alias-moved", "comment": comment.strip()}):
            return getattr(stored.event, "setting", None)
        if seen != use.sequence:
            taken_back = "Nothing is approved here since this page was shown: the log below says who took it back."
            raise Overtaken(news_text(use.log[seen:]) if use.named("approved") else taken_back)
        if not comment.strip():
            raise NotGiven("Say why it is rolled back: a comment is needed.")
        if use.named("approved") is None:
            raise WrongState("Nothing is approved for this use, so nothing can be rolled back.")
        earlier = use.in_force[:-1]  # rolling back twice goes back two steps
        event = AliasMoved.checked(
            alias="approved",
            setting=earlier[-1].setting if earlier else None,
            former=use.named("approved"),
            comment=comment.strip(),
            weights=self._weights_of(use, earlier[-1]) if earlier else {},
        )
        self._append(use_id, person, [event], use.sequence, key)
        return event.setting


def id_of(name: str) -> str:
    """Return the id of a use for URLs: its name in lower-case letters, digits and hyphens."""
    id = slug(unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode(), LONGEST_USE_ID)
    if not id:
        raise Malformed(f"The name “{name[:40]}” has no letter or digit of its own for an address: add one.")
    return id
