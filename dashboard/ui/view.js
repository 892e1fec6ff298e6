// What the page asks of the server beside its fields: the pages of lists that a person turned to, and what a person has
// done. The event of a page (dashboard/ui/view.py) reads it whenever it asks, so nothing is lost while an answer is
// under way, and the last choice counts.
window.fsd = (() => {
  const MOST_TRIES = 3;
  const WAITS_MS = [200, 1000, 3000];  // before a lost question is asked again
  const FILLING_MS = 50;
  const WRITING_MS = 300;
  const ENTITLING_MS = 200;
  const NO_SERVER = [502, 503, 504, 520, 521, 522, 523, 524];
  const FAILED = [500, ...NO_SERVER];  // answers to what may have been done
  const MOST_ACTS = 100;  // in a question
  const MOST_SENT = 1.5e6;  // characters of what was done; the server takes 2 MB at once
  const drafts = window.fsdDrafts;
  const {stored, store} = drafts;
  const wanted = {};
  const questions = {};  // values of the fields in the questions that are not answered yet, by their numbers
  let acts = [], asked = null, latest = null;
  let number = 0, changes = 0, answered = 0, choices = 0, scripts = 0, clicked = null, form = null, opening = true;

  const newKey = () => [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, '0')).join('');
  // An empty field holds null until it is drawn.
  const filled = (value) => (value === null || value === undefined || value.length === 0 ? '' : value);
  const same = (a, b) => JSON.stringify(filled(a)) === JSON.stringify(filled(b));

  // A list, an opened prompt, and the like: the last one counts.
  const want = (values) => {
    changes += 1;
    for (const [name, value] of Object.entries(values)) wanted[name] = {value, change: changes};
  };

  // What the page wants when it is opened again. The tab's own comes first.
  const remember = (values) => { for (const storage of ['sessionStorage', 'localStorage']) store(storage, 'remembered', values); };

  // What a person did. It is sent until it is answered, also when the page is loaded again, and the server does it once.
  // The same right after it, while it is under way, is its double. What holds a secret is kept by the page alone.
  const act = (name, data, button, secret = false) => {
    if (clicked) clicked.acted = true;
    const last = acts.at(-1);
    if (last && same([last.name, last.data], [name, data])) return;
    if (button) button.disabled = true;
    acts.push({key: newKey(), name, data, button, tries: 0});
    window.fsdSaid.clear();
    if (!secret) drafts.keepAct(acts.at(-1));
  };
  const free = () => { for (const {button} of acts) if (button) button.disabled = false; };

  // From the page that is displayed, or from the one that was asked for last and is not displayed yet.
  const turn = (name, step) => {
    const {of, page} = document.querySelector(`[data-pager="${name}"]`).dataset, last = wanted[name];
    const waiting = last && last.value.of === of && last.change > answered;
    want({[name]: {of, page: Math.max(0, (waiting ? last.value.page : Number(page)) + step)}});
  };

  // What the fields of a form hold, by their places, until the page is opened anew by a link. Lasting ones stay, unless
  // its address says what it begins with.
  const kept = () => stored('sessionStorage', form.name) ?? {};
  const keep = (values) => {
    const own = Object.fromEntries(Object.entries(values).filter(([place]) => form.places.includes(Number(place))));
    if (Object.keys(own).length) store('sessionStorage', form.name, {...kept(), ...own});
  };
  const open = ({name, places, lasting, texts}) => {
    form = {name: `form ${name} ${window.location.search}`, places};
    const [{type} = {}] = performance.getEntriesByType('navigation');
    if (!drafts.returning() && type !== 'reload' && type !== 'back_forward') {
      const stays = ([place]) => !window.location.search && lasting.includes(Number(place));
      store('sessionStorage', form.name, Object.fromEntries(Object.entries(kept()).filter(stays)));
    }
    want(stored('sessionStorage', 'remembered') ?? stored('localStorage', 'remembered') ?? {});
    drafts.open(texts);
    acts.unshift(...drafts.acts().map((one) => ({...one, tries: 0})));
  };

  // Counts the times that the fields held something else than in the last question. The first question waits for none.
  const choose = (places, values) => {
    const differing = asked ? places.map((place, i) => [place, values[i]]).filter(([i, value]) => !same(value, asked[i])) : [];
    if (differing.length) { choices += 1; keep(Object.fromEntries(differing)); }
    return String(choices);
  };

  // Counts the scripts that were run before a question.
  const count = () => String(scripts += 1);

  // What a person may not do is not shown enabled, and says why.
  const bar = (barred) => {
    for (const one of document.querySelectorAll('[data-needs]')) {
      const why = barred[one.dataset.needs];
      one.disabled = Boolean(why);
      if (why) one.title = why; else one.removeAttribute('title');
    }
  };

  // Has the script that draws figures at hand by the time that the first one comes.
  const draws = () => {
    const script = document.querySelector('meta[name="fsd-figures"]');
    if (script && window.gradio_config.components.some(({type}) => type === 'plot')) {
      import(new URL(script.content, document.baseURI)).catch(() => {});
    }
  };

  // Takes note of an answer, once, and returns what it fills in: fields that still hold what was sent. The next question
  // may come before the answer is heard, or before the fields hold what it fills in.
  const take = (answer, values) => {
    const heard = JSON.parse(answer || '{}'), sent = questions[heard.number];
    if (sent) {
      for (const one of Object.keys(questions)) if (Number(one) <= heard.number) delete questions[one];
      latest = {number: heard.number, sent, fill: heard.fill};
      answered = Math.max(answered, heard.changes);
      const url = new URL((heard.address || window.location.pathname) + window.location.hash, window.location.href);
      if (heard.address !== null) window.history.replaceState(window.history.state, '', url);
      drafts.follow();
      for (const one of acts.filter(({key}) => heard.done.includes(key))) {
        if (one.button) one.button.disabled = false;
        drafts.answered(one, heard.kept.includes(one.key));
        if (heard.said[one.key]) window.fsdSaid.say(one.data.id, one.name, heard.said[one.key], one.data.kind);
      }
      acts = acts.filter((one) => !heard.done.includes(one.key));
      if (opening) setTimeout(() => document.getElementById('fsd-first')?.remove(), FILLING_MS);
      if (opening && heard.more) draws();
      opening = false;
      bar(heard.barred);
    }
    if (!latest || latest.number !== heard.number) return {};
    return Object.fromEntries(Object.entries(latest.fill).filter(([i]) => same(values[i], latest.sent[i])));
  };

  // Called before each question to the server, with the fields' values, and the last answer at the place given first.
  const ask = (place, fields, ...values) => {
    if (!form) open(fields);
    const {shown = {}} = JSON.parse(values[place] || '{}');
    const held = values.filter((_, i) => i !== place);
    Object.assign(held, take(values[place], held));
    for (const one of acts.filter(({tries}) => tries === MOST_TRIES)) {
      if (one.button) one.button.disabled = false;
      drafts.unanswered(one);
    }
    acts = acts.filter((one) => one.tries < MOST_TRIES);
    let room = MOST_SENT;
    const sent = acts.slice(0, MOST_ACTS).filter(({data}, i) => (room -= JSON.stringify([data]).length) > 0 || i === 0);
    for (const one of sent) one.tries += 1;
    number += 1;
    questions[number] = held;
    asked = [...held];
    const question = JSON.stringify({
      number, shown, changes, kept: opening ? kept() : {},
      address: Object.fromEntries(new URLSearchParams(window.location.search)),
      wanted: Object.fromEntries(Object.entries(wanted).map(([name, {value}]) => [name, value])),
      acts: sent.map(({key, name, data}) => ({key, name, data})),
    });
    return [...held.slice(0, place), question, ...held.slice(place)];
  };

  // Gradio writes into the fields some moments after it has read them. What is typed between the two is put back.
  let protecting = null;
  const typed = new Map();
  const protect = () => {
    typed.clear();
    clearTimeout(protecting);
    protecting = setTimeout(() => {
      protecting = null;
      for (const [field, value] of typed) {
        if (!field.isConnected || field.value === value) continue;
        field.value = value;
        field.dispatchEvent(new Event('input', {bubbles: true}));
      }
    }, WRITING_MS);
  };
  document.addEventListener('input', ({target}) => {
    if (protecting && target instanceof Element && target.matches('textarea, input')) typed.set(target, target.value);
  }, true);

  // The window is named after what the page shows: a run, a proposal, or the page itself.
  const entitle = () => {
    const heading = [...document.querySelectorAll('h1')].find((one) => one.checkVisibility());
    const title = heading?.firstChild?.textContent.trim();
    if (title) document.title = `${title} – FSD Lab`;
  };

  // Called with each answer and the fields' values. Returns what the fields shall hold.
  const hear = (answer, ...values) => {
    const fill = take(answer, values), heard = latest;
    keep(fill);
    setTimeout(entitle, ENTITLING_MS);
    drafts.restore();
    if (Object.keys(fill).length) protect();
    for (const [i, value] of Object.entries(fill)) if (same(asked[i], heard.sent[i])) asked[i] = value;
    setTimeout(() => { if (latest === heard) latest = null; }, FILLING_MS);
    return values.map((_, i) => fill[i]);
  };

  // After a click that did something, the page may move another button under the pointer: the second click of a double
  // click does not press it. Between the clicks of a double click nothing is typed.
  document.addEventListener('click', (event) => {
    if (!event.detail || !(event.target instanceof Element) || !event.target.closest('button')) return;
    const near = clicked && Math.hypot(event.clientX - clicked.x, event.clientY - clicked.y) < 8;
    const again = near && clicked.acted && event.timeStamp - clicked.at < 500;
    clicked = {x: event.clientX, y: event.clientY, at: event.timeStamp, acted: again};
    if (!again) return;
    event.stopImmediatePropagation();
    event.preventDefault();
  }, true);
  for (const kind of ['input', 'keydown']) document.addEventListener(kind, () => { clicked = null; }, true);

  // A question whose answer is lost is asked again, as it was, of the same server. After that the page takes the server
  // for lost, and is loaded again when there is one.
  const fetched = window.fetch;
  const once = async (request) => {
    try { return await fetched(...request); } catch { return null; }
  };
  const failed = (answer) => !answer || FAILED.includes(answer.status);
  const serverOf = async ({app_id, root, api_prefix}) => {
    const answer = await once([`${root}${api_prefix}/app_id`]), reached = !failed(answer);
    return {reached, same: reached && (await answer.json().catch(() => null))?.app_id === app_id};
  };
  const askAgain = () => {
    const field = document.querySelector('#fsd-scripts :is(input, textarea)');
    if (!field) return;
    field.value = count();
    field.dispatchEvent(new Event('input', {bubbles: true}));
  };
  window.fetch = async (...request) => {
    if (!/\/gradio_api\/run\//.test(String(request[0].url ?? request[0]))) return fetched(...request);
    const headers = new Headers(request[1]?.headers ?? request[0].headers);
    headers.set('FSD-Person', drafts.person);
    const own = [request[0], {...request[1], headers}];
    let answer = await once(own);
    for (const wait of WAITS_MS) {
      if (!failed(answer)) break;
      await new Promise((done) => setTimeout(done, wait));
      const {reached, same} = await serverOf(window.gradio_config);
      if (reached && !same) { answer = null; break; }
      if (reached) answer = await once(own);
    }
    if (!answer || NO_SERVER.includes(answer.status)) throw new TypeError('The server does not answer.');
    if (answer.status === 401 || answer.headers.has('FSD-Person')) {
      drafts.leave(answer.status);
      free();
      for (const one of acts) one.tries = 0;
    } else if (answer.ok && drafts.back()) askAgain();
    return answer;
  };

  return {want, remember, act, turn, count, choose, ask, hear};
})();
