"""Colours, patterns and the style sheet of the film: readable in colour, in greyscale, on light and on dark pages."""

from __future__ import annotations

from mini_engine.course.figures import BLUE, GREEN, ORANGE, PURPLE, RED, SKY, YELLOW

# Okabe and Ito's colours for requests, in order of arrival: neighbours differ in lightness too, for greyscale. From the
# eighth on they come again, with stripes.
REQUESTS = (SKY, GREEN, YELLOW, RED, ORANGE, BLUE, PURPLE)

LIGHT = "--ink:#1F2933;--card:#fff;--soft:#55606B;--line:#C3CAD1;--ghost:#DDE2E6;--tile:#F1F4F6;--bad:#B00020"
DARK = "--ink:#EEF1F4;--card:#1B2026;--soft:#AEB8C2;--line:#4A545E;--ghost:#38424B;--tile:#262D35;--bad:#FF8A80"

_RULES = """
text{fill:var(--ink)}
.s,.s text{fill:var(--soft)}.b{font-weight:bold}.card{fill:var(--card)}.tile{fill:var(--tile)}
.cell{fill:none;stroke:var(--line)}.box{fill:var(--card)}.ghost{fill:var(--ghost)}.ear{fill:var(--ink)}
.t{fill-opacity:.24;stroke-opacity:.24}.f{stroke:none}.bars path{fill:none}.bars .ghost{stroke:var(--ghost)}.bars .p{stroke:var(--ink)}
.h{fill:url(#hatch);stroke:url(#hatch)}.d{fill:url(#dots);stroke:url(#dots)}.z{stroke:url(#stripes)}.u{fill:url(#waves);stroke:url(#waves)}
.l text,.n text,.c text{fill:#111;stroke:#fff;stroke-width:2.6px;stroke-opacity:.85;paint-order:stroke;stroke-linejoin:round}
.l text,.c text{font-weight:bold}
.g text{fill:var(--soft)}.p{fill:var(--ink)}.pt text{fill:var(--card)}
.v{stroke:var(--soft)}.y{stroke:var(--card);stroke-width:1.2}.new,.bars .new{stroke:#111}
.o{fill:none;stroke:var(--ink);stroke-width:2}.k{stroke-dasharray:4 2.5}
.x{fill:none;stroke:var(--bad);stroke-width:2.5}.bad text{fill:var(--bad);font-weight:bold;stroke:var(--card);stroke-width:3px;paint-order:stroke}
.c0{fill:none;stroke:var(--card);stroke-width:5}.c1{fill:none;stroke:var(--ink);stroke-width:2.2}
"""


def style(theme: str = "auto") -> str:
    """The style sheet. theme: "light", "dark", or "auto", which follows the page that shows the picture."""
    fills = "".join(f".r{number}{{fill:{colour};stroke:{colour}}}" for number, colour in enumerate(REQUESTS))
    colours = f"svg{{{DARK if theme == 'dark' else LIGHT}}}"
    if theme == "auto":
        colours += f"@media(prefers-color-scheme:dark){{svg{{{DARK}}}}}"
    return f"<style>{colours}{_RULES.replace(chr(10), '')}{fills}</style>"


DEFS = (
    '<defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path d="M0 0V5" class="v" stroke-width="1.2"/></pattern>'
    '<pattern id="dots" width="4" height="4" patternUnits="userSpaceOnUse">'
    '<path d="M0 0L4 4M4 0L0 4" class="v" stroke-width=".9"/></pattern>'
    '<pattern id="waves" width="7" height="7" patternUnits="userSpaceOnUse">'
    '<circle class="v" cx="3.5" cy="3.5" r=".7"/></pattern>'
    '<pattern id="stripes" width="4" height="4" patternUnits="userSpaceOnUse">'
    '<path d="M0 1H4" stroke="#fff" stroke-width="1.3"/></pattern>'
    '<marker id="big" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="10" markerHeight="10" orient="auto" '
    'markerUnits="userSpaceOnUse"><path class="ear" d="M0 0L8 4L0 8z"/></marker></defs>'
)


def colour_class(number: int) -> str:
    """The class of the request that came as number 0, 1, 2 ..."""
    return f"r{number % len(REQUESTS)}"


def is_striped(number: int) -> bool:
    """Whether its colour has been given to another request before."""
    return number >= len(REQUESTS) and number // len(REQUESTS) % 2 == 1
