// What a chosen example fills in; the prompt stays where none is chosen.
(example, prompt) => example || prompt
