"""REMEMBERS: applies verdicts atomically, never decides."""
