// What a person typed or did and no answer came to, kept by the browser until one does: for one person of one
// installation, at one address. Signing out erases all that is kept for them. The page says what of it is there.
window.fsdDrafts = (() => {
  const LASTING_MS = 3600000;  // for which an act is sent again
  const FORGOTTEN_MS = 30 * 86400000;
  const WRITING_MS = 350;  // in which Gradio has written what an answer fills in
  const {content: person = '', dataset: {installation = ''} = {}} = document.querySelector('meta[name="fsd-person"]') ?? {};
  const mine = `fsd ${installation} ${person} `, opened = Date.now();
  const told = {sent: [], lost: [], late: [], here: [], changed: []};
  const bases = {};  // what fields held before somebody typed, by their names
  let texts = {};  // names of fields by the ids of their blocks
  let over = false, box = null, away = null, toldOf = 0, last = 0, address = window.location.pathname + window.location.search;

  const names = (storage, prefix) => {
    try { return Object.keys(window[storage]).filter((name) => name.startsWith(mine + prefix)); } catch { return []; }
  };
  const read = (storage, name) => { try { return JSON.parse(window[storage].getItem(name)); } catch { return null; } };
  const write = (storage, name, value) => {
    try {
      if (value === null) window[storage].removeItem(name);
      else if (!over) window[storage].setItem(name, JSON.stringify(value));
    } catch { /* kept nowhere */ }
  };

  // What outlasts a page, by its path: in its tab alone, or in all tabs.
  const stored = (storage, name) => read(storage, `${mine}${name} ${window.location.pathname}`);
  const store = (storage, name, value) => write(storage, `${mine}${name} ${window.location.pathname}`, value);

  for (const name of names('localStorage', '')) {
    if (opened - read('localStorage', name)?.at > FORGOTTEN_MS) write('localStorage', name, null);
  }

  // What is kept at an address: drafts by the names of their fields, acts by their keys.
  const here = () => window.location.pathname + window.location.search;
  const keep = (kind, name, value) => write('localStorage', `${mine}${kind} ${address} ${name}`, value);
  const kept = (kind) => {
    const place = `${kind} ${address} `;
    return names('localStorage', place).map((name) => [name.slice((mine + place).length), read('localStorage', name)]);
  };
  // What is chosen changes a page's address: what is kept goes along.
  const follow = () => {
    if (address === here()) return;
    const along = ['draft', 'act'].flatMap((kind) => kept(kind).map((one) => [kind, ...one]));
    for (const [kind, name] of along) keep(kind, name, null);
    address = here();
    for (const one of along) keep(...one);
  };

  const erase = () => {
    over = true;
    for (const storage of ['localStorage', 'sessionStorage']) for (const name of names(storage, '')) write(storage, name, null);
  };
  document.addEventListener('submit', ({target}) => {
    if (!/logout$/.test(target.action)) return;
    store('localStorage', 'signed out', true);  // the other tabs hear of it
    erase();
  }, true);
  window.addEventListener('storage', ({key, newValue}) => { if (key?.startsWith(`${mine}signed out `) && newValue) erase(); });

  const nameOf = (field) => field.dataset?.draft ?? texts[field.closest?.('.block')?.id];
  const fieldOf = (name) => [...document.querySelectorAll('textarea, input')].find((field) => nameOf(field) === name);
  const draft = (name) => read('localStorage', `${mine}draft ${address} ${name}`);
  const drop = (name) => {
    keep('draft', name, null);
    told.here = told.here.filter((one) => one !== name);
  };
  document.addEventListener('focusin', ({target}) => {
    const name = nameOf(target);
    if (name) bases[name] ??= draft(name)?.base ?? target.value;
  });
  document.addEventListener('input', ({target}) => {
    const name = nameOf(target), base = bases[name] ?? '';
    if (name) target.value === base ? drop(name) : keep('draft', name, {text: target.value, base, at: Date.now()});
  }, true);

  // Fills in what was typed before the page was opened, once its fields are there and an answer has filled them in.
  const restore = () => setTimeout(() => {
    for (const [name, {text, base, at}] of kept('draft').sort(([, a], [, b]) => a.at - b.at)) {
      if (at >= opened || name in bases) continue;
      const field = fieldOf(name);
      if (!told.here.includes(name)) told.here.push(name);
      if (!field) continue;
      bases[name] = base;
      if (field.value === text) drop(name);
      else if (field.value && field.value !== base) told.changed.push([name, text]);
      else {
        field.value = text;
        field.dispatchEvent(new Event('input', {bubbles: true}));
      }
    }
    tell();
  }, WRITING_MS);

  // The acts that no answer came to before the page was opened, in their order.
  const acts = () => {
    const all = kept('act').map(([key, act]) => ({...act, key, restored: true})).sort((a, b) => a.at - b.at);
    const late = all.filter(({at}) => opened - at > LASTING_MS);
    for (const {key, name} of late) { keep('act', key, null); told.late.push(name); }
    return all.filter((one) => !late.includes(one));
  };
  const keepAct = ({key, name, data}) => {
    last = Math.max(Date.now(), last + 0.001);
    keep('act', key, {name, data, at: last});
  };

  // An act was answered. What was typed for it is a draft no more, unless it was refused.
  const answered = ({key, name, data, restored}, refused) => {
    keep('act', key, null);
    const given = Object.values(data ?? {}), used = kept('draft').filter(([, {text}]) => given.includes(text));
    for (const [field, {text}] of used) {
      if (refused) { if (!fieldOf(field)) told.here.push(field); continue; }
      drop(field);
      bases[field] = text;
    }
    if (restored && !refused) told.sent.push(name);
    tell();
  };
  const unanswered = ({key, name}) => {
    keep('act', key, null);
    told.lost.push(name);
    tell();
  };

  // Sentences below the header. They are texts, never HTML.
  const listed = (all) => new Intl.ListFormat('en').format(new Set(all.map((name) => name.split('#')[0])));
  const SENTENCES = {
    sent: (all) => `Sent now that the page is here again: ${listed(all)}.`,
    lost: (all) => `No answer came to: ${listed(all)}. See whether it was done before you do it again.`,
    late: (all) => `Not sent, because more than an hour has passed: ${listed(all)}.`,
    here: (all) => `Still here, and not sent: ${listed(all)}.`,
    changed: (all) => all.map(([name, text]) => `${listed([name])} was changed meanwhile. You had typed: “${text}”.`).join(' '),
  };
  const add = (parent, tag, text, more) => {
    parent.append(' ');
    return parent.appendChild(Object.assign(document.createElement(tag), {textContent: text, ...more}));
  };
  const say = (tone, sentence) => {
    const said = document.createElement('p');
    said.className = `fsd-notice fsd-still ${tone}`;
    said.setAttribute('role', tone ? 'alert' : 'status');
    said.textContent = sentence;
    put(said);
    return said;
  };
  // Gradio may draw the header later, or anew.
  const put = (said) => {
    if (said.dataset.put && said !== box && said !== away) return;
    if (!said.isConnected) document.querySelector('.fsd-head, .fsd-html')?.after(said);
    said.dataset.put = 'yes';
    setTimeout(put, WRITING_MS, said);
  };
  const tell = () => {
    const sentences = Object.entries(told).filter(([, all]) => all.length).map(([kind, all]) => SENTENCES[kind](all));
    if (box?.dataset.said === sentences.join(' ')) return;
    box?.remove();
    box = sentences.length ? say('', sentences.join(' ')) : null;
    if (!box) return;
    box.dataset.said = sentences.join(' ');
    add(box, 'button', 'Close', {type: 'button', onclick: () => {
      for (const [name] of told.changed) drop(name);
      for (const kind of Object.keys(told)) told[kind] = [];
      tell();
    }});
  };

  // The server takes the page's person for somebody else, or for nobody. The page leads to signing in, and back.
  const lead = (displayed) => {
    for (const one of document.querySelectorAll('.fsd-person')) one.style.visibility = displayed ? '' : 'hidden';
  };
  const leave = async (status) => {
    lead(false);
    if (away && toldOf === status) return;
    away?.remove();  // somebody else may sign in after this one was signed out
    toldOf = status;
    const name = document.querySelector('.fsd-person span')?.textContent;
    away = say('warn', `You are no longer signed in here${name ? ` as ${name}` : ''}.${over ? '' : ' What you typed is kept in this browser, for you alone.'}`);
    const said = away, page = `/${window.location.pathname.split('/').pop()}${window.location.search}`;
    store('sessionStorage', 'returning', true);
    const {ok} = await window.fetch('login').catch(() => ({}));
    if (ok) add(said, 'a', 'Sign in and come back', {href: `login?next=${encodeURIComponent(page)}`});
    if (!ok || status === 403) add(said, 'a', ok ? 'Go on as whoever is signed in' : 'Load the page again', {href: here()});
  };
  const back = () => {
    if (!away) return false;
    away.remove();
    away = null;
    over = false;
    lead(true);
    store('sessionStorage', 'returning', null);
    return true;
  };
  const returning = () => {
    const returned = Boolean(stored('sessionStorage', 'returning'));
    store('sessionStorage', 'returning', null);
    return returned;
  };

  const open = (fields) => { texts = fields ?? {}; };
  const discard = (name) => { drop(name); tell(); };
  return {person, stored, store, follow, open, returning, draft, discard, restore, acts, keepAct, answered, unanswered, leave, back};
})();
