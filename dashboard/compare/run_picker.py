"""Which runs are compared: a list to tick, by experiment, where a run is called by what tells it from others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from dashboard.ui.components import escape
from fsd_core.formatting import count

if TYPE_CHECKING:
    from fsd_core.storage.records import RunName, RunView

    Offered = Sequence[RunName | RunView]

ALONE = "Runs without an experiment"
LONGEST_WAIT = 400
"""milliseconds after the last tick until the page follows"""

# What is ticked is known to the browser, which keeps the order of ticking; the page follows a moment after the last
# tick, and does not draw the list anew.
PICK = r"""let chosen = [], timer = null;
const boxes = () => [...element.querySelectorAll('input[type=checkbox]')];
const read = () => { chosen = (element.querySelector('.pick')?.dataset.chosen || '').split(',').filter(Boolean); };
const tell = () => {
  const said = element.querySelector('.pick-said');
  if (said) said.textContent = `${chosen.length} ${chosen.length === 1 ? 'run' : 'runs'} chosen`;
};
const tick = (box, on) => {
  box.checked = on;
  chosen = chosen.filter((id) => id !== box.value);
  if (on) chosen.push(box.value);
};
const follow = () => {
  tell();
  clearTimeout(timer);
  timer = setTimeout(() => trigger('click', {ids: chosen}), WAIT);
};
element.addEventListener('change', (event) => {
  if (event.target.type !== 'checkbox') return;
  tick(event.target, event.target.checked);
  follow();
});
element.addEventListener('click', (event) => {
  const button = event.target.closest('button[data-pick]');
  if (!button) return;
  const group = [...button.closest('fieldset').querySelectorAll('label:not([hidden]) input')];
  const on = !group.every((box) => box.checked);
  group.forEach((box) => { if (box.checked !== on) tick(box, on); });
  follow();
});
element.addEventListener('input', (event) => {
  if (event.target.type !== 'search') return;
  const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  let any = false;
  for (const group of element.querySelectorAll('fieldset')) {
    let some = false;
    for (const label of group.querySelectorAll('label')) {
      const text = `${label.dataset.words} ${group.dataset.words}`.toLowerCase();
      label.hidden = !words.every((word) => text.includes(word));
      some ||= !label.hidden;
    }
    group.hidden = !some;
    any ||= some;
  }
  element.querySelector('.pick-none').hidden = any;
});
watch('value', read);
read();""".replace("WAIT", f"{LONGEST_WAIT}")


def picker_html(offered: Offered, chosen: Sequence[str]) -> str:
    """The list, folded away where something is chosen; ``chosen`` are ids."""
    if not offered:
        return ""
    ticked = set(chosen)
    groups = [list(group) for _, group in groupby(offered, key=_group)]
    tasks = len({run.task for run in offered}) > 1
    inner = "".join(_fieldset(group, ticked, tasks) for group in groups)
    return (
        f'<details class="pick" data-chosen="{escape(",".join(chosen))}"{"" if chosen else " open"}><summary>'
        f'<b>Runs</b> <span class="pick-said">{count(len(chosen), "run")} chosen</span></summary>'
        '<input type="search" aria-label="Search runs" placeholder="Search by setting, task or experiment">'
        f'<div class="pick-list">{inner}</div><p class="pick-none" hidden>No run matches: search for less.</p>'
        "</details>"
    )


def _group(run: RunName | RunView) -> tuple[str, str]:
    """Runs of one experiment were made in one moment."""
    return (run.experiment_name, f"{run.created_at:%d %b %H:%M}") if run.experiment_name else (ALONE, "")


def _fieldset(runs: Offered, ticked: set[str], tasks: bool) -> str:
    name, moment = _group(runs[0])
    names = short_names(runs, tasks)
    labels = "".join(
        f'<label data-words="{escape(f"{names[run.id]} {run.task} {run.id}")}"><input type="checkbox" value="{run.id}"'
        f"{' checked' if run.id in ticked else ''}><span>{escape(names[run.id])}</span></label>"
        for run in runs
    )
    return (
        f'<fieldset data-words="{escape(name)}"><legend>{escape(name)} <span class="fsd-faded">{escape(moment)}'
        f'</span> <button type="button" class="fsd-act" data-pick="all" aria-label="All of {escape(name)}">All</button>'
        "</legend>"
        f'<div class="pick-runs">{labels}</div></fieldset>'
    )


def short_names(runs: Offered, tasks: bool) -> dict[str, str]:
    """A name for each run of a group by its id: the setting, and of task, seed, time and id what tells it apart."""
    names = {run.id: run.label + (f" · {run.task}" if tasks else "") for run in runs}
    for more in (
        lambda run: f"seed {run.seed}",
        lambda run: f"{run.created_at:%d %b %H:%M}",
        lambda run: run.id[:6],
    ):
        seen = Counter(names.values())
        names = {run.id: names[run.id] + (f" · {more(run)}" if seen[names[run.id]] > 1 else "") for run in runs}
    return names
