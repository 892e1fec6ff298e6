// Returns the chosen example for the prompt, which stays without one.
(example) => example || undefined
