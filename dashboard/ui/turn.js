() => window.fsd.turn($NAME$, $STEP$)
