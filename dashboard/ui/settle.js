// An input event may fire before its value has reached the other side of the page.
() => new Promise((done) => setTimeout(() => done([]), 40))
