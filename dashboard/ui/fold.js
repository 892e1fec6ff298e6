() => window.fsd.want({$NAME$: $OPEN$})
