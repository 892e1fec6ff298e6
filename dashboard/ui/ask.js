(...values) => window.fsd.ask($PLACE$, $KEPT$, ...values)
