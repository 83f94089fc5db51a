"""decodetop: top for LLM decode. The engine; it never imports the terminal."""

__version__ = "0.1.0"
