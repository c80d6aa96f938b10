"""The style of the page: light or dark, as the reader's system is."""

STYLE = """
:root { color-scheme: light dark; --text: #1b2733; --soft: #5b6b7a; --back: #fff; --card: #f4f7f9; --line: #d8e0e6;
  --hot: #d9532c; --warm: #e9a23b; --cool: #58a5c9; --cold: #24618e; --mark: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --text: #e3eaf0; --soft: #95a5b3; --back: #12181e; --card: #1a232b;
  --line: #2f3c47; --hot: #e4724e; --warm: #e0a64f; --cool: #5fb0d4; --cold: #3f86bd; --mark: #ff8a80; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); margin: 0 auto;
  max-width: 1180px; padding: 24px; }
h1 { font-size: 26px; margin: 0; } h2 { font-size: 19px; margin: 36px 0 6px; } h3 { font-size: 15px; margin: 0; }
p { margin: 4px 0 10px; max-width: 80ch; } .soft { color: var(--soft); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(180px, 1fr)); gap: 12px; margin: 20px 0; }
.figure, .card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 12px 14px; }
.figure b { display: block; font-size: 24px; line-height: 1.3; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 10px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { font-weight: 600; color: var(--soft); font-size: 13px; white-space: normal; vertical-align: bottom; } th:first-child, td:first-child { text-align: left; }
td.text, th.text { text-align: left; white-space: normal; } a { color: var(--cold); }
@media (prefers-color-scheme: dark) { a { color: var(--cool); } }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(330px, 1fr)); gap: 12px; }
svg.bar { width: 200px; height: 14px; display: block; border-radius: 3px; } svg.curve { width: 100%; display: block; }
.hot { fill: var(--hot); } .warm { fill: var(--warm); } .cool { fill: var(--cool); } .cold { fill: var(--cold); }
.unknown { fill: var(--line); } .grid { stroke: var(--line); } .tick { fill: var(--soft); font-size: 10px; }
.line { fill: none; stroke: var(--cold); stroke-width: 2; } .dot { fill: var(--cold); }
.mark { stroke: var(--mark); stroke-width: 1.5; stroke-dasharray: 4 3; }
.legend span { display: inline-block; margin-right: 14px; } .legend i { display: inline-block; width: 11px;
  height: 11px; border-radius: 2px; margin-right: 5px; } i.hot { background: var(--hot); }
i.warm { background: var(--warm); } i.cool { background: var(--cool); } i.cold { background: var(--cold); }
i.unknown { background: var(--line); }
"""
