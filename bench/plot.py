"""The rows of a result (report.row) as one SVG: a panel a row, a bar a contender, a dashed line where the bar to meet is."""

from xml.sax.saxutils import escape

WIDTH, MARGIN, COLUMNS = 470, 16, 2
TITLE, LINE, GAP = 20, 17, 14  # heights
NAMES, VALUES = 175, 80  # widths to the left and right of the bars
OURS, PEERS = "#1a6b8a", "#b8bec4"
STYLE = "text{font:11px sans-serif;fill:#222}.t{font-weight:600}.v{fill:#555}.m{stroke:#c0392b;stroke-width:1.5;stroke-dasharray:3 2}.s{stroke:#444;stroke-width:1}"


def bars(row):
    """(name, median, least, most) of each contender, ours first."""
    yield "holdfast", row["holdfast"], row["spread"]["least"], row["spread"]["most"]
    for name, median in row["peers"].items():
        yield name, median, row["peer_spreads"][name]["least"], row["peer_spreads"][name]["most"]


def height(row):
    return TITLE + LINE * (1 + len(row["peers"])) + GAP


def panel(row, x, y):
    most = max([row["bar"] or 0, *(b[3] for b in bars(row))]) or 1
    room = WIDTH - NAMES - VALUES

    def at(value):
        return round(x + NAMES + room * max(0.0, value) / most, 1)

    verdict = {None: "", True: " ✓", False: " ✗"}[row["met"]]
    title = ", ".join(filter(None, [row["what"], row["unit"]])) + verdict
    yield f'<text class="t" x="{x}" y="{y + 12}">{escape(title)}</text>'
    top = y + TITLE
    for i, (name, median, least, greatest) in enumerate(bars(row)):
        line = top + LINE * i
        yield f'<text x="{x + NAMES - 6}" y="{line + 11}" text-anchor="end">{escape(name)}</text>'
        yield f'<rect x="{x + NAMES}" y="{line + 2}" width="{max(1, at(median) - x - NAMES):.1f}" height="{LINE - 5}" fill="{PEERS if i else OURS}"/>'
        yield f'<line class="s" x1="{at(least)}" x2="{at(greatest)}" y1="{line + 8}" y2="{line + 8}"/>'
        yield f'<text class="v" x="{max(at(median), at(greatest)) + 5}" y="{line + 11}">{median:g}</text>'
    if row["bar"] is not None:
        yield f'<line class="m" x1="{at(row["bar"])}" x2="{at(row["bar"])}" y1="{top - 1}" y2="{top + LINE * (1 + len(row["peers"])) - 2}"/>'


def svg(title, rows):
    columns, whole = [[]], sum(map(height, rows))
    for row in rows:
        if len(columns) < COLUMNS and sum(map(height, columns[-1])) >= whole / COLUMNS:
            columns.append([])
        columns[-1].append(row)
    width = MARGIN + (WIDTH + MARGIN) * len(columns)
    tall = 2 * MARGIN + 20 + max(sum(map(height, column)) for column in columns)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {tall}" width="{width}" height="{tall}"><style>{STYLE}</style>',
           f'<rect width="{width}" height="{tall}" fill="#fff"/><text class="t" x="{MARGIN}" y="{MARGIN + 10}" style="font-size:13px">{escape(title)}</text>']
    for i, column in enumerate(columns):
        y = MARGIN + 26
        for row in column:
            out += panel(row, MARGIN + i * (WIDTH + MARGIN), y)
            y += height(row)
    return "\n".join([*out, "</svg>"]) + "\n"
