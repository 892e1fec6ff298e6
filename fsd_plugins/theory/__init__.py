"""The page Theory: what several drafts could accept at best, typed or measured."""
