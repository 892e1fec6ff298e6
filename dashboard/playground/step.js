// Returns the next number of settings. The field may not hold yet what the click before this one returned.
(number) => {
  const {from, to} = window.fsd.stepped ?? {};
  const last = number === from ? to : number || 1;
  window.fsd.stepped = {from: number, to: Math.min($MOST$, Math.max(1, last + $STEP$))};
  return window.fsd.stepped.to;
}
