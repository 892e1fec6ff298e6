// Returns the next number of settings.
(number) => Math.min($MOST$, Math.max(1, (number || 1) + $STEP$))
