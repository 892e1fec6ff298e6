"""Running engines as contenders: asked over HTTP, timed from outside, their counters read before and after.

Nothing here loads a model. Prompts come as token ids, text or messages, whatever an engine takes.
"""
