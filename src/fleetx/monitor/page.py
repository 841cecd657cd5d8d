"""The frame of report pages: style for light and dark mode, tables.

A page is one self-contained file, without scripts; user-supplied text is escaped.
"""

from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
:root {
  --back: #f6f7f9; --card: #ffffff; --text: #1d2430; --quiet: #647083; --line: #dde2ea;
  --warn: #fff4e0; --warn-line: #e5a53a; --good: #e9f6ee; --good-line: #4aa56c;
  --c0: #1f6fd1; --c1: #d9680f; --c2: #16905f; --c3: #a03fb0; --c4: #9a7b00; --c5: #c0304a;
  --c6: #9fb3c8;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #12161d; --card: #1b212b; --text: #e4e8ee; --quiet: #98a4b5; --line: #323b49;
    --warn: #3a2d14; --warn-line: #d6993a; --good: #173023; --good-line: #4aa56c;
    --c0: #6cb0ff; --c1: #ff9d55; --c2: #4fd09a; --c3: #d78be6; --c4: #e0c04a; --c5: #ff7d92;
    --c6: #56657a;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 48px; display: grid; gap: 16px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); }
main > h1, main > p, main > ul, .tiles, .wide { grid-column: 1 / -1; }
h1 { font-size: 26px; margin: 0; }
h2 { font-size: 17px; margin: 0 0 4px; }
h3 { font-size: 14px; margin: 12px 0 2px; }
p { margin: 0 0 8px; }
main > p { margin: -12px 0 0; overflow-wrap: anywhere; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 16px 18px; min-width: 0; }
.quiet { color: var(--quiet); font-size: 13px; }
.empty { color: var(--quiet); }
.problems { margin: 0; padding: 10px 14px 10px 32px; background: var(--warn);
  border: 1px solid var(--warn-line); border-radius: 10px; }
.tiles { display: grid; gap: 12px; grid-template-columns: repeat(auto-fit, minmax(128px, 1fr)); }
.tiles div { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 10px 14px; }
.tiles b { display: block; font-size: 20px; font-variant-numeric: tabular-nums; }
.tiles span { color: var(--quiet); font-size: 13px; }
.verdict { padding: 9px 13px; border-radius: 8px; background: var(--good);
  border-left: 4px solid var(--good-line); }
.verdict.slow { background: var(--warn); border-color: var(--warn-line); }
.two { display: grid; gap: 8px 24px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); }
.two > div { min-width: 0; display: flex; flex-direction: column; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 0 0 6px;
  padding: 0; font-size: 13px; }
.key { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 6px;
  background: var(--c); }
svg { width: 100%; height: auto; display: block; overflow: visible; }
svg text { fill: var(--text); font-size: 12px; font-family: inherit; }
svg text.quiet { fill: var(--quiet); }
.end { text-anchor: end; }
.middle { text-anchor: middle; }
.grid { stroke: var(--line); }
.axis { stroke: var(--quiet); }
.line { fill: none; stroke: var(--c); stroke-width: 2; stroke-linejoin: round; }
.dot, .bar { fill: var(--c); }
.column { fill: transparent; }
.column:hover { fill: var(--quiet); fill-opacity: 0.14; }
.s0 { --c: var(--c0); }
.s1 { --c: var(--c1); }
.s2 { --c: var(--c2); }
.s3 { --c: var(--c3); }
.s4 { --c: var(--c4); }
.s5 { --c: var(--c5); }
.s6 { --c: var(--c6); }
svg tspan { font-size: 10px; }
pre { margin: 0; overflow-x: auto; }
.scroll { overflow-x: auto; margin-top: 8px; }
table { border-collapse: collapse; width: 100%; font-size: 14px;
  font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 6px 14px 6px 0; border-bottom: 1px solid var(--line); }
th { color: var(--quiet); font-weight: 600; white-space: nowrap; }
tbody tr:last-child td { border-bottom: 0; }
tr.slow td { font-weight: 600; }
td.off { color: var(--c5); font-weight: 600; }
.facts td { overflow-wrap: anywhere; }
.facts td:first-child { color: var(--quiet); white-space: nowrap; width: 1%; }
"""


def document(title: str, body: str, head: str = "") -> str:
    """Return a page with this title and body; `head` is added to its head."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title>{head}<style>{STYLE}</style></head>\n"
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def section(title: str, content: str) -> str:
    """Return a section of the page's full width."""
    return f'<section class="wide"><h2>{title}</h2>{content}</section>'


def row(cells: Sequence[str], kind: str = "", off: Sequence[int] = ()) -> str:
    """Return a row of a table of this class; cells at the indices `off` are highlighted."""
    attribute = f' class="{kind}"' if kind else ""
    made = (
        f'<td class="off">{escape(cell)}</td>' if i in off else f"<td>{escape(cell)}</td>"
        for i, cell in enumerate(cells)
    )
    return f"<tr{attribute}>{''.join(made)}</tr>"


def table(heads: Sequence[str], rows: Iterable[str]) -> str:
    """Return a table that scrolls on narrow screens."""
    titles = "".join(f"<th>{escape(head)}</th>" for head in heads)
    return (
        f'<div class="scroll"><table><thead><tr>{titles}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def facts_table(facts: dict[str, str]) -> str:
    """Return a table of names and values."""
    rows = "".join(row(pair) for pair in facts.items())
    return f'<div class="scroll"><table class="facts"><tbody>{rows}</tbody></table></div>'
