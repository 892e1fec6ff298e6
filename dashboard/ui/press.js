(...values) => window.fsd.act($NAME$, values, null, $SECRET$)
