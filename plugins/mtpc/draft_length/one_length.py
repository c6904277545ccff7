"""Copying where all drafts of a batch have one length, chosen before anything is drafted."""

from __future__ import annotations

from collections.abc import Sequence

from mtpc.draft_length.batch import HOPEFUL, BatchCopying, believed_of
from mtpc.draft_length.choice import Common, best_common_length

Way = Sequence[int]  # how many tokens the drafter drafts itself where each draft is to have so many, from none on


class OneLength(BatchCopying):
    """For an engine whose drafts are of one shape: `common_length` and `drafted` in the place of `lengths`."""

    def common_length(self, longest: int, ways: Sequence[Way]) -> tuple[Way, int]:
        """Where all drafts have one length: the way and the length that pay, chosen before the drafter drafts; 0: none.

        ways: in which drafts may be made, the first of them where none is.
        """

        def best(way: Way, worth: float) -> Common:
            foreseen, spent = self._foreseen(way[longest], longest), [self._spent(own) for own in way[: longest + 1]]
            believed = believed_of(way[longest])
            return best_common_length(foreseen, longest, self.prices, spent, worth, self._trusted(believed))

        way, length = ways[0], 0
        if not self._undrafted:
            found = [(best(each, self._worth), each) for each in ways]
            (length, rate), way = max(found, key=lambda one: one[0].rate)
            passed_over = next((each for each in ways if each[longest] and not (length and each is way)), None)
            if passed_over is not None and best(passed_over, 0.0).rate >= HOPEFUL * rate and self._tried():
                way, length = passed_over, passed_over[min(passed_over[0] + self.own.tried(longest), longest)]
        own = way[longest]
        if self._many:
            self._expect({believed_of(own): self._foreseen(own, longest)}, [length] * len(self.batch))
        return way, length

    def drafted(self, drafts: Sequence[list[int]], own: int, share: float) -> None:
        """What was drafted of the rows of the batch with a common length, to see how often it is right.

        own: tokens of each that the drafter has drafted.  share: of the time of the drafter's whole draft, what it took
        beyond what it takes in any step.
        """
        for request, tokens in zip(self.batch, drafts, strict=True):
            if request is not None:
                request.drafted(tokens[:own], [])
        self._hand_out([len(tokens) for tokens in drafts], share)
