// An input event may come before the value that it tells of has reached the other side of the page.
() => new Promise((done) => setTimeout(() => done([]), 40))
