// Returns the chosen example, or the current prompt if none is chosen.
(example, prompt) => example || prompt
