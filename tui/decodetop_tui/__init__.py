"""The face: draws State and hands commands to the engine. It measures nothing.

Textual reads these variables when it is first imported, so they are set here, before any module of ours does that.
"""

import os

os.environ.setdefault("TEXTUAL_FPS", "20")
os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
os.environ.setdefault("TEXTUAL_SMOOTH_SCROLL", "0")
