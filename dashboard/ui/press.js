(...values) => window.fsd.act($NAME$, values)
