"""Decoding: the plain loop is below, and everything else in this package is what it becomes.

One text, one chain of γ drafts, any acceptance rule (Leviathan et al. 2023, algorithm 1; :mod:`fsd_core.rules` has the
rules). V is the vocabulary, T the tokens so far::

    tokens = prompt                                     # int64 [T]
    while not ended(tokens):
        # draft: the draft model writes γ tokens, one forward each, and keeps what it drew from
        drafted, q = [], []                             # γ tokens, γ distributions [V]
        for _ in range(min(γ, room_left(tokens) - 1)):
            q.append(warp(draft(tokens + drafted)[-1]))
            drafted.append(draw(q[-1], uniform()))

        # score: the target reads all of them in one forward, which costs little more than one token
        logits = target(tokens + drafted)               # float32 [T + γ, V]
        p = warp(logits[T - 1:])                        # [γ + 1, V]: after each prefix, and after all

        # accept: from the left, up to the first token that the rule refuses
        n = 0
        while n < γ and rule.judge(drafted[n], p[n], q[n], uniform()):
            n += 1

        # commit: the accepted tokens and exactly one more, so a round never writes nothing
        if n < γ:
            last = draw(rule.correction(p[n], q[n]), uniform())     # exact: max(0, p − q), normalised
        else:
            last = draw(p[γ], uniform())                            # the bonus token
        tokens = tokens + drafted[:n] + [last]

        # emit: both caches forget what was refused, and the round is recorded
        rollback(len(tokens) - 1)
        record(drafted, n, last, p, q)

The exact rule accepts x with probability min(1, p(x)/q(x)): the text has the target's distribution, whatever the draft
does. A lossy rule accepts more, and ``correction`` says what it draws in place of a refused token.

Where each part is:

- :mod:`.loop` runs this for the texts of a batch, which advance by different amounts. It reads the device once a round.
- Drafting is a drafter (:mod:`fsd_core.drafters`), which answers with distributions, and a topology
  (:mod:`fsd_core.topologies`), which makes a chain, several chains or a tree of them.
- :mod:`.verification` scores and accepts: a chain at every position at once, a tree from its root down.
- :mod:`fsd_core.models.caches` forgets by arithmetic on lengths; of recurrent layers it keeps a checkpoint.
- :mod:`.trace` is the record of a round, from which all metrics are computed.
- :mod:`.decoder` is the entry: a loaded pair, one configuration, texts out; also inside transformers' ``generate``.
- :mod:`.beams` stands beside the loop: beams change their mind, and the loop only appends.
"""
